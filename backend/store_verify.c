/*
 * The check of a data directory, by numbers of store.h's invariants: 2 (a window id is there once), 3 (stack ids
 * are in the dictionary), 4 (blobs), that every reference between the files holds, and that roll-ups are what
 * their sources give. It only reads, so it may run beside a backend; what that backend commits meanwhile is either
 * seen whole or not at all.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <xxhash.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/map.h"

#define WINDOW_KEPT_NS ((int64_t)STORE_SEEN_HOURS * STORE_HOUR_NS)

struct verify {
	const char *dir;
	struct buf *out;
	uint64_t faults;
	uint64_t profiles;
	int64_t stack_max, series_max, labels_max;
	char dict_path[STORE_PATH_MAX];
	struct map *windows; /* hash to received time */
	char file[32];       /* at hand, for messages */
};

__attribute__((format(printf, 2, 3))) static void fault(struct verify *v, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args); /* cut at the end is fine */
	va_end(args);
	v->faults++;
	(void)buf_printf(v->out, "%s: %s\n", v->file, text); /* at its limit the count goes on */
}

/* sqlite's own check of the file's structure. */
static int check_structure(struct verify *v, sqlite3 *db)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_sql_prepare(db, "PRAGMA quick_check", &s);

	if (r < 0)
		return r;
	while ((r = store_sql_step(s)) > 0) {
		const char *line = (const char *)sqlite3_column_text(s, 0);

		if (line && strcmp(line, "ok") != 0)
			fault(v, "%s", line);
	}
	return r;
}

/* A file that cannot be opened or read is a fault of its own, not the end of the check. */
static int tell(struct verify *v, int r)
{
	if (r == -EUCLEAN || r == -EPROTO || r == -ENOENT || r == -EIO) {
		fault(v, r == -EPROTO ? "unknown schema version" : "cannot be read: %s",
			strerror(-r));
		return 0;
	}
	return r;
}

static int read_dict_max(struct verify *v)
{
	struct store_sql_options o = {.version = DICT_VERSION};
	_cleanup_(store_sql_closep) sqlite3 *db = NULL;
	int r = store_sql_open(v->dict_path, &o, NULL, &db);

	return r < 0 ? r : store_sql_number(db, "SELECT max(id) FROM stack", &v->stack_max);
}

static int check_dict(struct verify *v)
{
	struct store_sql_options o = {.version = DICT_VERSION};
	sqlite3 *db = NULL;
	int r;

	(void)snprintf(v->file, sizeof(v->file), "dict.db");
	r = store_sql_open(v->dict_path, &o, NULL, &db);
	if (r == 0)
		r = check_structure(v, db);
	store_sql_close(db);
	if (r == 0)
		r = dict_verify(v->dict_path, v->out, &v->faults);
	if (r == 0)
		r = read_dict_max(v);
	return tell(v, r);
}

static int check_catalog(struct verify *v)
{
	struct store_sql_options o = {.version = -1};
	char path[STORE_PATH_MAX];
	sqlite3 *db = NULL;
	int64_t lost = 0;
	int r;

	(void)snprintf(v->file, sizeof(v->file), "catalog.db");
	(void)snprintf(path, sizeof(path), "%.*s/catalog.db", STORE_PATH_MAX - 64, v->dir);
	r = store_sql_open(path, &o, NULL, &db);
	if (r == 0)
		r = check_structure(v, db);
	if (r == 0)
		r = store_sql_number(db, "SELECT max(id) FROM store_labels", &v->labels_max);
	if (r == 0)
		r = store_sql_number(db, "SELECT max(id) FROM store_series", &v->series_max);
	if (r == 0)
		r = store_sql_number(db,
			"SELECT count(*) FROM store_series WHERE labels NOT IN"
			" (SELECT id FROM store_labels)",
			&lost);
	store_sql_close(db);
	if (lost)
		fault(v, "%" PRId64 " series without their labels", lost);
	return tell(v, r);
}

static int check_blob(
	struct verify *v, int64_t row, const void *data, size_t size, int64_t n, int64_t total)
{
	struct blob_reader b;
	struct blob_entry e;
	const char *why = "";
	int64_t sum = 0;
	int r = blob_open(data ? data : "", size, &why, &b);

	if (r < 0) {
		fault(v, "row %" PRId64 ": %s", row, why);
		return 0;
	}
	while ((r = blob_next(&b, &e)) > 0) {
		if (__builtin_add_overflow(sum, e.value, &sum))
			sum = INT64_MAX;
	}
	if (r < 0)
		fault(v, "row %" PRId64 ": blob malformed or not ascending", row);
	else if (b.n != n)
		fault(v, "row %" PRId64 ": blob has %u entries, the row says %" PRId64, row, b.n,
			n);
	else if (sum != total || b.total != total)
		fault(v, "row %" PRId64 ": blob adds up to %" PRId64 ", the row says %" PRId64, row,
			sum, total);
	/* Written meanwhile, perhaps: ask again before it is called a fault. */
	if ((int64_t)b.id > v->stack_max) {
		r = read_dict_max(v);
		if (r < 0)
			return r;
		if ((int64_t)b.id > v->stack_max)
			fault(v, "row %" PRId64 ": stack %" PRIu64 " is not in dict.db", row, b.id);
	}
	return 0;
}

static int check_rows(struct verify *v, sqlite3 *db, int32_t hour)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_sql_prepare(db,
		"SELECT p.id, p.series, p.ts, p.n, p.total, p.data, q.id FROM prof p"
		" LEFT JOIN profile q ON q.id = p.profile",
		&s);

	while (r == 0 && (r = store_sql_step(s)) > 0) {
		int64_t row = sqlite3_column_int64(s, 0);
		int64_t series = sqlite3_column_int64(s, 1);

		if (series < 1 || series > v->series_max)
			fault(v, "row %" PRId64 ": series %" PRId64 " is not in catalog.db", row,
				series);
		if (store_hour(sqlite3_column_int64(s, 2)) != hour)
			fault(v, "row %" PRId64 ": its time is of another hour", row);
		if (sqlite3_column_type(s, 6) == SQLITE_NULL)
			fault(v, "row %" PRId64 ": without its profile", row);
		r = check_blob(v, row, sqlite3_column_blob(s, 5),
			(size_t)sqlite3_column_bytes(s, 5), sqlite3_column_int64(s, 3),
			sqlite3_column_int64(s, 4));
	}
	return r;
}

static int check_windows(struct verify *v, sqlite3 *db)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_sql_prepare(db, "SELECT labels, id, received FROM window", &s);

	while (r == 0 && (r = store_sql_step(s)) > 0) {
		int64_t labels = sqlite3_column_int64(s, 0);
		const void *id = sqlite3_column_text(s, 1);
		int64_t received_ns = sqlite3_column_int64(s, 2), apart_ns;
		uint64_t hash = XXH3_64bits_withSeed(
			id ? id : "", (size_t)sqlite3_column_bytes(s, 1), (uint64_t)labels);
		bool is_new;
		uint64_t *before = map_put(v->windows, &hash, sizeof(hash), &is_new);

		if (!before)
			return -ENOMEM;
		apart_ns = llabs(received_ns - (int64_t)*before);
		if (!is_new && apart_ns < WINDOW_KEPT_NS)
			fault(v, "window %.128s is stored twice", id ? (const char *)id : "");
		*before = (uint64_t)received_ns;
		if (labels < 1 || labels > v->labels_max)
			fault(v, "window %.128s: its label set is not in catalog.db",
				id ? (const char *)id : "");
		r = 0;
	}
	return r;
}

static int check_file(struct verify *v, int32_t hour)
{
	_cleanup_(store_file_closep) struct store_file *f = NULL;
	int64_t profiles = 0, windows = 0;
	sqlite3 *db;
	char name[16];
	int r;

	store_dir_name(hour, name);
	(void)snprintf(v->file, sizeof(v->file), "data/%s.db", name);
	r = store_file_open_read(v->dir, hour, &f);
	if (r < 0)
		return r;
	db = store_file_db(f);
	r = check_structure(v, db);
	if (r == 0)
		r = store_sql_exec(db, "BEGIN");
	if (r == 0)
		r = check_rows(v, db, hour);
	if (r == 0)
		r = check_windows(v, db);
	if (r == 0)
		r = store_sql_number(db, "SELECT count(*) FROM profile", &profiles);
	if (r == 0)
		r = store_sql_number(db, "SELECT count(*) FROM window", &windows);
	if (r == 0 && windows > profiles)
		fault(v, "%" PRId64 " windows for %" PRId64 " profiles", windows, profiles);
	v->profiles += (uint64_t)profiles;
	return r;
}

/* What was set aside is a fault until somebody has looked after it. */
static int check_set_aside(struct verify *v)
{
	char path[STORE_PATH_MAX];
	struct dirent *e;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%.*s/data", STORE_PATH_MAX - 64, v->dir);
	d = opendir(path);
	if (!d)
		return -errno;
	while ((e = readdir(d)) != NULL) {
		if (!store_dir_is_damaged(e->d_name))
			continue;
		(void)snprintf(v->file, sizeof(v->file), "data/%.26s", e->d_name);
		fault(v, "was set aside as damaged; its profiles are not served");
	}
	(void)closedir(d); /* only read from */
	return 0;
}

static void roll_fault(void *data, const char *file, const char *text)
{
	struct verify *v = data;

	(void)snprintf(v->file, sizeof(v->file), "%s", file); /* names of ours fit */
	fault(v, "%s", text);
}

int store_verify(const char *dir, struct buf *out, uint64_t *ret_profiles)
{
	struct verify v = {.dir = dir, .out = out};
	int32_t *hours = NULL;
	size_t count = 0;
	int r;

	if (strlen(dir) > STORE_PATH_MAX - 64)
		return -ENAMETOOLONG;
	(void)snprintf(v.dict_path, sizeof(v.dict_path), "%.*s/dict.db", STORE_PATH_MAX - 64, dir);
	r = store_dir_list(dir, &hours, &count);
	if (r < 0)
		return r;
	v.windows = map_new(SIZE_MAX);
	r = v.windows ? check_catalog(&v) : -ENOMEM;
	if (r == 0)
		r = check_dict(&v);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = tell(&v, check_file(&v, hours[i]));
	if (r == 0)
		r = check_set_aside(&v);
	if (r == 0)
		r = store_roll_verify(dir, roll_fault, &v);
	map_free(v.windows);
	free(hours);
	if (r < 0)
		return r;
	*ret_profiles = v.profiles;
	return (int)MIN(v.faults, (uint64_t)INT_MAX);
}
