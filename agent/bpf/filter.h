/*
 * Which tasks a recording is about: process ids, names of processes, control groups (v2). Kinds are
 * combined by AND, entries of one kind by OR; a kind without entries does not filter.
 *
 * Everything is read from the task itself, so the same code serves the sampled task, both tasks of a
 * switch, and the iterator; it runs in NMI. A cgroup in the map stands for all below it:
 * cgroup.ancestors[] (since 6.1) has the chain from the root, level 0, to the cgroup itself.
 */
#ifndef AGENT_BPF_FILTER_H
#define AGENT_BPF_FILTER_H

enum { FILTER_LEVELS_MAX = 32 }; /* cgroups nested deeper are judged by their first 32 levels */

/* Set before loading. */
const volatile bool filter_tgids;
const volatile bool filter_comms;
const volatile bool filter_cgroups;

struct filter_comm {
	char text[SAMPLE_COMM_SIZE]; /* zeroes after its end, as the kernel keeps it */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tgids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_comm);
	__type(value, __u32);
} comms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64); /* cgroup id: the inode number of its directory */
	__type(value, __u32);
} cgroups SEC(".maps");

static __always_inline bool filter_wants_comm(const struct task_struct *t)
{
	struct filter_comm name = {};

	/* An unreadable leader leaves zeroes, which nobody asks for. */
	(void)bpf_probe_read_kernel(name.text, sizeof(name.text), &t->group_leader->comm);
	return bpf_map_lookup_elem(&comms, &name);
}

static __always_inline bool filter_wants_cgroup(const struct task_struct *t)
{
	struct cgroup *own = t->cgroups->dfl_cgrp;
	struct cgroup **ancestors = __builtin_preserve_access_index(&own->ancestors[0]);
	int level = own->level;

	for (int i = 0; i < FILTER_LEVELS_MAX; i++) {
		struct cgroup *c = 0;
		struct kernfs_node *node = 0;
		__u64 id = 0;

		if (i > level)
			break;
		/* What cannot be read is 0, which is no cgroup's id. */
		(void)bpf_probe_read_kernel(&c, sizeof(c), ancestors + i);
		(void)bpf_probe_read_kernel(&node, sizeof(node), &c->kn);
		(void)bpf_probe_read_kernel(&id, sizeof(id), &node->id);
		if (bpf_map_lookup_elem(&cgroups, &id))
			return true;
	}
	return false;
}

static __always_inline bool filter_wants(const struct task_struct *t)
{
	__u32 tgid = t->tgid;

	if (filter_tgids && !bpf_map_lookup_elem(&tgids, &tgid))
		return false;
	if (filter_comms && !filter_wants_comm(t))
		return false;
	return !filter_cgroups || filter_wants_cgroup(t);
}

/* A name or a cgroup, unlike a process id, can change while its task runs. */
static __always_inline bool filter_can_change(void)
{
	return filter_comms || filter_cgroups;
}

#endif
