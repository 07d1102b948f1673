/*
 * The arena: a list of chunks from malloc, the first of which is being filled. A piece that is
 * large for a chunk gets one of its own behind the first, so that it does not waste what is left
 * there. A reset keeps one chunk of the usual size, because the next unit of work needs it at once.
 */
#include "base/arena.h"

#include "base/def.h"

#define ARENA_ALIGN      16
#define ARENA_CHUNK_SIZE ((size_t)64 * 1024)
#define ARENA_LARGE_SIZE (ARENA_CHUNK_SIZE / 4)

struct arena_chunk {
	struct arena_chunk *next;
	size_t size; /* of the whole chunk, this header included */
	size_t used; /* likewise */
	size_t pad;  /* keeps the first piece aligned */
};

_Static_assert(sizeof(struct arena_chunk) % ARENA_ALIGN == 0, "the first piece is aligned");
_Static_assert(_Alignof(max_align_t) >= ARENA_ALIGN, "malloc aligns chunks");

struct arena {
	struct arena_chunk *first;
	size_t used; /* sum of the chunks' sizes */
	size_t size_max;
};

struct arena *arena_new(size_t size_max)
{
	struct arena *a = calloc(1, sizeof(*a));

	if (a)
		a->size_max = size_max;
	return a;
}

static void arena_free_chunks(struct arena_chunk *c)
{
	while (c) {
		struct arena_chunk *next = c->next;

		free(c);
		c = next;
	}
}

void arena_free(struct arena *a)
{
	if (!a)
		return;
	arena_free_chunks(a->first);
	free(a);
}

void arena_freep(struct arena **a)
{
	arena_free(*a);
}

void arena_reset(struct arena *a)
{
	struct arena_chunk *c = a->first;

	if (!c)
		return;
	arena_free_chunks(c->next);
	c->next = NULL;
	if (c->size > ARENA_CHUNK_SIZE) {
		free(c);
		c = NULL;
	} else {
		c->used = sizeof(*c);
	}
	a->first = c;
	a->used = c ? c->size : 0;
}

/* A chunk with room for size bytes, put where arena_alloc looks for it. NULL as arena_alloc. */
static struct arena_chunk *arena_add_chunk(struct arena *a, size_t size)
{
	size_t left = a->size_max - a->used;
	size_t need = sizeof(struct arena_chunk) + size;
	struct arena_chunk *c;

	if (need > left)
		return NULL;
	if (size <= ARENA_LARGE_SIZE)
		need = MAX(need, MIN(left, ARENA_CHUNK_SIZE));
	c = malloc(need);
	if (!c)
		return NULL;
	*c = (struct arena_chunk){.size = need, .used = sizeof(*c)};
	a->used += need;
	if (size > ARENA_LARGE_SIZE && a->first) {
		c->next = a->first->next;
		a->first->next = c;
	} else {
		c->next = a->first;
		a->first = c;
	}
	return c;
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct arena_chunk *c = a->first;
	uint8_t *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	/* An empty piece has an address of its own too. */
	size = (MAX(size, (size_t)1) + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
	if (!c || size > c->size - c->used)
		c = arena_add_chunk(a, size);
	if (!c)
		return NULL;
	p = (uint8_t *)c + c->used;
	c->used += size;
	memset(p, 0, size);
	return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t size)
{
	size_t len = strnlen(s, size);
	char *p = arena_alloc(a, len + 1);

	if (p)
		memcpy(p, s, len);
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

size_t arena_used(const struct arena *a)
{
	return a->used;
}
