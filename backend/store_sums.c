/* Blobs added up by stack id, in an open-addressing table, so the order they come in does not matter. */
#include <errno.h>

#include "backend/store_query_internal.h"
#include "base/def.h"
#include "prof/profile_internal.h"

enum { SLOTS_MIN = 1024 };

void store_sums_done(struct store_sums *t)
{
	free(t->slots);
	t->slots = NULL;
	t->allocated = t->count = 0;
}

void store_sums_clear(struct store_sums *t)
{
	if (t->slots)
		memset(t->slots, 0, t->allocated * t->stride * sizeof(int64_t));
	t->count = 0;
}

static int64_t *find_slot(const struct store_sums *t, int64_t id)
{
	uint64_t hash = (uint64_t)id * 0x9e3779b97f4a7c15ULL;
	size_t at = (hash >> 20) & (t->allocated - 1);

	while (t->slots[at * t->stride] && t->slots[at * t->stride] != id)
		at = (at + 1) & (t->allocated - 1);
	return &t->slots[at * t->stride];
}

static int grow(struct store_sums *t)
{
	struct store_sums more = *t;

	more.allocated = t->allocated ? t->allocated * 2 : SLOTS_MIN;
	if (more.allocated > t->bytes_max / (t->stride * sizeof(int64_t)))
		return -ENOBUFS;
	more.slots = calloc(more.allocated, t->stride * sizeof(int64_t));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < t->allocated; i++) {
		const int64_t *slot = &t->slots[i * t->stride];

		if (*slot)
			memcpy(find_slot(&more, *slot), slot, t->stride * sizeof(int64_t));
	}
	free(t->slots);
	*t = more;
	return 0;
}

static int add(struct store_sums *t, const struct blob_entry *e, size_t type)
{
	int64_t *slot;

	if ((t->count + 1) * 3 > t->allocated * 2) {
		int r = grow(t);

		if (r < 0)
			return r;
	}
	slot = find_slot(t, (int64_t)e->id);
	t->count += *slot == 0;
	*slot = (int64_t)e->id;
	slot[1 + type] = profile_saturating_add(slot[1 + type], e->value);
	return 0;
}

int store_sums_add_blob(struct store_sums *t, const void *data, size_t size, size_t type)
{
	struct blob_reader r;
	struct blob_entry e;
	int n = blob_open(data ? data : "", size, NULL, &r);

	while (n == 0 && (n = blob_next(&r, &e)) > 0)
		n = add(t, &e, type);
	return n;
}

static int by_id(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

void store_sums_sort(struct store_sums *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->allocated; i++) {
		if (t->slots[i * t->stride])
			memmove(&t->slots[n++ * t->stride], &t->slots[i * t->stride],
				t->stride * sizeof(int64_t));
	}
	if (n)
		qsort(t->slots, n, t->stride * sizeof(int64_t), by_id);
}
