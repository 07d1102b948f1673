/*
 * Memory whose lifetime is one unit of work (STYLE 17): allocate many pieces, free all at once.
 * Pieces are 16-byte aligned and never move. An arena has a limit; above it allocation returns
 * NULL.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena;

/* NULL when memory is short. size_max counts what the arena takes from malloc. */
struct arena *arena_new(size_t size_max);
void arena_free(struct arena *a);   /* accepts NULL */
void arena_freep(struct arena **a); /* for _cleanup_ */
void arena_reset(struct arena *a);

void *arena_alloc(struct arena *a, size_t size); /* zeroed; NULL at the limit or without memory */
char *arena_strndup(struct arena *a, const char *s, size_t size);
char *arena_strdup(struct arena *a, const char *s);
size_t arena_used(const struct arena *a); /* bytes taken from malloc */

#endif
