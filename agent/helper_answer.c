/*
 * Encoding and decoding of the helper's packets, see helper_answer.h. Both directions stand here,
 * side by side, so that the layout is read in one place.
 */
#include "agent/helper_answer.h"

#include <errno.h>

enum {
	HELPER_ANSWER_PACKET_HEAD = 28,
	HELPER_ANSWER_COUNT_AT = 12,
	HELPER_ANSWER_HEAD = 28,
	HELPER_ANSWER_FRAME_HEAD = 12,
};

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

int helper_request_put(struct buf *b, const struct helper_request *q, const uint64_t *addresses)
{
	if (q->count > HELPER_BATCH_MAX || (q->flags & ~(uint32_t)HELPER_REQUEST_FLAGS_ALL))
		return -EINVAL;
	(void)helper_put_u32(b, HELPER_REQUEST_MAGIC); /* buf keeps the error */
	(void)helper_put_u32(b, q->sequence);
	(void)helper_put_u64(b, q->file);
	(void)helper_put_u32(b, q->count);
	(void)helper_put_u32(b, q->flags);
	for (size_t i = 0; i < q->count; i++)
		(void)helper_put_u64(b, addresses[i]);
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
	r.flags = cursor_u32(&c);
	if (cursor_error(&c) || r.count > HELPER_BATCH_MAX ||
		(r.flags & ~(uint32_t)HELPER_REQUEST_FLAGS_ALL) ||
		cursor_left(&c) != 8 * (size_t)r.count)
		return -EBADMSG;
	r.addresses = c;
	*ret = r;
	return 0;
}

void helper_answer_from(struct helper_answer *a, const struct names *n)
{
	a->vaddr = 0;
	a->start = n->start;
	a->size = n->size;
	a->flags = n->count > 0 ? HELPER_HAS_NAME : 0;
	a->kind = n->kind;
	a->frame_count = n->count;
	for (size_t i = 0; i < n->count; i++) {
		const struct names_frame *f = &n->frames[i];

		a->frames[i] = (struct helper_frame){
			.name = names_name(n, i),
			.file = names_file(n, i),
			.name_size = f->name_size,
			.file_size = f->file_size,
			.line = f->line,
			.start_line = f->start_line,
		};
	}
}

int helper_answer_open(struct buf *b, uint32_t sequence, uint32_t status)
{
	(void)helper_put_u32(b, HELPER_ANSWER_MAGIC); /* buf keeps the error */
	(void)helper_put_u32(b, sequence);
	(void)helper_put_u32(b, status);
	(void)helper_put_u64(b, 0);
	(void)helper_put_u32(b, 0);
	return helper_put_u32(b, 0);
}

static size_t helper_frame_size(const struct helper_frame *f)
{
	return HELPER_ANSWER_FRAME_HEAD + MIN(f->name_size, (uint32_t)NAMES_NAME_MAX) +
	       MIN(f->file_size, (uint32_t)NAMES_NAME_MAX);
}

/* How many of the inner frames fit beside the real function's; *ret_size is the whole answer's. */
static size_t helper_answer_inner(const struct helper_answer *a, size_t *ret_size)
{
	size_t inner = a->frame_count > 0 ? a->frame_count - 1 : 0;
	size_t size = HELPER_ANSWER_HEAD;
	size_t kept = 0;

	if (a->frame_count > 0)
		size += helper_frame_size(&a->frames[inner]);
	for (; kept < inner; kept++) {
		size_t one = helper_frame_size(&a->frames[kept]);

		if (size + one > HELPER_ANSWER_SIZE_MAX)
			break;
		size += one;
	}
	*ret_size = size;
	return kept;
}

size_t helper_answer_size(const struct helper_answer *a)
{
	size_t size = 0;

	(void)helper_answer_inner(a, &size); /* the size is what is asked */
	return size;
}

static void helper_put_frame(struct buf *b, const struct helper_frame *f)
{
	uint32_t name_size = MIN(f->name_size, (uint32_t)NAMES_NAME_MAX);
	uint32_t file_size = MIN(f->file_size, (uint32_t)NAMES_NAME_MAX);

	(void)helper_put_u16(b, (uint16_t)name_size); /* buf keeps the error */
	(void)helper_put_u16(b, (uint16_t)file_size);
	(void)helper_put_u32(b, f->line);
	(void)helper_put_u32(b, f->start_line);
	(void)buf_append(b, f->name, name_size);
	(void)buf_append(b, f->file, file_size);
}

int helper_answer_put(struct buf *b, const struct helper_answer *a)
{
	size_t size = 0;
	size_t inner = helper_answer_inner(a, &size);
	uint8_t bytes[2] = {(uint8_t)a->kind, (uint8_t)(inner + (a->frame_count > 0))};

	(void)helper_put_u64(b, a->vaddr); /* buf keeps the error */
	(void)helper_put_u64(b, a->start);
	(void)helper_put_u64(b, a->size);
	(void)helper_put_u16(b, (uint16_t)a->flags);
	(void)buf_append(b, bytes, sizeof(bytes));
	for (size_t i = 0; i < inner; i++)
		helper_put_frame(b, &a->frames[i]);
	if (a->frame_count > 0)
		helper_put_frame(b, &a->frames[a->frame_count - 1]);
	return buf_error(b);
}

void helper_answer_close(
	struct buf *b, uint32_t first, uint32_t count, bool is_last, uint32_t file_flags)
{
	uint8_t *at = (uint8_t *)b->data + HELPER_ANSWER_COUNT_AT;

	if (b->size < HELPER_ANSWER_PACKET_HEAD)
		return; /* the open failed, and so will the send */
	helper_u32_bytes(first, at);
	helper_u32_bytes(count, at + 4);
	helper_u32_bytes(is_last, at + 8);
	helper_u32_bytes(file_flags, at + 12);
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
	p.file_flags = cursor_u32(&c);
	if (cursor_error(&c) || p.status > HELPER_REFUSED || p.count > HELPER_BATCH_MAX ||
		p.first > HELPER_BATCH_MAX - p.count || (p.status != HELPER_OK && p.count > 0))
		return -EBADMSG;
	p.rest = c;
	*ret = p;
	return 0;
}

static void helper_get_frame(struct cursor *c, struct helper_frame *ret)
{
	ret->name_size = cursor_u16(c);
	ret->file_size = cursor_u16(c);
	ret->line = cursor_u32(c);
	ret->start_line = cursor_u32(c);
	if (ret->name_size > NAMES_NAME_MAX || ret->file_size > NAMES_NAME_MAX)
		cursor_fail(c);
	ret->name = cursor_bytes(c, ret->name_size);
	ret->file = cursor_bytes(c, ret->file_size);
}

bool helper_answer_next(struct helper_packet *p, struct helper_answer *ret)
{
	struct cursor *c = &p->rest;

	if (p->count == 0)
		return false;
	ret->vaddr = cursor_u64(c);
	ret->start = cursor_u64(c);
	ret->size = cursor_u64(c);
	ret->flags = cursor_u16(c);
	uint8_t kind = cursor_u8(c);
	ret->kind = kind == NAMES_GO ? NAMES_GO : NAMES_NATIVE;
	ret->frame_count = cursor_u8(c);
	if (kind > NAMES_GO || ret->frame_count > NAMES_FRAMES_MAX)
		cursor_fail(c);
	for (size_t i = 0; i < ret->frame_count && !cursor_error(c); i++)
		helper_get_frame(c, &ret->frames[i]);
	if (cursor_error(c)) {
		p->count = 0;
		return false;
	}
	if (ret->frame_count == 0)
		ret->flags &= ~(uint32_t)HELPER_HAS_NAME;
	p->count--;
	return true;
}

int helper_packet_error(const struct helper_packet *p)
{
	return cursor_error(&p->rest);
}
