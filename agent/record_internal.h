/*
 * What the files of record share:
 *	record.c		one window, from nothing to nothing
 *	record_command.c	`flame-agent record`: options, files, --repeat
 */
#ifndef AGENT_RECORD_INTERNAL_H
#define AGENT_RECORD_INTERNAL_H

#include "agent/record.h"
#include "base/opts.h"

struct record_conf {
	uint64_t duration_ns;
	uint64_t frequency_hz;
	struct filter_options filter_options;
	struct filter filter; /* of these, or of the request */
	struct processes_options processes;
	const char *output;
	uint64_t jitter_seed;
	uint64_t ready_fd; /* 0: none */
	uint64_t start_ns; /* CLOCK_MONOTONIC; 0: at once */
	const char *summary;
	uint64_t stacks_max;
	uint64_t threads_max;
	int unwind; /* enum record_unwind */
	uint64_t unwind_table_mb;
	int lines; /* enum symbolizer_lines */
	struct opt_list debug_dirs;
	struct opt_list debuginfod_urls;
	const char *fetched_dir;                         /* see debuginfod.h; NULL: none */
	const char *tables_file;                         /* NULL: none */
	const char *container_runtime, *containers_file; /* see containers.h */
	uint64_t repeat;
	bool quiet;
	bool processes_apart;
	bool tid;
};

/* What a window leaves behind for the summary. */
struct record_results {
	struct collect_thread *threads;
	struct collect_cpu *cpus;
};

void record_results_done(struct record_results *r);
/* One window into p and s; nothing else of it is left afterwards. 0 or -errno, which was logged. */
int record_window(const struct record_conf *conf, struct summary *s, struct profile *p,
	struct record_results *ret, bool *ret_interrupted);

#endif
