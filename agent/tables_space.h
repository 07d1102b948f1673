/*
 * Which parts of a numbered space are free: first fit over a sorted list of free ranges. Knows nothing
 * of what lies there. Used for each slab's bytes and for the directory's entries.
 */
#ifndef AGENT_TABLES_SPACE_H
#define AGENT_TABLES_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TABLES_SPACE_RANGES_MAX = 4096 };

struct tables_range {
	uint32_t start, size;
};

struct tables_space {
	struct tables_range *free; /* sorted, not adjacent */
	size_t count, allocated;
	uint32_t used;
	uint32_t start, end;
};

/* Free from start to end. 0 or -ENOMEM. */
int tables_space_init(struct tables_space *s, uint32_t start, uint32_t end);
void tables_space_done(struct tables_space *s); /* accepts NULL and zeroes */
void tables_space_reset(struct tables_space *s);
/* False: no free range is that large. size is not 0. */
bool tables_space_take(struct tables_space *s, uint32_t size, uint32_t *ret);
/*
 * What was taken, whole. Beyond TABLES_SPACE_RANGES_MAX holes, or without memory, it stays taken: it
 * comes back with the whole space.
 */
void tables_space_give(struct tables_space *s, uint32_t start, uint32_t size);

#endif
