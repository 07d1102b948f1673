/*
 * The dictionary's reader and its check. The reader keeps, for one profile, which of its strings and frames
 * stand for which records, so that each record is read once a query. What is in the file is not trusted: a
 * damaged record becomes a marker in the flame graph, and values stay counted.
 */
#include <errno.h>
#include <xxhash.h>

#include "backend/dict_internal.h"
#include "backend/store_sql.h"
#include "base/cursor.h"
#include "base/def.h"
#include "base/map.h"

#define MISSING_STACK "[missing stack]"
#define MISSING_FRAME "[missing frame]"

struct dict_reader {
	sqlite3 *db;
	sqlite3_stmt *find[DICT_KIND_COUNT];
	struct profile *p;
	struct map *strings, *frames; /* dictionary id to the profile's */
};

static int prepare_find(sqlite3 *db, int kind, sqlite3_stmt **ret)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "SELECT data FROM %s WHERE id = ?", dict_tables[kind]);
	return store_sql_prepare(db, text, ret);
}

int dict_reader_open(const char *path, struct profile *p, struct dict_reader **ret)
{
	struct store_sql_options o = {.version = DICT_VERSION, .cache_kib = 8 << 10};
	struct dict_reader *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->p = p;
	d->strings = map_new(SIZE_MAX);
	d->frames = map_new(SIZE_MAX);
	r = d->strings && d->frames ? 0 : -ENOMEM;
	if (r == 0)
		r = store_sql_open(path, &o, NULL, &d->db);
	for (int k = 0; r == 0 && k < DICT_KIND_COUNT; k++)
		r = prepare_find(d->db, k, &d->find[k]);
	/* One transaction for all that is read: the file's lock is taken once. */
	if (r == 0)
		r = store_sql_exec(d->db, "BEGIN");
	if (r < 0) {
		dict_reader_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void dict_reader_close(struct dict_reader *d)
{
	if (!d)
		return;
	for (int k = 0; k < DICT_KIND_COUNT; k++)
		(void)sqlite3_finalize(d->find[k]);
	store_sql_close(d->db);
	map_free(d->strings);
	map_free(d->frames);
	free(d);
}

void dict_reader_closep(struct dict_reader **d)
{
	dict_reader_close(*d);
}

/* 1 with the record's bytes, valid until the statement is reset; 0 when there is none; an error. */
static int find(sqlite3_stmt *s, uint64_t id, struct cursor *ret)
{
	int r;

	(void)sqlite3_bind_int64(s, 1, (int64_t)id);
	r = store_sql_step(s);
	if (r > 0) {
		const void *data = sqlite3_column_blob(s, 0);
		int size = sqlite3_column_bytes(s, 0);

		*ret = cursor_over(data ? data : "", (size_t)size);
	}
	return r;
}

/* The profile's string for a dictionary's id, or an error; "" for one that is not there. */
static int64_t read_string(struct dict_reader *d, uint64_t id)
{
	struct cursor c;
	uint64_t known, *slot;
	int64_t string = 0;
	int r;

	if (map_get(d->strings, &id, sizeof(id), &known))
		return (int64_t)known;
	r = find(d->find[DICT_STRING], id, &c);
	if (r > 0) {
		size_t size = cursor_left(&c);

		string = profile_string(d->p, (const char *)c.pos, size);
	}
	(void)sqlite3_reset(d->find[DICT_STRING]);
	if (r < 0 || string < 0)
		return r < 0 ? r : string;
	slot = map_put(d->strings, &id, sizeof(id), NULL);
	if (!slot)
		return -ENOMEM;
	*slot = (uint64_t)string;
	return string;
}

static int64_t make_marker(struct dict_reader *d, const char *name)
{
	int64_t string = profile_str(d->p, name);

	if (string < 0)
		return string;
	return profile_frame(d->p, &(struct frame){.name = (uint32_t)string, .kind = FRAME_OTHER});
}

static int64_t build_frame(struct dict_reader *d, struct cursor c)
{
	uint64_t name_id = cursor_varint(&c);
	uint64_t file_id = cursor_varint(&c);
	uint64_t module_id = cursor_varint(&c);
	uint64_t line = cursor_varint(&c);
	uint64_t kind = cursor_varint(&c);
	int64_t name, file, module;

	if (cursor_error(&c) || kind >= FRAME_KIND_COUNT)
		return make_marker(d, MISSING_FRAME);
	name = read_string(d, name_id);
	file = read_string(d, file_id);
	module = read_string(d, module_id);
	if (name < 0 || file < 0 || module < 0)
		return MIN(name, MIN(file, module));
	return profile_frame(d->p, &(struct frame){
					   .name = (uint32_t)name,
					   .file = (uint32_t)file,
					   .module = (uint32_t)module,
					   .line = (uint32_t)MIN(line, UINT32_MAX),
					   .kind = (uint32_t)kind,
				   });
}

static int64_t read_frame(struct dict_reader *d, uint64_t id)
{
	struct cursor c;
	uint64_t known, *slot;
	int64_t frame = 0;
	int r;

	if (map_get(d->frames, &id, sizeof(id), &known))
		return (int64_t)known;
	r = find(d->find[DICT_FRAME], id, &c);
	if (r >= 0)
		frame = r ? build_frame(d, c) : make_marker(d, MISSING_FRAME);
	(void)sqlite3_reset(d->find[DICT_FRAME]);
	if (r < 0 || frame < 0)
		return r < 0 ? r : frame;
	slot = map_put(d->frames, &id, sizeof(id), NULL);
	if (!slot)
		return -ENOMEM;
	*slot = (uint64_t)frame;
	return frame;
}

/* The set's labels into to. The count, or an error. */
static int read_labels(struct dict_reader *d, uint64_t id, struct label to[PROFILE_LABELS_MAX])
{
	struct cursor c = {0};
	int count = 0;
	int r = find(d->find[DICT_LABELS], id, &c);

	while (r > 0 && cursor_left(&c) > 0 && count < PROFILE_LABELS_MAX) {
		int64_t key = read_string(d, cursor_varint(&c));
		int64_t value = read_string(d, cursor_varint(&c));

		if (key < 0 || value < 0)
			r = (int)MIN(key, value);
		else
			to[count++] = (struct label){.key = (uint32_t)key, .str = (uint32_t)value};
	}
	(void)sqlite3_reset(d->find[DICT_LABELS]);
	return r < 0 ? r : count;
}

static int add_missing(struct dict_reader *d, const int64_t *values)
{
	int64_t id = make_marker(d, MISSING_STACK);
	uint32_t frame = (uint32_t)id;

	return id < 0 ? (int)id : profile_add(d->p, &frame, 1, NULL, 0, values);
}

int dict_reader_add(struct dict_reader *d, uint64_t stack, const int64_t *values)
{
	uint32_t frames[PROFILE_DEPTH_MAX];
	struct label labels[PROFILE_LABELS_MAX];
	uint32_t count = 0;
	struct cursor c;
	int label_count = 0;
	int r = find(d->find[DICT_STACK], stack, &c);

	if (r > 0) {
		label_count = read_labels(d, cursor_varint(&c), labels);
		if (label_count < 0)
			r = label_count;
	}
	while (r > 0 && cursor_left(&c) > 0 && count < ARRAY_SIZE(frames)) {
		int64_t frame = read_frame(d, cursor_varint(&c));

		if (frame < 0)
			r = (int)frame;
		else
			frames[count++] = (uint32_t)frame;
	}
	if (r > 0 && (cursor_error(&c) || cursor_left(&c)))
		r = 0;
	(void)sqlite3_reset(d->find[DICT_STACK]);
	if (r < 0)
		return r;
	if (r == 0)
		return add_missing(d, values);
	return profile_add(d->p, frames, count, labels, (uint32_t)label_count, values);
}

struct check {
	sqlite3 *db;
	sqlite3_stmt *find[DICT_KIND_COUNT];
	struct buf *out;
	uint64_t faults;
	int error;
};

static void fault(struct check *c, int kind, int64_t id, const char *what)
{
	c->faults++;
	(void)buf_printf(c->out, "dict.db: %s %lld: %s\n", dict_tables[kind], (long long)id,
		what); /* at its limit the count goes on */
}

static void check_exists(struct check *c, int kind, int64_t id, int of_kind, uint64_t of)
{
	struct cursor bytes;
	int r = find(c->find[of_kind], of, &bytes);

	(void)sqlite3_reset(c->find[of_kind]);
	if (r < 0)
		c->error = r;
	else if (r == 0)
		fault(c, kind, id, "refers to a record that is not there");
}

static void check_record(struct check *c, int kind, int64_t id, struct cursor bytes)
{
	uint64_t first;

	if (kind == DICT_STRING)
		return;
	if (kind == DICT_STACK) {
		first = cursor_varint(&bytes);
		if (!cursor_error(&bytes))
			check_exists(c, kind, id, DICT_LABELS, first);
	}
	for (int i = 0; !cursor_error(&bytes) && cursor_left(&bytes) > 0; i++) {
		uint64_t of = cursor_varint(&bytes);

		if (cursor_error(&bytes))
			break;
		if (kind == DICT_STACK)
			check_exists(c, kind, id, DICT_FRAME, of);
		else if (kind == DICT_LABELS || i < 3)
			check_exists(c, kind, id, DICT_STRING, of);
		else if (i > 4 || (i == 4 && of >= FRAME_KIND_COUNT))
			cursor_fail(&bytes);
	}
	if (cursor_error(&bytes))
		fault(c, kind, id, "malformed");
}

static void check_table(struct check *c, int kind)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	char text[64];

	(void)snprintf(text, sizeof(text), "SELECT id, h, data FROM %s", dict_tables[kind]);
	c->error = store_sql_prepare(c->db, text, &s);
	while (c->error == 0) {
		int r = store_sql_step(s);
		const void *data;
		size_t size;

		if (r <= 0) {
			c->error = r;
			return;
		}
		data = sqlite3_column_blob(s, 2);
		size = (size_t)sqlite3_column_bytes(s, 2);
		if (!data)
			data = "";
		if ((int64_t)XXH3_64bits(data, size) != sqlite3_column_int64(s, 1))
			fault(c, kind, sqlite3_column_int64(s, 0), "hash does not fit the data");
		check_record(c, kind, sqlite3_column_int64(s, 0), cursor_over(data, size));
	}
}

int dict_verify(const char *path, struct buf *out, uint64_t *faults)
{
	struct store_sql_options o = {.version = DICT_VERSION, .cache_kib = 32 << 10};
	struct check c = {.out = out};

	c.error = store_sql_open(path, &o, NULL, &c.db);
	for (int k = 0; c.error == 0 && k < DICT_KIND_COUNT; k++)
		c.error = prepare_find(c.db, k, &c.find[k]);
	if (c.error == 0)
		c.error = store_sql_exec(c.db, "BEGIN");
	for (int k = 0; c.error == 0 && k < DICT_KIND_COUNT; k++)
		check_table(&c, k);
	for (int k = 0; k < DICT_KIND_COUNT; k++)
		(void)sqlite3_finalize(c.find[k]);
	store_sql_close(c.db);
	*faults += c.faults;
	return c.error;
}
