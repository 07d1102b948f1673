/*
 * The daemon's directory (state-dir):
 *
 *	lock		held (flock) while a daemon runs; its PID, for people
 *	instance	the installation's id, a UUID, made at the first start
 *	commands.json	see commands.h
 *	status.json	what the daemon is doing, written when that changes, for people on the host:
 *			{"schema":"flame-agent-status/1","state":"dormant","text":"","backend":"ok",
 *			 "time_unix_ms":0}; backend has the exact error when it cannot be reached
 *	tables		what unwinding used, from window to window; see tables_text.c
 *	spool/		see spool.h
 */
#ifndef AGENT_DAEMON_STATE_H
#define AGENT_DAEMON_STATE_H

#include <stdint.h>

#include "base/buf.h"

enum { DAEMON_INSTANCE_SIZE = 37 };

/*
 * Makes the directory and takes the lock; the descriptor goes through ret_fd. 0; -EBUSY: another
 * one has it, *ret_pid is its PID or 0; -errno.
 */
int daemon_state_lock(const char *dir, int *ret_fd, int *ret_pid);
/* The id in the file, or a new one that is then in the file. 0 or -errno. */
int daemon_state_instance(const char *dir, char ret[DAEMON_INSTANCE_SIZE]);
/* 0 or -errno. */
int daemon_state_write_status(const char *dir, const char *state, const char *text,
	const char *backend, int64_t time_unix_ms);
/* DIR/NAME. 0 or -ENAMETOOLONG. */
int daemon_state_path(const char *dir, const char *name, struct buf *ret);

#endif
