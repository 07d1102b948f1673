/*
 * One sample's stack, from registers to a hash: the maps that the unwinder reads, its primitives in the
 * kernel, and the driver. All that a walk needs lies in struct scratch, per CPU for on_sample, one
 * more for resume, which on_sample may interrupt. State stays in the map, not in BPF registers: the
 * verifier then takes each value for unknown and is done with the loop after one turn.
 */
#ifndef AGENT_BPF_WALK_H
#define AGENT_BPF_WALK_H

#include "agent/bpf/stack_window.h"
#include "agent/bpf/walk_maps.h"

#define UNWIND_SLAB(index)                 walk_slab(index)
#define UNWIND_DIR(index)                  walk_dir(index)
#define UNWIND_RULE(index)                 walk_rule(index)
#define UNWIND_USED(index)                 walk_slab_used(index)
#define UNWIND_READ(s, dst, size, address) walk_read(s, dst, size, address)
#define UNWIND_TEXT(s, dst, address)       walk_text(s, dst, address)

struct walk;
struct unwind_state;
int walk_find_mapping(struct walk *w, __u64 at);
int walk_find_rule(struct walk *w, __u64 at);
int walk_by_rule(struct walk *w);
int walk_fall_back(struct walk *w, int reason);

#define UNWIND_FIND_MAPPING(s, at)  walk_find_mapping((struct walk *)(s), at)
#define UNWIND_FIND_RULE(s, at)     walk_find_rule((struct walk *)(s), at)
#define UNWIND_BY_RULE(s)           walk_by_rule((struct walk *)(s))
#define UNWIND_FALL_BACK(s, reason) walk_fall_back((struct walk *)(s), reason)

static __always_inline int walk_read(struct unwind_state *s, __u64 *dst, __u64 size, __u64 address);
static __always_inline int walk_text(struct unwind_state *s, __u8 *dst, __u64 address);

#include "agent/bpf/unwind_cfi.h"

struct walk {
	struct unwind_state state; /* first: the primitives go from it to the window */
	struct stack_window window;
	__u64 kept_text_at;      /* the one address whose byte of code was kept */
	__u64 hash, hash_before; /* the last frame */
	__u32 used;              /* frames, kernel ones included */
	__s32 end;
	__u32 kept_text;
	__u32 pad;
};

enum { FRAMES_MASK = 1023 };
/* What every hash begins with. */
#define WALK_HASH 0x666c616d65ULL

#pragma clang diagnostic ignored "-Wgnu-variable-sized-type-not-at-end"
struct scratch {
	struct stack_record record; /* its frames[] are these */
	__u64 frames[FRAMES_MASK + 1];
	struct pt_regs regs;
	struct walk walk;
};

static __always_inline int walk_read(struct unwind_state *s, __u64 *dst, __u64 size, __u64 address)
{
	return stack_window_read(&((struct walk *)s)->window, dst, size, address);
}

static __always_inline int walk_text(struct unwind_state *s, __u8 *dst, __u64 address)
{
	struct walk *w = (struct walk *)s;

	if (!w->window.kept)
		return bpf_probe_read_user(dst, 1, (const void *)address);
	*dst = w->kept_text;
	return address == w->kept_text_at ? 0 : -1;
}

/* Global functions: see UNWIND_FIND_MAPPING. The verifier wants to see that w is not NULL. */
__noinline int walk_find_mapping(struct walk *w, __u64 at)
{
	return w ? unwind_find_mapping(&w->state, at) : SAMPLE_END_BROKEN_CFI;
}

__noinline int walk_find_rule(struct walk *w, __u64 at)
{
	return w ? unwind_find_rule(&w->state, at) : SAMPLE_END_BROKEN_CFI;
}

__noinline int walk_by_rule(struct walk *w)
{
	return w ? unwind_by_rule(&w->state) : SAMPLE_END_BROKEN_CFI;
}

__noinline int walk_fall_back(struct walk *w, int reason)
{
	return w ? unwind_fall_back(&w->state, reason) : SAMPLE_END_BROKEN_CFI;
}

struct walker {
	struct scratch *scratch;
};

/* The frame at hand into the stack and its hash. */
static __always_inline struct walk *walk_add(struct scratch *s)
{
	struct walk *w = &s->walk;

	s->frames[w->used & FRAMES_MASK] = w->state.pc;
	w->used++;
	w->hash_before = w->hash;
	w->hash = unwind_hash(w->hash, w->state.pc);
	return w;
}

static long walk_one(__u32 i, struct walker *k)
{
	struct walk *w = walk_add(k->scratch);

	w->end = unwind_step_cfi(&w->state);
	return w->end != UNWIND_GO_ON;
}

static long walk_one_fp(__u32 i, struct walker *k)
{
	struct walk *w = walk_add(k->scratch);

	w->end = unwind_step(&w->state);
	return w->end != UNWIND_GO_ON;
}

static long walk_hash_one(__u32 i, struct walker *k)
{
	struct scratch *s = k->scratch;

	if (i >= s->walk.used)
		return 1;
	s->walk.hash = unwind_hash(s->walk.hash, s->frames[i & FRAMES_MASK]);
	return 0;
}

/* The kernel's frames, already in s, begin the stack. */
static __always_inline void walk_begin(struct scratch *s)
{
	struct walker k = {.scratch = s};

	s->walk.hash = WALK_HASH;
	s->walk.used = s->record.kernel_count;
	if (s->record.kernel_count > 0)
		bpf_loop(SAMPLE_KERNEL_FRAMES_MAX, walk_hash_one, &k, 0);
}

/*
 * The stack ends at an address in no mapping. If that was taken for a caller, it is none: code that does
 * not say where it ends (glibc's __start_context, Go's clone) has led to some word, another one each time.
 */
static __always_inline void walk_end_no_mapping(struct scratch *s)
{
	struct walk *w = &s->walk;

	w->end = SAMPLE_END_NO_MAPPING;
	if (w->state.is_call && w->used > s->record.kernel_count + 1) {
		w->used--;
		w->hash = w->hash_before;
	}
}

/*
 * The user's part: state.pc, sp, fp, regs, regs_known, is_call and record.key say where to begin.
 * s->walk.end is UNWIND_MISS or an enum sample_end afterwards. by_tables is a constant: a program that walks
 * by frame pointers holds nothing that reads tables, so that it loads where the other one does not.
 */
static __always_inline void walk_user(struct scratch *s, bool by_tables, bool has_tables)
{
	struct walker k = {.scratch = s};
	struct walk *w = &s->walk;
	struct unwind_state *u = &w->state;
	struct table_process *p = 0;

	u->process.list = 0;
	u->process.generation = 0;
	u->process.final_until_ns = ~0ULL;
	u->mapping.end = 0;
	u->mapping.start = 0;
	u->ask = 0;
	u->sp_is_bound = 0;
	w->window.size = 0;
	if (by_tables && has_tables) {
		u->now_ns = bpf_ktime_get_ns();
		u->now_s = u->now_ns / 1000000000;
		u->miss.process.start_ns = s->record.key.start_ns;
		u->miss.process.tgid = s->record.key.tgid;
		u->miss.process.exec_id = s->record.key.exec_id;
		u->miss.seen_ns = s->record.seen_ns;
		p = bpf_map_lookup_elem(&procs, &u->miss.process);
		if (!p) {
			u->miss.kind = TABLE_MISS_PROCESS;
			u->miss.pc = u->pc;
			u->ask = 1;
			w->end = UNWIND_MISS;
			return;
		}
		u->process = *p;
		/* One that was in the middle of its exec had no mappings to be read: once more. */
		if (p->list < TABLE_REF_MIN && u->now_ns >= p->final_until_ns) {
			u->miss.kind = TABLE_MISS_MAPPING;
			u->miss.pc = u->pc;
			u->ask = 1;
			w->end = UNWIND_MISS;
			return;
		}
	}
	w->end = UNWIND_GO_ON;
	if (by_tables)
		bpf_loop(SAMPLE_USER_FRAMES_MAX, walk_one, &k, 0);
	else
		bpf_loop(SAMPLE_USER_FRAMES_MAX, walk_one_fp, &k, 0);
	if (w->end == UNWIND_GO_ON)
		w->end = SAMPLE_END_DEPTH;
	if (w->end == SAMPLE_END_NO_MAPPING)
		walk_end_no_mapping(s);
}

#endif
