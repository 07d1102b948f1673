/*
 * What bench/unwind.bpf.c and bench/unwind.c share: the work of a run, and the tables of the layout that is
 * measured beside ours.
 */
#ifndef BENCH_UNWIND_H
#define BENCH_UNWIND_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
	BENCH_STACKS = 64,
	BENCH_DEPTH_MAX = 128,
	BENCH_FILES_MAX = 64,
	BENCH_TRIE_MAX = 32768,
	BENCH_PAGES_MAX = 65536,
	BENCH_INFOS_MAX = 16384,
	BENCH_DELTAS = 1 << 14, /* of one file, a power of two that holds them */
	BENCH_SEARCH_STEPS = 16,
	BENCH_TGID = 4242,
};

/* Where the walk of one stack begins. */
struct bench_stack {
	__u64 pc, sp, fp;
};

/* Input and output of a run, in the program's .bss. */
struct bench_run {
	struct bench_stack stacks[BENCH_STACKS];
	__u32 first, count; /* stacks first.. of one pass */
	__u32 passes;
	__u32 fault; /* walks that did not end at the first frame */
	__u64 frames, hash, ns;
};

/* --- map-per-lookup --- */

struct bench_trie_key {
	__u32 prefix;
	__u32 tgid;
	__u64 page_be; /* address, most significant byte first */
};

struct bench_mapping {
	__u64 file;
	__u64 bias;
};

struct bench_page_key {
	__u64 file, page; /* page: vaddr >> 16 */
};

struct bench_page {
	__u32 first;
	__u16 count, map;
};

struct bench_delta {
	__u16 address; /* low 16 bits */
	__u16 info;
};

struct bench_info {
	__u8 flags, base, aux_base, merge;
	__s32 param, aux_param;
};

_Static_assert(sizeof(struct bench_trie_key) == 16, "shared with BPF");
_Static_assert(sizeof(struct bench_page) == 8, "shared with BPF");
_Static_assert(sizeof(struct bench_delta) == 4, "shared with BPF");
_Static_assert(sizeof(struct bench_info) == 12, "shared with BPF");

#endif
