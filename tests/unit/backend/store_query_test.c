/*
 * What holds for every query: totals agree, order does not matter, ranges are half open, facts survive.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/rng.h"
#include "prof/pprof.h"
#include "store_fixture.h"

static void push(struct fixture *f, const char *service, struct profile *p, const char *id)
{
	enum store_outcome outcome;

	cr_assert_eq(fixture_push(f, service, "h", p, id, &outcome), 0);
	cr_assert_eq(outcome, STORE_STORED);
}

/* Profiles over six days in the order that seed gives; the same ones for every order. */
static void push_many(struct fixture *f, unsigned int count, uint64_t order_seed)
{
	struct rng r = rng_seeded(order_seed);
	unsigned int *order = calloc(count, sizeof(*order));

	cr_assert(order);
	for (unsigned int i = 0; i < count; i++) {
		unsigned int at = (unsigned int)rng_between(&r, 0, i);

		order[i] = order[at];
		order[at] = i;
	}
	for (unsigned int i = 0; i < count; i++) {
		struct rng one = rng_seeded(order[i]);
		int64_t ts = f->now_ns - (int64_t)rng_between(&one, 0, 144) * FIXTURE_HOUR_NS / 8;
		struct profile *p = fixture_profile(order[i] * 977U, order[i] % 40, ts);
		char service[16];

		cr_assert_eq(profile_set_factf(p, "lost.stack", "%u", order[i]), 0);
		cr_assert_eq(profile_set_factf(p, "version", "v%u", order[i] % 7), 0);
		(void)snprintf(service, sizeof(service), "s%u", order[i] % 3);
		push(f, service, p, "");
		profile_free(p);
	}
	free(order);
}

Test(store_query, timeline_and_flame_graph_have_one_total_in_any_window, .timeout = 120)
{
	static const char *const selectors[] = {"{}", "{service_name=\"s1\"}",
		"{service_name=~\"s[02]\"}", "{service_name=\"none\"}"};
	struct rng r = rng_seeded(11);
	struct fixture f;
	int64_t all;

	fixture_init(&f, NULL);
	push_many(&f, 80, 1);
	all = fixture_total(&f, "{}", fixture_all(&f));
	cr_assert_gt(all, 0);
	for (int i = 0; i < 60; i++) {
		int64_t a =
			f.now_ns - (int64_t)rng_between(&r, 0, 20 * 3600) * (int64_t)NSEC_PER_SEC;
		int64_t b = a + (int64_t)rng_between(&r, 1, 10 * 3600) * (int64_t)NSEC_PER_SEC;
		struct store_range range = {a, b};
		const char *selector = selectors[i % ARRAY_SIZE(selectors)];
		int64_t step = (int64_t)rng_between(&r, 1, 7200) * (int64_t)NSEC_PER_SEC;

		cr_assert_eq(fixture_total(&f, selector, range),
			fixture_timeline_total(&f, selector, range, step), "%s", selector);
		/* Halves make a whole. */
		int64_t middle = a + (b - a) / 3;
		cr_assert_eq(fixture_total(&f, selector, range),
			fixture_total(&f, selector, (struct store_range){a, middle}) +
				fixture_total(&f, selector, (struct store_range){middle, b}));
	}
	cr_assert_eq(fixture_verify(&f), 80);
	fixture_done(&f);
}

Test(store_query, the_order_of_pushes_does_not_change_what_is_answered, .timeout = 120)
{
	_cleanup_(buf_done) struct buf first = BUF_INIT(64 << 20);
	_cleanup_(buf_done) struct buf second = BUF_INIT(64 << 20);
	int64_t now_ns = 0;

	for (int i = 0; i < 2; i++) {
		_cleanup_(profile_freep) struct profile *p = NULL;
		struct fixture f;
		struct sample s;

		fixture_init(&f, NULL);
		if (now_ns)
			f.now_ns = now_ns;
		now_ns = f.now_ns;
		push_many(&f, 60, 100 + (uint64_t)i);
		p = fixture_flamegraph(&f, "{}", fixture_all(&f));
		cr_assert_str_eq(profile_fact(p, "lost.stack"), "1770"); /* 0 + 1 + ... + 59 */
		cr_assert_str_eq(profile_fact(p, "version"), "v0, v1, v2, v3, ...");
		cr_assert_str_eq(profile_fact(p, "store.profiles"), "60");
		cr_assert_str_eq(profile_fact(p, "store.labels_left_out"), "pid");
		/* Ids depend on the order, and with them the order of samples: compare sorted lines. */
		for (size_t k = 0; profile_sample_at(p, k, &s); k++) {
			(void)buf_printf(
				i ? &second : &first, "%s", profile_sample_label(p, &s, "comm"));
			for (uint32_t n = s.frame_count; n > 0; n--)
				(void)buf_printf(i ? &second : &first, ";%s",
					profile_text(
						p, profile_frame_at(p, s.frames[n - 1])->name));
			(void)buf_printf(i ? &second : &first, " %lld\n", (long long)s.values[0]);
		}
		fixture_done(&f);
	}
	cr_assert_eq(first.size, second.size);
	char *lines[2][4096];
	size_t counts[2] = {0};
	for (int i = 0; i < 2; i++) {
		for (char *at = i ? second.data : first.data, *end; (end = strchr(at, '\n'));
			at = end + 1) {
			*end = '\0';
			cr_assert_lt(counts[i], ARRAY_SIZE(lines[i]));
			lines[i][counts[i]++] = at;
		}
		for (size_t a = 1; a < counts[i]; a++) {
			for (size_t b = a; b > 0 && strcmp(lines[i][b - 1], lines[i][b]) > 0; b--) {
				char *t = lines[i][b];

				lines[i][b] = lines[i][b - 1];
				lines[i][b - 1] = t;
			}
		}
	}
	cr_assert_eq(counts[0], counts[1]);
	for (size_t i = 0; i < counts[0]; i++)
		cr_assert_str_eq(lines[0][i], lines[1][i]);
}

Test(store_query, ranges_are_half_open_and_the_hour_is_utc)
{
	struct fixture f;
	int64_t edge;

	cr_assert_eq(setenv("TZ", "Asia/Kolkata", 1), 0); /* half an hour off */
	fixture_init(&f, NULL);
	edge = f.now_ns / FIXTURE_HOUR_NS * FIXTURE_HOUR_NS;
	struct profile *before = fixture_stack("before", 1, edge - 1);
	struct profile *at = fixture_stack("at", 10, edge);
	push(&f, "s", before, "a");
	push(&f, "s", at, "b");
	profile_free(before);
	profile_free(at);
	cr_assert_eq(fixture_total(&f, "{}", (struct store_range){edge - 1, edge}), 1);
	cr_assert_eq(fixture_total(&f, "{}", (struct store_range){edge, edge + 1}), 10);
	cr_assert_eq(fixture_total(&f, "{}", (struct store_range){edge - 1, edge + 1}), 11);
	cr_assert_eq(store_stats(f.store).clamped, 0);
	cr_assert_eq(fixture_verify(&f), 2); /* which also checks the hour of each row */
	fixture_done(&f);
}

static int refuse_point(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	(void)data, (void)ts_ns, (void)total, (void)profiles;
	cr_assert(false, "no point was expected");
	return 0;
}

Test(store_query, ranges_without_sense_are_refused)
{
	struct fixture f;
	struct profile *p = NULL;
	struct store_range back = {10, 5}, wide = {0, INT64_MAX};

	fixture_init(&f, NULL);
	cr_assert_eq(store_flamegraph(f.store, NULL, 0, &back, FIXTURE_MEMORY, &p), -EINVAL);
	cr_assert_eq(store_timeline(f.store, NULL, 0, &back, 1, refuse_point, NULL, NULL), -EINVAL);
	cr_assert_eq(store_timeline(f.store, NULL, 0, &wide, 1, refuse_point, NULL, NULL), -EINVAL);
	cr_assert_eq(store_timeline(f.store, NULL, 0, &wide, 0, refuse_point, NULL, NULL), -EINVAL);
	cr_assert_eq(store_flamegraph(f.store, NULL, 0, &wide, FIXTURE_MEMORY, &p), 0);
	cr_assert_eq(profile_sample_count(p), 0);
	profile_free(p);
	fixture_done(&f);
}

Test(store_query, a_small_memory_limit_is_an_error_and_not_half_an_answer)
{
	struct fixture f;
	struct profile *big, *p = NULL;
	struct store_range r;

	fixture_init(&f, NULL);
	big = fixture_profile(9, 5000, f.now_ns);
	push(&f, "s", big, "w");
	profile_free(big);
	r = fixture_all(&f);
	cr_assert_eq(store_flamegraph(f.store, NULL, 0, &r, 20000, &p), -ENOBUFS);
	cr_assert_null(p);
	fixture_done(&f);
}

static int count_series(void *data, const struct push_label *labels, size_t count, const char *type,
	const char *unit, int64_t first_ns, int64_t last_ns)
{
	int *n = data;

	cr_assert_eq(count, 3);
	cr_assert_str_eq(labels[2].name, "service_name");
	cr_assert_str_eq(type, "cpu");
	cr_assert_str_eq(unit, "nanoseconds");
	cr_assert_leq(first_ns, last_ns);
	++*n;
	return 0;
}

Test(store_query, series_are_those_that_have_data_in_the_range)
{
	struct fixture f;
	struct store_range r;
	int n = 0;

	fixture_init(&f, NULL);
	struct profile *now = fixture_stack("a", 1, f.now_ns);
	struct profile *old = fixture_stack("a", 1, f.now_ns - 30 * FIXTURE_HOUR_NS);
	push(&f, "new", now, "1");
	push(&f, "old", old, "2");
	profile_free(now);
	profile_free(old);
	r = (struct store_range){f.now_ns - FIXTURE_HOUR_NS, f.now_ns + 1};
	cr_assert_eq(store_series(f.store, NULL, 0, &r, count_series, &n), 0);
	cr_assert_eq(n, 1);
	r = fixture_all(&f);
	cr_assert_eq(store_series(f.store, NULL, 0, &r, count_series, &n), 0);
	cr_assert_eq(n, 3);
	fixture_done(&f);
}

/* More series than are searched one by one, so the other plan is taken. */
Test(store_query, many_series_give_the_same_totals_as_few)
{
	enum { COUNT = 150 };
	struct fixture f;
	int64_t sum = 0;

	fixture_init(&f, NULL);
	for (int i = 0; i < COUNT; i++) {
		struct profile *p = fixture_stack("x", i + 1, f.now_ns);
		char service[16];

		(void)snprintf(service, sizeof(service), "s%d", i);
		push(&f, service, p, "w");
		profile_free(p);
	}
	for (int i = 0; i < COUNT; i++)
		sum += i + 1;
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), sum);
	cr_assert_eq(fixture_total(&f, "{service_name!=\"s0\"}", fixture_all(&f)), sum - 1);
	cr_assert_eq(fixture_timeline_total(
			     &f, "{service_name!=\"s0\"}", fixture_all(&f), 9 * FIXTURE_HOUR_NS),
		sum - 1);
	cr_assert_eq(fixture_total(&f, "{service_name=~\"s1?7\"}", fixture_all(&f)), 8 + 18);
	fixture_done(&f);
}

/* An allocation profile: two types, of which pprof tools show the last. */
Test(store_query, types_stay_apart_and_the_last_is_the_one_that_counts)
{
	struct profile *p = NULL;
	int64_t values[2] = {3, 4096};
	struct fixture f;
	uint32_t frame;

	fixture_init(&f, NULL);
	cr_assert_eq(profile_new(FIXTURE_MEMORY, &p), 0);
	cr_assert_eq(profile_sample_type(p, "objects", "count"), 0);
	cr_assert_eq(profile_sample_type(p, "alloc", "bytes"), 1);
	profile_set_time(p, f.now_ns, 1);
	struct frame named = {.name = (uint32_t)profile_str(p, "malloc")};
	frame = (uint32_t)profile_frame(p, &named);
	cr_assert_eq(profile_add(p, &frame, 1, NULL, 0, values), 0);
	push(&f, "s", p, "1");
	push(&f, "s", p, "2");
	profile_free(p);

	p = fixture_flamegraph(&f, "{}", fixture_all(&f));
	cr_assert_eq(profile_type_count(p), 2);
	cr_assert_str_eq(profile_text(p, profile_type_at(p, 1).type), "alloc");
	cr_assert_eq(profile_total(p, 0), 6);
	cr_assert_eq(profile_total(p, 1), 8192);
	cr_assert_str_eq(profile_fact(p, "store.profiles"), "2");
	profile_free(p);
	cr_assert_eq(fixture_timeline_total(&f, "{}", fixture_all(&f), FIXTURE_HOUR_NS), 8192);
	cr_assert_eq(fixture_total(&f, "{__type__=\"objects\"}", fixture_all(&f)), 6);
	cr_assert_eq(fixture_timeline_total(
			     &f, "{__type__=\"objects\"}", fixture_all(&f), FIXTURE_HOUR_NS),
		6);
	fixture_done(&f);
}
