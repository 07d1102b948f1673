/* See stacks.h. */
#include "agent/stacks.h"

#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "base/map.h"

struct stacks {
	struct arena *arena;
	struct map *map; /* struct stack_key -> address of its record in arena */
};

int stacks_new(size_t keys_max, size_t bytes_max, struct stacks **ret)
{
	struct stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->arena = arena_new(bytes_max);
	s->map = map_new(keys_max);
	if (!s->arena || !s->map) {
		stacks_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void stacks_free(struct stacks *s)
{
	if (!s)
		return;
	map_free(s->map);
	arena_free(s->arena);
	free(s);
}

void stacks_freep(struct stacks **s)
{
	stacks_free(*s);
}

int stacks_add(struct stacks *s, const struct stack_record *r)
{
	size_t size = sizeof(*r) + ((size_t)r->kernel_count + r->user_count) * sizeof(r->frames[0]);
	struct stack_record *copy;
	uint64_t *slot;
	bool is_new;

	slot = map_put(s->map, &r->key, sizeof(r->key), &is_new);
	if (!slot)
		return -errno;
	if (!is_new && *slot != 0)
		return 0;
	copy = arena_alloc(s->arena, size);
	if (!copy)
		return -ENOBUFS;
	memcpy(copy, r, size);
	*slot = (uint64_t)(uintptr_t)copy;
	return 0;
}

const struct stack_record *stacks_find(const struct stacks *s, const struct stack_key *key)
{
	uint64_t address;

	if (!map_get(s->map, key, sizeof(*key), &address))
		return NULL;
	return (const struct stack_record *)(uintptr_t)address; /* NULL when its copy failed */
}

size_t stacks_count(const struct stacks *s)
{
	return map_count(s->map);
}
