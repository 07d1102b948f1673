/* Free ranges of a space, see tables_space.h. */
#include "agent/tables_space.h"

#include <assert.h>
#include <errno.h>

#include "base/def.h"

int tables_space_init(struct tables_space *s, uint32_t start, uint32_t end)
{
	*s = (struct tables_space){.start = start, .end = end, .allocated = 16};
	s->free = calloc(s->allocated, sizeof(*s->free));
	if (!s->free)
		return -ENOMEM;
	tables_space_reset(s);
	return 0;
}

void tables_space_done(struct tables_space *s)
{
	if (!s)
		return;
	free(s->free);
	*s = (struct tables_space){0};
}

void tables_space_reset(struct tables_space *s)
{
	s->free[0] = (struct tables_range){s->start, s->end - s->start};
	s->count = 1;
	s->used = 0;
}

static void tables_space_remove(struct tables_space *s, size_t at)
{
	s->count--;
	memmove(&s->free[at], &s->free[at + 1], (s->count - at) * sizeof(*s->free));
}

bool tables_space_take(struct tables_space *s, uint32_t size, uint32_t *ret)
{
	for (size_t i = 0; i < s->count; i++) {
		struct tables_range *r = &s->free[i];

		if (r->size < size)
			continue;
		*ret = r->start;
		r->start += size;
		r->size -= size;
		s->used += size;
		if (r->size == 0)
			tables_space_remove(s, i);
		return true;
	}
	return false;
}

static bool tables_space_insert(struct tables_space *s, size_t at, struct tables_range range)
{
	if (s->count == s->allocated) {
		size_t allocated = MAX(2 * s->allocated, (size_t)16);
		struct tables_range *grown = allocated > TABLES_SPACE_RANGES_MAX
						     ? NULL
						     : realloc(s->free, allocated * sizeof(*grown));

		if (!grown)
			return false;
		s->free = grown;
		s->allocated = allocated;
	}
	memmove(&s->free[at + 1], &s->free[at], (s->count - at) * sizeof(*s->free));
	s->free[at] = range;
	s->count++;
	return true;
}

void tables_space_give(struct tables_space *s, uint32_t start, uint32_t size)
{
	size_t at = 0;

	assert(size > 0 && start >= s->start && size <= s->end - start && size <= s->used);
	while (at < s->count && s->free[at].start < start)
		at++;
	bool joins_left = at > 0 && s->free[at - 1].start + s->free[at - 1].size == start;
	bool joins_right = at < s->count && s->free[at].start == start + size;

	if (joins_left && joins_right) {
		s->free[at - 1].size += size + s->free[at].size;
		tables_space_remove(s, at);
	} else if (joins_left) {
		s->free[at - 1].size += size;
	} else if (joins_right) {
		s->free[at].start = start;
		s->free[at].size += size;
	} else if (!tables_space_insert(s, at, (struct tables_range){start, size})) {
		return;
	}
	s->used -= size;
}
