/*
 * Interned records: equal keys are stored once and get a dense id, in order of first appearance. A
 * record is the key's bytes followed by extra zeroed bytes that belong to the caller. Records never
 * move and live as long as the arena they come from.
 *
 * Beside base/map because here the key is the record: a profile would hold every string, frame and
 * stack twice otherwise, and its memory limit could not be exact.
 */
#ifndef PROF_INTERN_H
#define PROF_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum { INTERN_SEGMENTS = 28 };

struct intern_entry;

struct intern {
	struct arena *arena; /* not owned */
	size_t memory_max;   /* the arena's limit, to tell -ENOBUFS from -ENOMEM */
	uint32_t *slots;
	size_t slot_count;
	size_t count;
	struct intern_entry *segments[INTERN_SEGMENTS]; /* of 16, 32, 64... entries */
};

void intern_init(struct intern *t, struct arena *arena, size_t memory_max);
/* Id of key's record, or -ENOBUFS at the limit, -ENOMEM. is_new may be NULL. */
int64_t intern_put(struct intern *t, const void *key, size_t size, size_t extra, bool *is_new);
bool intern_get(const struct intern *t, const void *key, size_t size, uint32_t *ret);
/* The record, 16-byte aligned; NULL out of range. size (may be NULL) gets the key's size. */
void *intern_at(const struct intern *t, size_t id, size_t *size);

/* Which of -ENOBUFS and -ENOMEM a failed arena_alloc(arena, size) meant. */
int intern_alloc_error(const struct arena *arena, size_t memory_max, size_t size);

#endif
