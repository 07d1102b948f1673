/*
 * Counting of stacks: the first sight of a key sends its frames to user space, later ones only
 * count. Used by on_sample and by resume; see sample.h for the life of a sample.
 */
#ifndef AGENT_BPF_STACKS_H
#define AGENT_BPF_STACKS_H

#include "agent/bpf/walk.h"

#define E2BIG  7
#define EBUSY  16
#define EEXIST 17

/* Set before loading. */
const volatile __u32 stacks_max = 16384; /* as the map's max_entries */

__u64 stack_count; /* keys in stacks */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct stack_key);
	__type(value, struct stack_value);
} stacks SEC(".maps");

/* What user space was told of a process. */
struct told {
	__u64 asked_ns;         /* when a table of it was last asked for */
	__u32 asked_generation; /* of struct table_process then */
	__u32 seen;             /* its first stack woke user space; later ones do not */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct process_key);
	__type(value, struct told);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} ring SEC(".maps");

static __always_inline void count(struct sample_count *c, __u64 weight)
{
	c->samples++;
	c->weight_ns += weight;
}

static __always_inline __u64 square_us2(__u64 weight_ns)
{
	__u64 us = weight_ns / 1000;

	return us * us;
}

static __always_inline bool add_to_stack(const struct stack_key *key, __u64 weight)
{
	struct stack_value *v = bpf_map_lookup_elem(&stacks, key);

	if (!v)
		return false;
	__sync_fetch_and_add(&v->samples, 1);
	__sync_fetch_and_add(&v->weight_ns, weight);
	__sync_fetch_and_add(&v->weight_sq, square_us2(weight));
	return true;
}

/*
 * User space drains the ring from a timer. It is woken only for a process it has not seen, whose
 * maps it must read before the process is gone, and when the ring is half full.
 */
static __always_inline __u64 wakeup_flag(const struct stack_key *key)
{
	struct process_key p = {
		.start_ns = key->start_ns, .tgid = key->tgid, .exec_id = key->exec_id};
	struct told *t = bpf_map_lookup_elem(&processes, &p);
	struct told init = {.seen = 1};

	if (!t || !t->seen) {
		/* Full or busy: the process's next new stack wakes once more, nothing is lost. */
		if (t)
			t->seen = 1;
		else
			(void)bpf_map_update_elem(&processes, &p, &init, BPF_ANY);
		return BPF_RB_FORCE_WAKEUP;
	}
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >
		bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) / 2)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

/* First sight: send, then insert. */
static __always_inline void open_stack(struct sample_count *losses, struct scratch *s, __u64 weight)
{
	struct stack_value v = {1, weight, square_us2(weight)};
	__u64 size;
	long error;

	if (stack_count >= stacks_max) {
		count(&losses[SAMPLE_LOSS_MAP_FULL], weight);
		return;
	}
	size = s->record.kernel_count + s->record.user_count;
	size = sizeof(struct stack_record) + (size & FRAMES_MASK) * sizeof(__u64);
	if (bpf_ringbuf_output(&ring, s, size, wakeup_flag(&s->record.key)) != 0) {
		count(&losses[SAMPLE_LOSS_RING_FULL], weight);
		return;
	}
	error = bpf_map_update_elem(&stacks, &s->record.key, &v, BPF_NOEXIST);
	if (error == 0)
		__sync_fetch_and_add(&stack_count, 1);
	else if (error == -EEXIST && add_to_stack(&s->record.key, weight))
		return; /* another CPU was first; its record and ours are the same */
	else
		count(&losses[error == -E2BIG ? SAMPLE_LOSS_MAP_FULL : SAMPLE_LOSS_MAP_BUSY],
			weight);
}

/* The walk has ended and the record's names are filled: one more sample of this stack. */
static __always_inline void count_stack(
	struct scratch *s, __u64 *ends, struct sample_count *losses, __u64 weight)
{
	struct stack_record *r = &s->record;
	const __u64 *names = (const __u64 *)r->thread_comm; /* both, one behind the other */
	__u64 hash = s->walk.hash;
	__u64 end = (__u32)s->walk.end;

	r->user_count = s->walk.used - r->kernel_count;
	r->end = s->walk.end;
	/* The register that is compared is the one that is used, as the verifier of 6.1 wants it. */
	barrier_var(end);
	if (end < SAMPLE_END_COUNT)
		ends[end]++;
	hash = unwind_hash(hash, (__u64)r->end << 32 | r->flags);
	hash = unwind_hash(unwind_hash(hash, names[0]), names[1]);
	hash = unwind_hash(unwind_hash(hash, names[2]), names[3]);
	r->key.hash = hash;
	if (!add_to_stack(&r->key, weight))
		open_stack(losses, s, weight);
}

#endif
