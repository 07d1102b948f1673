/*
 * Encoding and decoding of the helper's packets, see helper_answer.h. Both directions stand here,
 * side by side, so that the layout is read in one place.
 */
#include "agent/helper_answer.h"

#include <errno.h>

enum { HELPER_ANSWER_HEAD = 24, HELPER_ANSWER_COUNT_AT = 12 };

static int helper_put_u16(struct buf *b, uint16_t v)
{
	uint8_t bytes[2] = {(uint8_t)v, (uint8_t)(v >> 8)};

	return buf_append(b, bytes, sizeof(bytes));
}

static void helper_u32_bytes(uint32_t v, uint8_t bytes[4])
{
	for (int i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(v >> 8 * i);
}

static int helper_put_u32(struct buf *b, uint32_t v)
{
	uint8_t bytes[4];

	helper_u32_bytes(v, bytes);
	return buf_append(b, bytes, sizeof(bytes));
}

static int helper_put_u64(struct buf *b, uint64_t v)
{
	(void)helper_put_u32(b, (uint32_t)v); /* buf keeps the error */
	return helper_put_u32(b, (uint32_t)(v >> 32));
}

int helper_request_put(
	struct buf *b, uint32_t sequence, uint64_t file, const uint64_t *offsets, size_t count)
{
	if (count > HELPER_BATCH_MAX)
		return -EINVAL;
	(void)helper_put_u32(b, HELPER_REQUEST_MAGIC); /* buf keeps the error */
	(void)helper_put_u32(b, sequence);
	(void)helper_put_u64(b, file);
	(void)helper_put_u32(b, (uint32_t)count);
	(void)helper_put_u32(b, 0);
	for (size_t i = 0; i < count; i++)
		(void)helper_put_u64(b, offsets[i]);
	return buf_error(b);
}

int helper_request_get(const void *data, size_t size, struct helper_request *ret)
{
	struct cursor c = cursor_over(data, size);
	struct helper_request r = {0};

	if (cursor_u32(&c) != HELPER_REQUEST_MAGIC)
		return -EBADMSG;
	r.sequence = cursor_u32(&c);
	r.file = cursor_u64(&c);
	r.count = cursor_u32(&c);
	(void)cursor_u32(&c); /* reserved */
	if (cursor_error(&c) || r.count > HELPER_BATCH_MAX ||
		cursor_left(&c) != 8 * (size_t)r.count)
		return -EBADMSG;
	r.offsets = c;
	*ret = r;
	return 0;
}

int helper_answer_open(struct buf *b, uint32_t sequence, uint32_t status)
{
	(void)helper_put_u32(b, HELPER_ANSWER_MAGIC); /* buf keeps the error */
	(void)helper_put_u32(b, sequence);
	(void)helper_put_u32(b, status);
	(void)helper_put_u64(b, 0);
	return helper_put_u32(b, 0);
}

int helper_answer_put(struct buf *b, const struct helper_answer *a)
{
	uint32_t name_size = MIN(a->name_size, HELPER_NAME_MAX);

	(void)helper_put_u64(b, a->vaddr); /* buf keeps the error */
	(void)helper_put_u64(b, a->start);
	(void)helper_put_u64(b, a->size);
	(void)helper_put_u16(b, (uint16_t)a->flags);
	(void)helper_put_u16(b, (uint16_t)name_size);
	return buf_append(b, a->name, name_size);
}

void helper_answer_close(struct buf *b, uint32_t first, uint32_t count, bool is_last)
{
	uint8_t *at = (uint8_t *)b->data + HELPER_ANSWER_COUNT_AT;

	if (b->size < HELPER_ANSWER_HEAD)
		return; /* the open failed, and so will the send */
	helper_u32_bytes(first, at);
	helper_u32_bytes(count, at + 4);
	helper_u32_bytes(is_last, at + 8);
}

int helper_answer_get(const void *data, size_t size, struct helper_packet *ret)
{
	struct cursor c = cursor_over(data, size);
	struct helper_packet p = {0};

	if (cursor_u32(&c) != HELPER_ANSWER_MAGIC)
		return -EBADMSG;
	p.sequence = cursor_u32(&c);
	p.status = cursor_u32(&c);
	p.first = cursor_u32(&c);
	p.count = cursor_u32(&c);
	p.is_last = cursor_u32(&c) != 0;
	if (cursor_error(&c) || p.status > HELPER_REFUSED || p.count > HELPER_BATCH_MAX ||
		p.first > HELPER_BATCH_MAX - p.count || (p.status != HELPER_OK && p.count > 0))
		return -EBADMSG;
	p.rest = c;
	*ret = p;
	return 0;
}

bool helper_answer_next(struct helper_packet *p, struct helper_answer *ret)
{
	struct helper_answer a = {0};

	if (p->count == 0)
		return false;
	a.vaddr = cursor_u64(&p->rest);
	a.start = cursor_u64(&p->rest);
	a.size = cursor_u64(&p->rest);
	a.flags = cursor_u16(&p->rest);
	a.name_size = cursor_u16(&p->rest);
	if (a.name_size > HELPER_NAME_MAX)
		cursor_fail(&p->rest);
	a.name = cursor_bytes(&p->rest, a.name_size);
	if (cursor_error(&p->rest)) {
		p->count = 0;
		return false;
	}
	if (a.name_size == 0)
		a.flags &= ~(uint32_t)HELPER_HAS_NAME;
	p->count--;
	*ret = a;
	return true;
}

int helper_packet_error(const struct helper_packet *p)
{
	return cursor_error(&p->rest);
}
