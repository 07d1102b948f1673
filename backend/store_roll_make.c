/* The rows of a roll-up: an hour's from its data file, a day's from the roll-ups of its hours. */
#include <errno.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"

#define SUMS_BYTES_MAX  ((size_t)512 << 20)
#define BLOB_BYTES_MAX  ((size_t)512 << 20)
#define FACTS_BYTES_MAX ((size_t)16 << 20)

struct maker {
	store_roll_fn *fn;
	void *data;
	bool is_begun;
	int64_t step_ns, series, ts_ns; /* of the row at hand */
	struct store_sums sums;
	struct store_about about;
	struct buf blob, facts;
	struct blob_entry *entries;
	size_t entries_allocated;
};

static void maker_done(struct maker *m)
{
	store_sums_done(&m->sums);
	store_about_done(&m->about);
	buf_done(&m->blob);
	buf_done(&m->facts);
	free(m->entries);
}

static int make_blob(struct maker *m, struct store_roll_row *row)
{
	buf_reset(&m->blob);
	store_sums_sort(&m->sums);
	if (m->sums.count >= m->entries_allocated) {
		size_t more = 2 * m->sums.count + 64;
		struct blob_entry *entries = reallocarray(m->entries, more, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		m->entries = entries;
		m->entries_allocated = more;
	}
	for (size_t i = 0; i < m->sums.count; i++)
		m->entries[i] = (struct blob_entry){
			.id = (uint64_t)m->sums.slots[2 * i], .value = m->sums.slots[2 * i + 1]};
	row->n = (int64_t)m->sums.count;
	return blob_write(m->entries, m->sums.count, &m->blob, &row->total);
}

static int end_row(struct maker *m)
{
	struct store_roll_row row = {.step_ns = m->step_ns, .series = m->series, .ts_ns = m->ts_ns};
	int r;

	if (!m->is_begun)
		return 0;
	m->is_begun = false;
	r = make_blob(m, &row);
	buf_reset(&m->facts);
	if (r == 0)
		r = store_facts_text(m->about.facts, &m->facts);
	if (r == 0 && m->about.damaged)
		r = -EUCLEAN;
	if (r < 0)
		return r;
	store_about_get(&m->about, &row.about);
	row.about.facts = m->facts.data;
	row.about.facts_size = m->facts.size;
	row.data = m->blob.data;
	row.size = m->blob.size;
	return m->fn(m->data, &row);
}

static int begin_row(struct maker *m, int64_t series, int64_t ts_ns)
{
	int r;

	if (m->is_begun && m->series == series && m->ts_ns == ts_ns)
		return 0;
	r = end_row(m);
	if (r < 0)
		return r;
	store_sums_done(&m->sums);
	store_about_done(&m->about);
	m->sums = (struct store_sums){.stride = 2, .bytes_max = SUMS_BYTES_MAX};
	m->series = series;
	m->ts_ns = ts_ns;
	m->is_begun = true;
	return store_about_init(&m->about);
}

static int64_t step_start(int64_t ts_ns, int64_t step_ns)
{
	return ts_ns - (ts_ns % step_ns + step_ns) % step_ns;
}

/* One row of the data file: id, series, ts, source, the profile's, data. */
static int add_profile(struct maker *m, const struct store_rows *judge, sqlite3_stmt *s)
{
	struct store_row row = {.id = sqlite3_column_int64(s, 0),
		.series = sqlite3_column_int64(s, 1),
		.ts_ns = sqlite3_column_int64(s, 2),
		.source = sqlite3_column_int64(s, 3)};
	enum store_verdict verdict = store_rows_judge(judge, &row);
	struct store_window_about about = {
		.windows = verdict == ROW_COUNTS,
		.left_out = verdict == ROW_OVERLAPS,
		.first_ns = row.ts_ns,
		.period = sqlite3_column_int64(s, 5),
		.period_type = store_column_text(s, 6),
		.period_unit = store_column_text(s, 7),
		.facts = sqlite3_column_blob(s, 8),
		.facts_size = (size_t)sqlite3_column_bytes(s, 8),
	};
	int r = begin_row(m, row.series, step_start(row.ts_ns, m->step_ns));

	if (r < 0)
		return r;
	if (verdict == ROW_NOT_MEANT || sqlite3_column_type(s, 5) == SQLITE_NULL ||
		__builtin_add_overflow(
			row.ts_ns, MAX(sqlite3_column_int64(s, 4), 0), &about.end_ns))
		return -EUCLEAN; /* a source or a profile that is not there */
	store_about_add(&m->about, &about);
	if (verdict != ROW_COUNTS)
		return 0;
	return store_sums_add_blob(
		&m->sums, sqlite3_column_blob(s, 9), (size_t)sqlite3_column_bytes(s, 9), 0);
}

static int make_hour(struct maker *m, const char *dir, int32_t hour)
{
	static const int64_t steps_ns[] = {STORE_ROLL_SHORT_NS, STORE_HOUR_NS};
	_cleanup_(store_file_closep) struct store_file *f = NULL;
	_cleanup_(store_rows_freep) struct store_rows *judge = NULL;
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_file_open_read(dir, hour, &f);

	if (r == 0)
		r = store_sql_exec(store_file_db(f), "BEGIN");
	if (r == 0)
		r = store_rows_new(dir, f, NULL, 0, NULL, 0, &judge);
	if (r == 0)
		r = store_sql_prepare(store_file_db(f),
			"SELECT p.id, p.series, p.ts, p.source, q.duration, q.period, "
			"q.period_type,"
			" q.period_unit, q.facts, p.data FROM prof p INDEXED BY prof_series"
			" LEFT JOIN profile q ON q.id = p.profile ORDER BY p.series, p.ts",
			&s);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(steps_ns); i++) {
		m->step_ns = steps_ns[i];
		while (r == 0 && (r = store_sql_step(s)) > 0)
			r = add_profile(m, judge, s);
		(void)sqlite3_reset(s);
		if (r == 0)
			r = end_row(m);
	}
	return r;
}

struct day {
	struct maker *maker;
	int64_t start_ns;
	sqlite3 *db[24];
	sqlite3_stmt *rows[24];
	int64_t *series;
	size_t count, allocated;
};

static void day_done(struct day *d)
{
	for (int i = 0; i < 24; i++) {
		(void)sqlite3_finalize(d->rows[i]);
		store_sql_close(d->db[i]);
	}
	free(d->series);
}

static int add_series(struct day *d, sqlite3 *db)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	char text[96];
	int r;

	(void)snprintf(text, sizeof(text), "SELECT series FROM roll WHERE step = %lld",
		(long long)STORE_HOUR_NS); /* fits */
	r = store_sql_prepare(db, text, &s);
	while (r == 0 && (r = store_sql_step(s)) > 0) {
		if (d->count == d->allocated) {
			size_t more = d->allocated ? d->allocated * 2 : 256;
			int64_t *series = reallocarray(d->series, more, sizeof(*series));

			if (!series)
				return -ENOMEM;
			d->series = series;
			d->allocated = more;
		}
		d->series[d->count++] = sqlite3_column_int64(s, 0);
		r = 0;
	}
	return r;
}

static int by_number(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int add_hour_row(void *data, const struct store_roll_row *row)
{
	struct day *d = data;
	int r = begin_row(d->maker, row->series, d->start_ns);

	if (r < 0)
		return r;
	store_about_add(&d->maker->about, &row->about);
	return store_sums_add_blob(&d->maker->sums, row->data, row->size, 0);
}

static int make_day(struct maker *m, struct day *d, const char *dir, int32_t number,
	const uint64_t versions[24])
{
	struct store_range all = {INT64_MIN, INT64_MAX};
	int r = 0;

	m->step_ns = STORE_ROLL_DAY_NS;
	for (int i = 0; r == 0 && i < 24; i++) {
		if (!versions[i])
			continue;
		r = store_roll_open(dir, (struct store_roll_id){.number = number * 24 + i},
			versions[i], &d->db[i]);
		if (r == 0)
			r = store_roll_query(d->db[i], true, &d->rows[i]);
		if (r == 0)
			r = add_series(d, d->db[i]);
	}
	if (d->count)
		qsort(d->series, d->count, sizeof(*d->series), by_number);
	for (size_t s = 0; r == 0 && s < d->count; s++) {
		if (s > 0 && d->series[s] == d->series[s - 1])
			continue;
		for (int i = 0; r == 0 && i < 24; i++) {
			if (d->rows[i])
				r = store_roll_rows(d->rows[i], STORE_HOUR_NS, d->series[s], &all,
					add_hour_row, d);
		}
	}
	return r == 0 ? end_row(m) : r;
}

int store_roll_make(const char *dir, struct store_roll_id id, const uint64_t versions[24],
	store_roll_fn *fn, void *data)
{
	struct maker m = {.fn = fn,
		.data = data,
		.blob = BUF_INIT(BLOB_BYTES_MAX),
		.facts = BUF_INIT(FACTS_BYTES_MAX)};
	struct day d = {.maker = &m, .start_ns = id.is_day ? id.number * STORE_ROLL_DAY_NS : 0};
	int r;

	if (id.is_day)
		r = make_day(&m, &d, dir, id.number, versions);
	else
		r = make_hour(&m, dir, id.number);
	day_done(&d);
	maker_done(&m);
	return r == -ENOENT && id.is_day ? -ESTALE : r;
}
