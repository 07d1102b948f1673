/* links: prof */
/*
 * The protobuf reader over any bytes, down a few levels. Properties: it stays inside its input and
 * ends, every field it yields consumed bytes, and what was read writes back to something equal.
 */
#include "prof/proto.h"

#include <assert.h>

#include "base/def.h"

enum { LEVELS_MAX = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_written(const struct proto_field *f)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64);
	struct proto_field again;
	struct cursor c;

	if (f->wire != PROTO_VARINT || f->value == 0)
		return;
	assert(proto_put_varint(&b, f->number, f->value) == 0);
	c = cursor_over(b.data, b.size);
	assert(proto_next(&c, &again));
	assert(again.number == f->number && again.value == f->value);
	assert(cursor_left(&c) == 0);
}

static void walk(struct cursor c, int level)
{
	size_t left = cursor_left(&c);
	struct proto_field f;
	uint64_t value;

	while (proto_next(&c, &f)) {
		struct cursor inner = f.bytes;
		size_t values = 0;

		assert(cursor_left(&c) < left);
		left = cursor_left(&c);
		check_written(&f);
		if (f.wire == PROTO_BYTES && level < LEVELS_MAX)
			walk(inner, level + 1);
		while (proto_repeated(&f, &value))
			values++;
		assert(values <= 1 || values <= cursor_left(&inner));
	}
	assert(cursor_error(&c) || cursor_left(&c) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	walk(cursor_over(data, size), 0);
	return 0;
}
