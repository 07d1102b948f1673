/*
 * Protobuf's wire format over the untrusted-bytes cursor: tag = field number << 3 | wire type, then
 * the value. Groups (types 3 and 4) are long deprecated and refused, as proto3 parsers may.
 */
#include "prof/proto.h"

#include "base/def.h"

enum { VARINT_MAX = 10, FIELD_MAX = (1 << 29) - 1 };

bool proto_next(struct cursor *c, struct proto_field *ret)
{
	struct proto_field f = {0};
	uint64_t tag, size;

	if (cursor_error(c) || cursor_left(c) == 0)
		return false;
	tag = cursor_varint(c);
	if (cursor_error(c))
		return false;
	if (tag >> 3 == 0 || tag >> 3 > FIELD_MAX) {
		cursor_fail(c);
		return false;
	}
	f.number = (uint32_t)(tag >> 3);
	switch (tag & 7) {
	case PROTO_VARINT:
		f.wire = PROTO_VARINT;
		f.value = cursor_varint(c);
		break;
	case PROTO_FIXED64:
		f.wire = PROTO_FIXED64;
		f.value = cursor_u64(c);
		break;
	case PROTO_BYTES:
		f.wire = PROTO_BYTES;
		size = cursor_varint(c);
		f.bytes = cursor_sub(c, size);
		break;
	case PROTO_FIXED32:
		f.wire = PROTO_FIXED32;
		f.value = cursor_u32(c);
		break;
	default:
		cursor_fail(c);
		break;
	}
	if (cursor_error(c))
		return false;
	*ret = f;
	return true;
}

bool proto_repeated(struct proto_field *f, uint64_t *ret)
{
	uint64_t value;

	if (f->wire != PROTO_BYTES) {
		/* A lone value: hand it out and become an empty packed field. */
		*ret = f->value;
		f->wire = PROTO_BYTES;
		f->bytes = cursor_over("", 0);
		return true;
	}
	if (cursor_error(&f->bytes) || cursor_left(&f->bytes) == 0)
		return false;
	value = cursor_varint(&f->bytes);
	if (cursor_error(&f->bytes))
		return false;
	*ret = value;
	return true;
}

static size_t put_raw(uint8_t *at, uint64_t value)
{
	size_t n = 0;

	while (value >= 0x80) {
		at[n++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	at[n++] = (uint8_t)value;
	return n;
}

static size_t raw_size(uint64_t value)
{
	size_t n = 1;

	while (value >= 0x80) {
		value >>= 7;
		n++;
	}
	return n;
}

/* Tag and one varint: a whole varint field, or the head of a length-delimited one. */
static int put_head(struct buf *b, uint32_t field, enum proto_wire wire, uint64_t value)
{
	uint8_t head[2 * VARINT_MAX];
	size_t n = put_raw(head, (uint64_t)field << 3 | wire);

	n += put_raw(head + n, value);
	return buf_append(b, head, n);
}

int proto_put_varint(struct buf *b, uint32_t field, uint64_t value)
{
	return value ? put_head(b, field, PROTO_VARINT, value) : buf_error(b);
}

int proto_put_bytes(struct buf *b, uint32_t field, const void *data, size_t size)
{
	int r = put_head(b, field, PROTO_BYTES, size);

	return r < 0 || size == 0 ? r : buf_append(b, data, size);
}

int proto_put_str(struct buf *b, uint32_t field, const char *s)
{
	return proto_put_bytes(b, field, s, strlen(s));
}

int proto_put_packed(struct buf *b, uint32_t field, const uint64_t *values, size_t count)
{
	size_t size = 0;
	int r;

	if (count == 0)
		return buf_error(b);
	for (size_t i = 0; i < count; i++)
		size += raw_size(values[i]);
	r = put_head(b, field, PROTO_BYTES, size);
	for (size_t i = 0; i < count && r == 0; i++) {
		uint8_t one[VARINT_MAX];

		r = buf_append(b, one, put_raw(one, values[i]));
	}
	return r;
}
