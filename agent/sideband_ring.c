/*
 * See sideband_ring.h for the format. The kernel wrote it, but the place is read while it is written,
 * so everything is checked.
 */
#include "agent/sideband_ring.h"

#include <linux/perf_event.h>
#include <sys/mman.h>

#include "base/def.h"

enum {
	SIDEBAND_TIME_SIZE = 8, /* sample_id, at the end of each record */
	SIDEBAND_COMM_FIXED = 16,
	SIDEBAND_FORK_FIXED = 32,
	SIDEBAND_MAP_FIXED = 72,
};

static uint32_t sideband_u32(const uint8_t *record, size_t at)
{
	uint32_t value;

	memcpy(&value, record + at, sizeof(value));
	return value;
}

static uint64_t sideband_u64(const uint8_t *record, size_t at)
{
	uint64_t value;

	memcpy(&value, record + at, sizeof(value));
	return value;
}

static void sideband_parse_map(const uint8_t *record, size_t size, struct sideband_event *ret)
{
	uint64_t start = sideband_u64(record, 16);
	uint64_t length = sideband_u64(record, 24);
	uint64_t offset = sideband_u64(record, 32);
	const char *path = (const char *)record + SIDEBAND_MAP_FIXED;
	size_t room = size - SIDEBAND_MAP_FIXED - SIDEBAND_TIME_SIZE;

	if (length == 0 || start > UINT64_MAX - length || offset > UINT64_MAX - length ||
		!(sideband_u32(record, 64) & PROT_EXEC))
		return;
	ret->kind = SIDEBAND_MAP;
	ret->start = start;
	ret->end = start + length;
	ret->offset = offset;
	ret->dev_major = sideband_u32(record, 40);
	ret->dev_minor = sideband_u32(record, 44);
	ret->inode = sideband_u64(record, 48);
	ret->generation = sideband_u64(record, 56);
	ret->path = path;
	ret->path_size = strnlen(path, room);
}

void sideband_parse(const void *record, size_t size, struct sideband_event *ret)
{
	struct perf_event_header h;
	const uint8_t *r = record;

	*ret = (struct sideband_event){.kind = SIDEBAND_OTHER};
	if (size < sizeof(h) + SIDEBAND_TIME_SIZE)
		return;
	memcpy(&h, record, sizeof(h));
	if (h.size != size)
		return;
	ret->time_ns = sideband_u64(r, size - SIDEBAND_TIME_SIZE);
	if (size < SIDEBAND_COMM_FIXED + SIDEBAND_TIME_SIZE)
		return;
	ret->tgid = sideband_u32(r, 8);
	if (h.type == PERF_RECORD_COMM && (h.misc & PERF_RECORD_MISC_COMM_EXEC)) {
		ret->kind = SIDEBAND_EXEC;
	} else if (h.type == PERF_RECORD_FORK && size >= SIDEBAND_FORK_FIXED + SIDEBAND_TIME_SIZE &&
		   ret->tgid == sideband_u32(r, 16)) {
		ret->kind = SIDEBAND_FORK;
		ret->parent = sideband_u32(r, 12);
	} else if (h.type == PERF_RECORD_MMAP2 && size >= SIDEBAND_MAP_FIXED + SIDEBAND_TIME_SIZE &&
		   !(h.misc & (PERF_RECORD_MISC_MMAP_DATA | PERF_RECORD_MISC_MMAP_BUILD_ID))) {
		sideband_parse_map(r, size, ret);
	}
}

void sideband_look_init(struct sideband_look *l, const struct sideband_ring *ring)
{
	l->ring = *ring;
	l->head = __atomic_load_n(ring->head, __ATOMIC_ACQUIRE);
}

/* Bytes behind the head that were ever written and are not overwritten yet. */
static uint64_t sideband_look_limit(const struct sideband_look *l)
{
	uint64_t written_since = l->head - __atomic_load_n(l->ring.head, __ATOMIC_ACQUIRE);
	uint64_t lost = written_since + SIDEBAND_MARGIN;

	return MIN(0 - l->head, lost < l->ring.size ? l->ring.size - lost : 0);
}

/* What was copied counts if its place was not reached meanwhile. */
static bool sideband_look_copy(struct sideband_look *l, uint64_t at, size_t size)
{
	uint64_t from = (l->head + at) & (l->ring.size - 1);
	size_t first = (size_t)MIN((uint64_t)size, l->ring.size - from);

	if (at + size > sideband_look_limit(l))
		return false;
	memcpy(l->record, l->ring.data + from, first);
	memcpy(l->record + first, l->ring.data, size - first);
	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* before the head is read again */
	return at + size <= sideband_look_limit(l);
}

size_t sideband_look_size(struct sideband_look *l, uint64_t at)
{
	struct perf_event_header h;

	if (!sideband_look_copy(l, at, sizeof(h)))
		return 0;
	memcpy(&h, l->record, sizeof(h));
	return h.size < sizeof(h) || h.size > SIDEBAND_RECORD_MAX || h.size % 8 != 0 ? 0 : h.size;
}

bool sideband_look_read(struct sideband_look *l, uint64_t at, struct sideband_event *ret)
{
	size_t size = sideband_look_size(l, at);

	if (size == 0 || !sideband_look_copy(l, at, size))
		return false;
	sideband_parse(l->record, size, ret);
	return true;
}
