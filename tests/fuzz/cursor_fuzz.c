/* links: base */
/*
 * The input is a program and its data: the first byte says how many bytes after it are operations
 * on a cursor over the rest. After each one the cursor must be inside its range, and once failed it
 * must give zeros and stay where it is.
 */
#include "base/cursor.h"

#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_check(bool holds)
{
	if (!holds)
		abort();
}

static uint64_t fuzz_read(struct cursor *c, uint8_t op)
{
	size_t size = op >> 3;
	struct cursor sub;
	const uint8_t *p;

	switch (op & 7) {
	case 0:
		return cursor_u8(c);
	case 1:
		return cursor_u16(c);
	case 2:
		return cursor_u32(c);
	case 3:
		return cursor_u64(c);
	case 4:
		return cursor_varint(c);
	case 5:
		p = cursor_bytes(c, size);
		/* Touching the first and last byte lets ASan judge. */
		return p && size ? (uint64_t)p[0] + p[size - 1] : 0;
	case 6:
		sub = cursor_sub(c, size);
		fuzz_check(cursor_error(&sub) == cursor_error(c));
		fuzz_check(cursor_left(&sub) == (cursor_error(c) ? 0 : size));
		while (cursor_left(&sub) > 0)
			(void)cursor_varint(&sub);
		return 0;
	default:
		if (op == 0xff)
			cursor_fail(c);
		return 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t ops = size ? MIN((size_t)data[0], size - 1) : 0;
	size_t skip = size ? 1 + ops : 0;
	struct cursor c = cursor_over(data + skip, size - skip);

	for (size_t i = 0; i < ops; i++) {
		struct cursor before = c;
		uint64_t v = fuzz_read(&c, data[1 + i]);

		fuzz_check(c.pos >= before.pos && c.pos <= c.end && c.end == before.end);
		if (cursor_error(&before))
			fuzz_check(v == 0 && c.pos == before.pos && cursor_error(&c));
		if (cursor_error(&c))
			fuzz_check(cursor_left(&c) == 0 && !cursor_bytes(&c, 0));
	}
	return 0;
}
