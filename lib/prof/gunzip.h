/*
 * gzip data (RFC 1952) from strangers, inflated up to a limit.
 */
#ifndef PROF_GUNZIP_H
#define PROF_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

bool gunzip_is(const void *data, size_t size); /* starts with gzip's magic */
/*
 * Appends all members' content to out; what follows the last one is ignored, as gzip(1) does. 0,
 * -EBADMSG (damaged or cut short), -EFBIG (more than out->size_max), -ENOMEM.
 */
int gunzip(const void *data, size_t size, struct buf *out);

#endif
