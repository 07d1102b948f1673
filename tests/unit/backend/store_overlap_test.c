/*
 * No time of a series counts twice, whatever recordings cover it and however they came in; what is left out is
 * told.
 */
#include <criterion/criterion.h>

#include "backend/store_internal.h"
#include "base/def.h"
#include "base/rng.h"
#include "store_fixture.h"

#define SECOND_NS ((int64_t)1000000000)

/* A window of one stack named by its recording, value ns long on CPU. */
static void push(struct fixture *f, const char *recording, const char *filter, int64_t ts_ns,
	int64_t length_ns, int64_t value)
{
	struct profile *p = fixture_stack(*recording ? recording : "continuous", value, ts_ns);
	enum store_outcome outcome;

	profile_set_time(p, ts_ns, length_ns);
	if (*recording)
		cr_assert_eq(profile_set_fact(p, "recording", recording), 0);
	if (*filter)
		cr_assert_eq(profile_set_fact(p, "filter", filter), 0);
	cr_assert_eq(fixture_push(f, "s", "h", p, "", &outcome), 0);
	profile_free(p);
}

static int by_start(const void *a, const void *b)
{
	const struct store_window *x = a, *y = b;

	return (x->ts_ns > y->ts_ns) - (x->ts_ns < y->ts_ns);
}

Test(store_overlap, marks_what_pairs_say)
{
	enum { COUNT = 40 };
	struct rng r = rng_seeded(5);
	unsigned int left_out = 0;

	for (int round = 0; round < 2000; round++) {
		struct store_window w[COUNT] = {0};

		for (int i = 0; i < COUNT; i++) {
			w[i].ts_ns = (int64_t)rng_between(&r, 0, 60);
			w[i].end_ns = w[i].ts_ns + (int64_t)rng_between(&r, 0, 8);
			w[i].rank = (uint32_t)rng_between(&r, 1, 4);
		}
		qsort(w, COUNT, sizeof(w[0]), by_start);
		cr_assert_eq(store_overlap_mark(w, COUNT), 0);
		for (int i = 0; i < COUNT; i++) {
			bool is = false;

			for (int k = 0; k < COUNT; k++)
				is |= w[k].rank < w[i].rank && w[k].ts_ns < w[k].end_ns &&
				      w[i].ts_ns < w[i].end_ns && w[k].ts_ns < w[i].end_ns &&
				      w[i].ts_ns < w[k].end_ns;
			cr_assert_eq(w[i].is_left_out, is, "round %d, window %d", round, i);
			left_out += is;
		}
	}
	cr_assert_gt(left_out, 1000);
}

Test(store_overlap, the_continuous_recording_goes_before_one_on_demand)
{
	struct fixture f;

	fixture_init(&f, NULL);
	int64_t at = f.now_ns / FIXTURE_HOUR_NS * FIXTURE_HOUR_NS - 1800 * SECOND_NS;
	push(&f, "r1", "", at, 10 * SECOND_NS, 5);
	push(&f, "", "", at - 50 * SECOND_NS, 60 * SECOND_NS, 100);
	push(&f, "r1", "", at + 10 * SECOND_NS, 10 * SECOND_NS,
		7); /* begins where the other ends */
	struct profile *p = fixture_flamegraph(&f, "{}", fixture_all(&f));

	cr_assert_eq(fixture_leaf(p, "continuous"), 100);
	cr_assert_eq(fixture_leaf(p, "r1"), 7);
	cr_assert_str_eq(profile_fact(p, STORE_FACT_LEFT_OUT), "1");
	profile_free(p);
	/* Asked for by name it is whole, and nothing is left out. */
	p = fixture_flamegraph(&f, "{recording=\"r1\"}", fixture_all(&f));
	cr_assert_eq(fixture_leaf(p, "r1"), 12);
	cr_assert_eq(profile_total(p, 0), 12);
	cr_assert_null(profile_fact(p, STORE_FACT_LEFT_OUT));
	profile_free(p);
	cr_assert_eq(fixture_total(&f, "{recording=\"\"}", fixture_all(&f)), 100);
	cr_assert_eq(
		fixture_timeline_total(&f, "{recording=\"r1\"}", fixture_all(&f), FIXTURE_HOUR_NS),
		12);
	cr_assert_eq(fixture_total(&f, "{recording=\"none\"}", fixture_all(&f)), 0);
	fixture_done(&f);
}

Test(store_overlap, an_unfiltered_recording_goes_before_a_filtered_one)
{
	struct fixture f;

	fixture_init(&f, NULL);
	int64_t at = f.now_ns / FIXTURE_HOUR_NS * FIXTURE_HOUR_NS - 1800 * SECOND_NS;
	push(&f, "a", "pid=1", at, 10 * SECOND_NS, 1);
	push(&f, "b", "", at + SECOND_NS, 10 * SECOND_NS, 10);
	push(&f, "c", "", at + 2 * SECOND_NS, 10 * SECOND_NS, 100); /* a lower id goes before */
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 10);
	fixture_done(&f);
}

Test(store_overlap, windows_of_one_recording_are_all_counted)
{
	struct fixture f;

	fixture_init(&f, NULL);
	for (int i = 0; i < 3; i++) { /* processes of a service that push by themselves */
		push(&f, "", "", f.now_ns - 60 * SECOND_NS, 10 * SECOND_NS, 1);
		push(&f, "r", "", f.now_ns - 30 * SECOND_NS, 10 * SECOND_NS, 10);
	}
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 33);
	fixture_done(&f);
}

Test(store_overlap, windows_across_the_hour_are_seen_from_both_sides)
{
	struct fixture f;

	fixture_init(&f, NULL);
	int64_t edge = f.now_ns / FIXTURE_HOUR_NS * FIXTURE_HOUR_NS - FIXTURE_HOUR_NS;
	/* From the left: the window on demand begins in the hour before. */
	push(&f, "r", "", edge - 5 * SECOND_NS, 10 * SECOND_NS, 1);
	push(&f, "", "", edge, 60 * SECOND_NS, 10);
	/* From the right: the continuous one does. */
	push(&f, "", "", edge - FIXTURE_HOUR_NS - 30 * SECOND_NS, 60 * SECOND_NS, 100);
	push(&f, "r", "", edge - FIXTURE_HOUR_NS + 10 * SECOND_NS, 10 * SECOND_NS, 1000);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 110);
	cr_assert_eq(fixture_verify(&f), 4);
	fixture_done(&f);
}

/* Random recordings over three hours, judged by the store and by pairs. */
Test(store_overlap, any_window_has_one_total_and_no_time_twice, .timeout = 120)
{
	static const char *const recordings[] = {"", "r1", "r2"};
	enum { COUNT = 240 };
	struct rng r = rng_seeded(77);
	struct fixture f;
	int64_t start, at[COUNT], end[COUNT];
	int rank[COUNT];

	fixture_init(&f, NULL);
	start = f.now_ns / FIXTURE_HOUR_NS * FIXTURE_HOUR_NS - 3 * FIXTURE_HOUR_NS;
	for (int i = 0; i < COUNT; i++) {
		int which = (int)rng_between(&r, 0, 2), is_filtered = (int)rng_between(&r, 0, 1);

		at[i] = start + (int64_t)rng_between(&r, 0, 3 * 360) * 10 * SECOND_NS;
		end[i] = at[i] + (int64_t)rng_between(&r, 1, 12) * 10 * SECOND_NS;
		rank[i] = is_filtered * 3 + which;
		push(&f, recordings[which], is_filtered ? "pid=1" : "", at[i], end[i] - at[i], 1);
	}
	for (int round = 0; round < 80; round++) {
		int64_t a = start + (int64_t)rng_between(&r, 0, 3 * 3600) * SECOND_NS;
		int64_t b = a + (int64_t)rng_between(&r, 1, 3 * 3600) * SECOND_NS;
		int64_t middle = a + (b - a) / 3, sum = 0;
		struct store_range range = {a, b};

		for (int i = 0; i < COUNT; i++) {
			bool is_left_out = at[i] < a || at[i] >= b;

			for (int k = 0; k < COUNT; k++)
				is_left_out |=
					rank[k] < rank[i] && at[k] < end[i] && at[i] < end[k];
			sum += !is_left_out;
		}
		cr_assert_eq(fixture_total(&f, "{}", range), sum);
		cr_assert_eq(fixture_timeline_total(&f, "{}", range, 600 * SECOND_NS), sum);
		cr_assert_eq(sum, fixture_total(&f, "{}", (struct store_range){a, middle}) +
					  fixture_total(&f, "{}", (struct store_range){middle, b}));
	}
	cr_assert_eq(fixture_verify(&f), COUNT);
	fixture_done(&f);
}
