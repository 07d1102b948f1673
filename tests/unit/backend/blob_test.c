/*
 * Blobs: round trip, the bytes of the format, damage.
 */
#include "backend/blob.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/rng.h"

/* RFC 3720 appendix B.4 and the usual check value. */
Test(blob, crc32c_has_the_values_of_the_rfc)
{
	uint8_t bytes[32];

	cr_assert_eq(blob_crc32c("123456789", 9), 0xe3069283);
	memset(bytes, 0, sizeof(bytes));
	cr_assert_eq(blob_crc32c(bytes, sizeof(bytes)), 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	cr_assert_eq(blob_crc32c(bytes, sizeof(bytes)), 0x62a8ab43);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	cr_assert_eq(blob_crc32c(bytes, sizeof(bytes)), 0x46dd794e);
}

Test(blob, the_bytes_are_those_of_the_format)
{
	static const uint8_t expected[] = {'F', 'L', 'B', '1', 0x3f, 0x32, 0x5b, 0xee, 2, 0, 0, 0,
		0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3, 10, 0xac, 2, 23};
	const struct blob_entry entries[] = {{3, 5}, {303, -12}};
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	int64_t total;

	cr_assert_eq(blob_write(entries, 2, &b, &total), 0);
	cr_assert_eq(total, -7);
	cr_assert_eq(b.size, sizeof(expected));
	cr_assert_arr_eq(b.data, expected, sizeof(expected));
}

Test(blob, what_is_written_is_read)
{
	struct rng r = rng_seeded(7);

	for (int round = 0; round < 200; round++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
		struct blob_entry entries[100], e;
		size_t count = rng_between(&r, 0, ARRAY_SIZE(entries));
		struct blob_reader reader;
		uint64_t id = 0;
		int64_t total;

		for (size_t i = 0; i < count; i++) {
			id += rng_between(&r, 1, 1ULL << rng_between(&r, 0, 50));
			entries[i] = (struct blob_entry){id, (int64_t)rng_u64(&r)};
		}
		cr_assert_eq(blob_write(entries, count, &b, &total), 0);
		cr_assert_eq(blob_open(b.data, b.size, NULL, &reader), 0);
		cr_assert_eq(reader.n, count);
		cr_assert_eq(reader.total, total);
		for (size_t i = 0; i < count; i++) {
			cr_assert_eq(blob_next(&reader, &e), 1);
			cr_assert_eq(e.id, entries[i].id);
			cr_assert_eq(e.value, entries[i].value);
		}
		cr_assert_eq(blob_next(&reader, &e), 0);
	}
}

Test(blob, a_total_saturates)
{
	const struct blob_entry entries[] = {{1, INT64_MAX}, {2, INT64_MAX}};
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	int64_t total;

	cr_assert_eq(blob_write(entries, 2, &b, &total), 0);
	cr_assert_eq(total, INT64_MAX);
}

Test(blob, ids_that_do_not_ascend_are_refused)
{
	const struct blob_entry twice[] = {{5, 1}, {5, 1}}, zero[] = {{0, 1}};
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	int64_t total;

	cr_assert_eq(blob_write(twice, 2, &b, &total), -EINVAL);
	cr_assert_eq(blob_write(zero, 1, &b, &total), -EINVAL);
}

Test(blob, every_changed_byte_is_noticed)
{
	const struct blob_entry entries[] = {{3, 5}, {300, 12}, {301, 70000}};
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	struct blob_reader reader;
	const char *why;
	int64_t total;

	cr_assert_eq(blob_write(entries, 3, &b, &total), 0);
	for (size_t i = 0; i < b.size; i++) {
		b.data[i] ^= 0x10;
		why = NULL;
		cr_assert_eq(blob_open(b.data, b.size, &why, &reader), -EBADMSG, "%zu", i);
		cr_assert_not_null(why);
		b.data[i] ^= 0x10;
	}
	for (size_t size = 0; size < b.size; size++)
		cr_assert_eq(blob_open(b.data, size, NULL, &reader), -EBADMSG, "%zu", size);
}
