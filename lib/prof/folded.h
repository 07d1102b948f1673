/*
 * Folded stacks: one line per distinct stack, "root;caller;leaf VALUE". The process name (label
 * "comm") is the root when with_comm is set. ';' and newline in names are escaped as \x3b and \x0a,
 * a backslash as \\, so reading gives the names back. The count is what follows the LAST space.
 *
 * Suffixes by kind, as gProfiler and FlameGraph use them, only when asked: _[k] kernel, _[p]
 * python,
 * _[j] java, ...
 */
#ifndef PROF_FOLDED_H
#define PROF_FOLDED_H

#include <stdbool.h>

#include "base/buf.h"
#include "prof/profile.h"

struct folded_options {
	size_t type;    /* sample type index */
	bool with_comm; /* comm as root frame */
	bool with_suffix;
};

/* Lines sorted by bytes, equal ones merged, zeros left out. 0, buf's error, -ENOMEM, -EINVAL (no
 * such sample type). */
int folded_write(const struct profile *p, const struct folded_options *o, struct buf *out);
/* 0; -EBADMSG with *line (may be NULL) the 1-based line; -ENOBUFS; -ENOMEM. Suffixes set the kind.
 */
int folded_read(
	const void *data, size_t size, size_t memory_max, size_t *line, struct profile **ret);

#endif
