/*
 * Samples whose tables are not there yet (table.h, MISS): kept with registers, kernel frames and a copy
 * of the stack until user space has built what they lack and runs resume.
 *
 * A slot goes free -> filling (on_sample, by compare and exchange) -> full -> free (resume, which runs in
 * one thread of user space). So one side at a time writes it. Its sample was counted as taken when it
 * came; what becomes of its stack is counted in `resumed`, by resume alone, so that
 *	taken = stacks + losses of all CPUs + losses of resumed
 * once nothing is kept any more. The copy of the stack never leaves the kernel.
 */
#ifndef AGENT_BPF_DEFERRED_H
#define AGENT_BPF_DEFERRED_H

#include "agent/bpf/stacks.h"

enum { DEFERRED_FREE, DEFERRED_FILLING, DEFERRED_FULL };

enum {
	DEFERRED_PAGE = 4096,
	DEFERRED_HEAD_SIZE = sizeof(struct stack_record) + SAMPLE_KERNEL_FRAMES_MAX * sizeof(__u64),
	ASK_AGAIN_NS = 100000000, /* a process of whose miss nobody took care */
};

struct deferred_slot {
	__u32 state;
	__u32 attempts;
	__u64 weight_ns;
	__u64 stack_start, stack_size;
	__u64 stack_holes; /* see struct stack_window */
	__u32 text;        /* the byte of code at the pc, or 0 */
	__u32 has_tables;
	__u8 head[DEFERRED_HEAD_SIZE]; /* struct stack_record and the kernel's frames */
	struct unwind_state user;      /* where the walk begins */
	__u8 stack[DEFERRED_STACK_SIZE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DEFERRED_SLOTS);
	__type(key, __u32);
	__type(value, struct deferred_slot);
} deferred SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} misses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} resume_scratch SEC(".maps");

/* Set before loading, as the map's max_entries. */
const volatile __u32 deferred_slots = DEFERRED_SLOTS;

/* Written by user space: nothing will be built any more. */
volatile bool finish;

struct resume_counts resumed;

/* One wake-up a miss: of a chunk as its directory entry says, of a process once a generation. */
static __always_inline bool should_ask(const struct unwind_state *u)
{
	__u32 generation = u->miss.kind == TABLE_MISS_PROCESS ? ~0u : u->process.generation;
	struct told init = {.asked_ns = u->now_ns, .asked_generation = generation};
	struct told *t;

	if (u->miss.kind == TABLE_MISS_CHUNK)
		return true;
	t = bpf_map_lookup_elem(&processes, &u->miss.process);
	if (!t) {
		/* Full or busy: asked once more by the next. */
		(void)bpf_map_update_elem(&processes, &u->miss.process, &init, BPF_ANY);
		return true;
	}
	if (t->asked_ns != 0 && t->asked_generation == generation &&
		u->now_ns < t->asked_ns + ASK_AGAIN_NS)
		return false;
	t->asked_ns = u->now_ns;
	t->asked_generation = generation;
	return true;
}

static __always_inline void ask(struct unwind_state *u)
{
	__u32 *entry;

	if (!u->ask || !should_ask(u))
		return;
	u->ask = 0;
	if (bpf_ringbuf_output(&misses, &u->miss, sizeof(u->miss), BPF_RB_FORCE_WAKEUP) == 0)
		return;
	entry = u->miss.kind == TABLE_MISS_CHUNK ? walk_dir(u->miss.dir) : 0;
	if (entry) /* nobody was told: the next one is to ask */
		(void)__sync_val_compare_and_swap(entry, TABLE_WANTED, TABLE_NONE);
}

struct slot_search {
	__u32 found;
};

static long take_slot(__u32 i, struct slot_search *search)
{
	struct deferred_slot *slot = bpf_map_lookup_elem(&deferred, &i);

	if (!slot || slot->state != DEFERRED_FREE ||
		__sync_val_compare_and_swap(&slot->state, DEFERRED_FREE, DEFERRED_FILLING) !=
			DEFERRED_FREE)
		return 0;
	search->found = i;
	return 1;
}

/*
 * The stack from sp on, page by page, as far as it can be read. A page in the middle may never have been touched,
 * such as those of a large array: it is a hole, and frames above it are kept.
 */
static __always_inline void keep_stack(struct deferred_slot *slot)
{
	__u64 at = slot->user.sp;
	__u64 first = DEFERRED_PAGE - (at & (DEFERRED_PAGE - 1));
	__u64 size = 0, holes = 0;

	if (bpf_probe_read_user(slot->stack, first, (const void *)at) == 0) {
		size = first;
#pragma GCC unroll 8
		for (int i = 0; i < DEFERRED_STACK_SIZE / DEFERRED_PAGE - 1; i++) {
			__u64 before = first + i * DEFERRED_PAGE;

			if (bpf_probe_read_user(slot->stack + before, DEFERRED_PAGE,
				    (const void *)(at + before)) == 0)
				size = before + DEFERRED_PAGE;
			else
				holes |= 2ULL << i;
		}
	}
	slot->stack_start = at;
	slot->stack_size = size;
	slot->stack_holes = holes;
}

/* Keeps s, whose walk.state is where its walk begins. False: no slot is free. */
static __always_inline bool defer(struct scratch *s, bool has_tables, __u64 weight)
{
	struct slot_search search = {.found = DEFERRED_SLOTS};
	struct deferred_slot *slot;
	__u8 text = 0;

	bpf_loop(deferred_slots, take_slot, &search, 0);
	slot = bpf_map_lookup_elem(&deferred, &search.found);
	if (!slot) {
		__sync_fetch_and_add(&resumed.no_slot, 1);
		return false;
	}
	/* Memory of our own maps: neither can fail. */
	(void)bpf_probe_read_kernel(slot->head, sizeof(slot->head), s);
	(void)bpf_probe_read_kernel(&slot->user, sizeof(slot->user), &s->walk.state);
	(void)bpf_probe_read_user(&text, 1, (const void *)slot->user.pc); /* stays 0 */
	slot->text = text;
	slot->has_tables = has_tables;
	slot->weight_ns = weight;
	slot->attempts = 0;
	keep_stack(slot);
	__sync_fetch_and_add(&resumed.deferred, 1);
	__sync_fetch_and_add(&resumed.waiting, 1);
	(void)__sync_val_compare_and_swap(&slot->state, DEFERRED_FILLING, DEFERRED_FULL);
	return true;
}

static long resume_one(__u32 i, void *unused)
{
	struct deferred_slot *slot = bpf_map_lookup_elem(&deferred, &i);
	struct scratch *s = bpf_map_lookup_elem(&resume_scratch, &zero);
	struct walk *w;

	if (!slot || !s || slot->state != DEFERRED_FULL)
		return 0;
	w = &s->walk;
	/* Memory of our own maps: neither can fail. */
	(void)bpf_probe_read_kernel(s, sizeof(slot->head), slot->head);
	(void)bpf_probe_read_kernel(&w->state, sizeof(w->state), &slot->user);
	w->state.is_short = 1;
	w->window.kept = (__u64)slot->stack;
	w->window.kept_start = slot->stack_start;
	w->window.kept_size = slot->stack_size;
	w->window.kept_holes = slot->stack_holes;
	w->kept_text = slot->text;
	w->kept_text_at = slot->user.pc;
	walk_begin(s);
	walk_user(s, true, slot->has_tables);
	if (w->end == UNWIND_MISS) {
		if (!finish && ++slot->attempts < DEFERRED_ATTEMPTS_MAX) {
			ask(&w->state);
			return 0;
		}
		w->end = SAMPLE_END_NO_TABLE;
		if (w->state.miss.kind == TABLE_MISS_MAPPING)
			walk_end_no_mapping(s);
	}
	count_stack(s, resumed.ends, resumed.losses, slot->weight_ns);
	__sync_fetch_and_sub(&resumed.waiting, 1);
	(void)__sync_val_compare_and_swap(&slot->state, DEFERRED_FULL, DEFERRED_FREE);
	return 0;
}

#endif
