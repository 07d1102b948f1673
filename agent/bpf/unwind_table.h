/*
 * From a pc to its unwind rule, by the tables of table.h. For the kernel programs and for host tests;
 * besides those of unwind.h, the includer defines these primitives:
 *
 *	UNWIND_SLAB(index)	const __u8 * to TABLE_SLAB_SIZE bytes, or NULL
 *	UNWIND_DIR(index)	__u32 * to a directory entry, or NULL past the end
 *	UNWIND_RULE(index)	const struct unwind_rule *, or NULL past the end
 *	UNWIND_USED(index)	__u32 * to the slab's time of use, or NULL
 *
 * Nothing read from a slab is believed: an index that came from there is masked to the slab when it is
 * used, so nonsense reads nonsense and ends the walk, never more.
 */
#ifndef AGENT_BPF_UNWIND_TABLE_H
#define AGENT_BPF_UNWIND_TABLE_H

#include "agent/bpf/unwind_search.h"

/* The slab that ref points into, noted as used; NULL: there is none. */
static inline const __u8 *unwind_use_slab(const struct unwind_state *s, __u32 ref)
{
	__u32 *used = UNWIND_USED(ref >> TABLE_SLAB_SHIFT);

	if (!used)
		return 0;
	if (*used != s->now_s)
		*used = s->now_s;
	return UNWIND_SLAB(ref >> TABLE_SLAB_SHIFT);
}

/* UNWIND_GO_ON with s->mapping holding at; UNWIND_MISS; SAMPLE_END_NO_MAPPING. */
static inline int unwind_find_mapping(struct unwind_state *s, __u64 at)
{
	__u64 place = s->process.list & (TABLE_SLAB_SIZE - 1);
	struct table_mapping *m = &s->mapping;
	const __u8 *slab;

	if (at >= m->start && at < m->end)
		return UNWIND_GO_ON;
	slab = unwind_use_slab(s, s->process.list);
	if (!slab)
		return SAMPLE_END_BROKEN_CFI;
	place = unwind_search_mappings(slab, place, s->process.count, at);
	m->start = UNWIND_LOAD(__u64, slab, place);
	m->end = UNWIND_LOAD(__u64, slab, place + 8);
	m->bias = UNWIND_LOAD(__u64, slab, place + 16);
	m->dir = UNWIND_LOAD(__u32, slab, place + 24);
	m->first_chunk = UNWIND_LOAD(__u32, slab, place + 28);
	m->chunk_count = UNWIND_LOAD(__u32, slab, place + 32);
	m->flags = UNWIND_LOAD(__u32, slab, place + 36);
	if (at >= m->start && at < m->end && s->process.count > 0)
		return UNWIND_GO_ON;
	m->end = m->start;
	if (s->now_ns < s->process.final_until_ns)
		return SAMPLE_END_NO_MAPPING;
	s->miss.kind = TABLE_MISS_MAPPING;
	s->miss.pc = at;
	s->ask = 1;
	return UNWIND_MISS;
}

/*
 * Kernel programs call this and the parts of a step (unwind_cfi.h) as global functions, which the
 * verifier proves once each, not once for every way that leads there (measured: 61,000 instructions
 * become 16,000, and a window's start costs 50 ms less).
 */
#ifndef UNWIND_FIND_MAPPING
#define UNWIND_FIND_MAPPING(s, at) unwind_find_mapping(s, at)
#endif

/* UNWIND_GO_ON with the reference of the chunk that holds vaddr; UNWIND_MISS; why there is none. */
static inline int unwind_find_chunk(struct unwind_state *s, __u64 at, __u64 vaddr, __u32 *ret)
{
	__u64 chunk = (vaddr >> TABLE_CHUNK_SHIFT) - s->mapping.first_chunk;
	__u32 *entry;

	if (s->mapping.dir == 0 || chunk >= s->mapping.chunk_count)
		return SAMPLE_END_NO_CFI;
	s->miss.dir = s->mapping.dir + (__u32)chunk;
	entry = UNWIND_DIR(s->miss.dir);
	if (!entry)
		return SAMPLE_END_BROKEN_CFI;
	*ret = *(volatile __u32 *)entry;
	if (*ret >= TABLE_REF_MIN)
		return UNWIND_GO_ON;
	if (*ret == TABLE_NO_CFI)
		return SAMPLE_END_NO_CFI;
	if (*ret == TABLE_FULL)
		return SAMPLE_END_TABLE_FULL;
	if (*ret != TABLE_NONE && *ret != TABLE_WANTED)
		return SAMPLE_END_BROKEN_CFI;
	s->miss.kind = TABLE_MISS_CHUNK;
	s->miss.pc = at;
	s->miss.chunk = (__u32)(vaddr >> TABLE_CHUNK_SHIFT);
	s->ask = *ret == TABLE_NONE &&
		 __sync_val_compare_and_swap(entry, TABLE_NONE, TABLE_WANTED) == TABLE_NONE;
	return UNWIND_MISS;
}

/* Where the parts of a chunk lie. */
struct unwind_chunk {
	__u64 row_count, rule_count;
	__u64 rule_map, offsets, ids; /* places */
};

static inline struct unwind_chunk unwind_open_chunk(const __u8 *slab, __u64 place)
{
	struct unwind_chunk c = {.row_count = UNWIND_LOAD(__u16, slab, place),
		.rule_count = UNWIND_LOAD(__u16, slab, place + 2),
		.rule_map = place + sizeof(struct table_chunk) + 2 * (TABLE_BLOCKS + 1)};

	c.offsets = c.rule_map + 2 * c.rule_count;
	c.ids = c.offsets + 2 * c.row_count;
	return c;
}

/* The place of the row that an offset of the chunk at place is in. 0: the chunk makes no sense. */
static inline __u64 unwind_find_place(const __u8 *slab, __u64 place, __u64 offset)
{
	struct unwind_chunk c = unwind_open_chunk(slab, place);
	__u64 block = place + sizeof(struct table_chunk) + 2 * (offset >> TABLE_BLOCK_SHIFT);
	__u64 first = UNWIND_LOAD(__u16, slab, block);
	__u64 count = UNWIND_LOAD(__u16, slab, block + 2) - first + 1;

	if (count > (1 << TABLE_BLOCK_SHIFT) + 1)
		return 0;
	/* The row's id is near: what is not in the cache comes while offsets are searched. */
	(void)*(const volatile __u8 *)(slab + ((c.ids + first) & (TABLE_SLAB_SIZE - 1)));
	return unwind_search_rows(slab, c.offsets + 2 * first, count, offset);
}

/*
 * The rule of an offset in the chunk at place; into is how far its row reaches back from there. NULL:
 * the chunk makes no sense.
 */
static inline const struct unwind_rule *unwind_find_row(
	const __u8 *slab, __u64 place, __u64 offset, __u64 *into)
{
	__u64 row_at = unwind_find_place(slab, place, offset);
	struct unwind_chunk c;
	__u64 row, id;

	/* Read anew, because the stack of a kernel program is too small to keep it meanwhile. */
	__asm__ volatile("" : : : "memory");
	c = unwind_open_chunk(slab, place);
	row = (row_at - c.offsets) / 2;
	if (row >= c.row_count)
		return 0;
	*into = offset - UNWIND_LOAD(__u16, slab, row_at);
	if (c.rule_count > 256)
		id = UNWIND_LOAD(__u16, slab, c.ids + 2 * row);
	else
		id = UNWIND_LOAD(__u8, slab, c.ids + row);
	if (id >= c.rule_count || *into > offset)
		return 0;
	return UNWIND_RULE(UNWIND_LOAD(__u16, slab, c.rule_map + 2 * id));
}

/* What there is for the address at: UNWIND_GO_ON with s->rule and s->into; UNWIND_MISS; why there is none. */
static inline int unwind_find_rule(struct unwind_state *s, __u64 at)
{
	const struct unwind_rule *rule;
	const __u8 *slab;
	__u64 vaddr;
	__u32 ref = 0;
	int end = UNWIND_GO_ON;

	/* Most callers lie where their callee does: no call for them. */
	if (at < s->mapping.start || at >= s->mapping.end)
		end = UNWIND_FIND_MAPPING(s, at);
	if (end != UNWIND_GO_ON)
		return end;
	vaddr = at - s->mapping.bias;
	end = unwind_find_chunk(s, at, vaddr, &ref);
	if (end != UNWIND_GO_ON)
		return end;
	slab = unwind_use_slab(s, ref);
	if (!slab)
		return SAMPLE_END_BROKEN_CFI;
	rule = unwind_find_row(slab, ref & (TABLE_SLAB_SIZE - 1),
		vaddr & ((1 << TABLE_CHUNK_SHIFT) - 1), &s->into);
	if (!rule)
		return SAMPLE_END_BROKEN_CFI;
	s->rule = *rule;
	return UNWIND_GO_ON;
}

#endif
