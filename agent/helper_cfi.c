/*
 * Encoding and decoding of what helper_cfi.h describes, both directions side by side. What passes
 * helper_cfi_chunk_get() is what cfi_pack() and the kernel programs may rely on.
 */
#include "agent/helper_cfi.h"

#include <errno.h>

enum { HELPER_CFI_RULE_SIZE = 16, HELPER_CFI_ROW_SIZE = 4, HELPER_CFI_SEGMENT_SIZE = 32 };

static int helper_cfi_put(struct buf *b, uint64_t v, size_t size)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(v >> 8 * i);
	return buf_append(b, bytes, size);
}

bool helper_cfi_is_request(const void *data, size_t size)
{
	struct cursor c = cursor_over(data, size);

	return cursor_u32(&c) == HELPER_CFI_REQUEST_MAGIC;
}

int helper_cfi_request_put(struct buf *b, const struct helper_cfi_request *q)
{
	(void)helper_cfi_put(b, HELPER_CFI_REQUEST_MAGIC, 4); /* buf keeps the error */
	(void)helper_cfi_put(b, q->sequence, 4);
	(void)helper_cfi_put(b, q->file, 8);
	(void)helper_cfi_put(b, q->kind, 4);
	(void)helper_cfi_put(b, q->chunk_count, 4);
	return helper_cfi_put(b, q->first_chunk, 8);
}

int helper_cfi_request_get(const void *data, size_t size, struct helper_cfi_request *ret)
{
	struct cursor c = cursor_over(data, size);
	struct helper_cfi_request q = {0};

	if (cursor_u32(&c) != HELPER_CFI_REQUEST_MAGIC)
		return -EBADMSG;
	q.sequence = cursor_u32(&c);
	q.file = cursor_u64(&c);
	q.kind = cursor_u32(&c);
	q.chunk_count = cursor_u32(&c);
	q.first_chunk = cursor_u64(&c);
	if (cursor_error(&c) || cursor_left(&c) > 0 || q.kind > HELPER_CFI_CHUNKS ||
		q.chunk_count > HELPER_CFI_CHUNKS_MAX ||
		(q.kind == HELPER_CFI_CHUNKS && q.chunk_count == 0) ||
		q.first_chunk > UINT64_MAX - q.chunk_count)
		return -EBADMSG;
	*ret = q;
	return 0;
}

int helper_cfi_head_put(
	struct buf *b, uint32_t sequence, uint32_t status, bool is_last, uint64_t chunk)
{
	(void)helper_cfi_put(b, HELPER_CFI_ANSWER_MAGIC, 4); /* buf keeps the error */
	(void)helper_cfi_put(b, sequence, 4);
	(void)helper_cfi_put(b, status, 4);
	(void)helper_cfi_put(b, is_last, 4);
	return helper_cfi_put(b, chunk, 8);
}

int helper_cfi_packet_get(const void *data, size_t size, struct helper_cfi_packet *ret)
{
	struct cursor c = cursor_over(data, size);
	struct helper_cfi_packet p = {0};

	if (cursor_u32(&c) != HELPER_CFI_ANSWER_MAGIC)
		return -EBADMSG;
	p.sequence = cursor_u32(&c);
	p.status = cursor_u32(&c);
	p.is_last = cursor_u32(&c) != 0;
	p.chunk = cursor_u64(&c);
	if (cursor_error(&c) || p.status >= HELPER_CFI_STATUS_COUNT)
		return -EBADMSG;
	/* A body's part is never empty, so a body ends; without a body the packet is all. */
	if (p.status == HELPER_CFI_OK ? cursor_left(&c) == 0 : cursor_left(&c) > 0 || !p.is_last)
		return -EBADMSG;
	p.rest = c;
	*ret = p;
	return 0;
}

int helper_cfi_segments_put(struct buf *b, const struct helper_cfi_segments *s)
{
	(void)helper_cfi_put(b, s->count, 4); /* buf keeps the error */
	for (size_t i = 0; i < s->count; i++) {
		(void)helper_cfi_put(b, s->segments[i].offset, 8);
		(void)helper_cfi_put(b, s->segments[i].vaddr, 8);
		(void)helper_cfi_put(b, s->segments[i].size, 8);
		(void)helper_cfi_put(b, s->segments[i].is_code, 8);
	}
	return buf_error(b);
}

int helper_cfi_segments_get(struct cursor *c, struct helper_cfi_segments *ret)
{
	uint32_t count = cursor_u32(c);

	if (cursor_error(c) || count > HELPER_CFI_SEGMENTS_MAX ||
		cursor_left(c) != (size_t)HELPER_CFI_SEGMENT_SIZE * count)
		return -EBADMSG;
	ret->count = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct helper_cfi_segment s = {0};

		s.offset = cursor_u64(c);
		s.vaddr = cursor_u64(c);
		s.size = cursor_u64(c);
		s.is_code = cursor_u64(c);
		if (s.is_code > 1 || s.size == 0 || s.offset > UINT64_MAX - s.size ||
			s.vaddr > UINT64_MAX - s.size)
			return -EBADMSG;
		ret->segments[ret->count++] = s;
	}
	return 0;
}

int helper_cfi_chunk_put(struct buf *b, const struct cfi_chunk *chunk)
{
	(void)helper_cfi_put(b, chunk->row_count, 4); /* buf keeps the error */
	(void)helper_cfi_put(b, chunk->rule_count, 4);
	for (size_t i = 0; i < chunk->rule_count; i++) {
		const struct unwind_rule *r = &chunk->rules[i];

		(void)helper_cfi_put(b, r->cfa, 1);
		(void)helper_cfi_put(b, r->reg, 1);
		(void)helper_cfi_put(b, r->fp, 1);
		(void)helper_cfi_put(b, r->ra, 1);
		(void)helper_cfi_put(b, (uint32_t)r->cfa_offset, 4);
		(void)helper_cfi_put(b, (uint16_t)r->fp_offset, 2);
		(void)helper_cfi_put(b, (uint16_t)r->ra_offset, 2);
		(void)helper_cfi_put(b, (uint32_t)r->aux, 4);
	}
	for (size_t i = 0; i < chunk->row_count; i++) {
		(void)helper_cfi_put(b, chunk->rows[i].offset, 2);
		(void)helper_cfi_put(b, chunk->rows[i].rule, 2);
	}
	return buf_error(b);
}

static void helper_cfi_rule_get(struct cursor *c, struct unwind_rule *ret)
{
	*ret = (struct unwind_rule){0};
	ret->cfa = cursor_u8(c);
	ret->reg = cursor_u8(c);
	ret->fp = cursor_u8(c);
	ret->ra = cursor_u8(c);
	ret->cfa_offset = (int32_t)cursor_u32(c);
	ret->fp_offset = (int16_t)cursor_u16(c);
	ret->ra_offset = (int16_t)cursor_u16(c);
	ret->aux = (int32_t)cursor_u32(c);
	/* reg is any number: who reads it compares it with the registers known. */
	if (ret->cfa > UNWIND_CFA_UNSUPPORTED || ret->fp > UNWIND_AT_BASE ||
		ret->ra > UNWIND_AT_BASE)
		cursor_fail(c);
}

int helper_cfi_chunk_get(struct cursor *c, struct cfi_chunk *ret)
{
	uint32_t rows = cursor_u32(c);
	uint32_t rules = cursor_u32(c);

	if (cursor_error(c) || rows == 0 || rows > TABLE_ROWS_MAX || rules == 0 ||
		rules > TABLE_RULES_MAX ||
		cursor_left(c) !=
			(size_t)HELPER_CFI_RULE_SIZE * rules + (size_t)HELPER_CFI_ROW_SIZE * rows)
		return -EBADMSG;
	for (uint32_t i = 0; i < rules; i++)
		helper_cfi_rule_get(c, &ret->rules[i]);
	for (uint32_t i = 0; i < rows; i++) {
		struct cfi_row *row = &ret->rows[i];

		row->offset = cursor_u16(c);
		row->rule = cursor_u16(c);
		if (row->rule >= rules ||
			(i == 0 ? row->offset != 0 : row->offset <= row[-1].offset))
			cursor_fail(c);
	}
	if (cursor_error(c))
		return -EBADMSG;
	ret->row_count = rows;
	ret->rule_count = rules;
	return 0;
}
