/*
 * The hash map: entries stand in an array in the order they came, and a table of indexes into it is
 * probed linearly. There is no removal, hence no tombstones. Keys live in an arena and keep their
 * address for the map's lifetime.
 */
#include "base/map.h"

#include <errno.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/def.h"

#define MAP_ENTRIES_MIN 16
#define MAP_ENTRIES_MAX ((size_t)1 << 30) /* an index plus one fits the table's 32 bits */

struct map_item {
	const void *key;
	size_t size;
	uint64_t hash;
	uint64_t value;
};

struct map {
	struct map_item *items;
	size_t count;
	size_t allocated; /* a power of two, or 0 */
	size_t entries_max;
	uint32_t *table; /* 2 * allocated slots: index + 1, 0 is free */
	struct arena *keys;
};

struct map *map_new(size_t entries_max)
{
	struct map *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->entries_max = MIN(entries_max, MAP_ENTRIES_MAX);
	m->keys = arena_new(SIZE_MAX); /* bounded by entries_max and the caller's key sizes */
	if (!m->keys) {
		free(m);
		return NULL;
	}
	return m;
}

void map_free(struct map *m)
{
	if (!m)
		return;
	arena_free(m->keys);
	free(m->table);
	free(m->items);
	free(m);
}

void map_freep(struct map **m)
{
	map_free(*m);
}

size_t map_count(const struct map *m)
{
	return m->count;
}

/* The slot that holds the key, or the free one where it would go. The table is never full. */
static uint32_t *map_slot(const struct map *m, const void *key, size_t size, uint64_t hash)
{
	size_t mask = m->allocated * 2 - 1;

	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		uint32_t *slot = &m->table[i];
		const struct map_item *e;

		if (!*slot)
			return slot;
		e = &m->items[*slot - 1];
		if (e->hash == hash && e->size == size &&
			(size == 0 || memcmp(e->key, key, size) == 0))
			return slot;
	}
}

static uint64_t map_hash(const void *key, size_t size)
{
	return XXH3_64bits(size ? key : "", size);
}

static int map_grow(struct map *m)
{
	size_t allocated = m->allocated ? m->allocated * 2 : MAP_ENTRIES_MIN;
	size_t mask = allocated * 2 - 1;
	struct map_item *items = reallocarray(m->items, allocated, sizeof(*items));
	uint32_t *table;

	if (!items)
		return -ENOMEM;
	m->items = items;
	table = calloc(allocated * 2, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (size_t n = 0; n < m->count; n++) {
		size_t i = items[n].hash & mask;

		while (table[i])
			i = (i + 1) & mask;
		table[i] = (uint32_t)n + 1;
	}
	free(m->table);
	m->table = table;
	m->allocated = allocated;
	return 0;
}

bool map_get(const struct map *m, const void *key, size_t size, uint64_t *ret)
{
	uint32_t slot = m->count ? *map_slot(m, key, size, map_hash(key, size)) : 0;

	if (!slot)
		return false;
	*ret = m->items[slot - 1].value;
	return true;
}

uint64_t *map_put(struct map *m, const void *key, size_t size, bool *is_new)
{
	uint64_t hash = map_hash(key, size);
	uint32_t *slot = m->allocated ? map_slot(m, key, size, hash) : NULL;
	void *copy;

	if (is_new)
		*is_new = !slot || !*slot;
	if (slot && *slot)
		return &m->items[*slot - 1].value;
	if (m->count >= m->entries_max) {
		errno = ENOBUFS;
		return NULL;
	}
	copy = arena_alloc(m->keys, size);
	if (!copy || (m->count >= m->allocated && map_grow(m) < 0)) {
		errno = ENOMEM;
		return NULL;
	}
	if (size)
		memcpy(copy, key, size);
	slot = map_slot(m, key, size, hash);
	m->items[m->count] = (struct map_item){.key = copy, .size = size, .hash = hash};
	*slot = (uint32_t)++m->count;
	return &m->items[m->count - 1].value;
}

bool map_entry(const struct map *m, size_t i, const void **key, size_t *size, uint64_t *value)
{
	if (i >= m->count)
		return false;
	*key = m->items[i].key;
	*size = m->items[i].size;
	*value = m->items[i].value;
	return true;
}
