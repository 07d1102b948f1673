/*
 * The two searches of a walk: a mapping in a process's list, a row in a block of a chunk (table.h). Nothing read from
 * a slab is believed: a place is masked to the slab when it is used.
 *
 * Searches take no branch on data: with one, the verifier follows both ways of every step, 2^n states
 * (measured: above a million instructions). A comparison becomes a mask of the difference's sign;
 * UNWIND_HIDE keeps clang from turning it back into a branch.
 */
#ifndef AGENT_BPF_UNWIND_SEARCH_H
#define AGENT_BPF_UNWIND_SEARCH_H

#include "agent/bpf/unwind.h"

#define UNWIND_HIDE(x) __asm__ volatile("" : "+r"(x))
/* sizeof(type) is a power of two, so the mask also aligns. */
#define UNWIND_LOAD(type, slab, at) \
	(*(const type *)((slab) + ((at) & (TABLE_SLAB_SIZE - sizeof(type)))))

/*
 * A search holds the place of the last entry that is known to begin at or below what is looked for, and
 * tries one that lies step bytes on, at probe: how far to go, step when below is negative and probe before end, else 0.
 * Bits 62 and 63 of below are alike, as those of a difference of two addresses are. A shift by 63 would do, too, but
 * newer verifiers take it for a branch: they go both ways from "s>>= 63; &= step" (linux maybe_fork_scalars()), which is
 * what must not be.
 */
static inline __u64 unwind_move(__u64 probe, __u64 end, __u64 step, __u64 below)
{
	__u64 mask = (__u64)((__s64)(below & (probe - end)) >> 62);

	UNWIND_HIDE(mask);
	return step & mask;
}

static inline __u64 unwind_try_mapping(
	const __u8 *slab, __u64 probe, __u64 end, __u64 at, __u64 step)
{
	__u64 start = UNWIND_LOAD(__u64, slab, probe);

	/* at is below 2^63, start need not be: vsyscall's mapping. */
	return unwind_move(probe, end, step, (start - (at + 1)) & ~start);
}

/* In quarters, since three looks at the slab that do not wait for each other take no longer than one. */
static inline __u64 unwind_quarter_mappings(
	const __u8 *slab, __u64 cur, __u64 end, __u64 at, __u64 count)
{
	__u64 step = count * sizeof(struct table_mapping);

	return cur + unwind_try_mapping(slab, cur + step, end, at, step) +
	       unwind_try_mapping(slab, cur + 2 * step, end, at, step) +
	       unwind_try_mapping(slab, cur + 3 * step, end, at, step);
}

/* The place of the last of count mappings that starts at or below at, or of the first. */
static __always_inline __u64 unwind_search_mappings(
	const __u8 *slab, __u64 list, __u64 count, __u64 at)
{
	__u64 end = list + count * sizeof(struct table_mapping);
	__u64 cur = list;

	if (count > 64) {
#pragma GCC unroll 3
		for (__u64 n = TABLE_MAPPINGS_MAX / 4; n >= 64; n /= 4)
			cur = unwind_quarter_mappings(slab, cur, end, at, n);
	}
#pragma GCC unroll 3
	for (__u64 n = 16; n > 0; n /= 4)
		cur = unwind_quarter_mappings(slab, cur, end, at, n);
	return cur;
}

static inline __u64 unwind_try_row(
	const __u8 *slab, __u64 cur, __u64 end, __u64 offset, __u64 count)
{
	__u64 step = count * sizeof(__u16);
	__u64 start = UNWIND_LOAD(__u16, slab, cur + step);

	return cur + unwind_move(cur + step, end, step, start - (offset + 1));
}

enum { UNWIND_LANES = 16 };
#define UNWIND_EACH_LANE 0x0001000100010001ULL
#define UNWIND_LANE_SIGN 0x8000

/* Eight bytes of it, from lane UNWIND_LANES - 1 - n on, say which of the next four rows are among n. */
static const __u16 unwind_lanes[2 * UNWIND_LANES] __attribute__((aligned(64))) = {UNWIND_LANE_SIGN,
	UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN,
	UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN,
	UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN, UNWIND_LANE_SIGN};

/* Four rows' offsets, or lanes. No processor that we run on wants them aligned. */
static inline __u64 unwind_four(const void *at)
{
#ifdef __bpf__
	return *(const __u64 *)at;
#else
	__u64 four;

	__builtin_memcpy(&four, at, sizeof(four));
	return four;
#endif
}

/*
 * How many of the n < UNWIND_LANES rows at `at` begin at or below offset, four at a time: what is compared takes ten bits,
 * because all of them begin in offset's block, but behind its first byte, or with the first byte of the next one. flip
 * makes a row's low bits its distance from the block's beginning, 1 to 512; the sign of a lane of limit less that
 * stays when it is not above offset's own. A search by halves has to wait for the slab as often as it halves.
 */
static inline __u64 unwind_count_rows(const __u8 *slab, __u64 at, __u64 n, __u64 offset)
{
	const __u8 *rows = slab + at;
	const __u16 *among = unwind_lanes + (~n & (UNWIND_LANES - 1));
	const __u64 flip = UNWIND_EACH_LANE * (offset & (1 << TABLE_BLOCK_SHIFT));
	const __u64 limit =
		UNWIND_EACH_LANE * (UNWIND_LANE_SIGN | (offset & ((1 << TABLE_BLOCK_SHIFT) - 1)));
	const __u64 mask = UNWIND_EACH_LANE * ((2 << TABLE_BLOCK_SHIFT) - 1);
	__u64 sum = ((limit - ((unwind_four(rows) & mask) ^ flip)) & unwind_four(among)) >> 15;

	sum += ((limit - ((unwind_four(rows + 8) & mask) ^ flip)) & unwind_four(among + 4)) >> 15;
	if (n > UNWIND_LANES / 2) {
		sum += ((limit - ((unwind_four(rows + 16) & mask) ^ flip)) &
			       unwind_four(among + 8)) >>
		       15;
		sum += ((limit - ((unwind_four(rows + 24) & mask) ^ flip)) &
			       unwind_four(among + 12)) >>
		       15;
	}
	return sum * UNWIND_EACH_LANE >> 48;
}

/*
 * The place of the last of count rows, at most 1024 of them, that begins at or below offset. The first one does, the
 * others begin behind the first byte of offset's block, the last one perhaps with the next block.
 */
static inline __u64 unwind_search_rows(const __u8 *slab, __u64 rows, __u64 count, __u64 offset)
{
	__u64 end = rows + count * sizeof(__u16);
	__u64 cur = rows, at;

	if (count > 4 * UNWIND_LANES) {
#pragma GCC unroll 4
		for (__u64 n = 512; n > 2 * UNWIND_LANES; n /= 2)
			cur = unwind_try_row(slab, cur, end, offset, n);
	}
	if (count > UNWIND_LANES) {
#pragma GCC unroll 2
		for (__u64 n = 2 * UNWIND_LANES; n >= UNWIND_LANES; n /= 2)
			cur = unwind_try_row(slab, cur, end, offset, n);
		if (end > cur + 2 * UNWIND_LANES)
			end = cur + 2 * UNWIND_LANES;
	}
	at = (cur + sizeof(__u16)) & (TABLE_SLAB_SIZE - sizeof(__u16));
	if (at <= TABLE_SLAB_SIZE - 2 * UNWIND_LANES)
		return cur + 2 * unwind_count_rows(slab, at, (end - cur) / 2 - 1, offset);
		/* At the slab's end the lanes would reach beyond it. */
#pragma GCC unroll 4
	for (__u64 n = UNWIND_LANES / 2; n > 0; n /= 2)
		cur = unwind_try_row(slab, cur, end, offset, n);
	return cur;
}

#endif
