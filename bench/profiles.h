/*
 * Profiles that look like ours: 120 samples, stacks out of a service's 3,000, the first ones far more often, 8 to
 * 40 frames that share their callers as a call tree does, a comm label, 19 facts.
 */
#ifndef BENCH_PROFILES_H
#define BENCH_PROFILES_H

#include "prof/profile.h"

enum { BENCH_SAMPLES = 120 };

/* The same for the same seed; without a time. */
struct profile *bench_profile(uint64_t seed);
void bench_die(const char *what, int error);

#endif
