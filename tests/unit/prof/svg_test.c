/*
 * The flame graph's bytes: stored drawing, hostile names, limits. What its script does is seen by
 * tests/e2e/svg_script.sh, in a browser.
 */
#include "prof/svg.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"
#include "prof/folded.h"
#include "prof/pprof.h"
#include "random_profile.h"

static struct profile *read_text(const char *text)
{
	struct profile *p = NULL;

	cr_assert_eq(folded_read(text, strlen(text), 16 << 20, NULL, &p), 0);
	return p;
}

static void draw(const struct profile *p, struct buf *out)
{
	cr_assert_eq(svg_write(p, &(struct svg_options){.type = profile_default_type(p)}, out), 0);
}

/* How often needle stands in text. */
static size_t count(const char *text, const char *needle)
{
	size_t n = 0;

	for (text = strstr(text, needle); text; text = strstr(text + 1, needle))
		n++;
	return n;
}

Test(svg, draws_the_stored_frames)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf want = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct svg_options o = {.type = 1, .with_comm = true};
	const char *from, *to;

	cr_assert_eq(file_read("fixtures/prof/hostile.pb.gz", &in), 0);
	cr_assert_eq(file_read("fixtures/prof/hostile_frames.xml", &want), 0);
	cr_assert_eq(pprof_read(in.data, in.size, 1 << 20, NULL, &p), 0);
	cr_assert_eq(svg_write(p, &o, &out), 0);
	from = strstr(buf_str(&out), "<g class=\"f\"");
	to = strstr(buf_str(&out), "<g class=\"head\">");
	cr_assert(from && to && from < to);
	cr_assert_eq((size_t)(to - from), want.size);
	cr_assert_arr_eq(from, want.data, want.size);
}

Test(svg, the_same_profile_gives_the_same_bytes_whatever_its_sample_order)
{
	_cleanup_(profile_freep) struct profile *p = read_text("m;a 1\nm;b 2\nk;c_[k] 3\n");
	_cleanup_(profile_freep) struct profile *q = read_text("k;c_[k] 3\nm;b 2\nm;a 1\n");
	_cleanup_(buf_done) struct buf one = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf two = BUF_INIT(1 << 20);

	draw(p, &one);
	draw(q, &two);
	cr_assert_str_eq(buf_str(&one), buf_str(&two));
}

Test(svg, an_empty_profile_says_so)
{
	_cleanup_(profile_freep) struct profile *none = NULL;
	_cleanup_(profile_freep) struct profile *zero = read_text("# nothing\n");
	_cleanup_(buf_done) struct buf one = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf two = BUF_INIT(1 << 20);

	cr_assert_eq(profile_new(1 << 20, &none), 0);
	draw(none, &one);
	draw(zero, &two);
	cr_assert_eq(count(buf_str(&one), ">no samples</text>"), 1);
	cr_assert_eq(count(buf_str(&two), ">no samples</text>"), 1);
	cr_assert(str_has_suffix(buf_str(&two), "</svg>\n"));
}

Test(svg, names_are_text_and_never_markup)
{
	_cleanup_(profile_freep) struct profile *p =
		read_text("<svg onload=alert(1)>;]]></script><script>alert(2)</script>;\"'&amp 1\n"
			  "\xff\xfe\x01;</title> 1\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	struct svg_options o = {.title = "<b>\xff", .subtitle = "]]><i>"};

	cr_assert_eq(svg_write(p, &o, &out), 0);
	cr_assert_eq(count(buf_str(&out), "<svg"), 1);
	cr_assert_eq(count(buf_str(&out), "<script>"), 1);
	cr_assert_eq(count(buf_str(&out), "<b>"), 0);
	cr_assert_eq(count(buf_str(&out), "<i>"), 0);
	cr_assert_gt(count(buf_str(&out), "&lt;svg onload=alert(1)&gt;"), 0);
	cr_assert_gt(count(buf_str(&out), "&quot;&#39;&amp;amp\n"), 0);
	cr_assert_gt(count(buf_str(&out), "&lt;b&gt;\xef\xbf\xbd"), 0);
	cr_assert(str_is_utf8(out.data, out.size));
	/* As many titles as frames: all, 3 of the first stack, 2 of the second. */
	cr_assert_eq(count(buf_str(&out), "<title>"), 6);
	cr_assert_eq(count(buf_str(&out), "</title>"), 6);
}

Test(svg, nothing_is_loaded_and_nothing_is_evaluated)
{
	_cleanup_(profile_freep) struct profile *p = random_profile(5, 60);
	_cleanup_(buf_done) struct buf out = BUF_INIT(16 << 20);
	static const char *const forbidden[] = {"innerHTML", "eval(", "new Function", "href",
		"url(", "@import", "src=", "RegExp", "document.write", "insertAdjacent"};

	draw(p, &out);
	for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++)
		cr_assert_eq(count(buf_str(&out), forbidden[i]), 0, "%s", forbidden[i]);
	/* The two namespaces are the only addresses. */
	cr_assert_eq(count(buf_str(&out), "http"), 2);
}

Test(svg, labels_are_cut_at_characters_before_they_are_escaped)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 16);
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf label = BUF_INIT(1 << 16);

	for (int i = 0; i < 600; i++)
		cr_assert_eq(buf_append_str(&in, "&\xe6\x97\xa5"), 0);
	cr_assert_eq(buf_append_str(&in, " 1\n"), 0);
	cr_assert_eq(folded_read(in.data, in.size, 16 << 20, NULL, &p), 0);
	draw(p, &out);
	/* 1180 px hold 162 cells: 53 times one and two cells, an ampersand, two dots. */
	for (int i = 0; i < 53; i++)
		cr_assert_eq(buf_append_str(&label, "&amp;\xe6\x97\xa5"), 0);
	cr_assert_eq(buf_append_str(&label, "&amp;..</text>"), 0);
	cr_assert_eq(count(buf_str(&out), buf_str(&label)), 1);
	cr_assert(str_is_utf8(out.data, out.size));
}

Test(svg, narrow_frames_are_left_out_and_counted)
{
	_cleanup_(profile_freep) struct profile *p =
		read_text("wide 1000000\nthin;below 10\nthin2 10\nvisible 300\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);

	draw(p, &out);
	cr_assert_eq(count(buf_str(&out), "<g class=\"f\""), 3);
	cr_assert_eq(count(buf_str(&out), "3 frames narrower than 0.3 px are not drawn"), 1);
}

Test(svg, frames_stay_inside_their_parents_when_sums_saturate)
{
	_cleanup_(profile_freep) struct profile *p =
		read_text("a 9223372036854775807\nb 9223372036854775807\nc;d -5\nc;e 3\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);

	draw(p, &out);
	cr_assert_eq(count(buf_str(&out), "<g class=\"f\""), 2, "all and a fill the width");
	cr_assert_eq(count(buf_str(&out), "data-w=\"1000000000\""), 2);
}

Test(svg, a_child_larger_than_its_parent_is_cut_to_it)
{
	_cleanup_(profile_freep) struct profile *p = read_text("p;a 10\np;b -5\nq 15\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);

	draw(p, &out);
	/* p is 5 of 20, and so is a, although it has 10; b, below nothing, is not drawn. */
	cr_assert_eq(count(buf_str(&out), "data-w=\"250000000\""), 2);
	cr_assert_eq(count(buf_str(&out), "<g class=\"f\""), 4);
}

Test(svg, the_height_follows_what_is_drawn)
{
	_cleanup_(profile_freep) struct profile *flat = read_text("a 1\n");
	_cleanup_(profile_freep) struct profile *deep = read_text("a;b;c;d;e;f;g;h;i;j;k 1\n");
	_cleanup_(buf_done) struct buf one = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf two = BUF_INIT(1 << 20);

	draw(flat, &one);
	draw(deep, &two);
	cr_assert_eq(count(buf_str(&one), "height=\"172\" viewBox"), 1);
	cr_assert_eq(count(buf_str(&two), "height=\"332\" viewBox"), 1);
}

Test(svg, an_unknown_type_and_a_full_output_are_errors)
{
	_cleanup_(profile_freep) struct profile *p = read_text("a 1\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf small = BUF_INIT(100);

	cr_assert_eq(svg_write(p, &(struct svg_options){.type = 1}, &out), -EINVAL);
	cr_assert_eq(svg_write(p, &(struct svg_options){0}, &small), -ENOBUFS);
}
