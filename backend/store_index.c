/*
 * Label sets and series: catalog.db's part of the store, held in memory whole.
 *
 *	store_schema(version)
 *	store_labels(id, data)		name NUL value NUL..., sorted by name
 *	store_series(id, labels, type, unit, ordinal)
 *
 * The catalog has its own version table because the control part keeps tables in the same file. Ids are given
 * in memory and written at the next commit, before any data that uses them; a commit that fails leaves them
 * for the one after.
 */
#include <errno.h>

#include "backend/store_internal.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/map.h"

enum { INDEX_VERSION = 1, SERIES_MAX = 1 << 20, LABELS_BYTES_MAX = 64 * (256 + 2048) };

struct label_set {
	const struct push_label *labels;
	size_t count;
	const char *data;
	size_t size;
};

struct store_index {
	sqlite3 *db;
	sqlite3_stmt *put_labels, *put_series;
	pthread_rwlock_t lock;
	struct arena *arena;
	struct map *labels_by_data; /* to position + 1 */
	struct map *series_by_key;
	struct label_set *sets; /* position i has id i + 1 */
	size_t set_count, sets_allocated, sets_saved;
	struct store_series **series; /* likewise */
	size_t series_count, series_allocated, series_saved;
	struct buf key;
};

struct series_key {
	int64_t labels_id;
	char text[sizeof(uint32_t) + 2 * (PROFILE_NAME_MAX + 1)];
};

static int grow(void *array, size_t *allocated, size_t count, size_t size)
{
	void **p = array;
	size_t more = *allocated ? *allocated * 2 : 64;
	void *grown;

	if (count < *allocated)
		return 0;
	grown = reallocarray(*p, more, size);
	if (!grown)
		return -ENOMEM;
	*p = grown;
	*allocated = more;
	return 0;
}

/* The labels that data spells; -EUCLEAN when it spells none. */
static int parse_labels(struct arena *a, const char *data, size_t size, struct label_set *ret)
{
	struct push_label *labels;
	size_t nuls = 0, count;

	for (size_t i = 0; i < size; i++)
		nuls += data[i] == '\0';
	count = nuls / 2;
	if (nuls % 2 || (size && data[size - 1]))
		return -EUCLEAN;
	labels = arena_alloc(a, count * sizeof(*labels));
	if (!labels)
		return -ENOMEM;
	ret->data = data;
	ret->size = size;
	for (size_t i = 0; i < count; i++) {
		labels[i].name = data;
		data += strlen(data) + 1;
		labels[i].value = data;
		data += strlen(data) + 1;
	}
	ret->labels = labels;
	ret->count = count;
	return 0;
}

static int add_labels(struct store_index *x, const void *data, size_t size)
{
	struct label_set set;
	uint64_t *position;
	char *copy = arena_alloc(x->arena, size);
	int r = copy ? grow(&x->sets, &x->sets_allocated, x->set_count, sizeof(*x->sets)) : -ENOMEM;

	if (r < 0)
		return r;
	if (size)
		memcpy(copy, data, size);
	r = parse_labels(x->arena, copy, size, &set);
	if (r < 0)
		return r;
	position = map_put(x->labels_by_data, data, size, NULL);
	if (!position)
		return -ENOMEM;
	x->sets[x->set_count++] = set;
	*position = x->set_count;
	return 0;
}

static size_t make_key(struct series_key *key, int64_t labels_id, const char *type,
	const char *unit, uint32_t ordinal)
{
	size_t type_size = strnlen(type, PROFILE_NAME_MAX);
	size_t unit_size = strnlen(unit, PROFILE_NAME_MAX);
	char *at;

	key->labels_id = labels_id;
	at = key->text;
	memcpy(at, &ordinal, sizeof(ordinal));
	at += sizeof(ordinal);
	memcpy(at, type, type_size);
	at += type_size;
	*at++ = '\0';
	memcpy(at, unit, unit_size);
	at += unit_size;
	return (size_t)(at - (char *)key);
}

static int add_series(struct store_index *x, int64_t labels_id, const char *type, const char *unit,
	unsigned int ordinal)
{
	const struct label_set *set = &x->sets[labels_id - 1];
	struct series_key key;
	size_t size = make_key(&key, labels_id, type, unit, ordinal);
	struct store_series *s = arena_alloc(x->arena, sizeof(*s));
	uint64_t *position;
	int r = s ? grow(&x->series, &x->series_allocated, x->series_count,
			    sizeof(struct store_series *))
		  : -ENOMEM;

	if (r < 0)
		return r;
	*s = (struct store_series){
		.id = (int64_t)x->series_count + 1,
		.labels_id = labels_id,
		.labels = set->labels,
		.label_count = set->count,
		.type = arena_strdup(x->arena, type),
		.unit = arena_strdup(x->arena, unit),
		.ordinal = ordinal,
	};
	position = s->type && s->unit ? map_put(x->series_by_key, &key, size, NULL) : NULL;
	if (!position)
		return -ENOMEM;
	x->series[x->series_count++] = s;
	*position = x->series_count;
	return 0;
}

static int load_labels(struct store_index *x)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_sql_prepare(x->db, "SELECT id, data FROM store_labels ORDER BY id", &s);

	if (r < 0)
		return r;
	while ((r = store_sql_step(s)) > 0) {
		const void *data = sqlite3_column_blob(s, 1);

		if (sqlite3_column_int64(s, 0) != (int64_t)x->set_count + 1)
			return -EUCLEAN;
		r = add_labels(x, data ? data : "", (size_t)sqlite3_column_bytes(s, 1));
		if (r < 0)
			return r;
	}
	x->sets_saved = x->set_count;
	return r;
}

static int load_series(struct store_index *x)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_sql_prepare(
		x->db, "SELECT id, labels, type, unit, ordinal FROM store_series ORDER BY id", &s);

	if (r < 0)
		return r;
	while ((r = store_sql_step(s)) > 0) {
		int64_t labels_id = sqlite3_column_int64(s, 1);
		const char *type = (const char *)sqlite3_column_text(s, 2);
		const char *unit = (const char *)sqlite3_column_text(s, 3);

		if (sqlite3_column_int64(s, 0) != (int64_t)x->series_count + 1 || labels_id < 1 ||
			labels_id > (int64_t)x->set_count || !type || !unit)
			return -EUCLEAN;
		r = add_series(x, labels_id, type, unit, (unsigned int)sqlite3_column_int(s, 4));
		if (r < 0)
			return r;
	}
	x->series_saved = x->series_count;
	return r;
}

static int make_tables(sqlite3 *db, const char **why)
{
	int64_t version = 0;
	int r = store_sql_exec(db,
		"BEGIN IMMEDIATE;"
		"CREATE TABLE IF NOT EXISTS store_schema(version INTEGER NOT NULL);"
		"INSERT INTO store_schema SELECT 1 WHERE NOT EXISTS(SELECT 1 FROM store_schema);"
		"CREATE TABLE IF NOT EXISTS store_labels(id INTEGER PRIMARY KEY, data BLOB NOT "
		"NULL);"
		"CREATE TABLE IF NOT EXISTS store_series(id INTEGER PRIMARY KEY, labels INTEGER "
		"NOT NULL,"
		" type TEXT NOT NULL, unit TEXT NOT NULL, ordinal INTEGER NOT NULL);"
		"COMMIT");

	if (r < 0) {
		(void)store_sql_exec(db, "ROLLBACK"); /* r says what is wrong */
		return r;
	}
	r = store_sql_number(db, "SELECT version FROM store_schema", &version);
	if (r == 0 && version != INDEX_VERSION) {
		*why = "catalog.db has an unknown schema version";
		return -EPROTO;
	}
	return r;
}

static int open_catalog(const char *path, const char **why, sqlite3 **ret)
{
	int64_t version = 0;
	struct store_sql_options o = {.schema = "", .version = -1};
	sqlite3 *db = NULL;
	int r = store_sql_open(path, &o, why, &db);

	if (r < 0)
		return r;
	/* One that a later version left says so before anything is written to it. */
	if (store_sql_number(db, "SELECT max(version) FROM store_schema", &version) == 0 &&
		version > INDEX_VERSION) {
		*why = "catalog.db has an unknown schema version";
		r = -EPROTO;
	}
	if (r == 0)
		r = make_tables(db, why);
	if (r < 0) {
		store_sql_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

int store_index_open(const char *path, const char **why, struct store_index **ret)
{
	struct store_index *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return -ENOMEM;
	(void)pthread_rwlock_init(&x->lock, NULL); /* cannot fail with default attributes */
	buf_init(&x->key, LABELS_BYTES_MAX);
	x->arena = arena_new(SIZE_MAX); /* bounded by SERIES_MAX */
	x->labels_by_data = map_new(SERIES_MAX);
	x->series_by_key = map_new(SERIES_MAX);
	r = x->arena && x->labels_by_data && x->series_by_key ? 0 : -ENOMEM;
	if (r == 0)
		r = open_catalog(path, why, &x->db);
	if (r == 0)
		r = store_sql_prepare(
			x->db, "INSERT INTO store_labels(id, data) VALUES(?, ?)", &x->put_labels);
	if (r == 0)
		r = store_sql_prepare(x->db,
			"INSERT INTO store_series(id, labels, type, unit, ordinal) VALUES(?, ?, ?, "
			"?, ?)",
			&x->put_series);
	if (r == 0)
		r = load_labels(x);
	if (r == 0)
		r = load_series(x);
	if (r < 0) {
		if (r == -EUCLEAN)
			*why = "catalog.db is damaged";
		store_index_close(x);
		return r;
	}
	*ret = x;
	return 0;
}

void store_index_close(struct store_index *x)
{
	if (!x)
		return;
	(void)sqlite3_finalize(x->put_labels);
	(void)sqlite3_finalize(x->put_series);
	store_sql_close(x->db);
	map_free(x->labels_by_data);
	map_free(x->series_by_key);
	arena_free(x->arena);
	buf_done(&x->key);
	free(x->sets);
	free(x->series);
	(void)pthread_rwlock_destroy(&x->lock);
	free(x);
}

int store_index_labels(
	struct store_index *x, const struct push_label *labels, size_t count, int64_t *ret_id)
{
	uint64_t known;
	int r;

	buf_reset(&x->key);
	for (size_t i = 0; i < count; i++) {
		(void)buf_append(&x->key, labels[i].name, strlen(labels[i].name) + 1);
		(void)buf_append(&x->key, labels[i].value, strlen(labels[i].value) + 1);
	}
	if (buf_error(&x->key))
		return buf_error(&x->key);
	if (!map_get(x->labels_by_data, buf_str(&x->key), x->key.size, &known)) {
		if (x->set_count >= SERIES_MAX)
			return -ENOBUFS;
		(void)pthread_rwlock_wrlock(&x->lock);
		r = add_labels(x, buf_str(&x->key), x->key.size);
		known = x->set_count;
		(void)pthread_rwlock_unlock(&x->lock);
		if (r < 0)
			return r;
	}
	*ret_id = (int64_t)known;
	return 0;
}

int store_index_series(struct store_index *x, int64_t labels_id, const char *type, const char *unit,
	unsigned int ordinal, int64_t *ret_id)
{
	struct series_key key;
	size_t size = make_key(&key, labels_id, type, unit, ordinal);
	uint64_t known;
	int r;

	if (!map_get(x->series_by_key, &key, size, &known)) {
		if (x->series_count >= SERIES_MAX)
			return -ENOBUFS;
		(void)pthread_rwlock_wrlock(&x->lock);
		r = add_series(x, labels_id, type, unit, ordinal);
		known = x->series_count;
		(void)pthread_rwlock_unlock(&x->lock);
		if (r < 0)
			return r;
	}
	*ret_id = (int64_t)known;
	return 0;
}

static int save(struct store_index *x)
{
	int r = store_sql_exec(x->db, "BEGIN IMMEDIATE");

	for (size_t i = x->sets_saved; r == 0 && i < x->set_count; i++) {
		(void)sqlite3_bind_int64(x->put_labels, 1, (int64_t)i + 1);
		(void)sqlite3_bind_blob64(
			x->put_labels, 2, x->sets[i].data, x->sets[i].size, SQLITE_STATIC);
		r = store_sql_run(x->put_labels);
	}
	for (size_t i = x->series_saved; r == 0 && i < x->series_count; i++) {
		const struct store_series *s = x->series[i];

		(void)sqlite3_bind_int64(x->put_series, 1, s->id);
		(void)sqlite3_bind_int64(x->put_series, 2, s->labels_id);
		(void)sqlite3_bind_text(x->put_series, 3, s->type, -1, SQLITE_STATIC);
		(void)sqlite3_bind_text(x->put_series, 4, s->unit, -1, SQLITE_STATIC);
		(void)sqlite3_bind_int64(x->put_series, 5, s->ordinal);
		r = store_sql_run(x->put_series);
	}
	return r == 0 ? store_sql_exec(x->db, "COMMIT") : r;
}

int store_index_commit(struct store_index *x)
{
	int r;

	if (x->sets_saved == x->set_count && x->series_saved == x->series_count)
		return 0;
	r = save(x);
	if (r < 0) {
		(void)store_sql_exec(x->db, "ROLLBACK"); /* fails when sqlite did it itself */
		return r;
	}
	x->sets_saved = x->set_count;
	x->series_saved = x->series_count;
	return 0;
}

int store_index_select(struct store_index *x, const struct matcher *m, size_t count,
	const struct store_series ***ret, size_t *ret_count)
{
	const struct store_series **found = NULL;
	struct match_set *set = NULL;
	size_t n = 0;
	int r = match_set_new(m, count, &set);

	if (r < 0)
		return r;
	(void)pthread_rwlock_rdlock(&x->lock);
	found = calloc(x->series_count + 1, sizeof(struct store_series *));
	for (size_t i = 0; found && i < x->series_count; i++) {
		const struct store_series *s = x->series[i];

		if (match_set_takes(set, s->labels, s->label_count, s->type, s->unit))
			found[n++] = s;
	}
	(void)pthread_rwlock_unlock(&x->lock);
	match_set_free(set);
	if (!found)
		return -ENOMEM;
	*ret = found;
	*ret_count = n;
	return 0;
}
