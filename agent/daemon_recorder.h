/* One window's process as the daemon sees it: started, listened to, ended, judged. */
#ifndef AGENT_DAEMON_RECORDER_H
#define AGENT_DAEMON_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/commands.h"
#include "agent/daemon_conf.h"
#include "agent/window.h"
#include "base/child.h"
#include "base/loop.h"

enum { RECORDER_TEXT_MAX = 400 };

struct recorder;
/* It has ended and is free again when this returns. */
typedef void recorder_fn(struct recorder *r, void *data);

struct recorder {
	bool is_used;
	struct child child;
	int out, err;
	struct loop_source *on_exit, *on_log, *on_late;
	char line[2048]; /* of its log, so far */
	size_t line_size;
	recorder_fn *fn;
	void *data;
	uint64_t place; /* in the spool */
	uint64_t start_ns, end_ns;

	/* For fn. */
	bool is_good;
	struct window_result result;   /* when it is good */
	char error[RECORDER_TEXT_MAX]; /* when it is not: its last error line, or how it died */
};

struct recorder_request {
	const struct daemon_conf *conf;
	const char *instance;
	const struct command *command;
	const char *recording; /* id, "" for the configured one */
	const char *spool_path;
	uint64_t place;
	uint64_t frequency_hz, jitter_seed;
	uint64_t start_ns, end_ns;
};

/* 0 or -errno; then fn is not called. */
int recorder_start(struct recorder *r, struct loop *l, const struct recorder_request *q,
	recorder_fn *fn, void *data);
void recorder_interrupt(struct recorder *r); /* ends its window now */
void recorder_kill(struct recorder *r);      /* without calling fn */

/* What a log line (key=value) of level error says, shortened for people; NULL: it is none. */
const char *recorder_error_text(const char *line, char ret[RECORDER_TEXT_MAX]);

#endif
