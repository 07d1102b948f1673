/*
 * Hash map from byte strings to a 64-bit value, open addressing, xxhash. Keys are copied. It has a
 * limit on entries. Iteration order is insertion order, so that output is the same on every run.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map;

struct map *map_new(size_t entries_max); /* NULL without memory */
void map_free(struct map *m);            /* accepts NULL */
void map_freep(struct map **m);          /* for _cleanup_ */
size_t map_count(const struct map *m);

/* True and *ret set when the key is there. */
bool map_get(const struct map *m, const void *key, size_t size, uint64_t *ret);
/*
 * The address of the key's value, a new one starts at 0 and *is_new (may be NULL) says so. NULL at
 * the limit (errno ENOBUFS) or without memory (ENOMEM). Valid until the next map_put or map_free.
 */
uint64_t *map_put(struct map *m, const void *key, size_t size, bool *is_new);

/* for (size_t i = 0; map_entry(m, i, &key, &size, &value); i++) */
bool map_entry(const struct map *m, size_t i, const void **key, size_t *size, uint64_t *value);

#endif
