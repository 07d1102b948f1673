/*
 * The slabs' policy, see tables_slab.h.
 *
 * INVARIANTS
 *  1. count * TABLE_SLAB_SIZE + other <= budget, at every moment.
 *  2. A byte is given out again only after its references were taken back and wait() returned.
 *  3. Slab 0, once made, is never removed: the kernel's side waits by means of it.
 */
#include "agent/tables_slab.h"

#include <assert.h>
#include <errno.h>

#include "base/def.h"

enum { TABLES_SLAB_ALIGN = 8 };

void tables_slabs_init(
	struct tables_slabs *s, const struct tables_slab_ops *ops, void *data, uint64_t budget)
{
	*s = (struct tables_slabs){.ops = ops, .data = data, .budget = budget};
}

static void tables_slab_remove(struct tables_slabs *s, uint32_t i)
{
	struct tables_slab *slab = &s->slabs[i];

	s->ops->remove(s->data, i, slab->memory);
	tables_space_done(&slab->space);
	s->kinds[slab->kind]--;
	s->count--;
	*slab = (struct tables_slab){0};
}

void tables_slabs_done(struct tables_slabs *s)
{
	s->pending_count = 0;
	for (uint32_t i = TABLE_SLABS_MAX; i-- > 0;)
		if (s->slabs[i].memory)
			tables_slab_remove(s, i);
}

uint64_t tables_slabs_bytes(const struct tables_slabs *s)
{
	return (uint64_t)s->count * TABLE_SLAB_SIZE + s->other;
}

void *tables_slab_at(const struct tables_slabs *s, uint32_t ref)
{
	const struct tables_slab *slab = &s->slabs[ref >> TABLE_SLAB_SHIFT];

	assert(ref >= TABLE_REF_MIN && ref >> TABLE_SLAB_SHIFT < TABLE_SLABS_MAX && slab->memory);
	return (uint8_t *)slab->memory + (ref & (TABLE_SLAB_SIZE - 1));
}

static int tables_slab_make(struct tables_slabs *s, enum tables_slab_kind kind, uint32_t *ret)
{
	uint32_t i = 0;

	if (tables_slabs_bytes(s) + TABLE_SLAB_SIZE > s->budget)
		return -ENOSPC;
	while (i < TABLE_SLABS_MAX && s->slabs[i].memory)
		i++;
	if (i == TABLE_SLABS_MAX)
		return -ENOSPC;
	struct tables_slab *slab = &s->slabs[i];
	/* References below TABLE_REF_MIN are no places. */
	int r = tables_space_init(&slab->space, i == 0 ? TABLE_REF_MIN : 0, TABLE_SLAB_SIZE);

	if (r == 0)
		r = s->ops->add(s->data, i, &slab->memory);
	if (r < 0) {
		tables_space_done(&slab->space);
		*slab = (struct tables_slab){0};
		return r;
	}
	slab->kind = kind;
	s->kinds[kind]++;
	s->count++;
	*ret = i;
	return 0;
}

static uint32_t tables_slab_age(const struct tables_slabs *s, uint32_t i, uint32_t now_s)
{
	uint32_t used_s = MAX(s->slabs[i].used_s, s->ops->used_s(s->data, i));

	return now_s > used_s ? now_s - used_s : 0;
}

/* The slab of a kind that was not used for longest, at least keep_s; or TABLE_SLABS_MAX. */
static uint32_t tables_slab_oldest(
	const struct tables_slabs *s, enum tables_slab_kind kind, uint32_t keep_s, uint32_t now_s)
{
	uint32_t oldest = TABLE_SLABS_MAX;
	uint32_t age_max = keep_s;

	for (uint32_t i = 0; i < TABLE_SLABS_MAX; i++) {
		uint32_t age;

		if (!s->slabs[i].memory || s->slabs[i].kind != kind)
			continue;
		age = tables_slab_age(s, i, now_s);
		if (age >= age_max) {
			age_max = age;
			oldest = i;
		}
	}
	return oldest;
}

/* What goes for a new slab of a kind, or TABLE_SLABS_MAX. */
static uint32_t tables_slab_victim(
	const struct tables_slabs *s, enum tables_slab_kind kind, uint32_t now_s)
{
	size_t chunks = s->kinds[TABLES_SLAB_CHUNKS];
	size_t lists = s->kinds[TABLES_SLAB_LISTS];

	if (s->evicting_s == now_s && s->evicted_now >= TABLES_SLAB_EVICTIONS_MAX)
		return TABLE_SLABS_MAX;
	if (kind == TABLES_SLAB_LISTS)
		return tables_slab_oldest(
			s, chunks > lists ? TABLES_SLAB_CHUNKS : TABLES_SLAB_LISTS, 0, now_s);
	return tables_slab_oldest(s, lists > chunks ? TABLES_SLAB_LISTS : TABLES_SLAB_CHUNKS,
		TABLES_SLAB_KEEP_S, now_s);
}

/* Empties the slab; what was given back in it is free with the rest. */
static void tables_slab_evict(struct tables_slabs *s, uint32_t i, uint32_t now_s)
{
	size_t kept = 0;

	s->ops->take_back(s->data, i, s->slabs[i].kind);
	s->ops->wait(s->data);
	for (size_t k = 0; k < s->pending_count; k++)
		if (s->pending[k].ref >> TABLE_SLAB_SHIFT != i)
			s->pending[kept++] = s->pending[k];
	s->pending_count = kept;
	tables_space_reset(&s->slabs[i].space);
	s->evictions++;
	s->evicted_now = s->evicting_s == now_s ? s->evicted_now + 1 : 1;
	s->evicting_s = now_s;
}

static uint32_t tables_slab_round(uint32_t size)
{
	return (size + TABLES_SLAB_ALIGN - 1) & ~(uint32_t)(TABLES_SLAB_ALIGN - 1);
}

/* A slab of the kind with room, made or emptied if need be. */
static int tables_slab_find(struct tables_slabs *s, enum tables_slab_kind kind, uint32_t size,
	uint32_t now_s, uint32_t *ret, uint32_t *ret_offset)
{
	uint32_t i;

	for (i = 0; i < TABLE_SLABS_MAX; i++) {
		if (s->slabs[i].memory && s->slabs[i].kind == kind &&
			tables_space_take(&s->slabs[i].space, size, ret_offset)) {
			*ret = i;
			return 0;
		}
	}
	int r = tables_slab_make(s, kind, &i);

	if (r == -ENOSPC) {
		i = tables_slab_victim(s, kind, now_s);
		if (i == TABLE_SLABS_MAX)
			return r;
		tables_slab_evict(s, i, now_s);
		s->kinds[s->slabs[i].kind]--;
		s->slabs[i].kind = kind;
		s->kinds[kind]++;
	} else if (r < 0) {
		return r;
	}
	if (!tables_space_take(&s->slabs[i].space, size, ret_offset))
		return -ENOSPC;
	*ret = i;
	return 0;
}

int tables_slab_take(struct tables_slabs *s, enum tables_slab_kind kind, uint32_t size,
	uint32_t now_s, uint32_t *ret_ref, void **ret)
{
	uint32_t slab = 0;
	uint32_t offset = 0;

	if (size == 0 || size > TABLE_SLAB_SIZE - TABLE_REF_MIN)
		return -EINVAL;
	int r = tables_slab_find(s, kind, tables_slab_round(size), now_s, &slab, &offset);
	if (r < 0)
		return r;
	s->slabs[slab].used_s = now_s;
	*ret_ref = slab << TABLE_SLAB_SHIFT | offset;
	*ret = (uint8_t *)s->slabs[slab].memory + offset;
	return 0;
}

void tables_slab_give(struct tables_slabs *s, uint32_t ref, uint32_t size)
{
	if (s->pending_count == TABLES_SLAB_PENDING_MAX)
		tables_slabs_flush(s);
	s->pending[s->pending_count].ref = ref;
	s->pending[s->pending_count].size = tables_slab_round(size);
	s->pending_count++;
}

void tables_slabs_flush(struct tables_slabs *s)
{
	if (s->pending_count == 0)
		return;
	s->ops->wait(s->data);
	for (size_t i = 0; i < s->pending_count; i++) {
		uint32_t ref = s->pending[i].ref;

		tables_space_give(&s->slabs[ref >> TABLE_SLAB_SHIFT].space,
			ref & (TABLE_SLAB_SIZE - 1), s->pending[i].size);
	}
	s->pending_count = 0;
	for (uint32_t i = 1; i < TABLE_SLABS_MAX; i++)
		if (s->slabs[i].memory && s->slabs[i].space.used == 0)
			tables_slab_remove(s, i);
}

int tables_slabs_reserve(struct tables_slabs *s, uint64_t size, uint32_t now_s)
{
	while (tables_slabs_bytes(s) + size > s->budget) {
		uint32_t i = tables_slab_victim(s, TABLES_SLAB_CHUNKS, now_s);

		if (i == TABLE_SLABS_MAX || i == 0)
			return -ENOSPC;
		tables_slab_evict(s, i, now_s);
		tables_slab_remove(s, i);
	}
	s->other += size;
	return 0;
}

void tables_slabs_release(struct tables_slabs *s, uint64_t size)
{
	assert(size <= s->other);
	s->other -= size;
}

bool tables_slabs_has_room(const struct tables_slabs *s, uint32_t now_s)
{
	return tables_slabs_bytes(s) + TABLE_SLAB_SIZE <= s->budget ||
	       tables_slab_victim(s, TABLES_SLAB_CHUNKS, now_s) < TABLE_SLABS_MAX;
}
