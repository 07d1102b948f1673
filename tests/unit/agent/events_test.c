/* The sampling clock's arithmetic: what is drawn, and that it keeps the rate that was asked for. */
#include <criterion/criterion.h>

#include "agent/events.h"
#include "base/def.h"

/* Samples of n cycles as the kernel takes them: a draw starts a period, the cycle's end cuts one. */
static uint64_t samples_in(const struct events_clock *c, struct rng *r, size_t n)
{
	uint64_t samples = 0;

	for (size_t i = 0; i < n; i++)
		samples += c->cycle_ns / events_draw_ns(c, r);
	return samples;
}

Test(events, the_mean_rate_is_the_one_asked_for)
{
	static const uint64_t rates_hz[] = {1, 19, 99, 499, 997, 2000, 4999, 9999, 10000};
	enum { CYCLES = 100000 };

	for (size_t i = 0; i < ARRAY_SIZE(rates_hz); i++) {
		struct events_clock c = events_clock_for(rates_hz[i]);
		struct rng r = rng_seeded(i);
		double seconds = (double)c.cycle_ns * CYCLES / 1e9;
		double real_hz = (double)samples_in(&c, &r, CYCLES) / seconds;

		cr_assert_float_eq(real_hz / (double)rates_hz[i], 1, 0.003, "%f Hz, wanted %llu",
			real_hz, (unsigned long long)rates_hz[i]);
	}
}

Test(events, periods_vary_by_a_quarter_of_the_rate_and_not_more)
{
	struct events_clock c = events_clock_for(99);
	struct rng r = rng_seeded(1);
	uint64_t low_ns = UINT64_MAX;
	uint64_t high_ns = 0;

	for (int i = 0; i < 100000; i++) {
		uint64_t ns = events_draw_ns(&c, &r);

		low_ns = MIN(low_ns, ns);
		high_ns = MAX(high_ns, ns);
	}
	cr_assert_leq(high_ns, c.period_max_ns);
	cr_assert_geq(low_ns, c.period_ns * 4 / 5);
	cr_assert_gt(high_ns, c.period_ns * 132 / 100);
	cr_assert_lt(low_ns, c.period_ns * 81 / 100);
}

Test(events, the_same_seed_draws_the_same_periods_another_one_others)
{
	struct events_clock c = events_clock_for(997);
	struct rng a = rng_seeded(7);
	struct rng b = rng_seeded(7);
	struct rng other = rng_seeded(8);
	int same = 0;

	for (int i = 0; i < 100; i++) {
		uint64_t ns = events_draw_ns(&c, &a);

		cr_assert_eq(ns, events_draw_ns(&c, &b));
		same += ns == events_draw_ns(&c, &other);
	}
	cr_assert_lt(same, 5);
}

Test(events, a_cpu_is_not_redrawn_faster_than_timers_tick)
{
	cr_assert_geq(events_clock_for(EVENTS_FREQUENCY_MAX_HZ).cycle_ns, 5 * NSEC_PER_MSEC);
	cr_assert_eq(events_clock_for(1000).cycle_ns, 8 * NSEC_PER_MSEC);
}
