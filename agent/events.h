/*
 * The sampling clock: one cpu-clock perf event on each online CPU, for all processes, with a period
 * that is redrawn while it runs. A fixed period locks step with periodic programs (DESIGN.md
 * section 4), so every CPU gets a new one about once per EVENTS_SAMPLES_PER_DRAW samples, from a
 * seeded generator.
 *
 * Two biases are avoided, so that the mean rate is the one that was asked for:
 *  - Draws are equally far apart in time, so it is the rate that is drawn uniformly (+-25 %), not
 *    the period; the mean of 1/period would be 2 % above 1/mean.
 *  - A draw starts a new period at once, so that interval is on average half a period longer.
 *    The base period is shortened by that.
 */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

enum { EVENTS_SAMPLES_PER_DRAW = 8, EVENTS_FREQUENCY_MAX_HZ = 10000 };

struct events;

/* What follows from a rate. */
struct events_clock {
	uint64_t period_ns;     /* base; a drawn one is 4/5 to 4/3 of it */
	uint64_t period_max_ns; /* the longest that is drawn */
	uint64_t cycle_ns;      /* from one draw of a CPU to its next */
};

struct events_clock events_clock_for(uint64_t frequency_hz);
uint64_t events_draw_ns(const struct events_clock *c, struct rng *r);

/* The online CPUs' numbers, up to max: how many, or -errno. */
int events_cpus(int *cpus, int max);

/* Opens the events, not yet counting. 0 or -errno of perf_event_open. */
int events_new(uint64_t frequency_hz, uint64_t seed, struct events **ret);
/* Closes all of them. */
void events_free(struct events *e);
void events_freep(struct events **e);

size_t events_count(const struct events *e); /* CPUs sampled */
int events_fd(const struct events *e, size_t i);
const struct events_clock *events_clock(const struct events *e);

int events_enable(struct events *e);  /* 0 or -errno */
int events_disable(struct events *e); /* 0 or the first -errno; goes on over failures */

/* How often events_redraw is to be called. */
uint64_t events_redraw_interval_ns(const struct events *e);
/* Redraws the CPUs that are due after elapsed_ns more, in turn. 0 or -errno. */
int events_redraw(struct events *e, uint64_t elapsed_ns);

#endif
