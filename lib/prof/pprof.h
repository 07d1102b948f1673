/*
 * pprof's profile.proto (google/pprof, proto/profile.proto), gzip'd, both ways. The writer's output
 * opens in `go tool pprof`. Frames map to one Location each with one Line; kind and module travel
 * as Mapping.filename (module) and, for the kind, Function.system_name "KIND:NAME"... see pprof.c's
 * file comment for the whole layout. Facts are comments "flame.KEY=VALUE". Output is the same bytes
 * for the same profile (gzip header without time stamp).
 *
 * The reader takes any tool's pprof (inlined lines become frames), gzip'd or plain, and bounds
 * everything.
 */
#ifndef PROF_PPROF_H
#define PROF_PPROF_H

#include "base/buf.h"
#include "prof/profile.h"

/* 0, or buf's error, or -ENOMEM. */
int pprof_write(const struct profile *p, struct buf *out);
/*
 * memory_max bounds the profile and the inflated size. 0; -EBADMSG (malformed; *why, if not NULL,
 * gets a static one-line reason), -EFBIG (inflates above memory_max), -ENOBUFS, -ENOMEM.
 */
int pprof_read(
	const void *data, size_t size, size_t memory_max, const char **why, struct profile **ret);

#endif
