/*
 * The maps that hold unwind tables (table.h), and how the walk looks into them. Every index that came from a
 * table is checked here.
 */
#ifndef AGENT_BPF_WALK_MAPS_H
#define AGENT_BPF_WALK_MAPS_H

#include "agent/bpf/table.h"

struct table_slab {
	__u8 bytes[TABLE_SLAB_SIZE];
};

struct slab_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32)); /* clang 14 emits no BTF of types below two pointers */
	__uint(value_size, sizeof(struct table_slab));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TABLE_SLABS_MAX);
	__type(key, __u32);
	__array(values, struct slab_map);
} slabs SEC(".maps");

/* One value, because each element of an array takes 8 bytes at least. */
struct table_dirs {
	__u32 refs[TABLE_DIRS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table_dirs);
} dirs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TABLE_RULES_MAX);
	__type(key, __u32);
	__type(value, struct unwind_rule);
} rules SEC(".maps");

struct table_slab_used {
	__u32 second[TABLE_SLABS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table_slab_used);
} slab_used SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TABLE_PROCESSES_MAX);
	__type(key, struct process_key);
	__type(value, struct table_process);
} procs SEC(".maps");

static const __u32 zero;

static __always_inline const __u8 *walk_slab(__u32 index)
{
	void *slab = bpf_map_lookup_elem(&slabs, &index);
	struct table_slab *value = slab ? bpf_map_lookup_elem(slab, &zero) : 0;

	return value ? value->bytes : 0;
}

static __always_inline __u32 *walk_dir(__u32 index)
{
	struct table_dirs *d = bpf_map_lookup_elem(&dirs, &zero);

	if (!d || index >= TABLE_DIRS_MAX)
		return 0;
	barrier_var(index); /* else clang leaves out the mask, which old verifiers want */
	return &d->refs[index & (TABLE_DIRS_MAX - 1)];
}

static __always_inline const struct unwind_rule *walk_rule(__u32 index)
{
	return bpf_map_lookup_elem(&rules, &index);
}

static __always_inline __u32 *walk_slab_used(__u32 index)
{
	struct table_slab_used *u = bpf_map_lookup_elem(&slab_used, &zero);

	if (!u || index >= TABLE_SLABS_MAX)
		return 0;
	barrier_var(index);
	return &u->second[index & (TABLE_SLABS_MAX - 1)];
}

#endif
