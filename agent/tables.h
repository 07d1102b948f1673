/*
 * The unwind tables of one recording, as user space keeps them: which processes and files the kernel
 * programs have met, what of them is built, and where it lies. The layout is bpf/table.h's; foreign
 * bytes are read by the helper process only.
 *
 * One hard budget holds for slabs, directories and rules together. Slabs are made when needed. When the
 * budget is reached the least recently used slab goes whole: the references to it are taken back
 * first, then its inner map is replaced. Programs note the time of use in `slab_used`.
 *
 * A file is known by device, inode, size and mtime, so a library that a hundred processes map is built
 * once; forks and copies of one program share a mapping list by its contents. The same file in two
 * overlay mounts is two. The vdso is read from the agent's own memory: the kernel maps the same into all
 * 64-bit processes.
 */
#ifndef AGENT_TABLES_H
#define AGENT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/table.h"
#include "agent/helper.h"
#include "agent/sideband.h"
#include "base/buf.h"

struct tables;

enum { TABLES_BUDGET_MB_DEFAULT = 24, TABLES_BUDGET_MB_MIN = 1 };

/* The kernel's side, as descriptors of maps that stay the caller's. */
struct tables_maps {
	int slabs; /* ARRAY_OF_MAPS of TABLE_SLABS_MAX mmapable arrays of TABLE_SLAB_SIZE */
	int dirs;  /* mmapable ARRAY of one value, u32[TABLE_DIRS_MAX] */
	int rules; /* mmapable ARRAY of TABLE_RULES_MAX struct unwind_rule */
	int procs; /* HASH of struct process_key -> struct table_process */
	struct sideband *sideband; /* the kernel's events; NULL: of who is gone nothing is known */
	int slab_used; /* mmapable ARRAY of one u32[TABLE_SLABS_MAX]: seconds of CLOCK_MONOTONIC */
};

struct tables_stats {
	uint64_t bytes; /* of slabs, directories and rules in use: what the budget is for */
	uint64_t budget_bytes;
	uint64_t chunks; /* there now, as are mappings and rows; all other counts only grow */
	uint64_t chunks_no_cfi, chunks_broken, chunks_full;
	uint64_t files, files_failed, processes, processes_gone, mappings;
	uint64_t evictions; /* slabs */
	uint64_t misses;    /* table_miss records worked on */
	uint64_t rows, rules;
};

/*
 * helper stays the caller's. The maps are fresh, and after tables_free() not for use again: slabs stay in
 * them until they go. 0 or -errno.
 */
int tables_new(const struct tables_maps *m, uint32_t budget_mb, struct helper *helper,
	struct tables **ret);
void tables_free(struct tables *t); /* accepts NULL */
void tables_freep(struct tables **t);

/*
 * What a program said it lacks: reads the process's maps, opens files, has chunks built, places them.
 * Never fails: what cannot be had gets its reason in the directory, so that it is not asked for
 * again. True: something changed, deferred stacks may be walked now.
 */
bool tables_miss(struct tables *t, const struct table_miss *m);
/* To be called about once a second: forgets processes that are gone. */
void tables_tick(struct tables *t);
/*
 * What was used, in the order of its first use, as text: a later recording that is given it builds the
 * same before its window opens, so that its first samples find tables. Files are named by device,
 * inode, size and mtime. 0 or -errno.
 */
int tables_save(const struct tables *t, struct buf *out);
void tables_warm(struct tables *t, const char *text, size_t size); /* hostile text */
void tables_stats(const struct tables *t, struct tables_stats *ret);

#endif
