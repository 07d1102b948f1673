/* demangle: what comes out, and that nothing large does. */
#include "agent/demangle.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <time.h>

#include "base/file.h"

Test(demangle, gives_the_whole_name_with_parameters)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(DEMANGLE_OUT_MAX);

	cr_assert_eq(demangle("_ZN2ns5ClassIiE3runEi", &b), 0);
	cr_assert_str_eq(buf_str(&b), "ns::Class<int>::run(int)");
}

static void reads(const char *name, const char *text)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(DEMANGLE_OUT_MAX);
	int r = demangle(name, &b);

	cr_assert_eq(r, text ? 0 : -EINVAL, "%s: %d", name, r);
	cr_assert_str_eq(buf_str(&b), text ? text : "", "%s", name);
}

Test(demangle, B17_gives_pieces_of_a_function_its_name)
{
	reads("_Z3onev.cold", "one()");
	reads("_Z3onev.isra.0.constprop.1.cold", "one()");
	reads("_Z3onev.llvm.17629384756102938475", "one()");
	reads("_Z3onev.__uniq.298374650192837465.llvm.5", "one()");
	reads("parse.part.0", "parse");
	reads("parse.cold.12", "parse");
	reads("parse.lto_priv.0.cold", "parse");
	reads("_RNvC3abc3one.llvm.9D1C9369", "abc::one");
	reads("_ZN3abc3one17h0123456789abcdefE.llvm.77", "abc::one");
	reads("_ZN3abc3one17h0123456789abcdefE.cold", "abc::one");
}

Test(demangle, leaves_other_suffixes)
{
	reads("parse.part", NULL);
	reads("parse.isra.x", NULL);
	reads("parse.resume", NULL);
	reads(".cold", NULL);
	reads("a..cold", "a.");
	reads(".part.0", NULL);
	reads("parse.", NULL);
	reads("10.0", NULL);
	reads("_Z3onev.resume", "one() [clone .resume]");
}

/* Hard case B17; what the vectors are says fixtures/rust/README.md. */
Test(demangle, B17_reads_rust_names_as_binutils_does)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	size_t count = 0;

	cr_assert_eq(file_read("fixtures/rust/names.txt", &b), 0);
	for (char *line = b.data, *end; *line; line = end + 1, count++) {
		char *tab = strchr(line, '\t');

		end = strchr(line, '\n');
		cr_assert(tab && end && tab < end);
		*tab = '\0';
		*end = '\0';
		reads(line, tab + 1);
	}
	cr_assert_gt(count, 150);
}

/* The path of "N" is a back reference to "N" itself; the other doubles a tuple 40 times. */
Test(demangle, B16_stops_rust_names_that_stand_for_themselves)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(DEMANGLE_OUT_MAX);
	_cleanup_(buf_done) struct buf name = BUF_INIT(4096);

	cr_assert_eq(demangle("_RNvB_1a", &out), -E2BIG);
	cr_assert_eq(demangle("_RMC0TB2_B2_E", &out), -E2BIG);
	cr_assert_eq(buf_append_str(&name, "_RMC0T"), 0);
	for (int i = 0; i < 40; i++)
		cr_assert_eq(buf_printf(&name, "TB%c_B%c_", 'a', 'a'), 0);
	cr_assert_lt(demangle(buf_str(&name), &out), 0);
	cr_assert_eq(out.size, 0);
}

Test(demangle, takes_no_cxx_name_for_a_rust_one)
{
	reads("_ZN3abc3one17h0123456789abcdeE", NULL);
	reads("_ZN3abc3oneE", "abc::one");
	reads("_ZN3abc17h0123456789abcdefEv", "abc::h0123456789abcdef()");
}

Test(demangle, leaves_other_names_alone)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(DEMANGLE_OUT_MAX);

	cr_assert_eq(demangle("main", &b), -EINVAL);
	cr_assert_eq(demangle("", &b), -EINVAL);
	cr_assert_eq(demangle("_", &b), -EINVAL);
	cr_assert_eq(demangle("_Z", &b), -EINVAL);
	cr_assert_eq(demangle("_Znonsense", &b), -EINVAL);
	cr_assert_eq(demangle("_R", &b), -EINVAL);
	cr_assert_eq(demangle("_RNvC6_123foo3ba", &b), -EINVAL);
	cr_assert_eq(demangle("_RandomName", &b), -EINVAL);
	cr_assert_eq(b.size, 0);
}

/* Hard case B16: every substitution doubles the text, 17,825,794 bytes in the end. */
Test(demangle, B16_stops_a_small_name_that_stands_for_megabytes_at_once)
{
	_cleanup_(buf_done) struct buf name = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf out = BUF_INIT(DEMANGLE_OUT_MAX);
	struct timespec t0, t1;

	/* f(P<A, A>, P<that, that>, P<that, that>...), S0_, S1_... being what came before. */
	cr_assert_eq(buf_append_str(&name, "_Z1f1PI1AS0_E"), 0);
	for (int i = 2; i < 30; i++)
		cr_assert_eq(buf_printf(&name, "S_IS%c_S%c_E", i < 11 ? '0' + i - 1 : 'A' + i - 11,
				     i < 11 ? '0' + i - 1 : 'A' + i - 11),
			0);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
	cr_assert_eq(demangle(buf_str(&name), &out), -E2BIG);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
	cr_assert_eq(out.size, 0);
	cr_assert_lt((t1.tv_sec - t0.tv_sec) * 1000 + (t1.tv_nsec - t0.tv_nsec) / 1000000, 50);
}

Test(demangle, refuses_long_names_before_looking_at_them)
{
	char name[DEMANGLE_IN_MAX + 2];
	_cleanup_(buf_done) struct buf b = BUF_INIT(DEMANGLE_OUT_MAX);

	memset(name, 'a', sizeof(name));
	memcpy(name, "_Z", 2);
	name[sizeof(name) - 1] = '\0';
	cr_assert_eq(demangle(name, &b), -E2BIG);
}
