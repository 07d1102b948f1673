/*
 * Interning table: linear probing over ids, the records in the caller's arena.
 *
 * Entries stand in segments of doubling size, so that growing copies nothing and pointers stay
 * valid. Index i lives in segment k = log2(i + 16) - 4 at i + 16 - (16 << k). The slot array is
 * replaced when it is three quarters full; the arena keeps the old ones, together no larger than
 * the current one.
 */
#include "prof/intern.h"

#include <errno.h>
#include <xxhash.h>

#include "base/def.h"

enum { SEGMENT_MIN_LOG2 = 4, SLOTS_MIN = 32, ARENA_OVERHEAD = 64 };

struct intern_entry {
	void *data;
	uint32_t size;
	uint32_t hash;
};

void intern_init(struct intern *t, struct arena *arena, size_t memory_max)
{
	*t = (struct intern){.arena = arena, .memory_max = memory_max};
}

int intern_alloc_error(const struct arena *arena, size_t memory_max, size_t size)
{
	size_t used = arena_used(arena);
	size_t left = used < memory_max ? memory_max - used : 0;

	/* The arena's own bookkeeping counts too, so the limit strikes a little earlier. */
	return left < size || left - size < ARENA_OVERHEAD ? -ENOBUFS : -ENOMEM;
}

static struct intern_entry *entry_at(const struct intern *t, size_t id)
{
	size_t i = id + (1U << SEGMENT_MIN_LOG2);
	unsigned int log2 = 63U - (unsigned int)__builtin_clzll(i);

	return &t->segments[log2 - SEGMENT_MIN_LOG2][i - (1ULL << log2)];
}

static int grow_slots(struct intern *t)
{
	size_t count = t->slot_count ? t->slot_count * 2 : SLOTS_MIN;
	uint32_t *slots = arena_alloc(t->arena, count * sizeof(*slots));

	if (!slots)
		return intern_alloc_error(t->arena, t->memory_max, count * sizeof(*slots));
	for (size_t id = 0; id < t->count; id++) {
		size_t at = entry_at(t, id)->hash & (count - 1);

		while (slots[at])
			at = (at + 1) & (count - 1);
		slots[at] = (uint32_t)id + 1;
	}
	t->slots = slots;
	t->slot_count = count;
	return 0;
}

static int grow_segments(struct intern *t)
{
	size_t i = t->count + (1U << SEGMENT_MIN_LOG2);
	unsigned int log2 = 63U - (unsigned int)__builtin_clzll(i);
	unsigned int k = log2 - SEGMENT_MIN_LOG2;
	size_t size = sizeof(struct intern_entry) << log2;

	if (k >= INTERN_SEGMENTS)
		return -ENOBUFS;
	if (t->segments[k])
		return 0;
	t->segments[k] = arena_alloc(t->arena, size);
	return t->segments[k] ? 0 : intern_alloc_error(t->arena, t->memory_max, size);
}

/* The slot that holds the key, or the free one where it belongs. Needs slots. */
static size_t find_slot(const struct intern *t, const void *key, size_t size, uint32_t hash)
{
	size_t at = hash & (t->slot_count - 1);

	for (; t->slots[at]; at = (at + 1) & (t->slot_count - 1)) {
		const struct intern_entry *e = entry_at(t, t->slots[at] - 1);

		if (e->hash == hash && e->size == size &&
			(size == 0 || memcmp(e->data, key, size) == 0))
			break;
	}
	return at;
}

int64_t intern_put(struct intern *t, const void *key, size_t size, size_t extra, bool *is_new)
{
	uint32_t hash = (uint32_t)XXH3_64bits(key, size);
	struct intern_entry *e;
	size_t at;
	void *data;
	int r;

	if (is_new)
		*is_new = false;
	if (size > UINT32_MAX / 2 || extra > UINT32_MAX / 2)
		return -ENOBUFS;
	if (t->slots) {
		at = find_slot(t, key, size, hash);
		if (t->slots[at])
			return (int64_t)t->slots[at] - 1;
	}
	if (!t->slots || (t->count + 1) * 4 > t->slot_count * 3) {
		r = grow_slots(t);
		if (r < 0)
			return r;
	}
	r = grow_segments(t);
	if (r < 0)
		return r;
	data = arena_alloc(t->arena, MAX(size + extra, 1U));
	if (!data)
		return intern_alloc_error(t->arena, t->memory_max, size + extra);
	if (size)
		memcpy(data, key, size);

	e = entry_at(t, t->count);
	*e = (struct intern_entry){.data = data, .size = (uint32_t)size, .hash = hash};
	at = find_slot(t, key, size, hash);
	t->slots[at] = (uint32_t)t->count + 1;
	if (is_new)
		*is_new = true;
	return (int64_t)t->count++;
}

bool intern_get(const struct intern *t, const void *key, size_t size, uint32_t *ret)
{
	size_t at;

	if (!t->slots || size > UINT32_MAX / 2)
		return false;
	at = find_slot(t, key, size, (uint32_t)XXH3_64bits(key, size));
	if (!t->slots[at])
		return false;
	*ret = t->slots[at] - 1;
	return true;
}

void *intern_at(const struct intern *t, size_t id, size_t *size)
{
	const struct intern_entry *e;

	if (id >= t->count)
		return NULL;
	e = entry_at(t, id);
	if (size)
		*size = e->size;
	return e->data;
}
