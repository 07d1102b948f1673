/*
 * Which rows of a data file count. Rows of source 0 are never left out, so a file without other sources needs
 * no look at all; else the windows of the series concerned are taken from this file and, where windows cross
 * the hour's ends, from its neighbours, and store_overlap.c decides. Sources have their ids by file; ranks are
 * by what the recordings are.
 */
#include <errno.h>

#include "backend/store_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"

/* The hour before, the one looked at, the one after. */
enum { FILES = 3, OWN = 1, SOURCES_BYTES_MAX = 64 << 20 };

struct source {
	const char *recording;
	bool is_filtered;
	uint32_t rank; /* 0: not meant; else from 1 on */
};

struct sources {
	struct source *at; /* by id; [0] is the continuous recording */
	size_t count;
};

struct store_rows {
	struct arena *arena;
	struct sources files[FILES];
	struct match_set *recording; /* NULL: all are meant */
	const struct store_series **series;
	size_t series_count;
	struct store_window *windows;
	size_t window_count, windows_allocated;
	int64_t *left_out; /* ids, ascending */
	size_t left_out_count;
};

void store_rows_free(struct store_rows *x)
{
	if (!x)
		return;
	match_set_free(x->recording);
	arena_free(x->arena);
	free(x->windows);
	free(x->left_out);
	free(x);
}

void store_rows_freep(struct store_rows **x)
{
	store_rows_free(*x);
}

static int load_sources(struct store_rows *x, struct store_file *f, struct sources *to)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int64_t count = 0;
	int r = store_sql_number(store_file_db(f), "SELECT max(id) FROM source", &count);

	if (r == 0)
		r = store_sql_prepare(store_file_db(f),
			"SELECT id, recording, is_filtered FROM source ORDER BY id", &s);
	if (r < 0)
		return r;
	if (count < 0 || (uint64_t)count >= SOURCES_BYTES_MAX / sizeof(*to->at))
		return -EUCLEAN;
	to->count = (size_t)count + 1;
	to->at = arena_alloc(x->arena, to->count * sizeof(*to->at));
	if (!to->at)
		return -ENOBUFS;
	for (size_t i = 0; i < to->count; i++)
		to->at[i].recording = "";
	while ((r = store_sql_step(s)) > 0) {
		int64_t id = sqlite3_column_int64(s, 0);
		const char *text = (const char *)sqlite3_column_text(s, 1);

		if (id < 1 || id > count || !text)
			return -EUCLEAN;
		to->at[id].recording = arena_strdup(x->arena, text);
		to->at[id].is_filtered = sqlite3_column_int(s, 2) != 0;
		if (!to->at[id].recording)
			return -ENOBUFS;
	}
	return r;
}

static int by_precedence(const void *a, const void *b)
{
	const struct source *x = *(struct source *const *)a;
	const struct source *y = *(struct source *const *)b;

	if (x->is_filtered != y->is_filtered)
		return x->is_filtered ? 1 : -1;
	return strcmp(x->recording, y->recording); /* "" is before all */
}

/* Ranks the sources of all files together; those that are not meant keep 0. */
static int rank(struct store_rows *x)
{
	size_t all = x->files[0].count + x->files[1].count + x->files[2].count, count = 0;
	struct source **sorted = arena_alloc(x->arena, all * sizeof(struct source *));
	uint32_t number = 0;

	if (!sorted)
		return -ENOBUFS;
	for (int f = 0; f < FILES; f++) {
		for (size_t i = 0; i < x->files[f].count; i++) {
			struct source *one = &x->files[f].at[i];
			struct push_label label = {"recording", one->recording};

			if (!x->recording || match_set_takes(x->recording, &label, 1, "", ""))
				sorted[count++] = one;
		}
	}
	qsort(sorted, count, sizeof(struct source *), by_precedence);
	for (size_t i = 0; i < count; i++) {
		if (i == 0 || by_precedence(&sorted[i - 1], &sorted[i]) != 0)
			number++;
		sorted[i]->rank = number;
	}
	return 0;
}

static int add_window(struct store_rows *x, const struct store_window *w)
{
	if (x->window_count == x->windows_allocated) {
		size_t more = x->windows_allocated ? x->windows_allocated * 2 : 256;
		struct store_window *windows = reallocarray(x->windows, more, sizeof(*windows));

		if (!windows)
			return -ENOMEM;
		x->windows = windows;
		x->windows_allocated = more;
	}
	x->windows[x->window_count++] = *w;
	return 0;
}

/* Windows of s's rows (id, series, ts, span, source) that are meant. */
static int add_windows(struct store_rows *x, sqlite3_stmt *s, int file)
{
	int r;

	while ((r = store_sql_step(s)) > 0) {
		int64_t source = sqlite3_column_int64(s, 4);
		struct store_window w = {.id = sqlite3_column_int64(s, 0),
			.series = sqlite3_column_int64(s, 1),
			.ts_ns = sqlite3_column_int64(s, 2),
			.is_own = file == OWN};

		if (source < 0 || (uint64_t)source >= x->files[file].count ||
			__builtin_add_overflow(w.ts_ns, sqlite3_column_int64(s, 3), &w.end_ns))
			return -EUCLEAN;
		w.rank = x->files[file].at[source].rank;
		if (w.rank == 0)
			continue;
		r = add_window(x, &w);
		if (r < 0)
			return r;
	}
	(void)sqlite3_reset(s);
	return r;
}

/* Windows of the hour itself, of the series that have more than the continuous recording. */
static int gather_own(struct store_rows *x, sqlite3 *db)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *which = NULL;
	_cleanup_(store_sql_finalizep) sqlite3_stmt *rows = NULL;
	int r = store_sql_prepare(db,
		"SELECT DISTINCT series FROM prof INDEXED BY prof_source WHERE source <> 0",
		&which);

	if (r == 0)
		r = store_sql_prepare(db,
			"SELECT id, series, ts, span, source FROM prof INDEXED BY prof_series"
			" WHERE series = ?",
			&rows);
	while (r == 0 && (r = store_sql_step(which)) > 0) {
		int64_t series = sqlite3_column_int64(which, 0);
		size_t position;

		r = 0;
		if (x->series && !store_series_find(x->series, x->series_count, series, &position))
			continue;
		(void)sqlite3_bind_int64(rows, 1, series);
		r = add_windows(x, rows, OWN);
	}
	return r;
}

/* What reaches in from the hour before, or starts in the next while windows of this one go on. */
static int gather_neighbour(struct store_rows *x, sqlite3 *db, int file)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int64_t until_ns = INT64_MIN;
	int r = store_sql_prepare(db,
		file < OWN ? "SELECT id, series, ts, span, source FROM prof INDEXED BY prof_crosses"
			     " WHERE crosses <> 0"
			   : "SELECT id, series, ts, span, source FROM prof WHERE ts < ?",
		&s);

	if (r < 0)
		return r;
	for (size_t i = 0; i < x->window_count; i++)
		until_ns = MAX(until_ns, x->windows[i].end_ns);
	if (file > OWN)
		(void)sqlite3_bind_int64(s, 1, until_ns);
	return add_windows(x, s, file);
}

/* The neighbour in a transaction; NULL when it is absent, or damaged and so of no use to anybody. */
static int open_neighbour(const char *dir, int32_t hour, struct store_file **ret)
{
	struct store_file *f = NULL;
	int r = store_file_open_read(dir, hour, &f);

	if (r == 0)
		r = store_sql_exec(store_file_db(f), "BEGIN");
	if (r == 0) {
		*ret = f;
		return 0;
	}
	store_file_close(f);
	return r == -ENOENT || r == -EUCLEAN ? 0 : r;
}

static int by_series(const void *a, const void *b)
{
	const struct store_window *x = a, *y = b;

	if (x->series != y->series)
		return x->series < y->series ? -1 : 1;
	if (x->ts_ns != y->ts_ns)
		return x->ts_ns < y->ts_ns ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int decide(struct store_rows *x)
{
	int r = 0;

	if (x->window_count == 0)
		return 0;
	qsort(x->windows, x->window_count, sizeof(*x->windows), by_series);
	for (size_t i = 0, end; r == 0 && i < x->window_count; i = end) {
		for (end = i;
			end < x->window_count && x->windows[end].series == x->windows[i].series;)
			end++;
		r = store_overlap_mark(&x->windows[i], end - i);
	}
	x->left_out = calloc(x->window_count, sizeof(*x->left_out));
	if (r == 0 && !x->left_out)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < x->window_count; i++) {
		if (x->windows[i].is_own && x->windows[i].is_left_out)
			x->left_out[x->left_out_count++] = x->windows[i].id;
	}
	if (x->left_out && x->left_out_count)
		qsort(x->left_out, x->left_out_count, sizeof(*x->left_out), by_id);
	free(x->windows);
	x->windows = NULL;
	return r;
}

static int look(struct store_rows *x, const char *dir, struct store_file *f)
{
	_cleanup_(store_file_closep) struct store_file *before = NULL;
	_cleanup_(store_file_closep) struct store_file *after = NULL;
	struct store_file *files[FILES];
	struct store_file_state state = {0};
	int r = load_sources(x, f, &x->files[OWN]);

	if (r < 0 || x->files[OWN].count == 1)
		return r < 0 ? r : rank(x);
	r = store_file_read_state(f, &state);
	if (r == 0)
		r = open_neighbour(dir, store_file_hour(f) - 1, &before);
	if (r == 0 && state.needs_next)
		r = open_neighbour(dir, store_file_hour(f) + 1, &after);
	files[0] = before;
	files[OWN] = f;
	files[2] = after;
	for (int i = 0; r == 0 && i < FILES; i++) {
		if (i != OWN && files[i])
			r = load_sources(x, files[i], &x->files[i]);
	}
	if (r == 0)
		r = rank(x);
	if (r == 0)
		r = gather_own(x, store_file_db(f));
	for (int i = 0; r == 0 && i < FILES; i++) {
		if (i != OWN && files[i])
			r = gather_neighbour(x, store_file_db(files[i]), i);
	}
	return r == 0 ? decide(x) : r;
}

int store_rows_new(const char *dir, struct store_file *f, const struct store_series **series,
	size_t count, const struct matcher *recording, size_t matcher_count,
	struct store_rows **ret)
{
	struct store_rows *x = calloc(1, sizeof(*x));
	int r = 0;

	if (!x)
		return -ENOMEM;
	x->arena = arena_new(SOURCES_BYTES_MAX);
	x->series = series;
	x->series_count = count;
	if (!x->arena)
		r = -ENOMEM;
	if (r == 0 && matcher_count)
		r = match_set_new(recording, matcher_count, &x->recording);
	if (r == 0)
		r = look(x, dir, f);
	if (r < 0) {
		store_rows_free(x);
		return r;
	}
	*ret = x;
	return 0;
}

enum store_verdict store_rows_judge(const struct store_rows *x, const struct store_row *row)
{
	const struct sources *own = &x->files[OWN];

	if (row->source < 0 || (uint64_t)row->source >= own->count ||
		own->at[row->source].rank == 0)
		return ROW_NOT_MEANT;
	if (row->source == 0 || x->left_out_count == 0)
		return ROW_COUNTS;
	return bsearch(&row->id, x->left_out, x->left_out_count, sizeof(row->id), by_id)
		       ? ROW_OVERLAPS
		       : ROW_COUNTS;
}
