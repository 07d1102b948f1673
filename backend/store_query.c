/*
 * Reading. A query opens the data files of its range one after the other, read-only, and reads each in one
 * transaction; the dictionary is opened after the last of them, so it knows every stack id that was met.
 *
 * The merge adds up by stack id in an open-addressing table and then goes through the ids in order, so the
 * result is the same whatever order files and rows came in. A blob that is damaged is left out and counted in
 * the fact store.damaged_profiles.
 */
#include <errno.h>

#include "backend/store_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "prof/profile_internal.h"

#define MERGE_MEMORY_SHARE 2 /* the table may take this many times the profile's memory */

enum { STEPS_MAX = 100000, SLOTS_MIN = 1024 };

/* Calls fn for each data file of the range that exists. */
typedef int file_fn(void *data, struct store_file *f);
static int each_file(struct store *s, const struct store_range *range, file_fn *fn, void *data)
{
	int32_t *hours = NULL;
	size_t count = 0;
	int r;

	if (range->start_ns >= range->end_ns)
		return -EINVAL;
	r = store_dir_list(s->dir, &hours, &count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct store_file *f = NULL;

		if (hours[i] < store_hour(range->start_ns) ||
			hours[i] > store_hour(range->end_ns - 1))
			continue;
		r = store_file_open_read(s->dir, hours[i], &f);
		if (r == -ENOENT) {
			r = 0; /* retention was faster */
			continue;
		}
		if (r == 0)
			r = store_sql_exec(store_file_db(f), "BEGIN");
		if (r == 0)
			r = fn(data, f);
		store_file_close(f);
	}
	free(hours);
	return r;
}

/* The selected series and the sample types they have, in the order of their profiles. */
struct selection {
	const struct store_series **series;
	size_t count;
	const struct store_series *types[PROFILE_TYPES_MAX];
	size_t type_count;
	uint8_t *type_of; /* per series */
};

static void selection_done(struct selection *x)
{
	free(x->series);
	free(x->type_of);
}

static int compare_types(const struct store_series *a, const struct store_series *b)
{
	int order = (a->ordinal > b->ordinal) - (a->ordinal < b->ordinal);

	if (order == 0)
		order = strcmp(a->type, b->type);
	return order ? order : strcmp(a->unit, b->unit);
}

/* Inserts the series' type where it belongs. */
static int add_type(struct selection *x, const struct store_series *s)
{
	size_t at = 0;

	while (at < x->type_count && compare_types(x->types[at], s) < 0)
		at++;
	if (at < x->type_count && compare_types(x->types[at], s) == 0)
		return 0;
	if (x->type_count == PROFILE_TYPES_MAX)
		return -E2BIG;
	for (size_t i = x->type_count; i > at; i--)
		x->types[i] = x->types[i - 1];
	x->types[at] = s;
	x->type_count++;
	return 0;
}

static int selection_init(
	struct selection *x, struct store *s, const struct matcher *m, size_t m_count)
{
	int r = store_index_select(s->index, m, m_count, &x->series, &x->count);

	if (r < 0)
		return r;
	x->type_of = calloc(x->count + 1, sizeof(*x->type_of));
	if (!x->type_of)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < x->count; i++)
		r = add_type(x, x->series[i]);
	for (size_t i = 0; r == 0 && i < x->count; i++) {
		while (compare_types(x->types[x->type_of[i]], x->series[i]) != 0)
			x->type_of[i]++;
	}
	return r;
}

/* Sums by stack id: slots of 1 + types numbers, the first is the id, 0 is free. */
struct sums {
	int64_t *slots;
	size_t stride, count, allocated, bytes_max;
};

static int64_t *sums_slot(const struct sums *t, int64_t id)
{
	uint64_t hash = (uint64_t)id * 0x9e3779b97f4a7c15ULL;
	size_t at = (hash >> 20) & (t->allocated - 1);

	while (t->slots[at * t->stride] && t->slots[at * t->stride] != id)
		at = (at + 1) & (t->allocated - 1);
	return &t->slots[at * t->stride];
}

static int sums_grow(struct sums *t)
{
	struct sums more = *t;

	more.allocated = t->allocated ? t->allocated * 2 : SLOTS_MIN;
	if (more.allocated > t->bytes_max / (t->stride * sizeof(int64_t)))
		return -ENOBUFS;
	more.slots = calloc(more.allocated, t->stride * sizeof(int64_t));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < t->allocated; i++) {
		const int64_t *slot = &t->slots[i * t->stride];

		if (*slot)
			memcpy(sums_slot(&more, *slot), slot, t->stride * sizeof(int64_t));
	}
	free(t->slots);
	*t = more;
	return 0;
}

static int sums_add(struct sums *t, const struct blob_entry *e, size_t type)
{
	int64_t *slot;

	if ((t->count + 1) * 3 > t->allocated * 2) {
		int r = sums_grow(t);

		if (r < 0)
			return r;
	}
	slot = sums_slot(t, (int64_t)e->id);
	t->count += *slot == 0;
	*slot = (int64_t)e->id;
	slot[1 + type] = profile_saturating_add(slot[1 + type], e->value);
	return 0;
}

struct row_ref {
	int64_t id;
	size_t type;
};

struct merge {
	struct selection selection;
	struct store_range range;
	struct sums sums;
	struct row_ref *rows; /* of the file at hand */
	size_t row_count, rows_allocated;
	struct store_facts *facts;
	int64_t start_ns, end_ns; /* of what was met */
	uint64_t profiles, damaged;
	char period_type[PROFILE_NAME_MAX + 1], period_unit[PROFILE_NAME_MAX + 1];
	int64_t period;
	bool has_period, is_mixed;
};

static int note_row(void *data, const struct store_row *row)
{
	struct merge *g = data;
	size_t position;

	if (!store_series_find(g->selection.series, g->selection.count, row->series, &position))
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

static int add_blob(struct merge *g, const void *data, size_t size, size_t type)
{
	struct blob_reader r;
	struct blob_entry e;
	int n = blob_open(data ? data : "", size, NULL, &r);

	while (n == 0 && (n = blob_next(&r, &e)) > 0)
		n = sums_add(&g->sums, &e, type);
	if (n == -EBADMSG) {
		g->damaged++;
		return 0;
	}
	return n;
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

			r = add_blob(g, sqlite3_column_blob(rows, 0),
				(size_t)sqlite3_column_bytes(rows, 0), g->rows[i].type);
			/* The rows of one profile stand together. */
			if (r == 0 && profile != last_profile)
				r = add_about(g, about, profile, sqlite3_column_int64(rows, 2));
			last_profile = profile;
		}
		(void)sqlite3_reset(rows);
	}
	return r;
}

static int merge_file(void *data, struct store_file *f)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *rows = NULL;
	_cleanup_(store_sql_finalizep) sqlite3_stmt *about = NULL;
	struct merge *g = data;
	int r;

	g->row_count = 0;
	r = store_file_scan(f, g->selection.series, g->selection.count, &g->range, note_row, g);
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

static int by_id(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Moves the used slots to the table's front, by ascending id. */
static void sums_sort(struct sums *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->allocated; i++) {
		if (t->slots[i * t->stride])
			memmove(&t->slots[n++ * t->stride], &t->slots[i * t->stride],
				t->stride * sizeof(int64_t));
	}
	if (n)
		qsort(t->slots, n, t->stride * sizeof(int64_t), by_id);
}

static int set_facts(const struct merge *g, struct profile *p)
{
	int r = store_facts_set(g->facts, p);

	if (r == 0)
		r = profile_set_factf(p, "store.profiles", "%llu", (unsigned long long)g->profiles);
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
	sums_sort(&g->sums);
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
	r = each_file(s, &g->range, merge_file, g);
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
	g->range = *range;
	r = selection_init(&g->selection, s, m, m_count);
	if (r == 0)
		r = flamegraph(s, g, memory_max, ret);
	store_facts_free(g->facts);
	free(g->rows);
	free(g->sums.slots);
	selection_done(&g->selection);
	free(g);
	return r;
}

struct point {
	int64_t total;
	uint64_t profiles;
};

struct timeline {
	struct selection selection;
	struct store_range range;
	int64_t step_ns;
	struct point *points;
};

static int add_point(void *data, const struct store_row *row)
{
	struct timeline *t = data;
	struct point *p = &t->points[((uint64_t)row->ts_ns - (uint64_t)t->range.start_ns) /
				     (uint64_t)t->step_ns];

	p->total = profile_saturating_add(p->total, row->total);
	p->profiles++;
	return 0;
}

static int timeline_file(void *data, struct store_file *f)
{
	struct timeline *t = data;

	return store_file_scan(f, t->selection.series, t->selection.count, &t->range, add_point, t);
}

/* Keeps the series of the last type, which is the one that flame graphs show unless asked. */
static void keep_default_type(struct selection *x)
{
	size_t n = 0;

	for (size_t i = 0; i < x->count; i++) {
		if (x->type_of[i] + 1U == x->type_count)
			x->series[n++] = x->series[i];
	}
	x->count = n;
}

int store_timeline(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *range, int64_t step_ns, store_point_fn *fn, void *data)
{
	struct timeline t = {.range = *range, .step_ns = step_ns};
	uint64_t span_ns = (uint64_t)range->end_ns - (uint64_t)range->start_ns;
	size_t count;
	int r;

	if (step_ns <= 0 || range->start_ns >= range->end_ns ||
		(span_ns - 1) / (uint64_t)step_ns >= STEPS_MAX)
		return -EINVAL;
	count = (size_t)((span_ns - 1) / (uint64_t)step_ns) + 1;
	r = selection_init(&t.selection, s, m, m_count);
	if (r == 0) {
		keep_default_type(&t.selection);
		t.points = calloc(count, sizeof(*t.points));
		r = t.points ? each_file(s, range, timeline_file, &t) : -ENOMEM;
	}
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (t.points[i].profiles)
			r = fn(data, range->start_ns + (int64_t)i * step_ns, t.points[i].total,
				t.points[i].profiles);
	}
	free(t.points);
	selection_done(&t.selection);
	return r;
}

struct span {
	int64_t first_ns, last_ns;
};

struct spans {
	struct selection selection;
	struct store_range range;
	struct span *spans; /* per series; last before first: none */
};

static int add_span(void *data, const struct store_row *row)
{
	struct spans *x = data;
	size_t position;

	if (store_series_find(x->selection.series, x->selection.count, row->series, &position)) {
		struct span *one = &x->spans[position];

		one->first_ns = MIN(one->first_ns, row->ts_ns);
		one->last_ns = MAX(one->last_ns, row->ts_ns);
	}
	return 0;
}

static int spans_file(void *data, struct store_file *f)
{
	struct spans *x = data;

	return store_file_scan(f, x->selection.series, x->selection.count, &x->range, add_span, x);
}

int store_series(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *range, store_series_fn *fn, void *data)
{
	struct spans x = {.range = *range};
	int r = store_index_select(s->index, m, m_count, &x.selection.series, &x.selection.count);

	if (r < 0)
		return r;
	x.spans = calloc(x.selection.count + 1, sizeof(*x.spans));
	r = x.spans ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < x.selection.count; i++)
		x.spans[i] = (struct span){.first_ns = INT64_MAX, .last_ns = INT64_MIN};
	if (r == 0)
		r = each_file(s, range, spans_file, &x);
	for (size_t i = 0; r == 0 && i < x.selection.count; i++) {
		const struct store_series *one = x.selection.series[i];

		if (x.spans[i].first_ns <= x.spans[i].last_ns)
			r = fn(data, one->labels, one->label_count, one->type, one->unit,
				x.spans[i].first_ns, x.spans[i].last_ns);
	}
	free(x.spans);
	free(x.selection.series);
	return r;
}
