/*
 * The log of a dm-log-writes device, and how a power cut is made of it. Includes nothing of lib/, because
 * PID 1 is libc only; inline, so that the unit test runs the same code.
 *
 * Format (Linux, Documentation/admin-guide/device-mapper/log-writes.rst; little endian), in sectors of the
 * size that the superblock names:
 *	sector 0	u64 magic 0x6a736677736872, u64 version 1, u64 entries, u32 sector size
 *	from sector 1	an entry: u64 sector, u64 count of sectors, u64 flags, u64 size of the text; a mark's text
 *			follows in the same sector. Unless it is a mark or a discard, count sectors of data.
 *
 * What it holds: a write is logged when a flush that was sent after the write's completion completes, or, with
 * FUA, at its own completion. So the order of entries is the order in which a disk with a volatile cache may have
 * made them durable at the latest, and a write that was not flushed is not there. A mark is logged at once: what
 * was promised before it must be in the entries before it.
 *
 * A cut after k entries is the first k entries, applied to what the device held when logging began. Entries
 * between two flushes are cut one by one, too: that is a disk that lost its cache half-way through writing it.
 * Not modelled: torn sectors, and caches that write back out of order.
 */
#ifndef LAB_GUEST_POWER_LOG_H
#define LAB_GUEST_POWER_LOG_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define POWER_LOG_MAGIC 0x6a736677736872ULL

enum {
	POWER_LOG_VERSION = 1,
	POWER_LOG_DISCARD = 4, /* flags; 1, 2 and 16 are flush, FUA and metadata */
	POWER_LOG_MARK = 8,
	POWER_LOG_MARK_MAX = 32,
	POWER_LOG_ENTRIES_MAX = 1 << 20,
};

struct power_log {
	const unsigned char *data;
	size_t size;
	uint64_t entries, sector;
};

struct power_entry {
	uint64_t offset, size;     /* in the device, bytes */
	const unsigned char *data; /* NULL: a mark or a discard */
	bool is_mark, is_discard;
	char mark[POWER_LOG_MARK_MAX]; /* cut when longer */
};

static inline uint64_t power_log_u64(const unsigned char *p)
{
	uint64_t v = 0;

	for (unsigned int i = 8; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

/* 0; -EBADMSG: no such log; -EPROTO: another version. The log must stay where it is. */
static inline int power_log_open(const void *data, size_t size, struct power_log *ret)
{
	struct power_log l = {.data = data, .size = size};

	if (size < 512 || power_log_u64(l.data) != POWER_LOG_MAGIC)
		return -EBADMSG;
	if (power_log_u64(l.data + 8) != POWER_LOG_VERSION)
		return -EPROTO;
	l.entries = power_log_u64(l.data + 16);
	l.sector = power_log_u64(l.data + 24) & 0xffffffff;
	if (l.entries > POWER_LOG_ENTRIES_MAX || l.sector < 512 || l.sector > 65536 ||
		(l.sector & (l.sector - 1)) != 0 || l.sector > size)
		return -EBADMSG;
	*ret = l;
	return 0;
}

/* Where the first entry stands, for power_log_next(). */
static inline uint64_t power_log_start(const struct power_log *l)
{
	return l->sector;
}

/* Reads the entry at *at and moves *at behind it. 0 or -EBADMSG (it runs out of the log). */
static inline int power_log_next(const struct power_log *l, uint64_t *at, struct power_entry *ret)
{
	struct power_entry e = {0};
	const unsigned char *p = l->data + *at;
	uint64_t flags, count, text, next;

	if (*at > l->size || l->size - *at < l->sector)
		return -EBADMSG;
	count = power_log_u64(p + 8);
	flags = power_log_u64(p + 16);
	text = power_log_u64(p + 24);
	e.is_mark = (flags & POWER_LOG_MARK) != 0;
	e.is_discard = (flags & POWER_LOG_DISCARD) != 0;
	next = *at + l->sector;
	if (e.is_mark) {
		if (text > l->sector - 32)
			return -EBADMSG;
		text = text < sizeof(e.mark) - 1 ? text : sizeof(e.mark) - 1;
		memcpy(e.mark, p + 32, text);
	} else if (__builtin_mul_overflow(count, l->sector, &e.size) ||
		   __builtin_mul_overflow(power_log_u64(p), l->sector, &e.offset)) {
		return -EBADMSG;
	} else if (!e.is_discard) {
		if (e.size > l->size - next)
			return -EBADMSG;
		e.data = l->data + next;
		next += e.size;
	}
	*at = next;
	*ret = e;
	return 0;
}

/* Does to a device's image what the entry says. 0 or -EBADMSG (beyond the device). */
static inline int power_log_apply(const struct power_entry *e, unsigned char *image, uint64_t size)
{
	if (e->is_mark || e->size == 0)
		return 0;
	if (e->offset > size || e->size > size - e->offset)
		return -EBADMSG;
	if (e->data)
		memcpy(image + e->offset, e->data, e->size);
	else
		memset(image + e->offset, 0, e->size);
	return 0;
}

#endif
