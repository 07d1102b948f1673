/*
 * What goes in comes out: pushes, duplicates, clamped times, names, refusals.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/def.h"
#include "base/file.h"
#include "store_fixture.h"

static void push_ok(struct fixture *f, const char *service, const char *host, struct profile *p,
	const char *id, enum store_outcome expected)
{
	enum store_outcome outcome = 7;

	int r = fixture_push(f, service, host, p, id, &outcome);

	cr_assert_eq(r, 0, "%s", strerror(-r));
	cr_assert_eq(outcome, expected);
	profile_free(p);
}

Test(store_push, a_pushed_profile_is_answered_with_its_stacks_and_values)
{
	struct fixture f;
	struct sample s;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, f.now_ns), "w1", STORE_STORED);
	_cleanup_(profile_freep) struct profile *p =
		fixture_flamegraph(&f, "{service_name=\"shop\"}", fixture_all(&f));

	cr_assert_eq(profile_sample_count(p), 1);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, 3);
	cr_assert_str_eq(profile_text(p, profile_frame_at(p, s.frames[0])->name), "leaf");
	cr_assert_str_eq(profile_text(p, profile_frame_at(p, s.frames[2])->name), "root");
	cr_assert_eq(s.values[0], 700);
	cr_assert_str_eq(profile_text(p, profile_type_at(p, 0).unit), "nanoseconds");
	cr_assert_eq(profile_start_ns(p), f.now_ns);
	cr_assert_eq(profile_duration_ns(p), (int64_t)NSEC_PER_SEC);
	cr_assert_eq(profile_period(p), 10000000);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

Test(store_push, the_same_window_twice_is_stored_once)
{
	struct fixture f;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, f.now_ns), "w1", STORE_STORED);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, f.now_ns), "w1", STORE_DUPLICATE);
	fixture_reopen(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, f.now_ns), "w1", STORE_DUPLICATE);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 700);
	cr_assert_eq(store_stats(f.store).duplicates, 1);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

/* A time that is clamped follows the receipt, so the second copy would go to another hour's file. */
Test(store_push, a_duplicate_is_found_in_the_file_of_an_earlier_hour)
{
	struct fixture f;

	fixture_init(&f, NULL);
	f.now_ns -= 5 * FIXTURE_HOUR_NS;
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, 0), "w1", STORE_STORED);
	f.now_ns += 2 * FIXTURE_HOUR_NS;
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, 0), "w1", STORE_DUPLICATE);
	fixture_reopen(&f, NULL);
	f.now_ns += 2 * FIXTURE_HOUR_NS;
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 700, 0), "w1", STORE_DUPLICATE);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 1, 0), "w2", STORE_STORED);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 701);
	cr_assert_eq(fixture_verify(&f), 2);
	fixture_done(&f);
}

Test(store_push, an_id_hides_no_window_of_other_labels)
{
	struct fixture f;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 1, f.now_ns), "w1", STORE_STORED);
	push_ok(&f, "shop", "h2", fixture_stack("leaf", 2, f.now_ns), "w1", STORE_STORED);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 3);
	cr_assert_eq(fixture_verify(&f), 2);
	fixture_done(&f);
}

Test(store_push, windows_without_an_id_are_never_duplicates)
{
	struct fixture f;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 5, f.now_ns), "", STORE_STORED);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 5, f.now_ns), "", STORE_STORED);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 10);
	cr_assert_eq(fixture_verify(&f), 2);
	fixture_done(&f);
}

Test(store_push, the_seeded_fault_stores_a_duplicate_twice)
{
	struct fixture f;

	fixture_init(&f, &(struct store_options){.fault_no_dedupe = true});
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 5, f.now_ns), "w1", STORE_STORED);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 5, f.now_ns), "w1", STORE_STORED);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 10);
	fixture_done(&f);
}

Test(store_push, times_far_off_are_those_of_the_receipt)
{
	struct fixture f;
	struct store_range now;

	fixture_init(&f, NULL);
	now = (struct store_range){f.now_ns, f.now_ns + 1};
	push_ok(&f, "zero", "h", fixture_stack("a", 1, 0), "w1", STORE_STORED);
	push_ok(&f, "future", "h", fixture_stack("a", 10, f.now_ns + 3 * FIXTURE_HOUR_NS), "w2",
		STORE_STORED);
	push_ok(&f, "past", "h", fixture_stack("a", 100, f.now_ns - 8 * 24 * FIXTURE_HOUR_NS), "w3",
		STORE_STORED);
	push_ok(&f, "absurd", "h", fixture_stack("a", 1000, INT64_MIN), "w4", STORE_STORED);
	push_ok(&f, "late", "h", fixture_stack("a", 10000, f.now_ns - 6 * 24 * FIXTURE_HOUR_NS),
		"w5", STORE_STORED);
	cr_assert_eq(fixture_total(&f, "{}", now), 1111);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 11111);
	cr_assert_eq(store_stats(f.store).clamped, 4);
	cr_assert_eq(fixture_verify(&f), 5);
	fixture_done(&f);
}

Test(store_push, names_are_text_and_never_paths)
{
	static const char *const names[] = {"../../../../tmp/flame-escaped", "/etc/passwd", "a b",
		"\"'", "<svg onload=alert(1)>", "\xe6\x97\xa5\xe6\x9c\xac",
		"'; DROP TABLE prof; --"};
	struct fixture f;
	struct stat st;

	fixture_init(&f, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		push_ok(&f, names[i], names[i], fixture_stack(names[i], 1, f.now_ns), names[i],
			STORE_STORED);
	cr_assert_eq(fixture_total(&f, "{service_name=\"../../../../tmp/flame-escaped\"}",
			     fixture_all(&f)),
		1);
	cr_assert_eq(
		fixture_total(&f, "{service_name=\"'; DROP TABLE prof; --\"}", fixture_all(&f)), 1);
	_cleanup_(profile_freep) struct profile *p = fixture_flamegraph(&f, "{}", fixture_all(&f));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		cr_assert_eq(fixture_leaf(p, names[i]), 1, "%s", names[i]);
	cr_assert_eq(stat("/tmp/flame-escaped", &st), -1);
	cr_assert_eq(fixture_verify(&f), ARRAY_SIZE(names));
	fixture_done(&f);
}

Test(store_push, a_disk_nearly_full_refuses_writes_and_answers_reads)
{
	struct fixture f;
	enum store_outcome outcome;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("leaf", 5, f.now_ns), "w1", STORE_STORED);
	fixture_reopen(&f, &(struct store_options){.free_min_bytes = UINT64_MAX});
	_cleanup_(profile_freep) struct profile *p = fixture_stack("leaf", 5, f.now_ns);
	cr_assert_eq(fixture_push(&f, "shop", "h1", p, "w2", &outcome), -ENOSPC);
	cr_assert_eq(store_stats(f.store).refused_full, 1);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 5);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

Test(store_push, an_empty_profile_is_stored_and_adds_nothing)
{
	struct fixture f;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_profile(1, 0, f.now_ns), "w1", STORE_STORED);
	push_ok(&f, "shop", "h1", fixture_profile(1, 0, f.now_ns), "w1", STORE_DUPLICATE);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 0);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

Test(store_push, negative_values_are_dropped_and_counted)
{
	struct fixture f;

	fixture_init(&f, NULL);
	push_ok(&f, "shop", "h1", fixture_stack("bad", -5, f.now_ns), "w1", STORE_STORED);
	push_ok(&f, "shop", "h1", fixture_stack("good", 5, f.now_ns), "w2", STORE_STORED);
	_cleanup_(profile_freep) struct profile *p = fixture_flamegraph(&f, "{}", fixture_all(&f));
	cr_assert_eq(profile_total(p, 0), 5);
	cr_assert_str_eq(profile_fact(p, "store.negatives_dropped"), "1");
	cr_assert_eq(fixture_verify(&f), 1 + 1);
	fixture_done(&f);
}

Test(store_push, a_second_process_is_kept_out)
{
	struct fixture f;
	struct store *second = NULL;
	const char *why = "";

	fixture_init(&f, NULL);
	cr_assert_eq(store_open(f.dir, NULL, &why, &second), -EBUSY);
	cr_assert_str_eq(why, "another process has this data directory open");
	fixture_done(&f);
}

Test(store_push, a_caller_whose_time_is_up_gets_no_wrong_answer)
{
	struct fixture f;
	enum store_outcome outcome = 7;
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "x"}};

	fixture_init(&f, &(struct store_options){.commit_interval_ms = 400});
	_cleanup_(profile_freep) struct profile *p = fixture_stack("leaf", 5, f.now_ns);
	struct store_push push = {labels, 2, p, "w1", f.now_ns};
	cr_assert_eq(store_push(f.store, &push, 1, 1, &outcome), -ETIMEDOUT);
	/* Whichever state it was left in, the retry settles it and there is one copy. */
	cr_assert_eq(store_push(f.store, &push, 1, FIXTURE_TIMEOUT_MS, &outcome), 0);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 5);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

Test(store_push, an_unknown_schema_version_is_refused)
{
	struct fixture f;
	char path[128];
	const char *why = "";

	fixture_init(&f, NULL);
	store_close(f.store);
	f.store = NULL;
	(void)snprintf(path, sizeof(path), "%s/dict.db", f.dir);
	cr_assert_eq(unlink(path), 0);
	/* user_version is the big-endian number at byte 60 of a database's header. */
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	(void)snprintf(path, sizeof(path), "%s/catalog.db", f.dir);
	cr_assert_eq(file_read(path, &b), 0);
	b.data[63] = 99;
	(void)snprintf(path, sizeof(path), "%s/dict.db", f.dir);
	cr_assert_eq(file_write_atomic(path, b.data, b.size), 0);
	cr_assert_eq(store_open(f.dir, NULL, &why, &f.store), -EPROTO);
	cr_assert_str_eq(why, "a database has an unknown schema version");
	f.store = NULL;
	fixture_done(&f);
}

Test(store_push, more_than_the_queue_takes_is_refused_at_once)
{
	enum { COUNT = 8193 };
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "x"}};
	struct store_push *pushes = calloc(COUNT, sizeof(*pushes));
	enum store_outcome *outcomes = calloc(COUNT, sizeof(*outcomes));
	struct fixture f;

	cr_assert(pushes && outcomes);
	fixture_init(&f, NULL);
	_cleanup_(profile_freep) struct profile *p = fixture_stack("leaf", 5, f.now_ns);
	for (int i = 0; i < COUNT; i++)
		pushes[i] = (struct store_push){labels, 2, p, "", f.now_ns};
	cr_assert_eq(store_push(f.store, pushes, COUNT, FIXTURE_TIMEOUT_MS, outcomes), -EBUSY);
	cr_assert_eq(store_stats(f.store).refused_busy, COUNT);
	cr_assert_eq(store_push(f.store, pushes, 100, FIXTURE_TIMEOUT_MS, outcomes), 0);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 500);
	free(pushes);
	free(outcomes);
	fixture_done(&f);
}

Test(store_push, two_megabytes_are_committed_before_the_interval_is_over, .timeout = 120)
{
	struct fixture f;
	enum store_outcome outcome;
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "x"}};

	fixture_init(&f, &(struct store_options){.commit_interval_ms = 3600 * 1000});
	_cleanup_(profile_freep) struct profile *p = fixture_profile(1, 60000, f.now_ns);
	struct store_push push = {labels, 2, p, "w1", f.now_ns};
	cr_assert_eq(store_push(f.store, &push, 1, 100 * 1000, &outcome), 0);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), profile_total(p, 0));
	fixture_done(&f);
}

Test(store_push, what_is_queued_is_committed_by_the_close)
{
	struct fixture f;
	enum store_outcome outcome;
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "x"}};

	fixture_init(&f, &(struct store_options){.commit_interval_ms = 3600 * 1000});
	_cleanup_(profile_freep) struct profile *p = fixture_stack("leaf", 5, f.now_ns);
	struct store_push push = {labels, 2, p, "w1", f.now_ns};
	/* The writer takes it at once; a second is long, so the caller leaves it to the commit. */
	cr_assert_eq(store_push(f.store, &push, 1, 1000, &outcome), -ETIMEDOUT);
	fixture_reopen(&f, NULL);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 5);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}
