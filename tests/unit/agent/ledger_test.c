/* Closing entries and the sampling error, against values worked out by hand. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent/ledger.h"

enum { S = 1, D = 2, STOPPED = 4, DEAD = 0x80, NOLOAD = 0x400 };

Test(ledger, a_thread_on_a_cpu_has_the_time_since_its_switch_in)
{
	struct ledger_value v = {
		.state = LEDGER_ON_CPU, .since_ns = 700, .cpu_ns = 5, .exec_ns = 4};

	ledger_close(&v, 100, 1000, 0);
	cr_assert_eq(v.cpu_ns, 305);
	cr_assert_eq(v.exec_ns, 304);
	cr_assert_eq(v.runnable_ns + v.blocked_s_ns + v.blocked_d_ns + v.blocked_other_ns, 0);
}

Test(ledger, time_before_the_window_does_not_count)
{
	struct ledger_value on = {.state = LEDGER_ON_CPU, .since_ns = 50};
	struct ledger_value off = {.state = S, .since_ns = 50};

	ledger_close(&on, 100, 1000, 0);
	ledger_close(&off, 100, 1000, 0);
	cr_assert_eq(on.cpu_ns, 900);
	cr_assert_eq(off.blocked_s_ns, 900);
}

Test(ledger, a_stamp_behind_the_stop_adds_nothing)
{
	struct ledger_value v = {.state = LEDGER_ON_CPU, .since_ns = 1001};

	ledger_close(&v, 100, 1000, 0);
	cr_assert_eq(v.cpu_ns, 0);
}

Test(ledger, waiting_time_goes_to_the_state_it_was_left_in)
{
	const struct {
		__u32 state;
		size_t field;
	} cases[] = {
		{0, offsetof(struct ledger_value, runnable_ns)},
		{S, offsetof(struct ledger_value, blocked_s_ns)},
		{D, offsetof(struct ledger_value, blocked_d_ns)},
		{D | NOLOAD, offsetof(struct ledger_value, blocked_other_ns)},
		{STOPPED, offsetof(struct ledger_value, blocked_other_ns)},
		{LEDGER_STATE_UNKNOWN, offsetof(struct ledger_value, blocked_other_ns)},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ledger_value v = {.state = cases[i].state, .since_ns = 400};

		ledger_close(&v, 100, 1000, 0);
		cr_assert_eq(*(__u64 *)((char *)&v + cases[i].field), 600, "case %zu", i);
		cr_assert_eq(v.cpu_ns, 0);
		cr_assert_eq(
			v.runnable_ns + v.blocked_s_ns + v.blocked_d_ns + v.blocked_other_ns, 600);
	}
}

Test(ledger, a_dead_thread_waits_for_nothing)
{
	struct ledger_value v = {.state = DEAD, .since_ns = 400, .cpu_ns = 7};

	ledger_close(&v, 100, 1000, 0);
	cr_assert_eq(v.cpu_ns, 7);
	cr_assert_eq(v.runnable_ns + v.blocked_s_ns + v.blocked_d_ns + v.blocked_other_ns, 0);
}

Test(ledger, a_pending_wait_is_split_by_run_delay)
{
	struct ledger_value v = {.state = LEDGER_ON_CPU | S,
		.since_ns = 900,
		.off_pending_ns = 300,
		.run_delay_ns = 1000};

	ledger_close(&v, 100, 1000, 1050);
	cr_assert_eq(v.runnable_ns, 50);
	cr_assert_eq(v.blocked_s_ns, 250);
	cr_assert_eq(v.cpu_ns, 100);
}

Test(ledger, run_delay_beyond_the_wait_is_cut_and_unknown_is_blocked)
{
	struct ledger_value more = {
		.state = LEDGER_ON_CPU | D, .since_ns = 900, .off_pending_ns = 300};
	struct ledger_value none = more;

	none.run_delay_ns = 1000;
	ledger_close(&more, 100, 1000, 5000);
	ledger_close(&none, 100, 1000, 0);
	cr_assert_eq(more.runnable_ns, 300);
	cr_assert_eq(more.blocked_d_ns, 0);
	cr_assert_eq(none.runnable_ns, 0);
	cr_assert_eq(none.blocked_d_ns, 300);
}

Test(ledger, a_missed_stint_is_taken_from_the_scheduler)
{
	struct ledger_value v = {
		.state = LEDGER_STATE_UNKNOWN, .since_ns = 50, .exec_last_ns = 1000, .cpu_ns = 7};
	struct ledger_value known = {.state = S, .since_ns = 50, .exec_last_ns = 1000};

	ledger_catch_up(&v, 100, 1000, 1200);
	cr_assert_eq(v.cpu_ns, 207);
	cr_assert_eq(v.exec_ns, 200);
	ledger_close(&v, 100, 1000, 0);
	cr_assert_eq(v.blocked_other_ns, 700);
	ledger_catch_up(&known, 100, 1000, 1200);
	cr_assert_eq(known.cpu_ns, 0);
}

Test(ledger, a_missed_stint_is_cut_to_the_window)
{
	struct ledger_value v = {.state = LEDGER_STATE_UNKNOWN, .since_ns = 50};

	ledger_catch_up(&v, 100, 1000, 0);
	cr_assert_eq(v.cpu_ns, 0, "a thread that is gone");
	ledger_catch_up(&v, 100, 1000, 50000);
	cr_assert_eq(v.cpu_ns, 900);
	ledger_catch_up(&v, 100, 1000, 60000);
	cr_assert_eq(v.cpu_ns, 900);
}

Test(ledger, a_sleeper_is_not_active_and_a_runner_is)
{
	struct ledger_value sleeper = {.state = S, .blocked_s_ns = 9};
	struct ledger_value switched = {.state = S, .switches_voluntary = 1};
	struct ledger_value running = {.state = LEDGER_ON_CPU};

	cr_assert_not(ledger_was_active(&sleeper));
	cr_assert(ledger_was_active(&switched));
	cr_assert(ledger_was_active(&running));
}

/* 10 s on one CPU at 100 Hz: each sample weighs 10 ms. */
static const struct ledger_window window = {
	.window_ns = 10000000000ULL, .cpus = 1, .period_ns = 10000000, .tail_sq = 0};

Test(ledger, sigma_is_the_binomial_one)
{
	/* Half busy: 500 hits of 10 ms, sigma = 10 ms * sqrt(1000 * 0.5 * 0.5). */
	double sigma = ledger_sigma_ns(&window, 5000000000ULL, 500ULL * 10000 * 10000);

	cr_assert_float_eq(sigma, 1e7 * sqrt(250), 1e3);
}

Test(ledger, a_fully_busy_machine_has_only_the_edge)
{
	struct ledger_window w = window;

	w.tail_us = 4000;
	w.tail_sq = 4000ULL * 4000;
	cr_assert_float_eq(ledger_sigma_ns(&w, w.window_ns, 1000ULL * 10000 * 10000), 4e6, 1);
}

Test(ledger, a_thread_missed_by_chance_has_an_error)
{
	/* 10 ms of 10 s: one hit expected, none seen. sigma is about one sample's weight. */
	cr_assert_float_eq(ledger_sigma_ns(&window, 10000000, 0), 1e7, 1e4);
}

Test(ledger, many_busy_cpus_whose_tails_lack_are_within_sigma)
{
	enum { CPUS = 256, TAIL_US = 5000 };
	struct ledger_window w = {
		.window_ns = 10000000000ULL,
		.cpus = CPUS,
		.period_ns = 10000000,
		.tail_us = CPUS * TAIL_US,
		.tail_sq = (uint64_t)CPUS * TAIL_US * TAIL_US,
	};
	uint64_t all_ns = w.window_ns * CPUS;
	double sigma = ledger_sigma_ns(&w, all_ns, CPUS * 1000ULL * 10000 * 10000);
	double d = ledger_deviation(all_ns - w.tail_us * 1000, all_ns, sigma);

	cr_assert_float_eq(d, -1, 1e-6, "%f sigma", d);
}

Test(ledger, sigma_of_nothing_is_zero)
{
	struct ledger_window none = {0};

	cr_assert_eq(ledger_sigma_ns(&none, 0, 0), 0);
	cr_assert_eq(ledger_sigma_ns(&window, 0, 0), 0);
}

Test(ledger, deviation_counts_in_sigmas_with_its_sign)
{
	cr_assert_float_eq(ledger_deviation(900, 1000, 50), -2, 1e-9);
	cr_assert_float_eq(ledger_deviation(1100, 1000, 50), 2, 1e-9);
	cr_assert_eq(ledger_deviation(1000, 1000, 0), 0);
	cr_assert(isinf(ledger_deviation(1001, 1000, 0)));
}
