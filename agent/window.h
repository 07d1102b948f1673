/*
 * One window of a recording, made by a process of its own: `flame-agent __window` loads the
 * collector, samples, splits the profile by service, and leaves one spool file. The daemon that
 * starts it holds no profile, no BPF object and no perf event, ever: dormant is what it always is,
 * a crash costs one window, and memory is back when the process is gone.
 *
 * The process writes its log to stderr and one struct window_result to stdout when it is done.
 */
#ifndef AGENT_WINDOW_H
#define AGENT_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "prof/profile.h"

/* argv[1] of the process; not for people. */
#define WINDOW_ARG "__window"

/* A host that runs more services than this in one window gets the smallest of them as "other". */
enum { WINDOW_SERVICES_MAX = 512, WINDOW_ID_SIZE = 37, WINDOW_SERVICE_MAX = 256 };

#define WINDOW_RESULT_MAGIC 0x31574e4957414c46ULL

/* Between two processes of one binary. */
struct window_result {
	uint64_t magic;
	uint64_t series;  /* 0: nothing ran, no spool file */
	uint64_t samples; /* in the spool file */
	uint64_t bytes;   /* of the spool file's payload */
	uint64_t samples_lost;
	uint64_t cpu_ns; /* of the process and its helper */
	uint64_t rss_peak_bytes;
	uint64_t kernel_bytes; /* BPF maps and programs */
};

int window_main(int argc, char **argv, const char *version);

/* --- what it does with a profile; pure */

struct window_labels {
	const char *instance;
	const char *host;
	const char *view;      /* "cpu" */
	const char *recording; /* the command's id, "" for the configured one */
};

/*
 * One series per service (the samples' label "service"), with its part of p (all facts, the same time) as pprof and its window id,
 * as a push.v1 request. Services are sorted by name, so equal profiles give equal bytes. 0; -ENOBUFS
 * out's limit; -ENOMEM.
 */
int window_encode(const struct profile *p, const struct window_labels *l, struct buf *out,
	struct window_result *ret);

/*
 * The window's id: a UUID (version 8, RFC 9562) made of who recorded what when, so that the same
 * window has the same id whoever sends it and how often. 0 or -errno.
 */
int window_id(const struct window_labels *l, const char *service, int64_t start_unix_ns,
	char ret[WINDOW_ID_SIZE]);

#endif
