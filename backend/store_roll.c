/* Roll-up files: names, writing, reading. See store_roll.h; their rows are made in store_roll_make.c. */
#include "backend/store_roll.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "backend/store_sql.h"
#include "base/def.h"
#include "base/str.h"

#define PREFIX     "roll-"
#define UNFINISHED ".new" /* behind the name of a file that is being made */

enum { ROLL_VERSION = 1, DAY_SIZE = 8, HOUR_SIZE = 11, ROLL_CACHE_KIB = 4096 };

static const char roll_schema[] =
	"CREATE TABLE roll(id INTEGER PRIMARY KEY, step INTEGER NOT NULL, series INTEGER NOT NULL,"
	" ts INTEGER NOT NULL, n INTEGER NOT NULL, total INTEGER NOT NULL,"
	" windows INTEGER NOT NULL, left_out INTEGER NOT NULL, first INTEGER NOT NULL,"
	" last INTEGER NOT NULL, period INTEGER NOT NULL, period_type TEXT NOT NULL,"
	" period_unit TEXT NOT NULL, facts BLOB NOT NULL, data BLOB NOT NULL);"
	"CREATE UNIQUE INDEX roll_series ON roll(step, series, ts);"
	"CREATE TABLE source(version INTEGER NOT NULL);";

#define ROW_COLUMNS                                                                        \
	"step, series, ts, n, total, windows, left_out, first, last, period, period_type," \
	" period_unit, facts, data"

uint64_t store_roll_version(const struct store_file_state *before,
	const struct store_file_state *own, const struct store_file_state *after)
{
	int64_t parts[] = {own->mark, own->last_id, before->crossing_id ? before->mark : 0,
		before->crossing_id, own->needs_next ? after->mark : 0,
		own->needs_next ? after->last_id : 0};

	return MAX(XXH3_64bits(parts, sizeof(parts)), 1);
}

uint64_t store_roll_day_version(const uint64_t versions[24])
{
	return MAX(XXH3_64bits(versions, 24 * sizeof(*versions)), 1);
}

int store_roll_path(const char *dir, struct store_roll_id id, char ret[STORE_PATH_MAX])
{
	char name[16];
	int n;

	store_dir_name(id.is_day ? id.number * 24 : id.number, name);
	n = snprintf(ret, STORE_PATH_MAX, "%s/data/" PREFIX "%.*s.db", dir,
		id.is_day ? DAY_SIZE : HOUR_SIZE, name);
	return n < 0 || n >= STORE_PATH_MAX ? -ENAMETOOLONG : 0;
}

static bool parse(const char *name, struct store_roll_id *ret, const char **ret_suffix)
{
	char hour_name[] = "00000000-00";
	int32_t hour;

	if (!str_has_prefix(name, PREFIX))
		return false;
	name += strlen(PREFIX);
	if (store_dir_parse(name, &hour)) {
		*ret = (struct store_roll_id){.number = hour};
		*ret_suffix = name + HOUR_SIZE;
		return true;
	}
	if (strnlen(name, DAY_SIZE) < DAY_SIZE)
		return false;
	memcpy(hour_name, name, DAY_SIZE);
	*ret_suffix = name + DAY_SIZE;
	if (!store_dir_parse(hour_name, &hour))
		return false;
	*ret = (struct store_roll_id){.is_day = true, .number = store_roll_day(hour)};
	return true;
}

static DIR *open_data(const char *dir)
{
	char path[STORE_PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/data", dir) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return opendir(path);
}

int store_roll_each(const char *dir, store_roll_file_fn *fn, void *data)
{
	DIR *d = open_data(dir);
	struct dirent *e;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (e = readdir(d)) != NULL) {
		struct store_roll_id id;
		const char *suffix;

		if (parse(e->d_name, &id, &suffix) && strcmp(suffix, ".db") == 0)
			r = fn(data, id);
	}
	(void)closedir(d); /* only read from */
	return r;
}

void store_roll_unlink(const char *dir, struct store_roll_id id)
{
	char path[STORE_PATH_MAX];

	if (store_roll_path(dir, id, path) == 0)
		(void)unlink(path); /* what stays is of an old version, and swept again */
}

void store_roll_unlink_unfinished(const char *dir)
{
	DIR *d = open_data(dir);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL) {
		struct store_roll_id id;
		const char *suffix;

		if (parse(e->d_name, &id, &suffix) && str_has_prefix(suffix, ".db" UNFINISHED))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* tried again before it matters */
	}
	if (d)
		(void)closedir(d); /* only read from */
}

struct sweep {
	const char *dir;
	const int32_t *hours;
	size_t count;
};

static int sweep_one(void *data, struct store_roll_id id)
{
	const struct sweep *w = data;

	for (size_t i = 0; i < w->count; i++) {
		int32_t number = id.is_day ? store_roll_day(w->hours[i]) : w->hours[i];

		if (number == id.number)
			return 0;
	}
	store_roll_unlink(w->dir, id);
	return 0;
}

void store_roll_sweep(const char *dir, const int32_t *hours, size_t count)
{
	struct sweep w = {dir, hours, count};

	(void)store_roll_each(dir, sweep_one, &w); /* tried again in a minute */
}

uint64_t store_roll_bytes(const char *dir, int32_t hour)
{
	struct store_roll_id ids[] = {
		{.number = hour}, {.is_day = true, .number = store_roll_day(hour)}};
	size_t count = hour % 24 == 23 ? 2 : 1;
	char path[STORE_PATH_MAX];
	uint64_t bytes = 0;
	struct stat st;

	for (size_t i = 0; i < count; i++) {
		if (store_roll_path(dir, ids[i], path) == 0 && stat(path, &st) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

static int put_row(void *data, const struct store_roll_row *row)
{
	sqlite3_stmt *s = data;
	const struct store_window_about *a = &row->about;
	const int64_t numbers[] = {row->step_ns, row->series, row->ts_ns, row->n, row->total,
		a->windows, a->left_out, a->first_ns, a->end_ns, a->period};
	int at = 1;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		(void)sqlite3_bind_int64(s, at++, numbers[i]);
	(void)sqlite3_bind_text(s, at++, a->period_type, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, at++, a->period_unit, -1, SQLITE_STATIC);
	(void)sqlite3_bind_blob64(
		s, at++, a->facts_size ? a->facts : "", a->facts_size, SQLITE_STATIC);
	(void)sqlite3_bind_blob64(s, at, row->data, row->size, SQLITE_STATIC);
	return store_sql_run(s);
}

static int fill(sqlite3 *db, const char *dir, struct store_roll_id id, const uint64_t versions[24])
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *put = NULL;
	uint64_t version = id.is_day ? store_roll_day_version(versions) : versions[0];
	char text[64];
	int r = store_sql_exec(db, "BEGIN IMMEDIATE");

	if (r == 0)
		r = store_sql_prepare(db,
			"INSERT INTO roll(" ROW_COLUMNS
			") VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			&put);
	if (r == 0)
		r = store_roll_make(dir, id, versions, put_row, put);
	(void)snprintf(text, sizeof(text), "INSERT INTO source VALUES(%lld)",
		(long long)(int64_t)version); /* fits */
	if (r == 0)
		r = store_sql_exec(db, text);
	return r == 0 ? store_sql_exec(db, "COMMIT") : r;
}

int store_roll_write(const char *dir, struct store_roll_id id, const uint64_t versions[24])
{
	struct store_sql_options o = {.schema = roll_schema,
		.version = ROLL_VERSION,
		.cache_kib = ROLL_CACHE_KIB,
		.is_plain = true};
	char path[STORE_PATH_MAX], temp[STORE_PATH_MAX + 8], log[STORE_PATH_MAX + 16];
	sqlite3 *db = NULL;
	int r = store_roll_path(dir, id, path);

	if (r < 0)
		return r;
	(void)snprintf(temp, sizeof(temp), "%s" UNFINISHED, path); /* both fit */
	(void)snprintf(log, sizeof(log), "%s-journal", temp);
	if ((unlink(temp) < 0 && errno != ENOENT) || (unlink(log) < 0 && errno != ENOENT))
		return -errno;
	r = store_sql_open(temp, &o, NULL, &db);
	if (r == 0)
		r = fill(db, dir, id, versions);
	store_sql_close(db);
	if (r == 0 && rename(temp, path) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(temp); /* swept otherwise */
	return r;
}

int store_roll_read_version(sqlite3 *db, uint64_t *ret)
{
	int64_t version = 0;
	int r = store_sql_number(db, "SELECT version FROM source", &version);

	if (r == 0)
		*ret = (uint64_t)version;
	return r;
}

int store_roll_open(const char *dir, struct store_roll_id id, uint64_t version, sqlite3 **ret)
{
	struct store_sql_options o = {.version = ROLL_VERSION, .is_plain = true};
	char path[STORE_PATH_MAX];
	sqlite3 *db = NULL;
	uint64_t found = 0;
	int r = store_roll_path(dir, id, path);

	if (r == 0 && access(path, F_OK) < 0)
		r = -errno;
	if (r == 0)
		r = store_sql_open(path, &o, NULL, &db);
	if (r == 0)
		r = store_roll_read_version(db, &found);
	if (r == 0 && version && found != version)
		r = -ESTALE;
	if (r < 0) {
		store_sql_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

int store_roll_step(sqlite3_stmt *s, struct store_roll_row *ret)
{
	int r = store_sql_step(s);

	if (r <= 0)
		return r;
	*ret = (struct store_roll_row){
		.step_ns = sqlite3_column_int64(s, 0),
		.series = sqlite3_column_int64(s, 1),
		.ts_ns = sqlite3_column_int64(s, 2),
		.n = sqlite3_column_int64(s, 3),
		.total = sqlite3_column_int64(s, 4),
		.about = {.windows = sqlite3_column_int64(s, 5),
			.left_out = sqlite3_column_int64(s, 6),
			.first_ns = sqlite3_column_int64(s, 7),
			.end_ns = sqlite3_column_int64(s, 8),
			.period = sqlite3_column_int64(s, 9),
			.period_type = store_column_text(s, 10),
			.period_unit = store_column_text(s, 11),
			.facts = sqlite3_column_blob(s, 12),
			.facts_size = (size_t)sqlite3_column_bytes(s, 12)},
		.data = sqlite3_column_blob(s, 13),
		.size = (size_t)sqlite3_column_bytes(s, 13),
	};
	return 1;
}

int store_roll_query_all(sqlite3 *db, sqlite3_stmt **ret)
{
	return store_sql_prepare(db, "SELECT " ROW_COLUMNS " FROM roll ORDER BY id", ret);
}

int store_roll_query(sqlite3 *db, bool by_series, sqlite3_stmt **ret)
{
	return store_sql_prepare(db,
		by_series ? "SELECT " ROW_COLUMNS " FROM roll INDEXED BY roll_series"
			    " WHERE step = ? AND ts >= ? AND ts < ? AND series = ? ORDER BY ts"
			  : "SELECT " ROW_COLUMNS " FROM roll"
			    " WHERE step = ? AND ts >= ? AND ts < ? ORDER BY id",
		ret);
}

int store_roll_rows(sqlite3_stmt *s, int64_t step_ns, int64_t series,
	const struct store_range *range, store_roll_fn *fn, void *data)
{
	struct store_roll_row row;
	int r;

	(void)sqlite3_bind_int64(s, 1, step_ns);
	(void)sqlite3_bind_int64(s, 2, range->start_ns);
	(void)sqlite3_bind_int64(s, 3, range->end_ns);
	if (series)
		(void)sqlite3_bind_int64(s, 4, series);
	while ((r = store_roll_step(s, &row)) > 0) {
		r = fn(data, &row);
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(s);
	return r;
}
