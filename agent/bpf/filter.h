/*
 * Which tasks a recording is about: process ids, names of processes, users, control groups. Each kind
 * has entries that are asked for (FILTER_ONLY) and entries that are left out (FILTER_EXCEPT). A task
 * passes when it is in no entry that is left out and, for each kind that is asked for, in one that is.
 *
 * Everything is read from the task itself, so the same code serves the sampled task, both tasks of a
 * switch, and the iterator; it runs in NMI. A cgroup in the map stands for all below it:
 * cgroup.ancestors[] (since 6.1) has the chain from the root, level 0, to the cgroup itself. That is so
 * in the trees of version 1, too, of which a recording can follow one controller's: there the task's
 * cgroup is that of css_set.subsys[], whose numbers are the kernel's configuration.
 */
#ifndef AGENT_BPF_FILTER_H
#define AGENT_BPF_FILTER_H

enum { FILTER_LEVELS_MAX = 32 }; /* cgroups nested deeper are judged by their first 32 levels */

/* Set before loading. FILTER_ONLY and FILTER_EXCEPT, as far as a kind has such entries; 0: no filter. */
const volatile __u32 filter_tgids;
const volatile __u32 filter_comms;
const volatile __u32 filter_uids;
const volatile __u32 filter_cgroups;
const volatile bool filter_has_v1;
const volatile __u32 filter_v1_subsys;

/* Values of all maps are FILTER_ONLY and FILTER_EXCEPT. */
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
	__type(key, __u32);
	__type(value, __u32);
} uids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct filter_cgroup);
	__type(value, __u32);
} cgroups SEC(".maps");

static __always_inline __u32 filter_find(void *map, const void *key)
{
	__u32 *value = bpf_map_lookup_elem(map, key);

	return value ? *value : 0;
}

/* What an entry that was found says of a task, where the kind has such sides. */
static __always_inline bool filter_passes(__u32 sides, __u32 found)
{
	return !(found & FILTER_EXCEPT) && (!(sides & FILTER_ONLY) || (found & FILTER_ONLY));
}

static __always_inline __u32 filter_find_comm(const struct task_struct *t)
{
	struct filter_comm name = {};

	/* An unreadable leader leaves zeroes, which nobody asks for. */
	(void)bpf_probe_read_kernel(name.text, sizeof(name.text), &t->group_leader->comm);
	return filter_find(&comms, &name);
}

/* The effective user id, which ps and /proc show; as the initial user namespace numbers it. */
static __always_inline __u32 filter_find_uid(const struct task_struct *t)
{
	const struct cred *cred = 0;
	__u32 uid = (__u32)-1; /* nobody's */

	(void)bpf_probe_read_kernel(&cred, sizeof(cred), &t->real_cred);
	(void)bpf_probe_read_kernel(&uid, sizeof(uid), &cred->euid);
	return filter_find(&uids, &uid);
}

/* What cannot be read is 0, which is no cgroup's id, and level 0. */
static __always_inline __u32 filter_find_ancestors(const struct cgroup *own, __u32 is_v1)
{
	struct cgroup *const *ancestors = __builtin_preserve_access_index(&own->ancestors[0]);
	__u32 found = 0;
	int level = 0;

	(void)bpf_probe_read_kernel(&level, sizeof(level), &own->level);
	for (int i = 0; i < FILTER_LEVELS_MAX; i++) {
		struct cgroup *c = 0;
		struct kernfs_node *node = 0;
		struct filter_cgroup key = {.is_v1 = is_v1};

		if (i > level)
			break;
		(void)bpf_probe_read_kernel(&c, sizeof(c), ancestors + i);
		(void)bpf_probe_read_kernel(&node, sizeof(node), &c->kn);
		(void)bpf_probe_read_kernel(&key.id, sizeof(key.id), &node->id);
		found |= filter_find(&cgroups, &key);
	}
	return found;
}

static __always_inline __u32 filter_find_cgroup(const struct task_struct *t)
{
	const struct css_set *set = t->cgroups;
	struct cgroup_subsys_state *const *states;
	struct cgroup_subsys_state *state = 0;
	struct cgroup *c = 0;
	__u32 found;

	(void)bpf_probe_read_kernel(&c, sizeof(c), &set->dfl_cgrp);
	found = filter_find_ancestors(c, 0);
	if (!filter_has_v1)
		return found;
	states = __builtin_preserve_access_index(&set->subsys[0]);
	c = 0;
	(void)bpf_probe_read_kernel(&state, sizeof(state), states + filter_v1_subsys);
	(void)bpf_probe_read_kernel(&c, sizeof(c), &state->cgroup);
	return found | filter_find_ancestors(c, 1);
}

static __always_inline bool filter_wants(const struct task_struct *t)
{
	__u32 tgid = t->tgid;

	if (filter_tgids && !filter_passes(filter_tgids, filter_find(&tgids, &tgid)))
		return false;
	if (filter_comms && !filter_passes(filter_comms, filter_find_comm(t)))
		return false;
	if (filter_uids && !filter_passes(filter_uids, filter_find_uid(t)))
		return false;
	return !filter_cgroups || filter_passes(filter_cgroups, filter_find_cgroup(t));
}

/* A name, a user or a cgroup, unlike a process id, can change while its task runs. */
static __always_inline bool filter_can_change(void)
{
	return filter_comms || filter_uids || filter_cgroups;
}

#endif
