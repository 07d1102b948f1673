/*
 * A small seeded generator (splitmix64, Steele et al. 2014) for jitter and tests: the same seed
 * gives the same numbers on every machine. Not for secrets.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

struct rng rng_seeded(uint64_t seed);
uint64_t rng_u64(struct rng *r);
/* Uniform in [lo, hi], lo <= hi. */
uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi);

#endif
