/*
 * truth.json, what a workload says it did (workloads/README.md has the schema). Read strictly: the
 * lab judges by it, so a field that is missing, mistyped or absurd refuses the whole file.
 */
#ifndef LAB_TRUTH_H
#define LAB_TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/json.h"

enum { TRUTH_FUNCTIONS_MAX = 256, TRUTH_CALLERS_MAX = 16, TRUTH_THREADS_MAX = 4096 };

struct truth_function {
	const char *name;
	const char *callers[TRUTH_CALLERS_MAX]; /* direct caller first */
	bool inlined[TRUTH_CALLERS_MAX];        /* that caller has no frame of its own */
	size_t caller_count;
	uint64_t cpu_ns, wall_ns, count, wait_ns; /* wait_ns: all reasons together */
};

struct truth_thread {
	uint32_t tid;
	const char *name;
	uint64_t cpu_ns, run_delay_ns, slices;
	bool is_alive; /* it went on after its account was read, so that it may have more */
};

struct truth {
	struct json doc; /* holds the strings */
	const char *workload, *checksum;
	uint32_t pid;
	uint64_t wall_ns, cpu_ns, wait_ns;
	struct truth_function *functions;
	size_t function_count;
	struct truth_thread *threads;
	size_t thread_count;
};

/* 0; -EBADMSG or -errno with t->doc.message. Give t to truth_done() in any case. */
int truth_load(struct truth *t, const char *path);
int truth_parse(struct truth *t, const char *file, const void *data, size_t size);
void truth_done(struct truth *t); /* usable as cleanup attribute */

/*
 * CPU of the process over its whole life: the sum over its threads' schedstat, which also counts
 * what stands outside the measured phase (start, exit), as samples do.
 */
uint64_t truth_process_cpu_ns(const struct truth *t);
/*
 * The selftest's lying truth: moves points/100 of the process's CPU from the largest function,
 * under all of its callers, to the others, in proportion. Returns what was moved.
 */
uint64_t truth_falsify(struct truth *t, double points);

#endif
