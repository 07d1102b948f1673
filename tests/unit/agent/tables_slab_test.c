/*
 * tables_slab, tables_space: the budget holds, nothing is given out twice or before programs are
 * through with it, and what goes first is what was used least recently. Over plain memory.
 */
#include "agent/tables_slab.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/rng.h"

Test(tables_space, what_is_taken_never_overlaps_and_all_comes_back_as_one)
{
	enum { SIZE = 4096, ROUNDS = 20000, HELD_MAX = 300 };
	static uint8_t owned[SIZE];
	struct tables_range held[HELD_MAX];
	struct tables_space s;
	size_t count = 0;
	uint32_t used = 0;
	struct rng rng = rng_seeded(7);

	memset(owned, 0, sizeof(owned));
	cr_assert_eq(tables_space_init(&s, 0, SIZE), 0);
	for (int round = 0; round < ROUNDS; round++) {
		if (count < HELD_MAX && rng_between(&rng, 0, 1) == 0) {
			struct tables_range r = {.size = (uint32_t)rng_between(&rng, 1, 60)};

			if (!tables_space_take(&s, r.size, &r.start))
				continue;
			cr_assert_leq(r.start + r.size, SIZE);
			for (uint32_t i = 0; i < r.size; i++)
				cr_assert_eq(owned[r.start + i]++, 0, "given twice");
			used += r.size;
			held[count++] = r;
		} else if (count > 0) {
			size_t at = (size_t)rng_between(&rng, 0, count - 1);

			for (uint32_t i = 0; i < held[at].size; i++)
				owned[held[at].start + i]--;
			tables_space_give(&s, held[at].start, held[at].size);
			used -= held[at].size;
			held[at] = held[--count];
		}
		cr_assert_eq(s.used, used);
	}
	while (count-- > 0)
		tables_space_give(&s, held[count].start, held[count].size);
	cr_assert_eq(s.count, 1);
	cr_assert_eq(s.free[0].size, SIZE);
	tables_space_done(&s);
}

/* A kernel of plain memory. */
struct plain {
	struct tables_slabs slabs;
	uint32_t used_s[TABLE_SLABS_MAX];
	size_t made, waits;
	uint32_t taken_back; /* last slab; UINT32_MAX: none */
	bool waited_since;   /* a take_back or give */
};

static int plain_add(void *data, uint32_t slab, void **ret)
{
	struct plain *p = data;

	cr_assert_lt(slab, TABLE_SLABS_MAX);
	*ret = calloc(1, TABLE_SLAB_SIZE);
	cr_assert_not_null(*ret);
	p->made++;
	return 0;
}

static void plain_remove(void *data, uint32_t slab, void *memory)
{
	struct plain *p = data;

	cr_assert_lt(slab, TABLE_SLABS_MAX);
	free(memory);
	p->made--;
}

static void plain_take_back(void *data, uint32_t slab, enum tables_slab_kind kind)
{
	struct plain *p = data;

	cr_assert_lt(kind, TABLES_SLAB_KINDS);
	p->taken_back = slab;
	p->waited_since = false;
}

static void plain_wait(void *data)
{
	struct plain *p = data;

	p->waits++;
	p->waited_since = true;
}

static uint32_t plain_used_s(void *data, uint32_t slab)
{
	struct plain *p = data;

	return p->used_s[slab];
}

static const struct tables_slab_ops plain_ops = {
	.add = plain_add,
	.remove = plain_remove,
	.take_back = plain_take_back,
	.wait = plain_wait,
	.used_s = plain_used_s,
};

static struct plain *plain_new(uint64_t budget)
{
	struct plain *p = calloc(1, sizeof(*p));

	cr_assert_not_null(p);
	p->taken_back = UINT32_MAX;
	tables_slabs_init(&p->slabs, &plain_ops, p, budget);
	return p;
}

static void plain_free(struct plain *p)
{
	tables_slabs_done(&p->slabs);
	cr_assert_eq(p->made, 0, "memory left");
	free(p);
}

static uint32_t plain_take(
	struct plain *p, enum tables_slab_kind kind, uint32_t size, uint32_t now_s)
{
	uint32_t ref = 0;
	void *memory = NULL;

	if (tables_slab_take(&p->slabs, kind, size, now_s, &ref, &memory) < 0)
		return 0;
	cr_assert_eq(memory, tables_slab_at(&p->slabs, ref));
	cr_assert_geq(ref, TABLE_REF_MIN);
	cr_assert_eq(ref % 8, 0);
	memset(memory, 0xaa, size);
	return ref;
}

Test(tables_slab, budget_is_never_passed_whatever_is_asked)
{
	enum { BUDGET = 5 * TABLE_SLAB_SIZE + 1000, ROUNDS = 5000 };
	struct plain *p = plain_new(BUDGET);
	struct rng rng = rng_seeded(3);
	size_t granted = 0;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		enum tables_slab_kind kind = (enum tables_slab_kind)rng_between(&rng, 0, 1);
		uint32_t now_s = 100 + i / 20;

		if (rng_between(&rng, 0, 49) == 0)
			(void)tables_slabs_reserve(&p->slabs, 64, now_s);
		granted += plain_take(p, kind, (uint32_t)rng_between(&rng, 1, 90000), now_s) != 0;
		cr_assert_leq(tables_slabs_bytes(&p->slabs), BUDGET);
		cr_assert_leq(p->made * TABLE_SLAB_SIZE, BUDGET);
	}
	cr_assert_gt(p->slabs.evictions, 10);
	cr_assert_gt(granted, ROUNDS / 10);
	plain_free(p);
}

Test(tables_slab, the_least_recently_used_slab_goes_and_one_in_use_never)
{
	enum { LARGE = TABLE_SLAB_SIZE - TABLE_REF_MIN };
	struct plain *p = plain_new(3 * TABLE_SLAB_SIZE);
	uint32_t refs[3];

	for (int i = 0; i < 3; i++) {
		refs[i] = plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 10);
		cr_assert_neq(refs[i], 0);
		p->used_s[refs[i] >> TABLE_SLAB_SHIFT] = 100;
	}
	p->used_s[refs[1] >> TABLE_SLAB_SHIFT] = 50;
	uint32_t ref = plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 100);

	cr_assert_eq(ref >> TABLE_SLAB_SHIFT, refs[1] >> TABLE_SLAB_SHIFT);
	cr_assert_eq(p->taken_back, refs[1] >> TABLE_SLAB_SHIFT);
	cr_assert(p->waited_since, "given out before programs were through");
	/* All were used this second. */
	cr_assert_eq(plain_take(p, TABLES_SLAB_CHUNKS, 100, 100), 0);
	cr_assert_not(tables_slabs_has_room(&p->slabs, 100));
	cr_assert(tables_slabs_has_room(&p->slabs, 100 + TABLES_SLAB_KEEP_S));
	plain_free(p);
}

Test(tables_slab, what_is_given_back_is_free_only_after_a_wait)
{
	enum { LARGE = TABLE_SLAB_SIZE - TABLE_REF_MIN };
	struct plain *p = plain_new(2 * TABLE_SLAB_SIZE);
	uint32_t first = plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 1);
	uint32_t second = plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 1);

	cr_assert_neq(second, 0);
	tables_slab_give(&p->slabs, first, LARGE);
	tables_slab_give(&p->slabs, second, LARGE);
	cr_assert_eq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 1), 0);
	cr_assert_eq(p->waits, 0);
	tables_slabs_flush(&p->slabs);
	cr_assert_eq(p->waits, 1, "one wait for all");
	cr_assert_eq(p->made, 1, "an empty slab goes, but the first");
	cr_assert_neq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 1), 0);
	tables_slabs_flush(&p->slabs);
	cr_assert_eq(p->waits, 1, "nothing to wait for");
	plain_free(p);
}

Test(tables_slab, lists_and_chunks_share_no_slab_and_neither_starves_the_other)
{
	struct plain *p = plain_new(3 * TABLE_SLAB_SIZE);
	uint32_t now_s = 10;

	for (int i = 0; i < 400; i++, now_s += TABLES_SLAB_KEEP_S) {
		uint32_t list = plain_take(p, TABLES_SLAB_LISTS, 20000, now_s);
		uint32_t chunk = plain_take(p, TABLES_SLAB_CHUNKS, 20000, now_s);

		cr_assert_neq(list, 0);
		cr_assert_neq(chunk, 0);
		cr_assert_neq(list >> TABLE_SLAB_SHIFT, chunk >> TABLE_SLAB_SHIFT);
	}
	plain_free(p);
}

Test(tables_slab, more_given_back_than_is_remembered_is_not_lost)
{
	struct plain *p = plain_new(2 * TABLE_SLAB_SIZE);

	for (uint32_t i = 0; i < 3 * TABLES_SLAB_PENDING_MAX; i++) {
		uint32_t ref = plain_take(p, TABLES_SLAB_LISTS, 40, 1);

		cr_assert_neq(ref, 0);
		tables_slab_give(&p->slabs, ref, 40);
	}
	tables_slabs_flush(&p->slabs);
	cr_assert_eq(p->slabs.slabs[0].space.used, 0);
	plain_free(p);
}

Test(tables_slab, turning_over_is_limited_by_the_second)
{
	enum { LARGE = TABLE_SLAB_SIZE - TABLE_REF_MIN, SLABS = 4 * TABLES_SLAB_EVICTIONS_MAX };
	struct plain *p = plain_new((uint64_t)SLABS * TABLE_SLAB_SIZE);
	uint32_t granted = 0;

	for (int i = 0; i < SLABS; i++)
		cr_assert_neq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 10), 0);
	for (int i = 0; i < SLABS; i++)
		granted += plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 100) != 0;
	cr_assert_eq(granted, TABLES_SLAB_EVICTIONS_MAX);
	cr_assert_neq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 101), 0);
	plain_free(p);
}

Test(tables_slab, chunks_in_use_neither_drive_lists_out_nor_keep_them_out)
{
	enum { LARGE = TABLE_SLAB_SIZE - TABLE_REF_MIN };
	struct plain *p = plain_new(3 * TABLE_SLAB_SIZE);
	uint32_t list = plain_take(p, TABLES_SLAB_LISTS, LARGE, 1);

	cr_assert_neq(list, 0);
	cr_assert_neq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 100), 0);
	cr_assert_neq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 100), 0);
	cr_assert_eq(plain_take(p, TABLES_SLAB_CHUNKS, LARGE, 100), 0, "the list's place");
	cr_assert_eq(p->slabs.evictions, 0);
	cr_assert_neq(plain_take(p, TABLES_SLAB_LISTS, LARGE, 100), 0);
	cr_assert_neq(p->taken_back, list >> TABLE_SLAB_SHIFT);
	plain_free(p);
}
