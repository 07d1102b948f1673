/* rng: the published sequence, and bounds. */
#include "base/rng.h"

#include <criterion/criterion.h>

/* From the reference implementation, https://prng.di.unimi.it/splitmix64.c, seed 1234567. */
Test(rng, gives_the_reference_sequence)
{
	struct rng r = rng_seeded(1234567);

	cr_assert_eq(rng_u64(&r), 6457827717110365317ULL);
	cr_assert_eq(rng_u64(&r), 3203168211198807973ULL);
	cr_assert_eq(rng_u64(&r), 9817491932198370423ULL);
}

Test(rng, between_reaches_both_bounds_and_nothing_outside)
{
	struct rng r = rng_seeded(0);
	unsigned int seen[7] = {0};

	for (int i = 0; i < 7000; i++) {
		uint64_t v = rng_between(&r, 10, 16);

		cr_assert(v >= 10 && v <= 16);
		seen[v - 10]++;
	}
	for (int i = 0; i < 7; i++)
		cr_assert(seen[i] > 850 && seen[i] < 1150, "%d: %u", i, seen[i]);
}

Test(rng, between_takes_the_narrowest_and_the_widest_range)
{
	struct rng r = rng_seeded(5), same = rng_seeded(5);

	cr_assert_eq(rng_between(&r, 9, 9), 9);
	(void)rng_u64(&same);
	cr_assert_eq(rng_between(&r, 0, UINT64_MAX), rng_u64(&same));
	cr_assert_eq(rng_between(&r, UINT64_MAX, UINT64_MAX), UINT64_MAX);
}
