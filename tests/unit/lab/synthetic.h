/*
 * Recordings made up for tests: a workload "work" of pid 100 with functions heavy and light under
 * main, whose truth and samples the test chooses.
 */
#ifndef TESTS_UNIT_LAB_SYNTHETIC_H
#define TESTS_UNIT_LAB_SYNTHETIC_H

#include "base/rng.h"
#include "lab/evidence.h"
#include "lab/scenario.h"

/* A scenario that expects heavy < main and light < main, and forbids waiter. */
void synthetic_scenario(struct scenario *s);
/*
 * Evidence of one run: truth says heavy_ns and light_ns, the profile has the given samples, each of
 * 1 ms; caller NULL leaves the caller frame out. Ledger, sums and losses agree with truth.
 */
void synthetic_run(struct evidence *e, uint64_t heavy_ns, uint64_t light_ns, uint64_t heavy_samples,
	uint64_t light_samples, const char *caller);
/* Adds samples under frame FUNCTION with main as caller. */
void synthetic_add(struct evidence *e, const char *function, uint64_t samples);
/* Adds samples of LEAF, called by FUNCTION under main. */
void synthetic_add_below(
	struct evidence *e, const char *leaf, const char *function, uint64_t samples);
/* n draws of probability p. */
uint64_t synthetic_binomial(struct rng *r, uint64_t n, double p);

#endif
