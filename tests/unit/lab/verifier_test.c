/* What a kernel's verifier said: read line by line, and red when a program nearly did not load. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "lab/judge.h"

static const char log_good[] = "cfi on_sample 61032\ncfi resume 59865\nfp on_sample_fp 1381\n"
			       "kernel 6.1.0-57-amd64\nexit 0\n";

Test(verifier, programs_kernel_and_exit_are_read_and_other_lines_kept)
{
	struct verifier v;

	cr_assert_eq(verifier_parse(&v, log_good), 0);
	cr_assert_eq(v.count, 3);
	cr_assert_str_eq(v.programs[1].unwind, "cfi");
	cr_assert_str_eq(v.programs[1].name, "resume");
	cr_assert_eq(v.programs[1].instructions, 59865);
	cr_assert_str_eq(v.kernel, "6.1.0-57-amd64");
	cr_assert_str_eq(v.exit, "0");
	cr_assert_str_eq(v.said, "");
	cr_assert_eq(
		verifier_parse(&v, "libbpf: refused\ncfi x 1 y\nkernel k\nexit \"signal 9\"\n"), 0);
	cr_assert_eq(v.count, 0);
	cr_assert_str_eq(v.said, "cfi x 1 y");
	cr_assert_str_eq(v.exit, "\"signal 9\"");
}

Test(verifier, log_without_its_end_is_refused)
{
	struct verifier v;

	cr_assert_eq(verifier_parse(&v, ""), -EBADMSG);
	cr_assert_eq(verifier_parse(&v, "cfi on_sample 61032\nkernel k\n"), -EBADMSG);
	cr_assert_eq(verifier_parse(&v, "exit 0\n"), -EBADMSG);
}

Test(verifier, more_programs_than_there_is_room_for_are_refused)
{
	char text[2048] = "";
	struct verifier v;
	size_t n = 0;

	for (int i = 0; i <= VERIFIER_PROGRAMS_MAX; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "fp p%d 1\n", i);
	(void)snprintf(text + n, sizeof(text) - n, "kernel k\nexit 0\n");
	cr_assert_eq(verifier_parse(&v, text), -EBADMSG);
}

static enum gate_status judge(const char *log, char text[GATE_TEXT_MAX])
{
	struct evidence e = {.has_verifier = true};
	struct gate g = {.status = GATE_UNMEASURED};

	cr_assert_eq(verifier_parse(&e.verifier, log), 0);
	judge_verifier(&g, &e, 1);
	gate_decide(&g);
	judge_verifier_text(&g, &e);
	(void)snprintf(text, GATE_TEXT_MAX, "%s", g.text);
	free(g.checks);
	return g.status;
}

Test(verifier, gate_is_red_above_half_a_million_or_when_refused_and_says_all_figures_otherwise)
{
	char text[GATE_TEXT_MAX];

	cr_assert_eq(judge(log_good, text), GATE_PASS);
	cr_assert_str_eq(text, "6.1.0-57-amd64: cfi on_sample 61032, resume 59865, fp "
			       "on_sample_fp 1381 instructions");
	cr_assert_eq(
		judge("cfi on_sample 500001\nfp on_sample 1\nkernel k\nexit 1\n", text), GATE_FAIL);
	cr_assert_eq(
		judge("cfi on_sample 500001\nfp on_sample 1\nkernel k\nexit 0\n", text), GATE_FAIL);
	cr_assert_eq(judge("fp on_sample 1\nlibbpf: refused\nkernel k\nexit 1\n", text), GATE_FAIL);
	cr_assert(strstr(text, "libbpf: refused"), "%s", text);
	cr_assert_eq(judge("fp on_sample 1\nkernel k\nexit 0\n", text), GATE_UNMEASURED);
}
