/*
 * Roll-ups change the time an answer takes and nothing else.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/rng.h"
#include "store_fixture.h"

enum { PROFILES = 150, HOURS = 60 };

static void push(struct fixture *f, uint64_t seed, int64_t start_ns)
{
	static const char *const recordings[] = {"", "", "r1", "r2"};
	struct rng r = rng_seeded(seed);
	int64_t ts_ns =
		start_ns + (int64_t)rng_between(&r, 0, HOURS * 360) * 10 * (int64_t)NSEC_PER_SEC;
	struct profile *p = fixture_profile(seed, (unsigned int)rng_between(&r, 0, 9), ts_ns);
	const char *recording = recordings[rng_between(&r, 0, 3)];
	enum store_outcome outcome;
	char service[8];

	profile_set_time(p, ts_ns, (int64_t)rng_between(&r, 1, 90) * 10 * (int64_t)NSEC_PER_SEC);
	if (*recording)
		cr_assert_eq(profile_set_fact(p, "recording", recording), 0);
	cr_assert_eq(profile_set_factf(p, "lost.x", "%u", (unsigned int)seed), 0);
	cr_assert_eq(profile_set_factf(p, "version", "v%u", (unsigned int)seed % 7), 0);
	(void)snprintf(service, sizeof(service), "s%u", (unsigned int)seed % 3);
	cr_assert_eq(fixture_push(f, service, "h", p, "", &outcome), 0);
	profile_free(p);
}

/* The answer as text; the samples come by stack id, so equal answers are equal texts. */
static void answer(
	struct fixture *f, const char *selector, struct store_range range, struct buf *out)
{
	_cleanup_(profile_freep) struct profile *p = fixture_flamegraph(f, selector, range);
	const char *key, *value;
	struct sample s;

	buf_reset(out);
	(void)buf_printf(out, "%lld %lld %lld\n", (long long)profile_start_ns(p),
		(long long)profile_duration_ns(p), (long long)profile_period(p));
	for (size_t i = 0; profile_fact_at(p, i, &key, &value); i++)
		(void)buf_printf(out, "%s=%s\n", key, value);
	for (size_t i = 0; profile_sample_at(p, i, &s); i++) {
		for (uint32_t n = s.frame_count; n > 0; n--)
			(void)buf_printf(out, ";%s",
				profile_text(p, profile_frame_at(p, s.frames[n - 1])->name));
		(void)buf_printf(out, " %lld\n", (long long)s.values[0]);
	}
	cr_assert_eq(buf_error(out), 0);
}

static int64_t first_day(const struct fixture *f)
{
	return f->now_ns / STORE_ROLL_DAY_NS * STORE_ROLL_DAY_NS - 4 * STORE_ROLL_DAY_NS;
}

static int count_roll(void *data, struct store_roll_id id)
{
	int *counts = data;

	counts[id.is_day]++;
	return 0;
}

/* Answers of ranges of all kinds, of all services and one. */
static void answers(
	struct fixture *f, uint64_t seed, int64_t start_ns, struct buf *out, size_t count)
{
	struct rng r = rng_seeded(seed);

	for (size_t i = 0; i < count; i++) {
		int64_t unit = i % 3 == 0   ? STORE_HOUR_NS
			       : i % 3 == 1 ? STORE_ROLL_SHORT_NS
					    : (int64_t)NSEC_PER_SEC;
		int64_t span = HOURS * STORE_HOUR_NS / unit;
		int64_t a = start_ns + (int64_t)rng_between(&r, 0, (uint64_t)span) * unit;
		int64_t b = a + (int64_t)rng_between(&r, 1, (uint64_t)span) * unit;

		if (i == 0) {
			a = start_ns;
			b = start_ns + 3 * STORE_ROLL_DAY_NS;
		}
		answer(f, i % 2 ? "{}" : "{service_name=\"s1\"}", (struct store_range){a, b},
			&out[i]);
	}
}

Test(store_roll, answers_are_the_same_with_and_without, .timeout = 120)
{
	enum { COUNT = 24 };
	struct buf without[COUNT], with[COUNT];
	int counts[2] = {0};
	struct fixture f;

	for (int i = 0; i < COUNT; i++) {
		without[i] = BUF_INIT(1 << 20);
		with[i] = BUF_INIT(1 << 20);
	}
	fixture_init(&f, NULL);
	for (uint64_t i = 0; i < PROFILES; i++)
		push(&f, i, first_day(&f));
	answers(&f, 1, first_day(&f), without, COUNT);
	cr_assert_eq(store_roller_pass(f.store, f.now_ns, true), 0);
	cr_assert_eq(store_roll_each(f.dir, count_roll, counts), 0);
	cr_assert_gt(counts[0], 30);
	cr_assert_eq(counts[1], 3);
	answers(&f, 1, first_day(&f), with, COUNT);
	for (int i = 0; i < COUNT; i++)
		cr_assert_str_eq(buf_str(&with[i]), buf_str(&without[i]), "range %d", i);
	cr_assert_neq(strstr(buf_str(&with[1]), "left_out="), NULL);
	/* A second pass finds everything made. */
	uint64_t made = store_stats(f.store).rollups_made;
	cr_assert_eq(store_roller_pass(f.store, f.now_ns, true), 0);
	cr_assert_eq(store_stats(f.store).rollups_made, made);
	cr_assert_eq(fixture_verify(&f), PROFILES);
	fixture_done(&f);
	for (int i = 0; i < COUNT; i++) {
		buf_done(&without[i]);
		buf_done(&with[i]);
	}
}

/* Opens a roll-up for a change by hand. */
static void change(struct fixture *f, bool is_day, const char *statement)
{
	struct store_roll_id id = {.is_day = is_day,
		.number = is_day ? store_roll_day(store_hour(first_day(f)))
				 : store_hour(first_day(f))};
	char path[STORE_PATH_MAX];
	sqlite3 *db = NULL;

	cr_assert_eq(store_roll_path(f->dir, id, path), 0);
	cr_assert_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	cr_assert_eq(store_sql_exec(db, statement), 0);
	cr_assert_gt(sqlite3_changes(db), 0);
	store_sql_close(db);
}

/* One window in the first hour, and its roll-ups changed so that reading them shows. */
static void init_marked(struct fixture *f)
{
	struct profile *p;
	enum store_outcome outcome;

	fixture_init(f, NULL);
	p = fixture_stack("x", 1, first_day(f) + STORE_ROLL_SHORT_NS);
	cr_assert_eq(fixture_push(f, "s", "h", p, "", &outcome), 0);
	profile_free(p);
	cr_assert_eq(store_roller_pass(f->store, f->now_ns, true), 0);
	change(f, false, "UPDATE roll SET left_out = step / 1000000000");
	change(f, true, "UPDATE roll SET left_out = step / 1000000000");
}

static const char *left_out(struct fixture *f, int64_t start_ns, int64_t end_ns)
{
	static char text[32];
	_cleanup_(profile_freep) struct profile *p = fixture_flamegraph(
		f, "{}", (struct store_range){first_day(f) + start_ns, first_day(f) + end_ns});
	const char *fact = profile_fact(p, STORE_FACT_LEFT_OUT);

	(void)snprintf(text, sizeof(text), "%s", fact ? fact : "none");
	return text;
}

Test(store_roll, the_largest_steps_that_fit_are_read)
{
	struct fixture f;

	init_marked(&f);
	cr_assert_str_eq(left_out(&f, 0, STORE_ROLL_DAY_NS), "86400");
	cr_assert_str_eq(left_out(&f, 0, STORE_ROLL_DAY_NS - 1), "3600");
	cr_assert_str_eq(left_out(&f, 0, STORE_HOUR_NS), "3600");
	cr_assert_str_eq(left_out(&f, 1, STORE_HOUR_NS), "600");
	cr_assert_str_eq(left_out(&f, STORE_ROLL_SHORT_NS, 2 * STORE_ROLL_SHORT_NS), "600");
	cr_assert_str_eq(left_out(&f, STORE_ROLL_SHORT_NS, 2 * STORE_ROLL_SHORT_NS - 1), "none");
	fixture_reopen(&f, NULL); /* known again from the files */
	cr_assert_str_eq(left_out(&f, 0, STORE_ROLL_DAY_NS), "86400");
	fixture_done(&f);
}

Test(store_roll, a_late_window_is_in_the_next_answer)
{
	enum store_outcome outcome;
	struct fixture f;
	struct profile *p;

	init_marked(&f);
	p = fixture_stack("late", 10, first_day(&f) + 5);
	cr_assert_eq(fixture_push(&f, "s", "h", p, "", &outcome), 0);
	profile_free(p);
	cr_assert_str_eq(left_out(&f, 0, STORE_ROLL_DAY_NS), "none");
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 11);
	/* The files of the old version are none that verify would compare. */
	cr_assert_eq(fixture_verify(&f), 2);
	fixture_reopen(&f, NULL);
	cr_assert_eq(store_roller_pass(f.store, f.now_ns, true), 0);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 11);
	cr_assert_eq(fixture_verify(&f), 2);
	fixture_done(&f);
}

Test(store_roll, verify_finds_a_roll_up_that_is_not_its_source)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 16);
	uint64_t profiles = 0;
	struct fixture f;

	init_marked(&f);
	store_close(f.store);
	f.store = NULL;
	cr_assert_eq(store_verify(f.dir, &out, &profiles), 2, "%s", buf_str(&out));
	cr_assert_neq(strstr(buf_str(&out), "is not what its source gives"), NULL);
	fixture_done(&f);
}

Test(store_roll, retention_takes_roll_ups_with_their_data)
{
	int counts[2] = {0};
	struct fixture f;

	init_marked(&f);
	cr_assert_eq(store_roll_each(f.dir, count_roll, counts), 0);
	cr_assert_eq(counts[0] + counts[1], 2);
	fixture_reopen(&f, &(struct store_options){.retention_ns = 3600 * NSEC_PER_SEC});
	memset(counts, 0, sizeof(counts));
	cr_assert_eq(store_roll_each(f.dir, count_roll, counts), 0);
	cr_assert_eq(counts[0] + counts[1], 0);
	fixture_done(&f);
}

Test(store_roll, the_open_hour_has_none)
{
	int counts[2] = {0};
	enum store_outcome outcome;
	struct fixture f;
	struct profile *p;

	fixture_init(&f, NULL);
	p = fixture_stack("x", 1, f.now_ns);
	cr_assert_eq(fixture_push(&f, "s", "h", p, "", &outcome), 0);
	profile_free(p);
	cr_assert_eq(store_roller_pass(f.store, f.now_ns, true), 0);
	cr_assert_eq(store_roll_each(f.dir, count_roll, counts), 0);
	cr_assert_eq(counts[0] + counts[1], 0);
	fixture_done(&f);
}
