/*
 * A process group of a step (agent or workload) in a cgroup of its own, and what that cgroup says
 * it used. Where no cgroup2 can be written (host mode), processes stay where they are and the
 * meters come from /proc; the source is named in meters.json.
 */
#ifndef LAB_GUEST_GROUP_H
#define LAB_GUEST_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct group_root {
	char path[128]; /* "": no cgroup2 here */
	bool memory;    /* children have the memory controller */
};

struct group {
	char path[224]; /* "": no cgroup */
	bool memory;
	bool limited; /* memory.max is set */
	pid_t pid;    /* its first process, for the meters without a cgroup; 0 none */
};

/* Finds a writable cgroup2 mount and switches its memory controller on where that is allowed. */
void group_root_find(struct group_root *ret);

/* Makes the cgroup; memory_max 0 sets no limit. Never fails: without a cgroup path is "". */
void group_open(
	struct group *g, const struct group_root *root, const char *name, uint64_t memory_max);
/* For the child between fork and exec. */
void group_join(const struct group *g);
/* Kills what is left in it and waits, 2 s at most, until nobody is. The caller reaps. */
void group_kill(const struct group *g);
void group_close(struct group *g); /* removes it */

/* CPU time of all that ever ran in it (cgroup), or of its first process while that lives. */
uint64_t group_cpu_ns(const struct group *g);
/*
 * memory.stat anon + kernel. The kernel's own sum "kernel" has slab, stacks, page tables, percpu
 * and vmalloc in it (from 5.18; BPF maps are percpu and vmalloc), so nothing is added to it; an
 * older kernel's parts are summed. Without a memory controller: RssAnon of its processes.
 */
uint64_t group_memory_bytes(const struct group *g);
/* The same without slab that the kernel can take back: names and inodes of files that were opened. */
uint64_t group_memory_kept_bytes(const struct group *g);
uint64_t group_oom_kills(const struct group *g);
const char *group_cpu_source(const struct group *g);
const char *group_memory_source(const struct group *g);

#endif
