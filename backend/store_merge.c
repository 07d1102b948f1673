/*
 * The flame graph: every matching profile of a range merged into one. The dictionary is opened after the last
 * file, so it knows every stack id that was met. A blob that is damaged is left out and counted in the fact
 * store.damaged_profiles, a file that cannot be read on counts there as one.
 *
 * Whole days, hours and steps of 10 minutes inside the range are read from their roll-ups where these are
 * present (store_roll.h), the rest from the data files. Matchers of `recording` ask for windows that roll-ups have
 * merged, so those read data files only.
 */
#include <errno.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "prof/profile_internal.h"

#define MERGE_MEMORY_SHARE 2 /* the table may take this many times the profile's memory */

/* With more series than this, a roll-up is read from end to end instead of a search each. */
enum { SEARCHES_MAX = 1024 };

struct row_ref {
	int64_t id;
	size_t type;
};

struct merge {
	struct store_selection selection;
	struct store_range range;
	struct store_sums sums;
	struct store *store;
	const char *dir;
	struct store_rows *judge; /* of the file at hand, as are the rows */
	struct row_ref *rows;
	size_t row_count, rows_allocated;
	struct store_about about;
	uint64_t damaged;
};

static int note_row(void *data, const struct store_row *row)
{
	struct merge *g = data;
	enum store_verdict verdict = store_rows_judge(g->judge, row);
	size_t position;

	if (!store_series_find(g->selection.series, g->selection.count, row->series, &position))
		return 0;
	g->about.left_out += verdict == ROW_OVERLAPS && g->selection.leads[position];
	if (verdict != ROW_COUNTS)
		return 0;
	if (g->row_count == g->rows_allocated) {
		size_t more = g->rows_allocated ? g->rows_allocated * 2 : 256;
		struct row_ref *rows = reallocarray(g->rows, more, sizeof(*rows));

		if (!rows)
			return -ENOMEM;
		g->rows = rows;
		g->rows_allocated = more;
	}
	g->rows[g->row_count++] =
		(struct row_ref){.id = row->id, .type = g->selection.type_of[position]};
	return 0;
}

static int by_row(const void *a, const void *b)
{
	const struct row_ref *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* What the profile that a row belongs to says of itself. */
static int add_about(struct merge *g, sqlite3_stmt *s, int64_t profile, int64_t ts_ns)
{
	int r;

	(void)sqlite3_bind_int64(s, 1, profile);
	r = store_sql_step(s);
	if (r > 0) {
		struct store_window_about w = {
			.windows = 1,
			.first_ns = ts_ns,
			.end_ns = profile_saturating_add(ts_ns, MAX(sqlite3_column_int64(s, 1), 0)),
			.period = sqlite3_column_int64(s, 2),
			.period_type = store_column_text(s, 3),
			.period_unit = store_column_text(s, 4),
			.facts = sqlite3_column_blob(s, 0),
			.facts_size = (size_t)sqlite3_column_bytes(s, 0),
		};

		store_about_add(&g->about, &w);
		r = 0;
	}
	(void)sqlite3_reset(s);
	return r;
}

static int merge_rows(struct merge *g, sqlite3_stmt *rows, sqlite3_stmt *about)
{
	int64_t last_profile = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->row_count; i++) {
		(void)sqlite3_bind_int64(rows, 1, g->rows[i].id);
		r = store_sql_step(rows);
		if (r > 0) {
			int64_t profile = sqlite3_column_int64(rows, 1);

			r = store_sums_add_blob(&g->sums, sqlite3_column_blob(rows, 0),
				(size_t)sqlite3_column_bytes(rows, 0), g->rows[i].type);
			g->damaged += r == -EBADMSG;
			if (r == -EBADMSG)
				r = 0;
			/* The rows of one profile stand together. */
			if (r == 0 && profile != last_profile)
				r = add_about(g, about, profile, sqlite3_column_int64(rows, 2));
			last_profile = profile;
		}
		(void)sqlite3_reset(rows);
	}
	return r;
}

static int judge_file(struct merge *g, struct store_file *f)
{
	store_rows_free(g->judge);
	g->judge = NULL;
	return store_rows_new(g->dir, f, g->selection.series, g->selection.count,
		g->selection.recording, g->selection.recording_count, &g->judge);
}

static int merge_file(struct merge *g, struct store_file *f, const struct store_range *range)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *rows = NULL;
	_cleanup_(store_sql_finalizep) sqlite3_stmt *about = NULL;
	int r;

	g->row_count = 0;
	r = judge_file(g, f);
	if (r == 0)
		r = store_file_scan(f, g->selection.series, g->selection.count, range, note_row, g);
	if (r < 0 || g->row_count == 0)
		return r;
	qsort(g->rows, g->row_count, sizeof(*g->rows), by_row);
	r = store_sql_prepare(
		store_file_db(f), "SELECT data, profile, ts FROM prof WHERE id = ?", &rows);
	if (r == 0)
		r = store_sql_prepare(store_file_db(f),
			"SELECT facts, duration, period, period_type, period_unit FROM profile"
			" WHERE id = ?",
			&about);
	return r < 0 ? r : merge_rows(g, rows, about);
}

/* The data file's part of the range. */
static int merge_data(struct merge *g, int32_t hour, const struct store_range *range)
{
	_cleanup_(store_file_closep) struct store_file *f = NULL;
	int r;

	if (range->start_ns >= range->end_ns)
		return 0;
	r = store_file_open_read(g->dir, hour, &f);
	if (r == 0)
		r = store_sql_exec(store_file_db(f), "BEGIN");
	if (r == 0)
		r = merge_file(g, f, range);
	if (r == -EUCLEAN) {
		g->damaged++; /* the rest is worth an answer */
		return 0;
	}
	return r == -ENOENT ? 0 : r; /* retention was faster */
}

static int add_roll(void *data, const struct store_roll_row *row)
{
	struct merge *g = data;
	size_t position;
	int r;

	if (!store_series_find(g->selection.series, g->selection.count, row->series, &position))
		return 0;
	if (g->selection.leads[position])
		store_about_add(&g->about, &row->about);
	r = store_sums_add_blob(&g->sums, row->data, row->size, g->selection.type_of[position]);
	g->damaged += r == -EBADMSG;
	return r == -EBADMSG ? 0 : r;
}

static int merge_roll(
	struct merge *g, sqlite3 *db, int64_t step_ns, const struct store_range *range)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	bool is_search = g->selection.count <= SEARCHES_MAX;
	int r = store_roll_query(db, is_search, &s);

	if (r == 0 && !is_search)
		return store_roll_rows(s, step_ns, 0, range, add_roll, g);
	for (size_t i = 0; r == 0 && i < g->selection.count; i++)
		r = store_roll_rows(s, step_ns, g->selection.series[i]->id, range, add_roll, g);
	return r;
}

/* The roll-up, when it is there and of the present version. */
static bool open_roll(struct merge *g, struct store_roll_id id, sqlite3 **ret)
{
	uint64_t versions[24], version;

	if (g->selection.recording_count)
		return false;
	version = store_roller_version(g->store, id, versions);
	return version && store_roll_open(g->dir, id, version, ret) == 0;
}

/* An hour: whole, or its whole steps from the roll-up and its ends from the data. */
static int merge_hour(struct merge *g, int32_t hour)
{
	_cleanup_(store_sql_closep) sqlite3 *db = NULL;
	struct store_range all = {hour * STORE_HOUR_NS, (hour + 1) * STORE_HOUR_NS};
	struct store_range part = {
		MAX(g->range.start_ns, all.start_ns), MIN(g->range.end_ns, all.end_ns)};
	struct store_range inner = {
		all.start_ns + (part.start_ns - all.start_ns + STORE_ROLL_SHORT_NS - 1) /
				       STORE_ROLL_SHORT_NS * STORE_ROLL_SHORT_NS,
		all.start_ns +
			(part.end_ns - all.start_ns) / STORE_ROLL_SHORT_NS * STORE_ROLL_SHORT_NS};
	bool is_whole = part.start_ns == all.start_ns && part.end_ns == all.end_ns;
	int r;

	if (inner.start_ns >= inner.end_ns ||
		!open_roll(g, (struct store_roll_id){.number = hour}, &db))
		return merge_data(g, hour, &part);
	r = merge_roll(g, db, is_whole ? STORE_HOUR_NS : STORE_ROLL_SHORT_NS, &inner);
	if (r == 0)
		r = merge_data(g, hour, &(struct store_range){part.start_ns, inner.start_ns});
	if (r == 0)
		r = merge_data(g, hour, &(struct store_range){inner.end_ns, part.end_ns});
	return r;
}

/* 1: the whole day was read from its roll-up; 0: it has to be read by the hour. */
static int merge_day(struct merge *g, int32_t day)
{
	_cleanup_(store_sql_closep) sqlite3 *db = NULL;
	struct store_range all = {day * STORE_ROLL_DAY_NS, (day + 1) * STORE_ROLL_DAY_NS};
	int r;

	if (all.start_ns < g->range.start_ns || all.end_ns > g->range.end_ns ||
		!open_roll(g, (struct store_roll_id){.is_day = true, .number = day}, &db))
		return 0;
	r = merge_roll(g, db, STORE_ROLL_DAY_NS, &all);
	return r < 0 ? r : 1;
}

static int merge_range(struct merge *g)
{
	int32_t *hours = NULL, tried = INT32_MIN, done = INT32_MIN;
	size_t count = 0;
	int r;

	if (g->range.start_ns >= g->range.end_ns)
		return -EINVAL;
	r = store_dir_list(g->dir, &hours, &count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		int32_t day = store_roll_day(hours[i]);

		if (hours[i] < store_hour(g->range.start_ns) ||
			hours[i] > store_hour(g->range.end_ns - 1) || day == done)
			continue;
		if (day != tried) {
			tried = day;
			r = merge_day(g, day);
			done = r > 0 ? day : done;
		}
		if (r == 0)
			r = merge_hour(g, hours[i]);
		r = MIN(r, 0);
	}
	free(hours);
	return r;
}

static int set_facts(struct merge *g, struct profile *p)
{
	int r = store_facts_set(g->about.facts, p);

	if (r == 0)
		r = profile_set_factf(
			p, "store.profiles", "%llu", (unsigned long long)g->about.windows);
	if (r == 0 && g->about.left_out)
		r = profile_set_factf(
			p, STORE_FACT_LEFT_OUT, "%llu", (unsigned long long)g->about.left_out);
	g->damaged += (uint64_t)g->about.damaged;
	if (r == 0 && g->damaged)
		r = profile_set_factf(
			p, "store.damaged_profiles", "%llu", (unsigned long long)g->damaged);
	return r;
}

static int build(const struct store *s, struct merge *g, struct profile *p)
{
	_cleanup_(dict_reader_closep) struct dict_reader *d = NULL;
	int r = 0;

	for (size_t i = 0; i < g->selection.type_count; i++) {
		const struct store_series *t = g->selection.types[i];
		int64_t type = profile_sample_type(p, t->type, t->unit);

		if (type < 0)
			return (int)type;
	}
	if (g->about.windows)
		profile_set_time(p, g->about.first_ns, g->about.end_ns - g->about.first_ns);
	else
		profile_set_time(p, g->range.start_ns, g->range.end_ns - g->range.start_ns);
	if (g->about.has_period && !g->about.is_mixed)
		profile_set_period(p, g->about.period_type, g->about.period_unit, g->about.period);
	store_sums_sort(&g->sums);
	if (g->sums.count)
		r = dict_reader_open(s->dict_path, p, &d);
	for (size_t i = 0; r == 0 && i < g->sums.count; i++) {
		const int64_t *slot = &g->sums.slots[i * g->sums.stride];

		r = dict_reader_add(d, (uint64_t)*slot, slot + 1);
	}
	return r == 0 ? set_facts(g, p) : r;
}

static int flamegraph(struct store *s, struct merge *g, size_t memory_max, struct profile **ret)
{
	struct profile *p = NULL;
	int r = store_about_init(&g->about);

	if (r < 0)
		return r;
	g->sums.stride = 1 + g->selection.type_count;
	g->sums.bytes_max = memory_max * MERGE_MEMORY_SHARE;
	r = merge_range(g);
	if (r == 0)
		r = profile_new(memory_max, &p);
	if (r == 0)
		r = build(s, g, p);
	if (r < 0) {
		profile_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

int store_flamegraph(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *range, size_t memory_max, struct profile **ret)
{
	struct merge *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->store = s;
	g->dir = s->dir;
	g->range = *range;
	r = store_selection_init(&g->selection, s, m, m_count);
	if (r == 0)
		r = flamegraph(s, g, memory_max, ret);
	store_about_done(&g->about);
	free(g->rows);
	store_rows_free(g->judge);
	store_sums_done(&g->sums);
	store_selection_done(&g->selection);
	free(g);
	return r;
}
