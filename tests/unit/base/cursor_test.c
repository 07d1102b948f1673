/* cursor: little endian values, varints, and no step over the end. */
#include "base/cursor.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"

Test(cursor, reads_little_endian_integers_in_turn)
{
	static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff};
	struct cursor c = cursor_over(data, sizeof(data));

	cr_assert_eq(cursor_u8(&c), 1);
	cr_assert_eq(cursor_u16(&c), 0x0302);
	cr_assert_eq(cursor_u32(&c), 0x07060504);
	cr_assert_eq(cursor_u64(&c), 0xff0e0d0c0b0a0908);
	cr_assert_eq(cursor_left(&c), 0);
	cr_assert_eq(cursor_error(&c), 0);
}

Test(cursor, overrun_fails_and_moves_nothing)
{
	static const uint8_t data[] = {1, 2, 3};
	struct cursor c = cursor_over(data, sizeof(data));

	cr_assert_eq(cursor_u32(&c), 0);
	cr_assert_eq(cursor_error(&c), -EBADMSG);
	cr_assert_eq(c.pos, data);
	cr_assert_eq(cursor_u8(&c), 0, "bytes are there, but the cursor has failed");
	cr_assert_eq(cursor_left(&c), 0);
	cr_assert_null(cursor_bytes(&c, 0));
}

Test(cursor, empty_range_gives_empty_bytes_but_no_integer)
{
	struct cursor c = cursor_over(NULL, 0);

	cr_assert_not_null(cursor_bytes(&c, 0));
	cr_assert_eq(cursor_error(&c), 0);
	cr_assert_eq(cursor_u8(&c), 0);
	cr_assert_eq(cursor_error(&c), -EBADMSG);
}

static uint64_t varint(const char *bytes, size_t size, int *error, size_t *left)
{
	struct cursor c = cursor_over(bytes, size);
	uint64_t v = cursor_varint(&c);

	*error = cursor_error(&c);
	*left = cursor_left(&c);
	return v;
}

Test(cursor, varint_values_up_to_64_bits)
{
	size_t left;
	int error;

	cr_assert_eq(varint("\x00", 1, &error, &left), 0);
	cr_assert_eq(error, 0);
	cr_assert_eq(varint("\x96\x01x", 3, &error, &left), 150);
	cr_assert_eq(left, 1);
	cr_assert_eq(
		varint("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, &error, &left), UINT64_MAX);
	cr_assert_eq(error, 0);
	cr_assert_eq(varint("\x81\x00", 2, &error, &left), 1, "a padded one is still that number");
}

Test(cursor, varint_that_is_too_big_too_long_or_cut_fails)
{
	size_t left;
	int error;

	cr_assert_eq(varint("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, &error, &left), 0);
	cr_assert_eq(error, -EBADMSG);
	cr_assert_eq(varint("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11, &error, &left), 0);
	cr_assert_eq(error, -EBADMSG);
	cr_assert_eq(varint("\x80\x80", 2, &error, &left), 0);
	cr_assert_eq(error, -EBADMSG);
}

Test(cursor, bytes_are_in_place)
{
	static const char data[] = "abcdef";
	struct cursor c = cursor_over(data, 6);

	cr_assert_eq(cursor_bytes(&c, 2), data);
	cr_assert_eq(cursor_bytes(&c, 4), data + 2);
	cr_assert_null(cursor_bytes(&c, SIZE_MAX));
	cr_assert_eq(cursor_error(&c), -EBADMSG);
}

Test(cursor, sub_is_bounded_by_its_own_size)
{
	static const uint8_t data[] = {1, 2, 3, 4};
	struct cursor c = cursor_over(data, sizeof(data));
	struct cursor sub = cursor_sub(&c, 2);

	cr_assert_eq(cursor_u32(&sub), 0);
	cr_assert_eq(cursor_error(&sub), -EBADMSG);
	cr_assert_eq(cursor_error(&c), 0);
	cr_assert_eq(cursor_u16(&c), 0x0403);
}

Test(cursor, sub_over_too_few_bytes_fails_both)
{
	struct cursor c = cursor_over("abc", 3);
	struct cursor sub = cursor_sub(&c, 4);

	cr_assert_eq(cursor_error(&sub), -EBADMSG);
	cr_assert_eq(cursor_error(&c), -EBADMSG);
	cr_assert_eq(cursor_u8(&sub), 0);
}

Test(cursor, fail_is_for_decoders)
{
	struct cursor c = cursor_over("abc", 3);

	cursor_fail(&c);
	cr_assert_eq(cursor_u8(&c), 0);
	cr_assert_eq(cursor_error(&c), -EBADMSG);
}
