/*
 * The reading cursor. One function, cursor_take, decides whether bytes are there; everything else
 * goes through it, so there is one place to get the bounds check right.
 */
#include "base/cursor.h"

#include <errno.h>

#include "base/def.h"

#define CURSOR_VARINT_BYTES_MAX 10

static const uint8_t cursor_nothing[1];

struct cursor cursor_over(const void *data, size_t size)
{
	/* An empty range still has an address, because NULL from cursor_bytes means overrun. */
	const uint8_t *p = size ? data : cursor_nothing;

	return (struct cursor){.pos = p, .end = p + size};
}

size_t cursor_left(const struct cursor *c)
{
	return c->error ? 0 : (size_t)(c->end - c->pos);
}

int cursor_error(const struct cursor *c)
{
	return c->error;
}

void cursor_fail(struct cursor *c)
{
	c->error = -EBADMSG;
}

static const uint8_t *cursor_take(struct cursor *c, size_t size)
{
	const uint8_t *p = c->pos;

	if (c->error)
		return NULL;
	if (size > (size_t)(c->end - c->pos)) {
		cursor_fail(c);
		return NULL;
	}
	c->pos += size;
	return p;
}

static uint64_t cursor_le(struct cursor *c, size_t size)
{
	const uint8_t *p = cursor_take(c, size);
	uint64_t v = 0;

	if (!p)
		return 0;
	for (size_t i = size; i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

uint8_t cursor_u8(struct cursor *c)
{
	return (uint8_t)cursor_le(c, 1);
}

uint16_t cursor_u16(struct cursor *c)
{
	return (uint16_t)cursor_le(c, 2);
}

uint32_t cursor_u32(struct cursor *c)
{
	return (uint32_t)cursor_le(c, 4);
}

uint64_t cursor_u64(struct cursor *c)
{
	return cursor_le(c, 8);
}

uint64_t cursor_varint(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < CURSOR_VARINT_BYTES_MAX; i++) {
		const uint8_t *p = cursor_take(c, 1);

		if (!p)
			return 0;
		/* Nine bytes carry 63 bits: the tenth has room for one more and ends the number. */
		if (i == CURSOR_VARINT_BYTES_MAX - 1 && *p > 1)
			break;
		v |= (uint64_t)(*p & 0x7f) << (7 * i);
		if (!(*p & 0x80))
			return v;
	}
	cursor_fail(c);
	return 0;
}

const void *cursor_bytes(struct cursor *c, size_t size)
{
	return cursor_take(c, size);
}

struct cursor cursor_sub(struct cursor *c, size_t size)
{
	const uint8_t *p = cursor_take(c, size);
	struct cursor sub = cursor_over(p, p ? size : 0);

	if (!p)
		cursor_fail(&sub);
	return sub;
}
