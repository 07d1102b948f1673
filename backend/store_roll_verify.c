/* Roll-ups against what they were made of: every row made anew and compared, byte by byte. */
#include <errno.h>
#include <inttypes.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"

struct check {
	const char *dir;
	store_roll_fault_fn *fault;
	void *data;
	struct store_roll_id *ids;
	size_t count, allocated;
};

static int add_id(void *data, struct store_roll_id id)
{
	struct check *c = data;

	if (c->count == c->allocated) {
		size_t more = c->allocated ? c->allocated * 2 : 64;
		struct store_roll_id *ids = reallocarray(c->ids, more, sizeof(*ids));

		if (!ids)
			return -ENOMEM;
		c->ids = ids;
		c->allocated = more;
	}
	c->ids[c->count++] = id;
	return 0;
}

static int read_state(const char *dir, int32_t hour, struct store_file_state *ret)
{
	_cleanup_(store_file_closep) struct store_file *f = NULL;
	int r = store_file_open_read(dir, hour, &f);

	*ret = (struct store_file_state){0};
	if (r == 0)
		r = store_sql_exec(store_file_db(f), "BEGIN");
	if (r == 0)
		r = store_file_read_state(f, ret);
	return r == -ENOENT ? 0 : r;
}

/* As store_roller_version, from the files themselves. */
static int version_of(
	const char *dir, struct store_roll_id id, uint64_t versions[24], uint64_t *ret)
{
	int32_t first = id.is_day ? id.number * 24 : id.number;
	int count = id.is_day ? 24 : 1;
	struct store_file_state states[26];
	uint64_t any = 0;

	memset(versions, 0, 24 * sizeof(*versions));
	for (int i = 0; i < count + 2; i++) {
		int r = read_state(dir, first - 1 + i, &states[i]);

		if (r < 0)
			return r;
	}
	for (int i = 0; i < count; i++) {
		if (states[i + 1].mark)
			versions[i] =
				store_roll_version(&states[i], &states[i + 1], &states[i + 2]);
		any |= versions[i];
	}
	*ret = id.is_day && any ? store_roll_day_version(versions) : any;
	return 0;
}

struct compare {
	sqlite3_stmt *stored;
	char text[160]; /* what differs first; "" nothing */
};

static bool is_same(const struct store_roll_row *a, const struct store_roll_row *b)
{
	const struct store_window_about *x = &a->about, *y = &b->about;

	return a->step_ns == b->step_ns && a->series == b->series && a->ts_ns == b->ts_ns &&
	       a->n == b->n && a->total == b->total && x->windows == y->windows &&
	       x->left_out == y->left_out && x->first_ns == y->first_ns && x->end_ns == y->end_ns &&
	       x->period == y->period && strcmp(x->period_type, y->period_type) == 0 &&
	       strcmp(x->period_unit, y->period_unit) == 0 && x->facts_size == y->facts_size &&
	       (x->facts_size == 0 || memcmp(x->facts, y->facts, x->facts_size) == 0) &&
	       a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

static int compare_row(void *data, const struct store_roll_row *row)
{
	struct compare *c = data;
	struct store_roll_row stored;
	int r;

	if (*c->text)
		return 0;
	r = store_roll_step(c->stored, &stored);
	if (r < 0)
		return r;
	if (r == 0)
		(void)snprintf(c->text, sizeof(c->text),
			"series %" PRId64 " at %" PRId64 " is missing", row->series, row->ts_ns);
	else if (!is_same(&stored, row))
		(void)snprintf(c->text, sizeof(c->text),
			"series %" PRId64 " at %" PRId64
			" is not what its source gives (total %" PRId64 ", not %" PRId64 ")",
			row->series, row->ts_ns, stored.total, row->total);
	return 0;
}

static int compare(const struct check *c, struct store_roll_id id, sqlite3 *db,
	const uint64_t versions[24], struct compare *x)
{
	struct store_roll_row more;
	int r = store_roll_query_all(db, &x->stored);

	if (r == 0)
		r = store_roll_make(c->dir, id, versions, compare_row, x);
	if (r == 0 && !*x->text) {
		r = store_roll_step(x->stored, &more);
		if (r > 0)
			(void)snprintf(x->text, sizeof(x->text),
				"series %" PRId64 " is not in its source", more.series);
	}
	(void)sqlite3_finalize(x->stored);
	if (r == -EUCLEAN || r == -EBADMSG)
		(void)snprintf(x->text, sizeof(x->text), "it or its source cannot be read");
	return r == -EUCLEAN || r == -EBADMSG || r == -ESTALE || r > 0 ? 0 : r;
}

static int check_one(const struct check *c, struct store_roll_id id)
{
	_cleanup_(store_sql_closep) sqlite3 *db = NULL;
	uint64_t versions[24], version = 0, again = 0;
	struct compare x = {.text = ""};
	char path[STORE_PATH_MAX];
	int r = version_of(c->dir, id, versions, &version);

	if (r == 0 && version)
		r = store_roll_open(c->dir, id, version, &db);
	if (r == 0 && db)
		r = compare(c, id, db, versions, &x);
	if (r == -EUCLEAN || r == -EPROTO || r == -EIO) {
		(void)snprintf(x.text, sizeof(x.text), "cannot be read: %s", strerror(-r));
		r = 0;
	}
	if (r == 0 && *x.text)
		r = version_of(c->dir, id, versions, &again);
	if (r == 0 && *x.text && again == version && store_roll_path(c->dir, id, path) == 0)
		c->fault(c->data, path + strlen(c->dir) + 1, x.text);
	return r == -ENOENT || r == -ESTALE || r == -EUCLEAN ? 0 : r;
}

int store_roll_verify(const char *dir, store_roll_fault_fn *fault, void *data)
{
	struct check c = {.dir = dir, .fault = fault, .data = data};
	int r = store_roll_each(dir, add_id, &c);

	for (size_t i = 0; r == 0 && i < c.count; i++)
		r = check_one(&c, c.ids[i]);
	free(c.ids);
	return r;
}
