/*
 * Facts of profiles (pprof comments "flame.KEY=VALUE") as text in their row, and merged for a flame graph.
 * Names cannot hold a line feed, nor keys a '=', because profile.c repairs and refuses them.
 */
#include <errno.h>
#include <stdio.h>

#include "backend/store_internal.h"
#include "base/def.h"
#include "base/map.h"
#include "base/str.h"
#include "prof/profile_internal.h"

#define FACT_PREFIX "store."

/* One value more than is shown is kept: that there are more is then known after any number of merges. */
enum { KEYS_MAX = 512, VALUES_SHOWN = 4, VALUES_MAX = VALUES_SHOWN + 1 };

struct merged_fact {
	struct merged_fact *next;
	const char *key;
	bool is_sum;
	int64_t sum;
	const char *values[VALUES_MAX]; /* ascending */
	size_t value_count;
};

struct store_facts {
	struct arena *arena;
	struct map *by_key;
	struct merged_fact *first;
};

int store_facts_write(const struct profile *p, const char *labels_left_out,
	uint64_t negatives_dropped, struct buf *out)
{
	const char *key, *value;

	for (size_t i = 0; profile_fact_at(p, i, &key, &value); i++)
		(void)buf_printf(out, "%s=%s\n", key, value);
	if (*labels_left_out)
		(void)buf_printf(out, FACT_PREFIX "labels_left_out=%s\n", labels_left_out);
	if (negatives_dropped)
		(void)buf_printf(out, FACT_PREFIX "negatives_dropped=%llu\n",
			(unsigned long long)negatives_dropped);
	return buf_error(out);
}

struct store_facts *store_facts_new(void)
{
	struct store_facts *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->arena = arena_new((size_t)8 << 20);
	f->by_key = map_new(KEYS_MAX);
	if (!f->arena || !f->by_key) {
		store_facts_free(f);
		return NULL;
	}
	return f;
}

void store_facts_free(struct store_facts *f)
{
	if (!f)
		return;
	arena_free(f->arena);
	map_free(f->by_key);
	free(f);
}

static bool key_counts(const char *key)
{
	static const char *const sums[] = {
		"lost_ns", "window_ns", "ledger_cpu_ns", FACT_PREFIX "negatives_dropped"};

	for (size_t i = 0; i < ARRAY_SIZE(sums); i++) {
		if (strcmp(key, sums[i]) == 0)
			return true;
	}
	return str_has_prefix(key, "lost.");
}

/* NULL past the limit of keys, or without memory: facts inform, they do not fail a query. */
static struct merged_fact *find(struct store_facts *f, const char *key, size_t size)
{
	uint64_t *slot = map_put(f->by_key, key, size, NULL);
	struct merged_fact *m;

	if (!slot)
		return NULL;
	if (*slot)
		return (struct merged_fact *)(uintptr_t)*slot;
	m = arena_alloc(f->arena, sizeof(*m));
	if (!m)
		return NULL;
	m->key = arena_strndup(f->arena, key, size);
	if (!m->key)
		return NULL;
	m->is_sum = key_counts(m->key);
	m->next = f->first;
	f->first = m;
	*slot = (uint64_t)(uintptr_t)m;
	return m;
}

static void add_value(struct store_facts *f, struct merged_fact *m, const char *value, size_t size)
{
	char text[PROFILE_NAME_MAX + 1];
	const char *own;
	int64_t number;
	size_t at = 0;

	if (size >= sizeof(text))
		return;
	memcpy(text, value, size);
	text[size] = '\0';
	if (m->is_sum) {
		if (str_to_i64(text, 0, INT64_MAX, &number) == 0)
			m->sum = profile_saturating_add(m->sum, number);
		return;
	}
	while (at < m->value_count && strcmp(m->values[at], text) < 0)
		at++;
	if (at < m->value_count && strcmp(m->values[at], text) == 0)
		return;
	if (at == VALUES_MAX)
		return;
	own = arena_strdup(f->arena, text);
	if (!own)
		return;
	for (size_t i = MIN(m->value_count, (size_t)VALUES_MAX - 1); i > at; i--)
		m->values[i] = m->values[i - 1];
	m->values[at] = own;
	m->value_count = MIN(m->value_count + 1, (size_t)VALUES_MAX);
}

int store_facts_add(struct store_facts *f, const void *text, size_t size)
{
	const char *at = text;
	const char *end = at + size;

	while (at < end) {
		const char *line = memchr(at, '\n', (size_t)(end - at));
		const char *equals = line ? memchr(at, '=', (size_t)(line - at)) : NULL;
		struct merged_fact *m;

		if (!line)
			return -EUCLEAN;
		m = equals ? find(f, at, (size_t)(equals - at)) : NULL;
		if (m)
			add_value(f, m, equals + 1, (size_t)(line - equals - 1));
		at = line + 1;
	}
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct merged_fact *x = *(struct merged_fact *const *)a;
	const struct merged_fact *y = *(struct merged_fact *const *)b;

	return strcmp(x->key, y->key);
}

static int set_one(const struct merged_fact *m, struct profile *p)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(VALUES_MAX * (PROFILE_NAME_MAX + 4));

	if (m->is_sum)
		return profile_set_factf(p, m->key, "%lld", (long long)m->sum);
	for (size_t i = 0; i < MIN(m->value_count, (size_t)VALUES_SHOWN); i++)
		(void)buf_printf(&text, "%s%s", i ? ", " : "", m->values[i]);
	if (m->value_count > VALUES_SHOWN)
		(void)buf_append_str(&text, ", ...");
	return buf_error(&text) ? buf_error(&text) : profile_set_fact(p, m->key, buf_str(&text));
}

/* The facts by key, so that texts and profiles do not depend on the order of arrival. The count. */
static size_t sort(const struct store_facts *f, const struct merged_fact *sorted[KEYS_MAX])
{
	size_t count = 0;

	for (const struct merged_fact *m = f->first; m; m = m->next)
		sorted[count++] = m;
	if (count)
		qsort(sorted, count, sizeof(sorted[0]), by_key);
	return count;
}

int store_facts_set(const struct store_facts *f, struct profile *p)
{
	const struct merged_fact *sorted[KEYS_MAX] = {0};
	size_t count = sort(f, sorted);
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = set_one(sorted[i], p);
	return r;
}

int store_facts_text(const struct store_facts *f, struct buf *out)
{
	const struct merged_fact *sorted[KEYS_MAX] = {0};
	size_t count = sort(f, sorted);

	for (size_t i = 0; i < count; i++) {
		const struct merged_fact *m = sorted[i];

		if (m->is_sum)
			(void)buf_printf(out, "%s=%lld\n", m->key, (long long)m->sum);
		for (size_t k = 0; k < m->value_count; k++)
			(void)buf_printf(out, "%s=%s\n", m->key, m->values[k]);
	}
	return buf_error(out);
}
