/*
 * `flame-agent record`: a profile of this machine, or of some processes, into one file; and one
 * window by itself, for the daemon's recording process.
 */
#ifndef AGENT_RECORD_H
#define AGENT_RECORD_H

#include "agent/filter.h"
#include "agent/processes.h"
#include "agent/summary.h"
#include "base/buf.h"
#include "base/opts.h"
#include "prof/profile.h"

/* RECORD_EXIT_NOTHING: written, but no process matched the filter. */
enum {
	RECORD_EXIT_OK = 0,
	RECORD_EXIT_FAILED = 1,
	RECORD_EXIT_USAGE = 2,
	RECORD_EXIT_NOTHING = 3,
};
enum { RECORD_STACKS_MAX = 16384, RECORD_THREADS_MAX = 16384, RECORD_PROCESSES_MAX = 16384 };

/* By unwind tables, or frame pointers only. The order is that of the options' choices. */
enum record_unwind { RECORD_UNWIND_CFI, RECORD_UNWIND_FP };
enum { RECORD_UNWIND_TABLE_MB_MAX = 128 };

struct record_request {
	/*
	 * CLOCK_MONOTONIC. Loading is done before; a window that could only begin later is as much
	 * shorter. 0: at once.
	 */
	uint64_t start_ns;
	uint64_t duration_ns;
	uint64_t frequency_hz;
	uint64_t jitter_seed;
	enum record_unwind unwind;
	uint64_t unwind_table_mb;
	enum symbolizer_lines lines;
	const struct opt_list *debug_dirs; /* NULL: the usual one */
	const char *fetched_dir;           /* see debuginfod.h; NULL: none */
	const char *tables_file; /* what unwinding used, from one window to the next; NULL: none */
	const char *container_runtime, *containers_file; /* see containers.h */
	struct filter filter;
	struct processes_options processes; /* max and containers are record's own */
};

/* argv[0] is "record". Returns the exit code; version stands in every output. */
int record_main(int argc, char **argv, const char *version);
/* Its options as text. */
int record_help(struct buf *out);

/*
 * One window into p, which is empty, and s, whose arrays are not kept. SIGINT and SIGTERM end it
 * early. 0; -ECANCELED when the signal came before the start; -errno, which has been logged with its
 * cause. Nothing is left loaded.
 */
int record_profile(
	const struct record_request *q, const char *version, struct profile *p, struct summary *s);

#endif
