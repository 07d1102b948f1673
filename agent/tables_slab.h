/*
 * Slabs of unwind tables: who gets how much of the budget, and what goes when it is used up. Pure
 * but for the four calls of tables_slab_ops, so that tests run it over plain memory.
 *
 * Chunks and mapping lists stand in slabs of their own kinds: a process without its list has no tables
 * at all, and programs note no use of lists. So the kind that has more slabs loses its least recently
 * used one, and chunks never take a list's place but where lists have more. A slab that was used
 * within TABLES_SLAB_KEEP_S is not taken for chunks: when everything is in use, more of it would
 * only turn the tables over, and what does not fit is said to be too much.
 */
#ifndef AGENT_TABLES_SLAB_H
#define AGENT_TABLES_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/table.h"
#include "agent/tables_space.h"

enum {
	TABLES_SLAB_KEEP_S = 2,
	/* Evictions in one second: each waits for a grace period, 18 ms on a busy host. */
	TABLES_SLAB_EVICTIONS_MAX = 8,
	TABLES_SLAB_PENDING_MAX = 1024,
};

enum tables_slab_kind { TABLES_SLAB_CHUNKS, TABLES_SLAB_LISTS, TABLES_SLAB_KINDS };

struct tables_slab_ops {
	/* Makes the slab's memory and shows it to the programs. 0 or -errno. */
	int (*add)(void *data, uint32_t slab, void **ret);
	/* Nothing refers to it any more; returns when no program can read it. */
	void (*remove)(void *data, uint32_t slab, void *memory);
	/* Takes back all references to it. */
	void (*take_back)(void *data, uint32_t slab, enum tables_slab_kind kind);
	/* Returns when programs that might have read a reference before have ended. */
	void (*wait)(void *data);
	/* Second of its last use by a program. */
	uint32_t (*used_s)(void *data, uint32_t slab);
};

struct tables_slab {
	void *memory; /* NULL: not made */
	enum tables_slab_kind kind;
	uint32_t used_s; /* last use by user space */
	struct tables_space space;
};

struct tables_slabs {
	const struct tables_slab_ops *ops;
	void *data;
	uint64_t budget;
	uint64_t other; /* bytes of the budget that are not slabs */
	size_t count;   /* made */
	size_t kinds[TABLES_SLAB_KINDS];
	uint64_t evictions;
	uint32_t evicting_s; /* the second that evicted_now counts */
	uint32_t evicted_now;
	struct tables_slab slabs[TABLE_SLABS_MAX];
	struct { /* given back, but a program may still read it */
		uint32_t ref, size;
	} pending[TABLES_SLAB_PENDING_MAX];
	size_t pending_count;
};

void tables_slabs_init(
	struct tables_slabs *s, const struct tables_slab_ops *ops, void *data, uint64_t budget);
void tables_slabs_done(struct tables_slabs *s);

/*
 * Room for size bytes, at most TABLE_SLAB_SIZE - TABLE_REF_MIN. May evict a slab, which calls
 * take_back. 0; -ENOSPC (the budget is in use) or -errno of making one.
 */
int tables_slab_take(struct tables_slabs *s, enum tables_slab_kind kind, uint32_t size,
	uint32_t now_s, uint32_t *ret_ref, void **ret);
/* Nothing refers to it any more; it is free after tables_slabs_flush(). */
void tables_slab_give(struct tables_slabs *s, uint32_t ref, uint32_t size);
/* Frees what was given back; waits for running programs if there is any. */
void tables_slabs_flush(struct tables_slabs *s);
/* Takes size bytes of the budget for something else. -ENOSPC. */
int tables_slabs_reserve(struct tables_slabs *s, uint64_t size, uint32_t now_s);
void tables_slabs_release(struct tables_slabs *s, uint64_t size);
/* Whether a request would be granted that was refused before. */
bool tables_slabs_has_room(const struct tables_slabs *s, uint32_t now_s);

void *tables_slab_at(const struct tables_slabs *s, uint32_t ref);
uint64_t tables_slabs_bytes(const struct tables_slabs *s);

#endif
