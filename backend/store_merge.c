/*
 * The flame graph: every matching profile of a range merged into one. The dictionary is opened after the last
 * file, so it knows every stack id that was met. A blob that is damaged is left out and counted in the fact
 * store.damaged_profiles, a file that is damaged likewise.
 */
#include <errno.h>

#include "backend/store_query_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "prof/profile_internal.h"

#define MERGE_MEMORY_SHARE 2 /* the table may take this many times the profile's memory */

struct row_ref {
	int64_t id;
	size_t type;
};

struct merge {
	struct store_selection selection;
	struct store_range range;
	struct store_sums sums;
	const char *dir;
	struct store_rows *judge; /* of the file at hand, as are the rows */
	struct row_ref *rows;
	size_t row_count, rows_allocated;
	struct store_facts *facts;
	int64_t start_ns, end_ns; /* of what was met */
	uint64_t profiles, damaged, left_out;
	char period_type[PROFILE_NAME_MAX + 1], period_unit[PROFILE_NAME_MAX + 1];
	int64_t period;
	bool has_period, is_mixed;
};

static int note_row(void *data, const struct store_row *row)
{
	struct merge *g = data;
	enum store_verdict verdict = store_rows_judge(g->judge, row);
	size_t position;

	if (!store_series_find(g->selection.series, g->selection.count, row->series, &position))
		return 0;
	g->left_out += verdict == ROW_OVERLAPS && g->selection.leads[position];
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
	g->start_ns = MIN(g->start_ns, row->ts_ns);
	g->end_ns = MAX(g->end_ns, row->ts_ns);
	return 0;
}

static int by_row(const void *a, const void *b)
{
	const struct row_ref *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static void note_period(struct merge *g, int64_t period, const char *type, const char *unit)
{
	if (!g->has_period) {
		g->has_period = true;
		g->period = period;
		(void)snprintf(g->period_type, sizeof(g->period_type), "%s", type ? type : "");
		(void)snprintf(g->period_unit, sizeof(g->period_unit), "%s", unit ? unit : "");
	} else if (g->period != period || strcmp(g->period_type, type ? type : "") != 0 ||
		   strcmp(g->period_unit, unit ? unit : "") != 0) {
		g->is_mixed = true;
	}
}

/* What the profile that a row belongs to says of itself. */
static int add_about(struct merge *g, sqlite3_stmt *s, int64_t profile, int64_t ts_ns)
{
	int64_t end_ns;
	int r;

	(void)sqlite3_bind_int64(s, 1, profile);
	r = store_sql_step(s);
	if (r > 0) {
		const void *facts = sqlite3_column_blob(s, 0);

		if (store_facts_add(
			    g->facts, facts ? facts : "", (size_t)sqlite3_column_bytes(s, 0)) < 0)
			g->damaged++;
		end_ns = profile_saturating_add(ts_ns, MAX(sqlite3_column_int64(s, 1), 0));
		g->end_ns = MAX(g->end_ns, end_ns);
		note_period(g, sqlite3_column_int64(s, 2), (const char *)sqlite3_column_text(s, 3),
			(const char *)sqlite3_column_text(s, 4));
		g->profiles++;
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

static int merge_file(void *data, struct store_file *f)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *rows = NULL;
	_cleanup_(store_sql_finalizep) sqlite3_stmt *about = NULL;
	struct merge *g = data;
	int r;

	g->row_count = 0;
	r = judge_file(g, f);
	if (r == 0)
		r = store_file_scan(
			f, g->selection.series, g->selection.count, &g->range, note_row, g);
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

static int set_facts(const struct merge *g, struct profile *p)
{
	int r = store_facts_set(g->facts, p);

	if (r == 0)
		r = profile_set_factf(p, "store.profiles", "%llu", (unsigned long long)g->profiles);
	if (r == 0 && g->left_out)
		r = profile_set_factf(
			p, STORE_FACT_LEFT_OUT, "%llu", (unsigned long long)g->left_out);
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
	if (g->profiles)
		profile_set_time(p, g->start_ns, g->end_ns - g->start_ns);
	else
		profile_set_time(p, g->range.start_ns, g->range.end_ns - g->range.start_ns);
	if (g->has_period && !g->is_mixed)
		profile_set_period(p, g->period_type, g->period_unit, g->period);
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
	int r;

	g->facts = store_facts_new();
	if (!g->facts)
		return -ENOMEM;
	g->sums.stride = 1 + g->selection.type_count;
	g->sums.bytes_max = memory_max * MERGE_MEMORY_SHARE;
	g->start_ns = INT64_MAX;
	g->end_ns = INT64_MIN;
	r = store_each_file(s, &g->range, merge_file, g);
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
	g->dir = s->dir;
	g->range = *range;
	r = store_selection_init(&g->selection, s, m, m_count);
	if (r == 0)
		r = flamegraph(s, g, memory_max, ret);
	store_facts_free(g->facts);
	free(g->rows);
	store_rows_free(g->judge);
	store_sums_done(&g->sums);
	store_selection_done(&g->selection);
	free(g);
	return r;
}
