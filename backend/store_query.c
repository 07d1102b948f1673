/*
 * Reading. A query opens the data files of its range one after the other, read-only, and reads each in one
 * transaction. The flame graph is store_merge.c's; here are its selection and files, timeline, series.
 */
#include <errno.h>

#include "backend/store_query_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/map.h"
#include "prof/profile_internal.h"

enum { STEPS_MAX = 100000 };

int store_each_file(struct store *s, const struct store_range *range, store_each_fn *fn, void *data)
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
		if (r == -EUCLEAN)
			r = 0; /* damaged: the rest is worth an answer, verify tells */
	}
	free(hours);
	return r;
}

void store_selection_done(struct store_selection *x)
{
	free(x->series);
	free(x->type_of);
	free(x->leads);
}

static int compare_types(const struct store_series *a, const struct store_series *b)
{
	int order = (a->ordinal > b->ordinal) - (a->ordinal < b->ordinal);

	if (order == 0)
		order = strcmp(a->type, b->type);
	return order ? order : strcmp(a->unit, b->unit);
}

/* Inserts the series' type where it belongs. */
static int add_type(struct store_selection *x, const struct store_series *s)
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

/* Keeps the matchers of the rows' label apart from those of the series. The count of the latter. */
static size_t split_matchers(
	struct store_selection *x, const struct matcher *m, size_t count, struct matcher *series)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(m[i].name, "recording") == 0)
			x->recording[x->recording_count++] = m[i];
		else
			series[n++] = m[i];
	}
	return n;
}

static int select_series(
	struct store_selection *x, struct store *s, const struct matcher *m, size_t count)
{
	struct matcher *of_series;
	int r;

	if (count > MATCHERS_MAX)
		return -EINVAL;
	of_series = calloc(count + 1, sizeof(*of_series));
	if (!of_series)
		return -ENOMEM;
	count = split_matchers(x, m, count, of_series);
	r = store_index_select(s->index, of_series, count, &x->series, &x->count);
	free(of_series);
	return r;
}

/* Marks the first series of each label set. */
static int mark_leads(struct store_selection *x)
{
	_cleanup_(map_freep) struct map *seen = map_new(x->count + 1);

	if (!seen)
		return -ENOMEM;
	for (size_t i = 0; i < x->count; i++) {
		if (!map_put(seen, &x->series[i]->labels_id, sizeof(int64_t), &x->leads[i]))
			return -ENOMEM;
	}
	return 0;
}

int store_selection_init(
	struct store_selection *x, struct store *s, const struct matcher *m, size_t m_count)
{
	int r = select_series(x, s, m, m_count);

	if (r < 0)
		return r;
	x->type_of = calloc(x->count + 1, sizeof(*x->type_of));
	x->leads = calloc(x->count + 1, sizeof(*x->leads));
	if (!x->type_of || !x->leads)
		return -ENOMEM;
	r = mark_leads(x);
	for (size_t i = 0; r == 0 && i < x->count; i++)
		r = add_type(x, x->series[i]);
	for (size_t i = 0; r == 0 && i < x->count; i++) {
		while (compare_types(x->types[x->type_of[i]], x->series[i]) != 0)
			x->type_of[i]++;
	}
	return r;
}

struct point {
	int64_t total;
	uint64_t profiles;
};

struct timeline {
	struct store_selection selection;
	struct store_range range;
	const char *dir;
	int64_t step_ns;
	struct point *points;
	struct store_rows *judge;
	uint64_t left_out;
};

static int add_point(void *data, const struct store_row *row)
{
	struct timeline *t = data;
	enum store_verdict verdict = store_rows_judge(t->judge, row);
	size_t position;
	struct point *p = &t->points[((uint64_t)row->ts_ns - (uint64_t)t->range.start_ns) /
				     (uint64_t)t->step_ns];

	/* Rows of others come along where the whole index is read. */
	if (!store_series_find(t->selection.series, t->selection.count, row->series, &position))
		return 0;
	t->left_out += verdict == ROW_OVERLAPS && t->selection.leads[position];
	if (verdict != ROW_COUNTS)
		return 0;
	p->total = profile_saturating_add(p->total, row->total);
	p->profiles++;
	return 0;
}

static int timeline_file(void *data, struct store_file *f)
{
	struct timeline *t = data;
	int r;

	store_rows_free(t->judge);
	t->judge = NULL;
	r = store_rows_new(t->dir, f, t->selection.series, t->selection.count,
		t->selection.recording, t->selection.recording_count, &t->judge);
	return r < 0 ? r
		     : store_file_scan(
			       f, t->selection.series, t->selection.count, &t->range, add_point, t);
}

/* Keeps the series of the last type, which is the one that flame graphs show unless asked. */
static void keep_default_type(struct store_selection *x)
{
	size_t n = 0;

	for (size_t i = 0; i < x->count; i++) {
		if (x->type_of[i] + 1U != x->type_count)
			continue;
		x->leads[n] = true; /* a label set has one series of a type */
		x->series[n++] = x->series[i];
	}
	x->count = n;
}

int store_timeline(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *range, int64_t step_ns, store_point_fn *fn, void *data,
	uint64_t *ret_left_out)
{
	struct timeline t = {.range = *range, .step_ns = step_ns, .dir = s->dir};
	uint64_t span_ns = (uint64_t)range->end_ns - (uint64_t)range->start_ns;
	size_t count;
	int r;

	if (step_ns <= 0 || range->start_ns >= range->end_ns ||
		(span_ns - 1) / (uint64_t)step_ns >= STEPS_MAX)
		return -EINVAL;
	count = (size_t)((span_ns - 1) / (uint64_t)step_ns) + 1;
	r = store_selection_init(&t.selection, s, m, m_count);
	if (r == 0) {
		keep_default_type(&t.selection);
		t.points = calloc(count, sizeof(*t.points));
		r = t.points ? store_each_file(s, range, timeline_file, &t) : -ENOMEM;
	}
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (t.points[i].profiles)
			r = fn(data, range->start_ns + (int64_t)i * step_ns, t.points[i].total,
				t.points[i].profiles);
	}
	if (r == 0 && ret_left_out)
		*ret_left_out = t.left_out;
	free(t.points);
	store_rows_free(t.judge);
	store_selection_done(&t.selection);
	return r;
}

struct span {
	int64_t first_ns, last_ns;
};

struct spans {
	struct store_selection selection;
	struct store_range range;
	struct span *spans; /* per series; last before first: none */
	const char *dir;
	struct store_rows *judge;
};

static int add_span(void *data, const struct store_row *row)
{
	struct spans *x = data;
	size_t position;

	if (store_rows_judge(x->judge, row) != ROW_NOT_MEANT &&
		store_series_find(
			x->selection.series, x->selection.count, row->series, &position)) {
		struct span *one = &x->spans[position];

		one->first_ns = MIN(one->first_ns, row->ts_ns);
		one->last_ns = MAX(one->last_ns, row->ts_ns);
	}
	return 0;
}

static int spans_file(void *data, struct store_file *f)
{
	struct spans *x = data;
	int r;

	store_rows_free(x->judge);
	x->judge = NULL;
	/* Of no series in particular: what overlaps is of no interest here. */
	r = store_rows_new(x->dir, f, x->selection.series, 0, x->selection.recording,
		x->selection.recording_count, &x->judge);
	return r < 0 ? r
		     : store_file_scan(
			       f, x->selection.series, x->selection.count, &x->range, add_span, x);
}

int store_series(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *range, store_series_fn *fn, void *data)
{
	struct spans x = {.range = *range, .dir = s->dir};
	int r = select_series(&x.selection, s, m, m_count);

	if (r < 0)
		return r;
	x.spans = calloc(x.selection.count + 1, sizeof(*x.spans));
	r = x.spans ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < x.selection.count; i++)
		x.spans[i] = (struct span){.first_ns = INT64_MAX, .last_ns = INT64_MIN};
	if (r == 0)
		r = store_each_file(s, range, spans_file, &x);
	for (size_t i = 0; r == 0 && i < x.selection.count; i++) {
		const struct store_series *one = x.selection.series[i];

		if (x.spans[i].first_ns <= x.spans[i].last_ns)
			r = fn(data, one->labels, one->label_count, one->type, one->unit,
				x.spans[i].first_ns, x.spans[i].last_ns);
	}
	free(x.spans);
	store_rows_free(x.judge);
	store_selection_done(&x.selection);
	return r;
}
