/*
 * Code that was replaced by other code at the same addresses while we record: dlclose() and dlopen() of
 * another library, a plugin that is loaded anew. Mapping lists and names are read once and again
 * only for a pc that is in no mapping, so nothing else would tell: such a pc would be walked and named
 * by the library that is gone.
 *
 * The tracepoint vm_unmapped_area says where the kernel found room for a mapping (dlopen() leaves the
 * choice to it). If the process's list has code of a file in that room, the code is gone, and the
 * process becomes a new image, as if it had called exec: the exec_id of its samples is
 * task_struct.self_exec_id plus the number of these events. Both only grow, so their sum names an
 * image, and all that is kept by image (stacks, lists, names) is kept apart.
 *
 * Not seen: what a process without a list replaces (--unwind fp; a list that is not read yet, which
 * will be read with what is new), mappings at an address that the program chose (MAP_FIXED, mremap()),
 * and a library where generated code was.
 */
#ifndef AGENT_BPF_REMAP_H
#define AGENT_BPF_REMAP_H

#include "agent/bpf/walk.h"

struct remap_key {
	__u64 start_ns;
	__u32 tgid;
	__u32 pad;
};

/* Full: the next process's replacements are not seen. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct remap_key);
	__type(value, __u32);
} remaps SEC(".maps");

/* Any at all? Spares each sample a lookup. */
volatile bool has_remaps;

static __always_inline __u32 remap_exec_id(const struct task_struct *leader)
{
	struct remap_key key = {.start_ns = leader->start_boottime, .tgid = leader->tgid};
	__u32 *count = has_remaps ? bpf_map_lookup_elem(&remaps, &key) : 0;

	return (__u32)leader->self_exec_id + (count ? *count : 0);
}

/* Does the list have code of a file at start..end? */
static __always_inline bool remap_replaces(const struct table_process *p, __u64 start, __u64 end)
{
	__u64 place = p->list & (TABLE_SLAB_SIZE - 1);
	const __u8 *slab;

	if (p->list < TABLE_REF_MIN || p->count == 0)
		return false;
	slab = walk_slab(p->list >> TABLE_SLAB_SHIFT);
	if (!slab)
		return false;
	place = unwind_search_mappings(slab, place, p->count, end - 1);
	return UNWIND_LOAD(__u64, slab, place) < end &&
	       UNWIND_LOAD(__u64, slab, place + 8) > start &&
	       (UNWIND_LOAD(__u32, slab, place + 36) & TABLE_MAPPING_ANON) == 0;
}

/* The process's mmap lock is held, so no other thread of it is here. */
static __always_inline void remap_note(const struct remap_key *key)
{
	__u32 *count = bpf_map_lookup_elem(&remaps, key);
	__u32 one = 1;

	if (count)
		*count += 1;
	else
		(void)bpf_map_update_elem(&remaps, key, &one, BPF_NOEXIST); /* full: see above */
	has_remaps = true;
}

#endif
