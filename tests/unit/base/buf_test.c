/* buf: growth, the limit, and errors that stick. */
#include "base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>

Test(buf, is_empty_text_before_the_first_append)
{
	struct buf b = BUF_INIT(10);

	cr_assert_str_eq(buf_str(&b), "");
	cr_assert_null(b.data);
	buf_done(&b);
	buf_done(NULL);
}

Test(buf, grows_through_many_appends_and_keeps_every_byte)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	for (int i = 0; i < 10000; i++)
		cr_assert_eq(buf_append_char(&b, (char)('a' + i % 26)), 0);
	cr_assert_eq(b.size, 10000);
	for (size_t i = 0; i < 10000; i++)
		cr_assert_eq(b.data[i], (char)('a' + i % 26));
	cr_assert_eq(b.data[10000], '\0');
}

Test(buf, takes_exactly_its_maximum)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(5);

	cr_assert_eq(buf_append_str(&b, "12345"), 0);
	cr_assert_eq(buf_append(&b, "", 0), 0);
	cr_assert_eq(buf_error(&b), 0);
	cr_assert_str_eq(buf_str(&b), "12345");
}

Test(buf, leaves_a_prefix_and_a_sticky_error_above_its_maximum)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(5);

	cr_assert_eq(buf_append_str(&b, "123"), 0);
	cr_assert_eq(buf_append_str(&b, "4567"), -ENOBUFS);
	cr_assert_str_eq(buf_str(&b), "12345");
	cr_assert_eq(buf_append(&b, "", 0), -ENOBUFS);
	cr_assert_eq(buf_printf(&b, "x"), -ENOBUFS);
	cr_assert_str_eq(buf_str(&b), "12345");
	buf_reset(&b);
	cr_assert_eq(buf_append_str(&b, "ab"), 0);
	cr_assert_str_eq(buf_str(&b), "ab");
}

Test(buf, printf_cuts_at_the_maximum)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8);

	cr_assert_eq(buf_printf(&b, "%s-%d", "abc", 7), 0);
	cr_assert_eq(buf_printf(&b, "%d", 123456), -ENOBUFS);
	cr_assert_str_eq(buf_str(&b), "abc-7123");
	cr_assert_eq(b.size, 8);
}

Test(buf, printf_grows_for_long_text)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(SIZE_MAX);

	cr_assert_eq(buf_printf(&b, "%05000d", 1), 0);
	cr_assert_eq(b.size, 5000);
	cr_assert_eq(b.data[4999], '1');
	cr_assert_eq(strlen(b.data), 5000);
}

Test(buf, reserve_gives_room_that_counts_only_when_the_caller_says_so)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4);
	void *p = NULL;

	cr_assert_eq(buf_reserve(&b, 4, &p), 0);
	memcpy(p, "wxyz", 4);
	cr_assert_eq(b.size, 0);
	b.size += 4;
	cr_assert_str_eq(buf_str(&b), "wxyz");
	p = NULL;
	cr_assert_eq(buf_reserve(&b, 1, &p), -ENOBUFS);
	cr_assert_null(p);
	cr_assert_eq(buf_error(&b), -ENOBUFS);
}

Test(buf, refuses_a_size_that_would_wrap)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(SIZE_MAX);
	void *p = NULL;

	cr_assert_eq(buf_append_str(&b, "abc"), 0);
	cr_assert_eq(buf_reserve(&b, SIZE_MAX - 3, &p), -ENOBUFS);
	cr_assert_str_eq(buf_str(&b), "abc");
}
