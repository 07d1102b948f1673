/*
 * Bounded gunzip.
 */
#include "prof/gunzip.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"

/* printf 'hello\n' | gzip -n */
static const uint8_t hello[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb,
	0x48, 0xcd, 0xc9, 0xc9, 0xe7, 0x02, 0x00, 0x20, 0x30, 0x3a, 0x36, 0x06, 0x00, 0x00, 0x00};

Test(gunzip, all_members_are_read_and_what_follows_is_ignored)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1000);
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

	cr_assert_eq(buf_append(&in, hello, sizeof(hello)), 0);
	cr_assert_eq(buf_append(&in, hello, sizeof(hello)), 0);
	cr_assert_eq(buf_append_str(&in, "trailing"), 0);
	cr_assert(gunzip_is(in.data, in.size));
	cr_assert_eq(gunzip(in.data, in.size, &out), 0);
	cr_assert_eq(out.size, 12);
	cr_assert_arr_eq(out.data, "hello\nhello\n", 12);
}

Test(gunzip, the_limit_is_exact)
{
	_cleanup_(buf_done) struct buf six = BUF_INIT(6);
	_cleanup_(buf_done) struct buf five = BUF_INIT(5);

	cr_assert_eq(gunzip(hello, sizeof(hello), &six), 0);
	cr_assert_eq(gunzip(hello, sizeof(hello), &five), -EFBIG);
}

Test(gunzip, cut_or_changed_data_is_refused)
{
	for (size_t size = 0; size < sizeof(hello); size++) {
		_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

		cr_assert_eq(gunzip(hello, size, &out), -EBADMSG, "size %zu", size);
	}
	uint8_t changed[sizeof(hello)];
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

	memcpy(changed, hello, sizeof(hello));
	changed[sizeof(hello) - 8] ^= 1; /* the CRC */
	cr_assert_eq(gunzip(changed, sizeof(changed), &out), -EBADMSG);
	cr_assert_not(gunzip_is("plain", 5));
	cr_assert_not(gunzip_is("\x1f", 1));
}
