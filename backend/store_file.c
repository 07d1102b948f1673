/*
 * One data file, DIR/data/YYYYMMDD-HH.db:
 *
 *	profile(id, received, sent, duration, period, period_type, period_unit, facts)	one row a push; sent is
 *		the time that the sender gave, if it was clamped, else NULL
 *	prof(id, series, ts, n, total, profile, span, source, crosses, data)
 *		one row a series of it; data is a blob (blob.h). The window ends at ts + span, as far as overlaps
 *		go; crosses says that this is in the next hour. source 0: the continuous recording, unfiltered
 *	source(id, recording, is_filtered)			which recordings the other rows are of
 *	window(labels, id, received)				window ids, by label set
 *	file(mark)						a number at random: which file this is
 *
 * The index on prof holds all that a timeline needs, so totals are read without touching blobs; rows lie in the
 * order they came, so a commit writes few pages. A window id counts within its label set: the views of one
 * window may share an id, and nobody's id hides the windows of others.
 */
#include <errno.h>

#include "backend/store_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"

/* With more series than this, the whole index is read once instead of a search each. */
enum { SEARCHES_MAX = 64 };

static const char file_schema[] =
	"CREATE TABLE profile(id INTEGER PRIMARY KEY, received INTEGER NOT NULL, sent INTEGER,"
	" duration INTEGER NOT NULL, period INTEGER NOT NULL, period_type TEXT NOT NULL,"
	" period_unit TEXT NOT NULL, facts BLOB NOT NULL);"
	"CREATE TABLE prof(id INTEGER PRIMARY KEY, series INTEGER NOT NULL, ts INTEGER NOT NULL,"
	" n INTEGER NOT NULL, total INTEGER NOT NULL, profile INTEGER NOT NULL,"
	" span INTEGER NOT NULL, source INTEGER NOT NULL, crosses INTEGER NOT NULL,"
	" data BLOB NOT NULL);"
	"CREATE INDEX prof_series ON prof(series, ts, total, source);"
	"CREATE INDEX prof_source ON prof(series) WHERE source <> 0;"
	"CREATE INDEX prof_crosses ON prof(crosses) WHERE crosses <> 0;"
	"CREATE TABLE source(id INTEGER PRIMARY KEY, recording TEXT NOT NULL,"
	" is_filtered INTEGER NOT NULL, UNIQUE(recording, is_filtered));"
	"CREATE TABLE file(mark INTEGER NOT NULL);"
	"INSERT INTO file VALUES(random());"
	"CREATE TABLE window(labels INTEGER NOT NULL, id TEXT NOT NULL, received INTEGER NOT NULL,"
	" PRIMARY KEY(labels, id)) WITHOUT ROWID;";

enum file_statement {
	PUT_WINDOW,
	HAS_WINDOW,
	PUT_PROFILE,
	PUT_VALUES,
	PUT_SOURCE,
	FIND_SOURCE,
	STATEMENT_COUNT
};

static const char *const file_statements[STATEMENT_COUNT] = {
	[PUT_WINDOW] = "INSERT OR IGNORE INTO window(labels, id, received) VALUES(?, ?, ?)",
	[HAS_WINDOW] = "SELECT 1 FROM window WHERE labels = ? AND id = ?",
	[PUT_PROFILE] =
		"INSERT INTO profile(received, sent, duration, period, period_type, period_unit,"
		" facts) VALUES(?, ?, ?, ?, ?, ?, ?)",
	[PUT_VALUES] =
		"INSERT INTO prof(series, ts, n, total, profile, span, source, crosses, data)"
		" VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
	[PUT_SOURCE] = "INSERT OR IGNORE INTO source(recording, is_filtered) VALUES(?, ?)",
	[FIND_SOURCE] = "SELECT id FROM source WHERE recording = ? AND is_filtered = ?",
};

struct store_file {
	sqlite3 *db;
	int32_t hour;
	bool in_transaction;
	struct store_file_state state, committed; /* of the writer's, as are the statements */
	sqlite3_stmt *statements[STATEMENT_COUNT];
};

static int open_file(const char *dir, int32_t hour, const struct store_sql_options *o,
	const char **why, struct store_file **ret)
{
	char path[STORE_PATH_MAX];
	struct store_file *f;
	int r = store_dir_path(dir, hour, path);

	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->hour = hour;
	r = store_sql_open(path, o, why, &f->db);
	if (r < 0) {
		free(f);
		return r;
	}
	*ret = f;
	return 0;
}

/*
 * A new file is made whole under another name, so that no reader ever meets it without its tables or while it
 * changes to WAL. What a crash leaves is of no use and goes first.
 */
static int make_file(
	const char *dir, const char *path, const struct store_sql_options *o, const char **why)
{
	static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
	char temp[STORE_PATH_MAX + 32];
	char parent[STORE_PATH_MAX + 8];
	sqlite3 *db = NULL;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		(void)snprintf(temp, sizeof(temp), "%s.new%s", path, suffixes[i]); /* fits */
		if (unlink(temp) < 0 && errno != ENOENT)
			return -errno;
	}
	(void)snprintf(temp, sizeof(temp), "%s.new", path);
	r = store_sql_open(temp, o, why, &db);
	store_sql_close(db); /* the last one, so it leaves no WAL behind */
	if (r < 0)
		return r;
	if (rename(temp, path) < 0)
		return -errno;
	(void)snprintf(parent, sizeof(parent), "%s/data", dir); /* shorter than path */
	return store_dir_sync(parent);
}

int store_file_open(
	const char *dir, int32_t hour, bool create, const char **why, struct store_file **ret)
{
	struct store_sql_options o = {
		.schema = file_schema, .version = STORE_FILE_VERSION, .cache_kib = 16 << 10};
	char path[STORE_PATH_MAX];
	struct store_file *f = NULL;
	int r = store_dir_path(dir, hour, path);

	if (r == 0 && access(path, F_OK) < 0)
		r = create && errno == ENOENT ? make_file(dir, path, &o, why) : -errno;
	if (r == 0)
		r = open_file(dir, hour, &o, why, &f);
	for (int i = 0; r == 0 && i < STATEMENT_COUNT; i++)
		r = store_sql_prepare(f->db, file_statements[i], &f->statements[i]);
	if (r == 0)
		r = store_file_read_state(f, &f->state);
	if (r < 0 || !f) {
		store_file_close(f);
		return r;
	}
	f->committed = f->state;
	*ret = f;
	return 0;
}

int store_file_open_read(const char *dir, int32_t hour, struct store_file **ret)
{
	struct store_sql_options o = {.version = STORE_FILE_VERSION};

	return open_file(dir, hour, &o, NULL, ret);
}

void store_file_close(struct store_file *f)
{
	if (!f)
		return;
	for (int i = 0; i < STATEMENT_COUNT; i++)
		(void)sqlite3_finalize(f->statements[i]);
	store_sql_close(f->db);
	free(f);
}

void store_file_closep(struct store_file **f)
{
	store_file_close(*f);
}

int32_t store_file_hour(const struct store_file *f)
{
	return f->hour;
}

sqlite3 *store_file_db(const struct store_file *f)
{
	return f->db;
}

int store_file_read_state(struct store_file *f, struct store_file_state *ret)
{
	struct store_file_state state = {.hour = f->hour};
	int64_t count = 0;
	int r = store_sql_number(f->db, "SELECT mark FROM file", &state.mark);

	if (r == 0)
		r = store_sql_number(f->db, "SELECT max(id) FROM prof", &state.last_id);
	if (r == 0)
		r = store_sql_number(f->db,
			"SELECT max(id) FROM prof INDEXED BY prof_crosses WHERE crosses <> 0",
			&state.crossing_id);
	if (r == 0)
		r = store_sql_number(f->db,
			"SELECT count(*) FROM prof INDEXED BY prof_crosses WHERE crosses <> 0 AND"
			" source <> 0",
			&count);
	state.needs_next = count > 0;
	if (r == 0)
		*ret = state;
	return r;
}

bool store_file_is_whole(struct store_file *f)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	const char *answer;

	if (store_sql_prepare(f->db, "PRAGMA quick_check(1)", &s) < 0 || store_sql_step(s) <= 0)
		return false;
	answer = (const char *)sqlite3_column_text(s, 0);
	return answer && strcmp(answer, "ok") == 0;
}

const struct store_file_state *store_file_committed(const struct store_file *f)
{
	return &f->committed;
}

int store_file_begin(struct store_file *f)
{
	int r;

	if (f->in_transaction)
		return 0;
	r = store_sql_exec(f->db, "BEGIN IMMEDIATE");
	f->in_transaction = r == 0;
	return r;
}

int store_file_commit(struct store_file *f)
{
	int r;

	if (!f->in_transaction)
		return 0;
	r = store_sql_exec(f->db, "COMMIT");
	if (r < 0)
		store_file_rollback(f);
	else
		f->committed = f->state;
	f->in_transaction = false;
	return r;
}

void store_file_rollback(struct store_file *f)
{
	if (f->in_transaction)
		(void)store_sql_exec(f->db, "ROLLBACK"); /* fails when sqlite did it itself */
	f->in_transaction = false;
	f->state = f->committed;
}

int store_file_put_window(
	struct store_file *f, int64_t labels_id, const char *id, int64_t received_ns)
{
	sqlite3_stmt *s = f->statements[PUT_WINDOW];
	int r;

	(void)sqlite3_bind_int64(s, 1, labels_id);
	(void)sqlite3_bind_text(s, 2, id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(s, 3, received_ns);
	r = store_sql_run(s);
	return r < 0 ? r : sqlite3_changes(f->db);
}

int store_file_has_window(struct store_file *f, int64_t labels_id, const char *id)
{
	sqlite3_stmt *s = f->statements[HAS_WINDOW];
	int r;

	(void)sqlite3_bind_int64(s, 1, labels_id);
	(void)sqlite3_bind_text(s, 2, id, -1, SQLITE_STATIC);
	r = store_sql_step(s);
	(void)sqlite3_reset(s);
	return r;
}

int store_file_put_profile(struct store_file *f, const struct store_profile_row *p, int64_t *ret_id)
{
	sqlite3_stmt *s = f->statements[PUT_PROFILE];
	int r;

	(void)sqlite3_bind_int64(s, 1, p->received_ns);
	(void)(p->is_clamped ? sqlite3_bind_int64(s, 2, p->sent_ns) : sqlite3_bind_null(s, 2));
	(void)sqlite3_bind_int64(s, 3, p->duration_ns);
	(void)sqlite3_bind_int64(s, 4, p->period);
	(void)sqlite3_bind_text(s, 5, p->period_type, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(s, 6, p->period_unit, -1, SQLITE_STATIC);
	(void)sqlite3_bind_blob64(
		s, 7, p->facts_size ? p->facts : "", p->facts_size, SQLITE_STATIC);
	r = store_sql_run(s);
	if (r == 0)
		*ret_id = sqlite3_last_insert_rowid(f->db);
	return r;
}

int store_file_put_source(
	struct store_file *f, const char *recording, bool is_filtered, int64_t *ret_id)
{
	enum file_statement which[] = {PUT_SOURCE, FIND_SOURCE};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(which); i++) {
		sqlite3_stmt *s = f->statements[which[i]];

		(void)sqlite3_bind_text(s, 1, recording, -1, SQLITE_STATIC);
		(void)sqlite3_bind_int(s, 2, is_filtered);
		r = store_sql_step(s);
		if (r > 0)
			*ret_id = sqlite3_column_int64(s, 0);
		(void)sqlite3_reset(s);
	}
	return r < 0 ? r : 0;
}

int store_file_put_values(struct store_file *f, const struct store_row *row, int64_t profile,
	size_t n, const void *blob, size_t size)
{
	sqlite3_stmt *s = f->statements[PUT_VALUES];
	bool crosses = store_hour(row->ts_ns + MAX(row->span_ns, 1) - 1) > f->hour;
	int r;

	(void)sqlite3_bind_int64(s, 1, row->series);
	(void)sqlite3_bind_int64(s, 2, row->ts_ns);
	(void)sqlite3_bind_int64(s, 3, (int64_t)n);
	(void)sqlite3_bind_int64(s, 4, row->total);
	(void)sqlite3_bind_int64(s, 5, profile);
	(void)sqlite3_bind_int64(s, 6, row->span_ns);
	(void)sqlite3_bind_int64(s, 7, row->source);
	(void)sqlite3_bind_int(s, 8, crosses);
	(void)sqlite3_bind_blob64(s, 9, blob, size, SQLITE_STATIC);
	r = store_sql_run(s);
	if (r == 0) {
		f->state.last_id = sqlite3_last_insert_rowid(f->db);
		if (crosses)
			f->state.crossing_id = f->state.last_id;
		f->state.needs_next |= crosses && row->source != 0;
	}
	return r;
}

bool store_series_find(
	const struct store_series **series, size_t count, int64_t id, size_t *ret_position)
{
	size_t low = 0;

	while (count > 0) {
		size_t half = count / 2;

		if (series[low + half]->id < id) {
			low += half + 1;
			count -= half + 1;
		} else {
			if (series[low + half]->id == id) {
				*ret_position = low + half;
				return true;
			}
			count = half;
		}
	}
	return false;
}

/* Steps through s. Without an index of series (NULL), every row is wanted. */
static int scan_rows(sqlite3_stmt *s, const struct store_series **series, size_t count,
	store_row_fn *fn, void *data)
{
	int r;

	while ((r = store_sql_step(s)) > 0) {
		size_t position;
		struct store_row row = {
			.id = sqlite3_column_int64(s, 0),
			.series = sqlite3_column_int64(s, 1),
			.ts_ns = sqlite3_column_int64(s, 2),
			.total = sqlite3_column_int64(s, 3),
			.source = sqlite3_column_int64(s, 4),
		};

		if (series && !store_series_find(series, count, row.series, &position))
			continue;
		r = fn(data, &row);
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(s);
	return r;
}

int store_file_scan(struct store_file *f, const struct store_series **series, size_t count,
	const struct store_range *range, store_row_fn *fn, void *data)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	bool is_search = count <= SEARCHES_MAX;
	int r = store_sql_prepare(f->db,
		is_search ? "SELECT id, series, ts, total, source FROM prof INDEXED BY prof_series"
			    " WHERE ts >= ? AND ts < ? AND series = ?"
			  : "SELECT id, series, ts, total, source FROM prof INDEXED BY prof_series"
			    " WHERE ts >= ? AND ts < ?",
		&s);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(s, 1, range->start_ns);
	(void)sqlite3_bind_int64(s, 2, range->end_ns);
	if (!is_search)
		return scan_rows(s, series, count, fn, data);
	for (size_t i = 0; r == 0 && i < count; i++) {
		(void)sqlite3_bind_int64(s, 3, series[i]->id);
		r = scan_rows(s, NULL, 0, fn, data);
	}
	return r;
}
