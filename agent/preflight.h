/*
 * What must be true before sampling starts, each with a message that names the cause and the fix.
 * Every check returns 0 or -errno and appends one line to why.
 */
#ifndef AGENT_PREFLIGHT_H
#define AGENT_PREFLIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Capabilities, kernel BTF, the initial PID namespace, cpu-clock perf events. */
int preflight_system(struct buf *why);
/* Each is a process of this machine (not a thread of one). */
int preflight_pids(const uint64_t *pids, size_t count, struct buf *why);
/* The file can be created, or replaced, where it is to be written. Leaves nothing behind. */
int preflight_output(const char *path, struct buf *why);
/* The descriptor was handed to us, open for writing. Call it before opening anything. */
int preflight_ready_fd(int fd, struct buf *why);

#endif
