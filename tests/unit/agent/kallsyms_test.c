/* kallsyms: one pass, any order, hidden addresses. */
#include "agent/kallsyms.h"

#include <criterion/criterion.h>
#include <string.h>

enum { ANSWERS_MAX = 16 };

static bool resolve(
	const char *text, const uint64_t *addresses, size_t count, struct kallsyms_answer *answers)
{
	struct kallsyms_pass p;

	cr_assert_leq(count, ANSWERS_MAX);
	kallsyms_begin(&p, addresses, count, answers);
	cr_assert_eq(kallsyms_feed(&p, text, strlen(text)), strlen(text));
	return kallsyms_end(&p);
}

Test(kallsyms, names_an_address_after_the_nearest_function_below_it)
{
	static const char text[] = "ffffffff81000000 T first\nffffffff81000100 t second\n"
				   "ffffffff81000200 T third\n";
	const uint64_t addresses[] = {0xffffffff80ffffff, 0xffffffff81000000, 0xffffffff810000ff,
		0xffffffff81000100, 0xffffffff81000150, 0xffffffff81000300};
	struct kallsyms_answer a[ANSWERS_MAX];

	cr_assert(resolve(text, addresses, 6, a));
	cr_assert_not(a[0].found);
	cr_assert_str_eq(a[1].name, "first");
	cr_assert_str_eq(a[2].name, "first");
	cr_assert_str_eq(a[3].name, "second");
	cr_assert_str_eq(a[4].name, "second");
	cr_assert_str_eq(a[5].name, "third");
	cr_assert(a[5].found);
	cr_assert_eq(a[5].start, 0xffffffff81000200);
}

Test(kallsyms, takes_lines_in_any_order)
{
	static const char text[] = "3000 t c\t[mod]\n1000 t a\t[mod]\n2000 t b\t[mod]\n";
	const uint64_t addresses[] = {0x1800, 0x2800, 0x3001};
	struct kallsyms_answer a[ANSWERS_MAX];

	cr_assert(resolve(text, addresses, 3, a));
	cr_assert_str_eq(a[0].name, "a");
	cr_assert_str_eq(a[1].name, "b");
	cr_assert_str_eq(a[2].name, "c");
	cr_assert_str_eq(a[2].module, "mod");
}

Test(kallsyms, ends_functions_at_data_at_the_text_end_and_at_a_span)
{
	static const char text[] = "1000 T function\n2000 D data\n3000 T last\n4000 T _etext\n"
				   "100000 T alone\n";
	const uint64_t addresses[] = {0x1fff, 0x2000, 0x3fff, 0x4000, 0x1fffff, 0x200000};
	struct kallsyms_answer a[ANSWERS_MAX];

	cr_assert(resolve(text, addresses, 6, a));
	cr_assert(a[0].found);
	cr_assert_not(a[1].found);
	cr_assert(a[2].found);
	cr_assert_not(a[3].found);
	cr_assert_str_eq(a[4].name, "alone");
	cr_assert(a[4].found);
	cr_assert_not(a[5].found);
}

Test(kallsyms, chooses_the_same_alias_whatever_the_order)
{
	static const char forth[] = "1000 t local\n1000 T __bars\n1000 T zebra\n1000 T apple\n";
	static const char back[] = "1000 T apple\n1000 T zebra\n1000 T __bars\n1000 t local\n";
	const uint64_t addresses[] = {0x1001};
	struct kallsyms_answer a[ANSWERS_MAX];

	cr_assert(resolve(forth, addresses, 1, a));
	cr_assert_str_eq(a[0].name, "apple");
	cr_assert(resolve(back, addresses, 1, a));
	cr_assert_str_eq(a[0].name, "apple");
}

Test(kallsyms, B19_says_when_all_addresses_are_hidden)
{
	static const char text[] = "0000000000000000 T first\n0000000000000000 T second\n";
	const uint64_t addresses[] = {0xffffffff81000000};
	struct kallsyms_answer a[ANSWERS_MAX];

	cr_assert_not(resolve(text, addresses, 1, a));
	cr_assert_not(a[0].found);
}

Test(kallsyms, B20_passes_over_odd_lines)
{
	static const char text[] = "\nzzz T x\n1000\n1000 T\n1000 T \n12345678123456781 T long\n"
				   "1000 T good [odd\n1800 t nvidia:x\t[nv] [OE]\n";
	const uint64_t addresses[] = {0x1001, 0x1801};
	struct kallsyms_answer a[ANSWERS_MAX];

	cr_assert(resolve(text, addresses, 2, a));
	cr_assert_str_eq(a[0].name, "good");
	cr_assert_str_eq(a[0].module, "odd");
	cr_assert_str_eq(a[1].name, "nvidia:x");
	cr_assert_str_eq(a[1].module, "nv");
}

Test(kallsyms, cuts_long_names)
{
	char text[1000] = "1000 T ";
	const uint64_t addresses[] = {0x1001};
	struct kallsyms_answer a[ANSWERS_MAX];

	memset(text + 7, 'n', 900);
	text[907] = '\n';
	cr_assert(resolve(text, addresses, 1, a));
	cr_assert_eq(strlen(a[0].name), KALLSYMS_NAME_SIZE - 1);
}

Test(kallsyms, passes_over_a_name_with_a_nul)
{
	static const char text[] = "1000 T \0bad\n";
	const uint64_t addresses[] = {0x1001};
	struct kallsyms_answer a[1];
	struct kallsyms_pass p;

	kallsyms_begin(&p, addresses, 1, a);
	cr_assert_eq(kallsyms_feed(&p, text, sizeof(text) - 1), sizeof(text) - 1);
	cr_assert(kallsyms_end(&p));
	cr_assert_not(a[0].found);
}
