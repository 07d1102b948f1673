/* demangle: what comes out, and that nothing large does. */
#include "agent/demangle.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <time.h>

Test(demangle, gives_the_whole_name_with_parameters)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(DEMANGLE_OUT_MAX);

	cr_assert_eq(demangle("_ZN2ns5ClassIiE3runEi", &b), 0);
	cr_assert_str_eq(buf_str(&b), "ns::Class<int>::run(int)");
	buf_reset(&b);
	cr_assert_eq(demangle("_Z3onev.cold", &b), 0);
	cr_assert_str_eq(buf_str(&b), "one() [clone .cold]");
}

Test(demangle, leaves_other_names_alone)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(DEMANGLE_OUT_MAX);

	cr_assert_eq(demangle("main", &b), -EINVAL);
	cr_assert_eq(demangle("", &b), -EINVAL);
	cr_assert_eq(demangle("_", &b), -EINVAL);
	cr_assert_eq(demangle("_Z", &b), -EINVAL);
	cr_assert_eq(demangle("_Znonsense", &b), -EINVAL);
	cr_assert_eq(demangle("_RNvC6_123foo3bar", &b), -EINVAL);
	cr_assert_eq(b.size, 0);
}

/* Hard case B16: every substitution doubles the text, 17,825,794 bytes in the end. */
Test(demangle, stops_a_small_name_that_stands_for_megabytes_at_once)
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
