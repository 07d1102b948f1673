/*
 * Blobs both ways. A row per sample is ten times larger and slower than this; the differences of sorted ids
 * are small because hot stacks get low ids early.
 */
#include "backend/blob.h"

#include <errno.h>

#include "base/def.h"
#include "prof/profile_internal.h"

enum { BLOB_VARINT_MAX = 10 };

static const uint8_t blob_magic[4] = {'F', 'L', 'B', '1'};

/* CRC-32C (RFC 3720 appendix B.4), reflected polynomial 0x82f63b78, four bits at a time. */
static const uint32_t crc_nibble[16] = {
	0x00000000,
	0x105ec76f,
	0x20bd8ede,
	0x30e349b1,
	0x417b1dbc,
	0x5125dad3,
	0x61c69362,
	0x7198540d,
	0x82f63b78,
	0x92a8fc17,
	0xa24bb5a6,
	0xb21572c9,
	0xc38d26c4,
	0xd3d3e1ab,
	0xe330a81a,
	0xf36e6f75,
};

static uint32_t crc_table(const uint8_t *p, size_t size)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < size; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ crc_nibble[crc & 15];
		crc = crc >> 4 ^ crc_nibble[crc & 15];
	}
	return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(const uint8_t *p, size_t size)
{
	uint64_t crc = UINT32_MAX;

	for (; size >= sizeof(uint64_t); p += sizeof(uint64_t), size -= sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, p, sizeof(word));
		crc = __builtin_ia32_crc32di(crc, word);
	}
	for (; size > 0; p++, size--)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
	return ~(uint32_t)crc;
}
#endif

uint32_t blob_crc32c(const void *data, size_t size)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return crc_sse42(data, size);
#endif
	return crc_table(data, size);
}

size_t blob_put_varint(uint8_t *at, uint64_t value)
{
	size_t n = 0;

	while (value >= 0x80) {
		at[n++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	at[n++] = (uint8_t)value;
	return n;
}

static void put_u32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t zigzag(int64_t value)
{
	uint64_t twice = (uint64_t)value << 1;

	return value < 0 ? ~twice : twice;
}

static int64_t unzigzag(uint64_t value)
{
	return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

int blob_write(const struct blob_entry *entries, size_t count, struct buf *out, int64_t *ret_total)
{
	size_t size_max = BLOB_HEADER_SIZE + count * 2 * BLOB_VARINT_MAX;
	uint8_t *start, *at;
	uint64_t before = 0;
	int64_t total = 0;
	void *room;
	int r;

	if (count > BLOB_ENTRIES_MAX)
		return -EINVAL;
	r = buf_reserve(out, size_max, &room);
	if (r < 0)
		return r;
	start = room;
	at = start + BLOB_HEADER_SIZE;
	for (size_t i = 0; i < count; i++) {
		if (entries[i].id <= before)
			return -EINVAL;
		at += blob_put_varint(at, entries[i].id - before);
		at += blob_put_varint(at, zigzag(entries[i].value));
		before = entries[i].id;
		total = profile_saturating_add(total, entries[i].value);
	}
	memcpy(start, blob_magic, sizeof(blob_magic));
	put_u32(start + 8, (uint32_t)count);
	put_u32(start + 12, (uint32_t)(uint64_t)total);
	put_u32(start + 16, (uint32_t)((uint64_t)total >> 32));
	put_u32(start + 4, blob_crc32c(start + 8, (size_t)(at - start) - 8));
	out->size += (size_t)(at - start);
	*ret_total = total;
	return 0;
}

static int bad(const char **why, const char *text)
{
	if (why)
		*why = text;
	return -EBADMSG;
}

int blob_open(const void *data, size_t size, const char **why, struct blob_reader *ret)
{
	struct cursor c = cursor_over(data, size);
	const void *magic = cursor_bytes(&c, sizeof(blob_magic));
	uint32_t crc = cursor_u32(&c);
	struct blob_reader r = {0};

	r.n = cursor_u32(&c);
	r.total = (int64_t)cursor_u64(&c);
	if (cursor_error(&c))
		return bad(why, "blob shorter than its header");
	if (memcmp(magic, blob_magic, sizeof(blob_magic)) != 0)
		return bad(why, "blob of an unknown version");
	if (blob_crc32c((const uint8_t *)data + 8, size - 8) != crc)
		return bad(why, "blob with a wrong crc32c");
	/* Every entry takes two bytes at least, so the count cannot promise more than is there. */
	if (r.n > cursor_left(&c) / 2)
		return bad(why, "blob with a wrong count");
	r.left = r.n;
	r.cursor = c;
	*ret = r;
	return 0;
}

/* cursor_varint without a look at the end for each byte, where the end is far; most take a byte or four. */
static inline uint64_t read_varint(struct cursor *c)
{
	const uint8_t *p = c->pos;
	uint64_t value = 0;

	if (c->error || c->end - p < BLOB_VARINT_MAX)
		return cursor_varint(c);
	for (unsigned int i = 0; i < BLOB_VARINT_MAX - 1; i++) {
		value |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (p[i] < 0x80) {
			c->pos = p + i + 1;
			return value;
		}
	}
	return cursor_varint(c); /* the tenth byte has rules of its own */
}

int blob_next(struct blob_reader *r, struct blob_entry *ret)
{
	uint64_t delta, value;

	if (r->left == 0)
		return cursor_error(&r->cursor) || cursor_left(&r->cursor) ? -EBADMSG : 0;
	delta = read_varint(&r->cursor);
	value = read_varint(&r->cursor);
	if (r->cursor.error || delta == 0 || delta > INT64_MAX - r->id) {
		cursor_fail(&r->cursor);
		r->left = 0;
		return -EBADMSG;
	}
	r->id += delta;
	r->left--;
	*ret = (struct blob_entry){.id = r->id, .value = unzigzag(value)};
	return 1;
}
