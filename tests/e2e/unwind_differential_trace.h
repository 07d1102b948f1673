/*
 * Runs a program under ptrace and hands out stopped threads, see unwind_differential.c.
 */
#ifndef UNWIND_DIFFERENTIAL_TRACE_H
#define UNWIND_DIFFERENTIAL_TRACE_H

#include "tests/e2e/unwind_differential.h"

struct trace_options {
	uint64_t seconds; /* at most */
	uint64_t samples; /* at most */
	uint64_t steps;   /* at most as many instructions after a stop */
	uint64_t seed;
	char **argv;
};

/* Either returns 0 or -errno, which ends the run. */
typedef int trace_space_fn(void *data, const struct diff_space *space);
typedef int trace_sample_fn(void *data, const struct diff_space *space, struct diff_sample *s);

/* 0 when the limits are reached or the program has ended; -errno. The program is killed. */
int trace_run(const struct trace_options *o, trace_space_fn *on_space, trace_sample_fn *on_sample,
	void *data);

#endif
