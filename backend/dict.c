/*
 * The dictionary's writer. Lookup goes through a cache from bytes to id, then the table's index on the hash.
 *
 * The cache has two generations a table: entries go into the young one; when that is full the old one is
 * thrown away and the young one becomes old; a hit in the old one moves to the young one. So what is used
 * stays, memory is bounded, and nothing is ever removed from a map one by one.
 *
 * While the cache has held everything since the table was empty, a miss needs no look into the table.
 */
#include "backend/dict.h"

#include <errno.h>
#include <xxhash.h>

#include "backend/blob.h"
#include "backend/dict_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/map.h"

#define CACHE_BYTES_DEFAULT ((size_t)128 << 20)
#define RECORD_BYTES_MAX    ((size_t)64 << 10)

enum { ENTRY_OVERHEAD = 72, ROW_OVERHEAD = 40, VARINT_MAX = 10 };

const char dict_schema[] =
	"CREATE TABLE string(id INTEGER PRIMARY KEY, h INTEGER NOT NULL, data BLOB NOT NULL);"
	"CREATE TABLE frame(id INTEGER PRIMARY KEY, h INTEGER NOT NULL, data BLOB NOT NULL);"
	"CREATE TABLE labels(id INTEGER PRIMARY KEY, h INTEGER NOT NULL, data BLOB NOT NULL);"
	"CREATE TABLE stack(id INTEGER PRIMARY KEY, h INTEGER NOT NULL, data BLOB NOT NULL);"
	"CREATE INDEX string_h ON string(h);"
	"CREATE INDEX frame_h ON frame(h);"
	"CREATE INDEX labels_h ON labels(h);"
	"CREATE INDEX stack_h ON stack(h);";

const char *const dict_tables[DICT_KIND_COUNT] = {"string", "frame", "labels", "stack"};

struct dict_table {
	sqlite3_stmt *find, *insert;
	struct map *young, *old;
	size_t young_bytes;
	size_t bytes_max; /* of one generation */
	uint64_t count;   /* the last id */
	bool is_whole;    /* the cache holds every record */
};

struct dict {
	sqlite3 *db;
	struct dict_table tables[DICT_KIND_COUNT];
	bool in_transaction;
	uint64_t bytes_added;
	struct buf record; /* scratch */
};

static void forget(struct dict_table *t)
{
	map_free(t->young);
	map_free(t->old);
	t->young = t->old = NULL;
	t->young_bytes = 0;
	t->is_whole = t->count == 0;
}

static int load_counts(struct dict *d)
{
	for (int k = 0; k < DICT_KIND_COUNT; k++) {
		char text[64];
		int64_t id = 0;
		int r;

		(void)snprintf(text, sizeof(text), "SELECT max(id) FROM %s", dict_tables[k]);
		r = store_sql_number(d->db, text, &id);
		if (r < 0)
			return r;
		d->tables[k].count = (uint64_t)id;
		forget(&d->tables[k]);
	}
	return 0;
}

static int prepare_table(struct dict *d, int kind, size_t cache_bytes_max)
{
	static const unsigned int share_percent[DICT_KIND_COUNT] = {20, 15, 5, 60};
	struct dict_table *t = &d->tables[kind];
	char text[96];
	int r;

	/* Two generations. */
	t->bytes_max = cache_bytes_max / 200 * share_percent[kind];
	(void)snprintf(
		text, sizeof(text), "SELECT id, data FROM %s WHERE h = ?", dict_tables[kind]);
	r = store_sql_prepare(d->db, text, &t->find);
	if (r < 0)
		return r;
	(void)snprintf(text, sizeof(text), "INSERT INTO %s(id, h, data) VALUES(?, ?, ?)",
		dict_tables[kind]);
	return store_sql_prepare(d->db, text, &t->insert);
}

int dict_open(const char *path, size_t cache_bytes_max, const char **why, struct dict **ret)
{
	struct store_sql_options o = {
		.schema = dict_schema, .version = DICT_VERSION, .cache_kib = 32 << 10};
	struct dict *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	buf_init(&d->record, RECORD_BYTES_MAX);
	r = store_sql_open(path, &o, why, &d->db);
	for (int k = 0; r == 0 && k < DICT_KIND_COUNT; k++)
		r = prepare_table(d, k, cache_bytes_max ? cache_bytes_max : CACHE_BYTES_DEFAULT);
	if (r == 0)
		r = load_counts(d);
	if (r < 0) {
		dict_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void dict_close(struct dict *d)
{
	if (!d)
		return;
	for (int k = 0; k < DICT_KIND_COUNT; k++) {
		(void)sqlite3_finalize(d->tables[k].find);
		(void)sqlite3_finalize(d->tables[k].insert);
		map_free(d->tables[k].young);
		map_free(d->tables[k].old);
	}
	store_sql_close(d->db);
	buf_done(&d->record);
	free(d);
}

int dict_commit(struct dict *d)
{
	int r;

	if (!d->in_transaction)
		return 0;
	r = store_sql_exec(d->db, "COMMIT");
	if (r < 0) {
		dict_rollback(d);
		return r;
	}
	d->in_transaction = false;
	d->bytes_added = 0;
	return 0;
}

void dict_rollback(struct dict *d)
{
	if (d->in_transaction)
		(void)store_sql_exec(d->db, "ROLLBACK"); /* fails when sqlite did it itself */
	d->in_transaction = false;
	d->bytes_added = 0;
	/* The counts as they are on disk; where they cannot be read, ids stay unused rather than twice used. */
	if (load_counts(d) < 0) {
		for (int k = 0; k < DICT_KIND_COUNT; k++)
			forget(&d->tables[k]);
	}
}

uint64_t dict_count(const struct dict *d, enum dict_kind kind)
{
	return d->tables[kind].count;
}

uint64_t dict_bytes_added(const struct dict *d)
{
	return d->bytes_added;
}

static int cache_put(struct dict_table *t, const void *data, size_t size, uint64_t id)
{
	uint64_t *value;

	if (t->young && t->young_bytes + size > t->bytes_max) {
		if (t->old)
			t->is_whole = false;
		map_free(t->old);
		t->old = t->young;
		t->young = NULL;
		t->young_bytes = 0;
	}
	if (!t->young)
		t->young = map_new(SIZE_MAX);
	value = t->young ? map_put(t->young, data, size, NULL) : NULL;
	if (!value) {
		t->is_whole = false;
		return -ENOMEM;
	}
	*value = id;
	t->young_bytes += size + ENTRY_OVERHEAD;
	return 0;
}

static int find_on_disk(
	struct dict_table *t, int64_t hash, const void *data, size_t size, uint64_t *ret)
{
	int r;

	(void)sqlite3_bind_int64(t->find, 1, hash);
	while ((r = store_sql_step(t->find)) > 0) {
		const void *found = sqlite3_column_blob(t->find, 1);

		if ((size_t)sqlite3_column_bytes(t->find, 1) == size &&
			(size == 0 || (found && memcmp(found, data, size) == 0))) {
			*ret = (uint64_t)sqlite3_column_int64(t->find, 0);
			break;
		}
	}
	(void)sqlite3_reset(t->find);
	return r;
}

/* The id of the record with these bytes, made if need be. */
static int intern(struct dict *d, enum dict_kind kind, const void *data, size_t size, uint64_t *ret)
{
	struct dict_table *t = &d->tables[kind];
	int64_t hash;
	uint64_t id;
	int r;

	if (t->young && map_get(t->young, data, size, ret))
		return 0;
	if (t->old && map_get(t->old, data, size, ret))
		return cache_put(t, data, size, *ret);
	hash = (int64_t)XXH3_64bits(data, size);
	if (!t->is_whole) {
		r = find_on_disk(t, hash, data, size, ret);
		if (r != 0)
			return r < 0 ? r : cache_put(t, data, size, *ret);
	}
	if (!d->in_transaction) {
		r = store_sql_exec(d->db, "BEGIN IMMEDIATE");
		if (r < 0)
			return r;
		d->in_transaction = true;
	}
	id = t->count + 1;
	(void)sqlite3_bind_int64(t->insert, 1, (int64_t)id);
	(void)sqlite3_bind_int64(t->insert, 2, hash);
	(void)sqlite3_bind_blob64(t->insert, 3, size ? data : "", size, SQLITE_STATIC);
	r = store_sql_run(t->insert);
	if (r < 0)
		return r;
	t->count = id;
	d->bytes_added += size + ROW_OVERHEAD;
	*ret = id;
	return cache_put(t, data, size, id);
}

/* What one profile's strings and frames are in the dictionary; 0: not asked for yet. */
struct interning {
	struct dict *d;
	const struct profile *p;
	uint64_t *strings;
	uint64_t *frames;
	struct buf *left_out;
};

static int string_id(struct interning *n, uint32_t string, uint64_t *ret)
{
	const char *text = profile_text(n->p, string);
	int r = 0;

	if (!n->strings[string])
		r = intern(n->d, DICT_STRING, text, strlen(text), &n->strings[string]);
	*ret = n->strings[string];
	return r;
}

static int frame_id(struct interning *n, uint32_t frame, uint64_t *ret)
{
	const struct frame *f = profile_frame_at(n->p, frame);
	uint8_t data[5 * VARINT_MAX];
	uint64_t name = 0, file = 0, module = 0;
	size_t size = 0;
	int r = 0;

	if (!n->frames[frame]) {
		r = string_id(n, f->name, &name);
		if (r == 0)
			r = string_id(n, f->file, &file);
		if (r == 0)
			r = string_id(n, f->module, &module);
		if (r < 0)
			return r;
		size += blob_put_varint(data + size, name);
		size += blob_put_varint(data + size, file);
		size += blob_put_varint(data + size, module);
		size += blob_put_varint(data + size, f->line);
		size += blob_put_varint(data + size, f->kind);
		r = intern(n->d, DICT_FRAME, data, size, &n->frames[frame]);
	}
	*ret = n->frames[frame];
	return r;
}

static bool label_is_kept(const struct profile *p, const struct label *l)
{
	static const char *const per_call[] = {"trace_id", "span_id", "profile_id", "pid", "tid"};
	const char *key = profile_text(p, l->key);

	for (size_t i = 0; i < ARRAY_SIZE(per_call); i++) {
		if (strcmp(key, per_call[i]) == 0)
			return false;
	}
	return l->str != 0;
}

/* Adds name to the list unless it is in it; past the list's limit it stays as it is. */
static void note_left_out(struct buf *list, const char *name)
{
	const char *at = buf_str(list);
	size_t size = strlen(name);

	while ((at = strstr(at, name)) != NULL) {
		if ((at == list->data || at[-1] == ',') && (at[size] == ',' || !at[size]))
			return;
		at++;
	}
	if (list->size + size + 1 < list->size_max && !buf_error(list))
		(void)buf_printf(list, "%s%s", list->size ? "," : "", name); /* it fits */
}

static int labels_id(struct interning *n, const struct sample *s, uint64_t *ret)
{
	uint64_t pairs[PROFILE_LABELS_MAX][2];
	uint8_t data[PROFILE_LABELS_MAX * 2 * VARINT_MAX];
	size_t count = 0, size = 0;

	for (uint32_t i = 0; i < s->label_count; i++) {
		uint64_t key = 0, value = 0;
		size_t at = count;
		int r;

		if (!label_is_kept(n->p, &s->labels[i])) {
			note_left_out(n->left_out, profile_text(n->p, s->labels[i].key));
			continue;
		}
		r = string_id(n, s->labels[i].key, &key);
		if (r == 0)
			r = string_id(n, s->labels[i].str, &value);
		if (r < 0)
			return r;
		for (; at > 0 && (pairs[at - 1][0] > key ||
					 (pairs[at - 1][0] == key && pairs[at - 1][1] > value));
			at--)
			memcpy(pairs[at], pairs[at - 1], sizeof(pairs[at]));
		pairs[at][0] = key;
		pairs[at][1] = value;
		count++;
	}
	for (size_t i = 0; i < count; i++) {
		size += blob_put_varint(data + size, pairs[i][0]);
		size += blob_put_varint(data + size, pairs[i][1]);
	}
	return intern(n->d, DICT_LABELS, data, size, ret);
}

static int stack_id(struct interning *n, const struct sample *s, uint64_t *ret)
{
	struct buf *record = &n->d->record;
	uint8_t varint[VARINT_MAX];
	uint64_t id = 0;
	int r = labels_id(n, s, &id);

	buf_reset(record);
	if (r == 0)
		r = buf_append(record, varint, blob_put_varint(varint, id));
	for (uint32_t i = 0; r == 0 && i < s->frame_count; i++) {
		r = frame_id(n, s->frames[i], &id);
		if (r == 0)
			r = buf_append(record, varint, blob_put_varint(varint, id));
	}
	if (r < 0)
		return r;
	return intern(n->d, DICT_STACK, record->data, record->size, ret);
}

int dict_intern(struct dict *d, const struct profile *p, struct arena *scratch,
	struct buf *left_out, uint64_t **ret)
{
	size_t count = profile_sample_count(p);
	struct interning n = {.d = d, .p = p, .left_out = left_out};
	uint64_t *ids = arena_alloc(scratch, count * sizeof(*ids));
	struct sample s;

	n.strings = arena_alloc(scratch, profile_string_count(p) * sizeof(*n.strings));
	n.frames = arena_alloc(scratch, profile_frame_count(p) * sizeof(*n.frames));
	if (!ids || !n.strings || !n.frames)
		return -ENOMEM;
	for (size_t i = 0; profile_sample_at(p, i, &s); i++) {
		int r = stack_id(&n, &s, &ids[i]);

		if (r < 0)
			return r;
	}
	*ret = ids;
	return 0;
}
