/*
 * Child processes with deadlines. A child is in its own process group, dies with its parent
 * (PR_SET_PDEATHSIG), gets no descriptor but those named, and is always reaped. Ending one means
 * SIGTERM to the group, a grace period, SIGKILL.
 */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct child {
	pid_t pid;  /* 0 when none runs */
	int pidfd;  /* readable when it ended; -1 when none */
	int status; /* waitpid status once reaped */
};

struct child_io {
	int in, out, err; /* descriptors for 0, 1, 2; -1 means /dev/null */
	const int *keep;  /* further descriptors to inherit, under their own numbers */
	size_t keep_count;
	const char *cwd;   /* NULL: ours */
	char *const *envp; /* NULL: ours */
	bool no_pdeathsig; /* for a child whose starter thread may end before it */
};

/*
 * argv[0] is searched in PATH; io NULL means /dev/null for 0, 1 and 2. 0 or -errno; -ENOENT etc. of
 * the exec itself are reported here. The child starts with no signal blocked or ignored.
 */
int child_start(struct child *c, char *const argv[], const struct child_io *io);
/* Waits at most timeout_ms. 0 ended (c->status set), -ETIMEDOUT, -ECHILD (none runs), -errno. */
int child_wait(struct child *c, uint64_t timeout_ms);
/* Ends its group if it runs, waits and reaps. Never fails. grace_ms 0: SIGKILL at once. */
void child_end(struct child *c, uint64_t grace_ms);
void child_done(struct child *c); /* child_end with a short grace; for _cleanup_ */
/* "exit 3", "signal 9 (Killed)". Returns out. */
char *child_describe(int status, char out[64]);

/*
 * Runs argv to its end with stdout and stderr appended to out (may be NULL: inherited). Output past
 * out's limit is dropped and leaves its mark in buf_error(out). What the child left running in its
 * group is killed. Returns the exit code 0..255, 128+signal, -ETIMEDOUT (it was killed) or -errno.
 */
int child_run(char *const argv[], struct buf *out, uint64_t timeout_ms);

#endif
