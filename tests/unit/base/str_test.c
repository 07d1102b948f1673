/* str: UTF-8 repair, escaping, numbers. */
#include "base/str.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

#define FFFD "\xef\xbf\xbd"

static void repaired(const char *in, size_t size, size_t size_max, const char *want)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

	cr_assert_eq(str_append_utf8(&b, in, size, size_max), 0);
	cr_assert_str_eq(buf_str(&b), want);
	cr_assert_eq(b.size, strlen(want));
	cr_assert_leq(b.size, size_max);
	cr_assert(str_is_utf8(buf_str(&b), b.size));
}

#define REPAIRED(in, want) repaired(in, sizeof(in) - 1, 1000, want)

Test(str, utf8_keeps_valid_text)
{
	REPAIRED("", "");
	REPAIRED("plain", "plain");
	REPAIRED(
		"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5");
	REPAIRED("\xf4\x8f\xbf\xbd", "\xf4\x8f\xbf\xbd");
}

Test(str, utf8_replaces_overlong_forms)
{
	REPAIRED("\xc0\xaf", FFFD FFFD);
	REPAIRED("\xc1\xbf", FFFD FFFD);
	REPAIRED("\xe0\x80\xaf", FFFD FFFD FFFD);
	REPAIRED("\xf0\x80\x80\xaf", FFFD FFFD FFFD FFFD);
}

Test(str, utf8_replaces_surrogates_and_what_is_above_10ffff)
{
	REPAIRED("\xed\xa0\x80", FFFD FFFD FFFD);
	REPAIRED("\xed\xbf\xbf", FFFD FFFD FFFD);
	REPAIRED("\xed\x9f\xbf", "\xed\x9f\xbf");
	REPAIRED("\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD);
	REPAIRED("\xf5\xff", FFFD FFFD);
}

/* The example of the Unicode standard, table 3-8. */
Test(str, utf8_replaces_each_maximal_subpart_once)
{
	REPAIRED("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64",
		"a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d");
}

Test(str, utf8_replaces_control_bytes_and_xml_noncharacters)
{
	REPAIRED("a\0b", "a" FFFD "b");
	REPAIRED("\t\n\x1b\x7f", FFFD FFFD FFFD FFFD);
	REPAIRED("\xef\xbf\xbe\xef\xbf\xbf", FFFD FFFD);
}

/* A comm holds 15 bytes: eight two-byte letters lose the second half of the last. */
Test(str, utf8_repairs_a_cyrillic_comm_that_the_kernel_cut)
{
	REPAIRED("\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0",
		"\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf" FFFD);
}

Test(str, utf8_cuts_at_a_whole_code_point_and_says_so)
{
	repaired("abcdef", 6, 6, "abcdef");
	repaired("abcdefg", 7, 6, "abc...");
	/* Three bytes are left before the dots; the second letter would need four. */
	repaired("\xd0\xbf\xd0\xbf\xd0\xbf\xd0\xbf", 8, 6, "\xd0\xbf...");
	repaired("\xff\xff", 2, 5, "...");
	repaired("abc", 3, 2, "..");
	repaired("abc", 3, 0, "");
	repaired("", 0, 0, "");
}

Test(str, utf8_reports_a_full_buffer)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(3);

	cr_assert_eq(str_append_utf8(&b, "abcdef", 6, 100), -ENOBUFS);
	cr_assert_str_eq(buf_str(&b), "abc");
}

Test(str, is_utf8_accepts_control_bytes_but_no_malformed_sequence)
{
	cr_assert(str_is_utf8("a\x01\n", 3));
	cr_assert(str_is_utf8("", 0));
	cr_assert_not(str_is_utf8("a\xd0", 2));
	cr_assert_not(str_is_utf8("\xed\xa0\x80", 3));
	cr_assert_not(str_is_utf8("\xc0\x80", 2));
}

Test(str, xml_escapes_markup)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1000);

	cr_assert_eq(str_append_xml(&b, "<svg onload=\"a('b')\"> & \xd0 \x01\n"), 0);
	cr_assert_str_eq(buf_str(&b),
		"&lt;svg onload=&quot;a(&#39;b&#39;)&quot;&gt; &amp; " FFFD " " FFFD "\n");
}

Test(str, json_may_stand_inside_a_script_element)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1000);

	cr_assert_eq(str_append_json(&b, "</script>&\"\\\n\t\x01\xff\xe2\x80\xa8\xc3\xa9"), 0);
	cr_assert_str_eq(buf_str(&b),
		"\"\\u003c/script\\u003e\\u0026\\\"\\\\\\n\\t\\u0001" FFFD "\\u2028\xc3\xa9\"");
}

Test(str, u64_takes_whole_numbers_and_nothing_else)
{
	static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "0x1", "1.0", "1e3", "a"};
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(str_to_u64(bad[i], 0, UINT64_MAX, &v), -EINVAL, "'%s'", bad[i]);
	cr_assert_eq(str_to_u64("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
	cr_assert_eq(str_to_u64("99999999999999999999999", 0, UINT64_MAX, &v), -ERANGE);
	cr_assert_eq(str_to_u64("4", 5, 6, &v), -ERANGE);
	cr_assert_eq(str_to_u64("7", 5, 6, &v), -ERANGE);
	cr_assert_eq(v, 77, "untouched on failure");
	cr_assert_eq(str_to_u64("18446744073709551615", 0, UINT64_MAX, &v), 0);
	cr_assert_eq(v, UINT64_MAX);
	cr_assert_eq(str_to_u64("007", 0, 10, &v), 0);
	cr_assert_eq(v, 7);
}

Test(str, i64_takes_the_whole_range)
{
	int64_t v = 0;

	cr_assert_eq(str_to_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &v), 0);
	cr_assert_eq(v, INT64_MIN);
	cr_assert_eq(str_to_i64("9223372036854775807", INT64_MIN, INT64_MAX, &v), 0);
	cr_assert_eq(v, INT64_MAX);
	cr_assert_eq(str_to_i64("9223372036854775808", INT64_MIN, INT64_MAX, &v), -ERANGE);
	cr_assert_eq(str_to_i64("-9223372036854775809", INT64_MIN, INT64_MAX, &v), -ERANGE);
	cr_assert_eq(str_to_i64("--1", INT64_MIN, INT64_MAX, &v), -EINVAL);
	cr_assert_eq(str_to_i64("-", INT64_MIN, INT64_MAX, &v), -EINVAL);
	cr_assert_eq(str_to_i64("-5", -4, 4, &v), -ERANGE);
}

Test(str, f64_takes_decimals_only)
{
	static const char *const bad[] = {"", ".", "-", "nan", "inf", "-inf", "0x1p3", "1e", "1,5",
		" 1", "1 ", "+1", "1.5.2"};
	double v = 0;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(str_to_f64(bad[i], -1e300, 1e300, &v), -EINVAL, "'%s'", bad[i]);
	cr_assert_eq(str_to_f64("-1.5e-3", -1, 1, &v), 0);
	cr_assert_eq(v, -1.5e-3);
	cr_assert_eq(str_to_f64(".5", 0, 1, &v), 0);
	cr_assert_eq(v, 0.5);
	cr_assert_eq(str_to_f64("1e999", -INFINITY, INFINITY, &v), -ERANGE);
	cr_assert_eq(str_to_f64("1.01", 0, 1, &v), -ERANGE);
}

Test(str, durations_have_units_and_seconds_without_one)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {{"10", 10 * NSEC_PER_SEC}, {"10s", 10 * NSEC_PER_SEC},
		{"250ms", 250 * NSEC_PER_MSEC}, {"5m", 300 * NSEC_PER_SEC},
		{"2h", 7200 * NSEC_PER_SEC}, {"3us", 3000}, {"7ns", 7}, {"0", 0}};
	static const char *const bad[] = {"", "s", "1 s", "1S", "1d", "-1s", "1.5s", "1s1"};
	uint64_t v = 0;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		cr_assert_eq(str_to_duration_ns(good[i].text, &v), 0, "'%s'", good[i].text);
		cr_assert_eq(v, good[i].ns, "'%s'", good[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(str_to_duration_ns(bad[i], &v), -EINVAL, "'%s'", bad[i]);
	cr_assert_eq(str_to_duration_ns("18446744073709551615s", &v), -ERANGE);
	cr_assert_eq(str_to_duration_ns("5124096h", &v), -ERANGE);
	cr_assert_eq(str_to_duration_ns("5124095h", &v), 0);
}

Test(str, prefixes_and_suffixes)
{
	cr_assert(str_has_prefix("profile.svg", "prof"));
	cr_assert(str_has_prefix("x", ""));
	cr_assert_not(str_has_prefix("pro", "prof"));
	cr_assert(str_has_suffix("profile.svg", ".svg"));
	cr_assert_not(str_has_suffix("svg", ".svg"));
	cr_assert(str_has_suffix("x", ""));
}

Test(str, human_numbers_have_three_digits)
{
	char out[STR_HUMAN_MAX];

	cr_assert_str_eq(str_human_bytes(0, out), "0 B");
	cr_assert_str_eq(str_human_bytes(999, out), "999 B");
	cr_assert_str_eq(str_human_bytes(1000, out), "1 kB");
	cr_assert_str_eq(str_human_bytes(1200000, out), "1.2 MB");
	cr_assert_str_eq(str_human_bytes(1234567, out), "1.23 MB");
	cr_assert_str_eq(str_human_bytes(999999, out), "1 MB");
	cr_assert_str_eq(str_human_bytes(UINT64_MAX, out), "18447 PB");
	cr_assert_str_eq(str_human_ns(837, out), "837 ns");
	cr_assert_str_eq(str_human_ns(12340000000, out), "12.3 s");
	cr_assert_str_eq(str_human_ns(9999000, out), "10 ms");
	cr_assert_str_eq(str_human_ns(1050, out), "1.05 us");
	cr_assert_str_eq(str_human_ns(6000 * NSEC_PER_SEC, out), "100 min");
	cr_assert_str_eq(str_human_ns(UINT64_MAX, out), "5124096 h");
}
