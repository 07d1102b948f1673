/*
 * Retention: by age, by size, never the current hour, nothing left behind.
 */
#include <criterion/criterion.h>
#include <dirent.h>

#include "backend/store_internal.h"
#include "base/def.h"
#include "store_fixture.h"

static void push_at(struct fixture *f, int64_t hours_ago, int64_t value)
{
	_cleanup_(profile_freep) struct profile *p =
		fixture_stack("x", value, f->now_ns - hours_ago * FIXTURE_HOUR_NS);
	enum store_outcome outcome;

	cr_assert_eq(fixture_push(f, "s", "h", p, "", &outcome), 0);
}

/* Files of other hours than the current one, logs included. */
static int count_old(const struct fixture *f)
{
	char path[96], now[16];
	struct dirent *e;
	int count = 0;
	DIR *d;

	store_dir_name(store_hour(f->now_ns), now);
	(void)snprintf(path, sizeof(path), "%s/data", f->dir);
	d = opendir(path);
	cr_assert(d);
	while ((e = readdir(d)) != NULL)
		count += e->d_name[0] != '.' && strncmp(e->d_name, now, strlen(now)) != 0;
	(void)closedir(d);
	return count;
}

Test(store_retention, files_older_than_the_age_go)
{
	struct fixture f;

	fixture_init(&f, NULL);
	push_at(&f, 0, 1);
	push_at(&f, 5, 10);
	push_at(&f, 30, 100);
	push_at(&f, 90, 1000);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 1111);
	fixture_reopen(&f, &(struct store_options){.retention_ns = 40 * 3600 * NSEC_PER_SEC});
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 111);
	fixture_reopen(&f, &(struct store_options){.retention_ns = 1});
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 1);
	cr_assert_eq(store_stats(f.store).files, 1);
	cr_assert_eq(count_old(&f), 0);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

Test(store_retention, above_the_size_the_oldest_go_first_and_the_current_hour_stays)
{
	struct fixture f;
	uint64_t one;

	fixture_init(&f, NULL);
	push_at(&f, 0, 1);
	push_at(&f, 1, 10);
	push_at(&f, 2, 100);
	fixture_reopen(&f, NULL); /* so that nothing waits in a WAL */
	one = store_dir_bytes(f.dir, store_hour(f.now_ns));
	cr_assert_gt(one, 0);
	fixture_reopen(&f, &(struct store_options){.size_max_bytes = 2 * one});
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 11);
	fixture_reopen(&f, &(struct store_options){.size_max_bytes = 1});
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 1);
	cr_assert_eq(fixture_verify(&f), 1);
	fixture_done(&f);
}

Test(store_retention, names_are_hours_and_nothing_else)
{
	char name[16];
	int32_t hour;

	cr_assert(store_dir_parse("19700101-00", &hour));
	cr_assert_eq(hour, 0);
	cr_assert(store_dir_parse("20240229-23.db", &hour));
	store_dir_name(hour, name);
	cr_assert_str_eq(name, "20240229-23");
	cr_assert_eq((int64_t)hour * 3600, 1709247600);
	cr_assert(!store_dir_parse("20230229-23", &hour));
	cr_assert(!store_dir_parse("20240229-24", &hour));
	cr_assert(!store_dir_parse("r10m-20240229", &hour));
	cr_assert(!store_dir_parse("2024022923", &hour));
	cr_assert(!store_dir_parse("", &hour));
}

Test(store_retention, logs_without_their_file_are_swept)
{
	struct fixture f;
	char path[128];
	FILE *file;

	fixture_init(&f, NULL);
	push_at(&f, 0, 1);
	(void)snprintf(path, sizeof(path), "%s/data/20200101-00.db-wal", f.dir);
	file = fopen(path, "we");
	cr_assert(file);
	(void)fclose(file);
	fixture_reopen(&f, NULL);
	cr_assert_eq(access(path, F_OK), -1);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 1);
	fixture_done(&f);
}
