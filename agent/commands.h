/*
 * Commands from the backend: read from a heartbeat's answer, checked, and remembered by id, so that
 * one that comes again (a lost acknowledgement, a restart of either side) is acknowledged again and
 * never run again.
 *
 * The answer (schema flame-heartbeat-reply/1):
 *	{ "time_unix_ms":0, "interval_s":30, "wanted_version":"",
 *	  "commands":[{"id":"..","kind":"start|stop|change","view":"cpu","frequency_hz":99,
 *	               "duration_s":60,"pids":[],"comms":[],"users":[],"cgroups":[],"containers":[],
 *	               "exclude_pids":[],... "exclude_containers":[],
 *	               "deadline_unix_ms":0,"target":""}] }
 * duration_s 0 is continuous; stop and change name the start command's id in target; frequency_hz 0
 * or absent leaves the rate to the agent; deadline_unix_ms (the backend's clock, 0: none) is when it
 * is too late to begin. users are names or numbers, cgroups paths from / or ids of cgroup2, containers
 * the beginnings of ids; of each kind of filter one must match, cgroups and containers being one kind,
 * and nothing that is excluded may.
 *
 * change says all that the recording is to be from its next window on: what is absent is not as
 * before but as in a start command. Its duration counts from the recording's start. The view stays.
 *
 * The file of what was done (schema flame-agent-commands/1) has the newest COMMANDS_KEPT_MAX:
 *	{ "schema":..., "commands":[{"id":"..","state":"running|done|failed|cancelled","text":"",
 *	  "reported":true,"spec":{the command, while it runs}}] }
 */
#ifndef AGENT_COMMANDS_H
#define AGENT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/filter.h"
#include "base/arena.h"
#include "base/buf.h"

enum {
	COMMANDS_KEPT_MAX = 128,
	COMMANDS_PER_REPLY_MAX = 64,
	COMMANDS_REPLY_BYTES_MAX = 1 << 20,
	COMMANDS_FILTER_MAX = 64, /* entries of one kind of filter of one command */
	COMMANDS_DURATION_MAX_S = 7 * 86400,
	COMMAND_ID_MAX = 64,
	COMMAND_TEXT_MAX = 512,
};

enum command_kind { COMMAND_START, COMMAND_STOP, COMMAND_CHANGE };
enum command_state { COMMAND_RUNNING, COMMAND_DONE, COMMAND_FAILED, COMMAND_CANCELLED };
const char *command_state_name(enum command_state s);

struct command {
	const char *id; /* COMMAND_ID_MAX letters, digits and ._:- */
	enum command_kind kind;
	const char *target; /* stop, change: the start command's id */
	const char *view;
	uint64_t frequency_hz; /* 0: the agent's own */
	uint64_t duration_ns;  /* 0: continuous */
	int64_t deadline_unix_ms;
	struct filter filter;
	const char *problem; /* why it cannot be run, NULL: it can. The id is good all the same */
};

struct commands_reply {
	int64_t time_unix_ms; /* 0: not said */
	uint64_t interval_ns; /* 0: not said */
	const char *wanted_version;
	struct command *commands;
	size_t count;
	size_t refused; /* had no id that could be acknowledged */
};

/*
 * Reads hostile bytes; everything in ret lives in the arena. 0; -EBADMSG with a static one-line *why;
 * -ENOMEM.
 */
int commands_read_reply(const void *json, size_t size, struct arena *a, const char **why,
	struct commands_reply *ret);
/* One command object, as commands_write_one wrote it. Same errors. */
int commands_read_one(
	const void *json, size_t size, struct arena *a, const char **why, struct command *ret);
int commands_write_one(const struct command *c, struct buf *out); /* 0, -ENOMEM or buf's error */

/* --- what was done */

struct commands;

struct commands_entry {
	char id[COMMAND_ID_MAX + 1];
	enum command_state state;
	char text[COMMAND_TEXT_MAX];
	bool is_reported; /* the backend has this state */
	char *spec;       /* JSON of a running command, NULL for others */
	uint64_t change;
};

/*
 * A file that is missing is empty; one that cannot be understood is too, with one line in why (its
 * commands might run again, which is for the log). 0 or -errno.
 */
int commands_open(const char *path, struct buf *why, struct commands **ret);
void commands_free(struct commands *c); /* accepts NULL */

const struct commands_entry *commands_find(const struct commands *c, const char *id);
const struct commands_entry *commands_at(const struct commands *c, size_t i); /* NULL: no more */
/*
 * Sets id's state and writes the file. running: the command, for COMMAND_RUNNING. At the limit the
 * oldest that does not run goes. 0; -ENOSPC when all run; -errno of the file, but it is kept here.
 */
int commands_set(struct commands *c, const char *id, enum command_state state, const char *text,
	const struct command *running);
/* It came again: tell the backend once more. */
void commands_tell_again(struct commands *c, const char *id);

/*
 * Appends [{"id","state","text"}, ...] of what the backend has not been told; *ret_change goes to
 * commands_told once it has.
 */
int commands_write_acks(const struct commands *c, struct buf *out, uint64_t *ret_change);
/* All that stood in the acks of that change is reported, unless changed since. 0 or -errno. */
int commands_told(struct commands *c, uint64_t change);

#endif
