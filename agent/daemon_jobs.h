/*
 * Recordings of the daemon: each is a row of windows, each window a process (window.h). The next
 * window's process starts a second before its time and waits, so windows follow each other without a
 * gap while the last one is still being named and written.
 *
 * A command's end, as it is told to the backend: done when at least one window came out and none
 * failed at the end; failed with the recorder's own words when the first window or three in a row
 * fail; cancelled by a stop command, in its last window, too. A window for which no process is free
 * because the host is slow is skipped and counted ("skipped=N"). The configured continuous recording ("continuous = on") has no
 * command: it starts anew at the next boundary whatever happened.
 */
#ifndef AGENT_DAEMON_JOBS_H
#define AGENT_DAEMON_JOBS_H

#include <stdbool.h>
#include <sys/types.h>

#include "agent/commands.h"
#include "agent/daemon_conf.h"
#include "agent/spool.h"
#include "base/loop.h"
#include "base/rng.h"

enum { JOBS_MAX = 4, JOBS_RECORDERS_MAX = 3 };

struct jobs;

struct jobs_options {
	struct loop *loop;
	const struct daemon_conf *conf;
	const char *instance;
	struct spool *spool;
	struct commands *commands;
	struct rng *rng;
	void (*on_window)(void *data); /* the spool has a new window */
	void (*on_change)(void *data); /* a recording began or ended */
	void *data;
};

struct jobs_stats {
	size_t running;
	uint64_t windows, windows_failed, samples_lost;
	uint64_t kernel_bytes;  /* of the last window of each that runs */
	const char *last_error; /* of the last window that failed; "" after a good one */
};

/* o is copied. 0 or -ENOMEM. */
int jobs_new(const struct jobs_options *o, struct jobs **ret);
void jobs_free(struct jobs *j); /* accepts NULL; kills what runs */

/*
 * Starts a start command that the ledger does not know, or resumes a continuous one that it knows;
 * what comes of it stands in the ledger.
 */
void jobs_start(struct jobs *j, const struct command *c);
void jobs_start_configured(struct jobs *j);
/*
 * Queues a change command for the next window of its target. It is acknowledged as running, and as
 * done when the first window by it came out; when that window fails, so has the change, and the
 * recording goes on as before it. Of two that wait for one boundary the later counts.
 */
void jobs_change(struct jobs *j, const struct command *c);
/* Ends the recording of that command now; what it has is kept. False: it does not run. */
bool jobs_stop(struct jobs *j, const char *target, const char *by);
/*
 * Ends all windows now, each as long as it got; done is called when their files are in the spool.
 * Continuous commands stay "running" in the ledger, for the next start.
 */
void jobs_end(struct jobs *j, void (*done)(void *data), void *data);

void jobs_stats(const struct jobs *j, struct jobs_stats *ret);
/* Recorder processes that run; at most count. */
size_t jobs_pids(const struct jobs *j, pid_t *ret, size_t count);

/* --- when a window ends, pure */

struct jobs_schedule {
	uint64_t window_ns;
	bool is_aligned;
	uint64_t end_ns;         /* of the recording; UINT64_MAX: never */
	int64_t clock_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
};

/* The end of the window that starts at start_ns (CLOCK_MONOTONIC). */
uint64_t jobs_window_end(const struct jobs_schedule *s, uint64_t start_ns);

#endif
