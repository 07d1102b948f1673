/*
 * Which window ids may have come: per hour of receipt an open-addressing table of hashes, each with the hour of
 * the data file that has the id. The hash is keyed by a random seed, but is never trusted alone.
 */
#include <errno.h>
#include <sys/random.h>
#include <xxhash.h>

#include "backend/store_internal.h"
#include "base/def.h"

enum { SLOTS_MIN = 256, BUCKETS = STORE_SEEN_HOURS + 2 };

struct seen_slot {
	uint32_t hash_high, hash_low; /* both 0: free */
	int32_t file_hour;
};
_Static_assert(sizeof(struct seen_slot) == 12, "the header says 12 bytes an id");

struct seen_bucket {
	int32_t hour;
	struct seen_slot *slots;
	size_t count, allocated; /* allocated is a power of two, or 0 */
};

struct store_seen {
	struct seen_bucket buckets[BUCKETS];
};

static uint64_t seen_seed;
static pthread_once_t seen_once = PTHREAD_ONCE_INIT;

static void make_seed(void)
{
	if (getrandom(&seen_seed, sizeof(seen_seed), 0) != sizeof(seen_seed))
		seen_seed = (uint64_t)time(NULL); /* only slower lookups depend on it */
}

struct store_seen *store_seen_new(void)
{
	return calloc(1, sizeof(struct store_seen));
}

void store_seen_free(struct store_seen *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		free(s->buckets[i].slots);
	free(s);
}

uint64_t store_seen_hash(int64_t labels_id, const char *id)
{
	uint64_t hash;

	(void)pthread_once(&seen_once, make_seed);
	hash = XXH3_64bits_withSeed(id, strlen(id), seen_seed ^ (uint64_t)labels_id);
	return hash ? hash : 1;
}

static uint64_t slot_hash(const struct seen_slot *slot)
{
	return (uint64_t)slot->hash_high << 32 | slot->hash_low;
}

static void put(struct seen_bucket *b, uint64_t hash, int32_t file_hour)
{
	size_t at = hash & (b->allocated - 1);

	while (slot_hash(&b->slots[at]))
		at = (at + 1) & (b->allocated - 1);
	b->slots[at] = (struct seen_slot){
		.hash_high = (uint32_t)(hash >> 32),
		.hash_low = (uint32_t)hash,
		.file_hour = file_hour,
	};
	b->count++;
}

static int grow(struct seen_bucket *b)
{
	struct seen_bucket more = {.hour = b->hour};

	more.allocated = b->allocated ? b->allocated * 2 : SLOTS_MIN;
	more.slots = calloc(more.allocated, sizeof(*more.slots));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < b->allocated; i++) {
		if (slot_hash(&b->slots[i]))
			put(&more, slot_hash(&b->slots[i]), b->slots[i].file_hour);
	}
	free(b->slots);
	*b = more;
	return 0;
}

/* The hour's bucket, or one that is free, or the oldest. */
static struct seen_bucket *bucket_for(struct store_seen *s, int32_t hour)
{
	struct seen_bucket *oldest = &s->buckets[0];

	for (size_t i = 0; i < BUCKETS; i++) {
		struct seen_bucket *b = &s->buckets[i];

		if (b->slots && b->hour == hour)
			return b;
		if (!b->slots || (oldest->slots && b->hour < oldest->hour))
			oldest = b;
	}
	free(oldest->slots);
	*oldest = (struct seen_bucket){.hour = hour};
	return oldest;
}

int store_seen_add(struct store_seen *s, uint64_t hash, int64_t received_ns, int32_t file_hour)
{
	struct seen_bucket *b = bucket_for(s, store_hour(received_ns));

	if ((b->count + 1) * 4 > b->allocated * 3) {
		int r = grow(b);

		if (r < 0)
			return r;
	}
	put(b, hash, file_hour);
	return 0;
}

size_t store_seen_find(
	const struct store_seen *s, uint64_t hash, int32_t but_hour, int32_t *ret, size_t max)
{
	size_t count = 0;

	for (size_t i = 0; i < BUCKETS; i++) {
		const struct seen_bucket *b = &s->buckets[i];
		size_t at = hash & (b->allocated - 1);

		if (!b->slots)
			continue;
		for (; slot_hash(&b->slots[at]); at = (at + 1) & (b->allocated - 1)) {
			if (slot_hash(&b->slots[at]) == hash &&
				b->slots[at].file_hour != but_hour && count < max)
				ret[count++] = b->slots[at].file_hour;
		}
	}
	return count;
}

void store_seen_expire(struct store_seen *s, int64_t now_ns)
{
	int32_t oldest = store_hour(now_ns) - STORE_SEEN_HOURS;

	for (size_t i = 0; i < BUCKETS; i++) {
		if (!s->buckets[i].slots || s->buckets[i].hour >= oldest)
			continue;
		free(s->buckets[i].slots);
		s->buckets[i] = (struct seen_bucket){0};
	}
}
