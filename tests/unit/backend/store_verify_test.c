/*
 * store_verify finds each kind of damage, and the store serves what is whole beside it.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "backend/store_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "store_fixture.h"

/* A store with two profiles, closed, and then changed by the statement in one of its files. */
static void damage(struct fixture *f, const char *file, const char *statement)
{
	enum store_outcome outcome;
	char path[160], name[16];
	sqlite3 *db = NULL;

	fixture_init(f, NULL);
	for (int i = 1; i <= 2; i++) {
		struct profile *p = fixture_stack(i == 1 ? "a" : "b", i, f->now_ns);

		cr_assert_eq(fixture_push(f, "s", "h", p, i == 1 ? "w1" : "w2", &outcome), 0);
		profile_free(p);
	}
	store_close(f->store);
	f->store = NULL;
	store_dir_name(store_hour(f->now_ns), name);
	(void)snprintf(
		path, sizeof(path), file ? "%s/%s" : "%s/data/%s.db", f->dir, file ? file : name);
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(store_sql_exec(db, statement), 0, "%s", sqlite3_errmsg(db));
	cr_assert_gt(sqlite3_changes(db), 0);
	store_sql_close(db);
}

static void assert_found(struct fixture *f, const char *text)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	uint64_t profiles = 0;

	cr_assert_gt(store_verify(f->dir, &out, &profiles), 0);
	cr_assert(strstr(buf_str(&out), text), "%s", buf_str(&out));
	cr_assert_eq(buf_str(&out)[out.size - 1], '\n');
	fixture_done(f);
}

Test(store_verify, a_changed_blob)
{
	struct fixture f;

	damage(&f, NULL, "UPDATE prof SET data = substr(data, 1, 21) || x'7f' WHERE id = 1");
	assert_found(&f, "row 1: blob with a wrong crc32c");
}

Test(store_verify, a_wrong_total)
{
	struct fixture f;

	damage(&f, NULL, "UPDATE prof SET total = total + 1 WHERE id = 2");
	assert_found(&f, "row 2: blob adds up to 2, the row says 3");
}

Test(store_verify, a_wrong_count)
{
	struct fixture f;

	damage(&f, NULL, "UPDATE prof SET n = 7 WHERE id = 2");
	assert_found(&f, "row 2: blob has 1 entries, the row says 7");
}

Test(store_verify, a_row_of_another_hour)
{
	struct fixture f;

	damage(&f, NULL, "UPDATE prof SET ts = 1 WHERE id = 2");
	assert_found(&f, "row 2: its time is of another hour");
}

Test(store_verify, a_stack_that_the_dictionary_lacks)
{
	struct fixture f;

	damage(&f, "dict.db", "DELETE FROM stack WHERE id = 2");
	assert_found(&f, "stack 2 is not in dict.db");
}

Test(store_verify, a_string_that_a_frame_lacks)
{
	struct fixture f;

	damage(&f, "dict.db", "DELETE FROM string WHERE id = (SELECT max(id) FROM string)");
	assert_found(&f, "refers to a record that is not there");
}

Test(store_verify, a_changed_string)
{
	struct fixture f;

	damage(&f, "dict.db", "UPDATE string SET data = 'other' WHERE id = 1");
	assert_found(&f, "string 1: hash does not fit the data");
}

Test(store_verify, a_series_that_the_catalog_lacks)
{
	struct fixture f;

	damage(&f, "catalog.db", "DELETE FROM store_series");
	assert_found(&f, "series 1 is not in catalog.db");
}

Test(store_verify, a_window_in_two_files)
{
	struct fixture f, g;
	enum store_outcome outcome;
	char path[160], name[16];
	sqlite3 *db = NULL;

	fixture_init(&f, NULL);
	for (int i = 0; i < 2; i++) {
		struct profile *p = fixture_stack("a", 1, f.now_ns - i * FIXTURE_HOUR_NS);

		cr_assert_eq(fixture_push(&f, "s", "h", p, i ? "w1" : "w2", &outcome), 0);
		profile_free(p);
	}
	store_close(f.store);
	f.store = NULL;
	store_dir_name(store_hour(f.now_ns), name);
	(void)snprintf(path, sizeof(path), "%s/data/%s.db", f.dir, name);
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(store_sql_exec(db, "UPDATE window SET id = 'w1'"), 0);
	store_sql_close(db);
	g = f;
	assert_found(&g, "window w1 is stored twice");
}

Test(store_verify, a_file_that_is_no_database)
{
	struct fixture f;
	char path[160], name[16];
	FILE *file;

	damage(&f, NULL, "UPDATE prof SET n = n");
	store_dir_name(store_hour(f.now_ns) - 1, name);
	(void)snprintf(path, sizeof(path), "%s/data/%s.db", f.dir, name);
	file = fopen(path, "we");
	cr_assert(file);
	for (int i = 0; i < 2000; i++)
		(void)fputs("not a database ", file);
	(void)fclose(file);
	/* It keeps nobody from the rest, and is told of. */
	fixture_reopen(&f, NULL);
	struct store_range now = {f.now_ns, f.now_ns + 1};
	cr_assert_eq(fixture_total(&f, "{}", now), 3);
	cr_assert_eq(store_stats(f.store).files_damaged, 1);
	store_close(f.store);
	f.store = NULL;
	assert_found(&f, "was set aside as damaged");
}

/* One window, pushed by a recording on demand or none. */
static int push_one(struct fixture *f, const char *recording, int64_t value)
{
	_cleanup_(profile_freep) struct profile *p = fixture_stack("x", value, f->now_ns);
	enum store_outcome outcome;

	if (*recording)
		cr_assert_eq(profile_set_fact(p, "recording", recording), 0);
	return fixture_push(f, "s", "h", p, "", &outcome);
}

/* The index of sources is touched by nothing but a push with a recording: damage that only a write meets. */
Test(store_verify, damage_that_a_write_meets_sets_the_file_aside_and_the_next_push_is_stored)
{
	struct fixture f;
	char path[160], name[16], garbage[8192];
	sqlite3 *db = NULL;
	int64_t page = 0;
	FILE *file;

	fixture_init(&f, NULL);
	cr_assert_eq(push_one(&f, "", 1), 0);
	store_close(f.store);
	f.store = NULL;
	store_dir_name(store_hour(f.now_ns), name);
	(void)snprintf(path, sizeof(path), "%s/data/%s.db", f.dir, name);
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(
		store_sql_number(db,
			"SELECT rootpage FROM sqlite_master WHERE tbl_name = 'source' AND type = "
			"'index'",
			&page),
		0);
	store_sql_close(db);
	file = fopen(path, "r+e");
	cr_assert(file && page > 1);
	memset(garbage, 0xa5, sizeof(garbage));
	(void)fseek(file, (long)(page - 1) * (long)sizeof(garbage), SEEK_SET);
	cr_assert_eq(fwrite(garbage, sizeof(garbage), 1, file), 1);
	(void)fclose(file);

	fixture_reopen(&f, NULL);
	cr_assert_eq(push_one(&f, "r", 10), -EUCLEAN); /* not acknowledged, so it comes again */
	cr_assert_eq(store_stats(f.store).files_damaged, 1);
	cr_assert_eq(push_one(&f, "r", 10), 0);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 10);
	store_close(f.store);
	f.store = NULL;
	assert_found(&f, "was set aside as damaged");
}

Test(store_verify, a_damaged_blob_is_counted_in_the_answer_and_the_rest_is_there)
{
	struct fixture f;

	damage(&f, NULL, "UPDATE prof SET data = x'00' WHERE id = 1");
	fixture_reopen(&f, NULL);
	_cleanup_(profile_freep) struct profile *p = fixture_flamegraph(&f, "{}", fixture_all(&f));
	cr_assert_eq(profile_total(p, 0), 2);
	cr_assert_str_eq(profile_fact(p, "store.damaged_profiles"), "1");
	fixture_done(&f);
}

Test(store_verify, a_directory_that_is_not_there)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	uint64_t profiles;

	cr_assert_eq(store_verify("/nonexistent/flame", &out, &profiles), -ENOENT);
}
