/*
 * splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
 * State is one counter, so every seed is as good as any other, 0 included.
 */
#include "base/rng.h"

#include <assert.h>

struct rng rng_seeded(uint64_t seed)
{
	return (struct rng){.state = seed};
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi)
{
	uint64_t span = hi - lo + 1; /* 0 means all 2^64 values */
	uint64_t v, reject;

	assert(lo <= hi);
	if (span == 0)
		return rng_u64(r);
	/* 2^64 mod span values at the bottom would make some results likelier: draw again. */
	reject = (0 - span) % span;
	do {
		v = rng_u64(r);
	} while (v < reject);
	return lo + v % span;
}
