/*
 * Two walkers over the same stacks and the same rows, timed inside the kernel (bench/unwind.c):
 *
 *	walk_ours	the agent's own walk: agent/bpf/walk.h with all it includes
 *	walk_maps	the layout in which each lookup is a map's: mapping by LPM trie, page by hash, the file's
 *			rows by hash of maps, up to 16 steps of search that are array lookups, the rule by array,
 *			and a read of user memory for each frame
 *
 * walk_maps is written for this bench from the description of that layout. It leaves out what programs that use
 * it do besides (choice of the language's unwinder, tail calls, 16 outer maps by size), which favours it.
 */
#include "agent/bpf/vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "agent/bpf/sample.h"
#include "agent/bpf/walk.h"
#include "bench/unwind.h"

enum { BENCH_LPM_TRIE = 11, BENCH_HASH_OF_MAPS = 13, BENCH_NO_PREALLOC = 1 };

struct bench_run run;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct {
	__uint(type, BENCH_LPM_TRIE);
	__uint(max_entries, BENCH_TRIE_MAX);
	__uint(map_flags, BENCH_NO_PREALLOC);
	__type(key, struct bench_trie_key);
	__type(value, struct bench_mapping);
} trie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BENCH_PAGES_MAX);
	__type(key, struct bench_page_key);
	__type(value, struct bench_page);
} pages SEC(".maps");

struct bench_deltas {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BENCH_DELTAS);
	__uint(key_size, sizeof(__u32)); /* clang 14 emits no BTF of types below two pointers */
	__uint(value_size, sizeof(struct bench_delta));
};

struct {
	__uint(type, BENCH_HASH_OF_MAPS);
	__uint(max_entries, BENCH_FILES_MAX);
	__type(key, __u64);
	__array(values, struct bench_deltas);
} files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BENCH_INFOS_MAX);
	__type(key, __u32);
	__type(value, struct bench_info);
} infos SEC(".maps");

/* --- ours --- */

static long ours_one(__u32 i, void *data)
{
	__u32 at = run.first + i % run.count;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);

	if (!s)
		return 1;
	at &= BENCH_STACKS - 1;
	s->record.kernel_count = 0;
	s->record.key.start_ns = 1;
	s->record.key.tgid = BENCH_TGID;
	s->record.key.exec_id = 0;
	walk_begin(s);
	s->walk.state.pc = run.stacks[at].pc;
	s->walk.state.sp = run.stacks[at].sp;
	s->walk.state.fp = run.stacks[at].fp;
	s->walk.state.is_call = 0;
	s->walk.state.regs_known = 1;
	walk_user(s, true, true);
	run.fault += s->walk.end != SAMPLE_END_ROOT;
	run.frames += s->walk.used;
	run.hash = unwind_hash(run.hash, s->walk.hash);
	return 0;
}

SEC("raw_tp/bench_ours")
int walk_ours(void *ctx)
{
	__u64 start = bpf_ktime_get_ns();

	bpf_loop(run.passes * run.count, ours_one, 0, 0);
	run.ns = bpf_ktime_get_ns() - start;
	return 0;
}

/* --- map-per-lookup --- */

struct maps_walk {
	__u64 pc, sp, fp;
	__u64 hash;
	__u32 used;
	__u32 is_call;
	__s32 end; /* 1: the first frame; -1: lost */
	__u32 pad;
	__u64 frames[FRAMES_MASK + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct maps_walk);
} maps_walks SEC(".maps");

/* The last row at or below address: its rule, or 0 for none. */
static __always_inline struct bench_info *maps_search(
	void *deltas, __u32 first, __u32 count, __u32 address)
{
	struct bench_delta *d;
	__u32 left = first, right = first + count;

	for (int i = 0; i < BENCH_SEARCH_STEPS && left < right; i++) {
		__u32 middle = (left + right) / 2;

		d = bpf_map_lookup_elem(deltas, &middle);
		if (!d)
			return 0;
		if (d->address <= address)
			left = middle + 1;
		else
			right = middle;
	}
	left--;
	d = bpf_map_lookup_elem(deltas, &left);
	if (!d)
		return 0;
	right = d->info;
	return bpf_map_lookup_elem(&infos, &right);
}

static __noinline int maps_step(struct maps_walk *w)
{
	__u64 record[2], cfa, vaddr, at = w->is_call ? w->pc - 1 : w->pc;
	struct bench_trie_key key = {
		.prefix = 96, .tgid = BENCH_TGID, .page_be = __builtin_bswap64(at)};
	struct bench_mapping *m = bpf_map_lookup_elem(&trie, &key);
	struct bench_page_key page_key;
	struct bench_page *page;
	struct bench_info *info;
	void *deltas;

	if (!m)
		return -1;
	vaddr = at - m->bias;
	page_key.file = m->file;
	page_key.page = vaddr >> 16;
	page = bpf_map_lookup_elem(&pages, &page_key);
	deltas = bpf_map_lookup_elem(&files, &m->file);
	if (!page || !deltas)
		return -1;
	info = maps_search(deltas, page->first, page->count, vaddr & 0xffff);
	if (!info)
		return -1;
	cfa = (info->base == UNWIND_REG_FP ? w->fp : w->sp) + info->param;
	if (bpf_probe_read_user(record, sizeof(record), (void *)(cfa - sizeof(record))) != 0)
		return -1;
	if (record[1] == 0)
		return 1;
	if (info->flags)
		w->fp = record[0];
	w->pc = record[1];
	w->sp = cfa;
	w->is_call = 1;
	return 0;
}

static long maps_frame(__u32 i, struct maps_walk **data)
{
	struct maps_walk *w = *data;

	w->frames[w->used & FRAMES_MASK] = w->pc;
	w->used++;
	w->hash = unwind_hash(w->hash, w->pc);
	w->end = maps_step(w);
	return w->end != 0;
}

static long maps_one(__u32 i, void *data)
{
	__u32 at = run.first + i % run.count;
	struct maps_walk *w = bpf_map_lookup_elem(&maps_walks, &zero);

	if (!w)
		return 1;
	at &= BENCH_STACKS - 1;
	w->pc = run.stacks[at].pc;
	w->sp = run.stacks[at].sp;
	w->fp = run.stacks[at].fp;
	w->hash = WALK_HASH;
	w->used = 0;
	w->is_call = 0;
	bpf_loop(SAMPLE_USER_FRAMES_MAX, maps_frame, &w, 0);
	run.fault += w->end != 1;
	run.frames += w->used;
	run.hash = unwind_hash(run.hash, w->hash);
	return 0;
}

SEC("raw_tp/bench_maps")
int walk_maps(void *ctx)
{
	__u64 start = bpf_ktime_get_ns();

	bpf_loop(run.passes * run.count, maps_one, 0, 0);
	run.ns = bpf_ktime_get_ns() - start;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
