/* names: the functions of one address, innermost first, within limits. */
#include "agent/names.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"

static void expect(const struct names *n, size_t i, const char *name, const char *file)
{
	const struct names_frame *f = &n->frames[i];

	cr_assert_eq(f->name_size, strlen(name));
	cr_assert_eq(memcmp(names_name(n, i), name, f->name_size), 0);
	cr_assert_eq(f->file_size, strlen(file));
	cr_assert_eq(memcmp(names_file(n, i), file, f->file_size), 0);
}

Test(names, frames_come_back_in_the_order_they_were_added)
{
	_cleanup_(names_done) struct names n;

	names_init(&n);
	cr_assert_eq(names_add(&n, "innie()", 7, "a.c", 3, 7, 5), 0);
	cr_assert_eq(names_add(&n, "outie, and more", 5, NULL, 99, 0, 0), 0);
	cr_assert_eq(n.count, 2);
	expect(&n, 0, "innie()", "a.c");
	expect(&n, 1, "outie", "");
	cr_assert_eq(n.frames[0].line, 7);
	cr_assert_eq(n.frames[0].start_line, 5);
	cr_assert_eq(n.frames[1].line, 0);
}

Test(names, a_reset_one_is_empty)
{
	_cleanup_(names_done) struct names n;

	names_init(&n);
	n.start = 1;
	n.size = 2;
	n.kind = NAMES_GO;
	cr_assert_eq(names_add(&n, "a", 1, "b", 1, 1, 1), 0);
	names_reset(&n);
	cr_assert_eq(n.start, 0);
	cr_assert_eq(n.size, 0);
	cr_assert_eq(n.kind, NAMES_NATIVE);
	cr_assert_eq(n.count, 0);
	cr_assert_eq(n.text.size, 0);
}

Test(names, long_texts_are_cut)
{
	_cleanup_(names_done) struct names n;
	static char text[NAMES_NAME_MAX + 1];

	memset(text, 'x', sizeof(text));
	names_init(&n);
	cr_assert_eq(names_add(&n, text, sizeof(text), text, sizeof(text), 1, 1), 0);
	cr_assert_eq(n.frames[0].name_size, NAMES_NAME_MAX);
	cr_assert_eq(n.frames[0].file_size, NAMES_NAME_MAX);
	cr_assert_eq(n.text.size, 2 * NAMES_NAME_MAX);
}

Test(names, what_was_added_stays_when_there_is_no_room)
{
	_cleanup_(names_done) struct names n;
	static char text[NAMES_NAME_MAX];

	memset(text, 'y', sizeof(text));
	names_init(&n);
	for (size_t i = 0; i < NAMES_FRAMES_MAX; i++)
		cr_assert_eq(names_add(&n, "a", 1, "b", 1, (uint32_t)i, 0), 0);
	cr_assert_eq(names_add(&n, "a", 1, "b", 1, 0, 0), -ENOBUFS);
	cr_assert_eq(n.count, NAMES_FRAMES_MAX);
	names_reset(&n);
	for (size_t i = 0; i < NAMES_TEXT_MAX / NAMES_NAME_MAX; i++)
		cr_assert_eq(names_add(&n, text, sizeof(text), NULL, 0, 0, 0), 0);
	cr_assert_eq(names_add(&n, "a", 1, NULL, 0, 0, 0), -ENOBUFS);
	cr_assert_eq(n.count, NAMES_TEXT_MAX / NAMES_NAME_MAX);
	names_reset(&n);
	cr_assert_eq(names_add(&n, "a", 1, NULL, 0, 0, 0), 0);
	expect(&n, 0, "a", "");
}
