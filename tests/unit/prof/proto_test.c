/*
 * The protobuf wire format: stored bytes both ways, and what is refused.
 */
#include "prof/proto.h"

#include <criterion/criterion.h>

#include "base/def.h"

Test(proto, writes_the_bytes_of_the_specification)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1000);
	/* The examples of protobuf.dev/programming-guides/encoding, fields 1, 2 and 6. */
	static const uint8_t want[] = {0x08, 0x96, 0x01, 0x12, 0x07, 't', 'e', 's', 't', 'i', 'n',
		'g', 0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05};

	cr_assert_eq(proto_put_varint(&b, 1, 150), 0);
	cr_assert_eq(proto_put_varint(&b, 9, 0), 0, "zero is left out");
	cr_assert_eq(proto_put_str(&b, 2, "testing"), 0);
	cr_assert_eq(proto_put_packed(&b, 6, (uint64_t[]){3, 270, 86942}, 3), 0);
	cr_assert_eq(proto_put_packed(&b, 7, NULL, 0), 0, "no values, no field");
	cr_assert_eq(b.size, sizeof(want));
	cr_assert_arr_eq(b.data, want, sizeof(want));
}

Test(proto, reads_every_wire_type)
{
	static const uint8_t data[] = {0x08, 0x96, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1d, 1, 0,
		0, 0x80, 0x22, 2, 'h', 'i', 0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0x01};
	struct cursor c = cursor_over(data, sizeof(data));
	struct proto_field f;

	cr_assert(proto_next(&c, &f));
	cr_assert_eq(f.number, 1);
	cr_assert_eq(f.value, 150);
	cr_assert(proto_next(&c, &f));
	cr_assert_eq(f.wire, PROTO_FIXED64);
	cr_assert_eq(f.value, 0x0807060504030201);
	cr_assert(proto_next(&c, &f));
	cr_assert_eq(f.wire, PROTO_FIXED32);
	cr_assert_eq(f.value, 0x80000001);
	cr_assert(proto_next(&c, &f));
	cr_assert_eq(f.wire, PROTO_BYTES);
	cr_assert_eq(cursor_left(&f.bytes), 2);
	cr_assert(proto_next(&c, &f));
	cr_assert_eq(f.value, UINT64_MAX);
	cr_assert_not(proto_next(&c, &f));
	cr_assert_eq(cursor_error(&c), 0);
}

Test(proto, repeated_integers_read_packed_or_not)
{
	static const uint8_t packed[] = {0x32, 0x04, 0x03, 0x8e, 0x02, 0x00};
	static const uint8_t single[] = {0x30, 0x07};
	struct cursor c = cursor_over(packed, sizeof(packed));
	struct proto_field f;
	uint64_t v;

	cr_assert(proto_next(&c, &f));
	cr_assert(proto_repeated(&f, &v) && v == 3);
	cr_assert(proto_repeated(&f, &v) && v == 270);
	cr_assert(proto_repeated(&f, &v) && v == 0);
	cr_assert_not(proto_repeated(&f, &v));
	cr_assert_eq(cursor_error(&f.bytes), 0);

	c = cursor_over(single, sizeof(single));
	cr_assert(proto_next(&c, &f));
	cr_assert(proto_repeated(&f, &v) && v == 7);
	cr_assert_not(proto_repeated(&f, &v));
}

Test(proto, damaged_input_fails_the_cursor)
{
	static const struct {
		uint8_t bytes[12];
		size_t size;
	} bad[] = {
		{{0x00}, 1},                               /* field number 0 */
		{{0x08}, 1},                               /* value missing */
		{{0x0b}, 1},                               /* group */
		{{0x0f}, 1},                               /* wire type 7 */
		{{0x12, 0x05, 'a'}, 3},                    /* fewer bytes than announced */
		{{0x11, 1, 2, 3}, 4},                      /* short fixed64 */
		{{0x0d, 1, 2}, 3},                         /* short fixed32 */
		{{0x80, 0x80, 0x80, 0x80, 0x10, 0x01}, 6}, /* field number 2^29 */
		{{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11},
	};
	struct proto_field f;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct cursor c = cursor_over(bad[i].bytes, bad[i].size);

		cr_assert_not(proto_next(&c, &f), "case %zu", i);
		cr_assert_neq(cursor_error(&c), 0, "case %zu", i);
	}
}

Test(proto, a_cut_packed_varint_fails_the_field)
{
	static const uint8_t data[] = {0x32, 0x02, 0x01, 0x80};
	struct cursor c = cursor_over(data, sizeof(data));
	struct proto_field f;
	uint64_t v;

	cr_assert(proto_next(&c, &f));
	cr_assert(proto_repeated(&f, &v));
	cr_assert_not(proto_repeated(&f, &v));
	cr_assert_neq(cursor_error(&f.bytes), 0);
}
