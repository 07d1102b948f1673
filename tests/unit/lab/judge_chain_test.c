/* Whole stacks: what passes as the whole chain, and what each kind of break is called; and whose container they are in. */
#include <criterion/criterion.h>

#include "base/def.h"
#include "lab/judge.h"
#include "synthetic.h"

static enum gate_status decide(const struct evidence *e, struct gate *ret)
{
	struct gate g = {.status = GATE_UNMEASURED};

	judge_chain(&g, &(struct scenario){0}, e, 1);
	gate_decide(&g);
	if (ret)
		*ret = g;
	free(g.checks);
	return g.status;
}

/* samples of a stack given leaf first, as the synthetic process's. */
static void add(struct evidence *e, const char *const *names, size_t count, const char *module,
	uint64_t samples)
{
	struct profile *p = e->profile;
	struct label pid = {.key = (uint32_t)profile_str(p, "pid"), .num = 100};
	int64_t values[2] = {(int64_t)samples, (int64_t)(samples * NSEC_PER_MSEC)};
	uint32_t ids[8];

	for (size_t i = 0; i < count; i++) {
		struct frame f = {.name = (uint32_t)profile_str(p, names[i]),
			.module = (uint32_t)profile_str(p, module)};

		ids[i] = (uint32_t)profile_frame(p, &f);
	}
	cr_assert_eq(profile_add(p, ids, (uint32_t)count, &pid, 1, values), 0);
}

Test(chain, whole_stacks_pass)
{
	struct evidence e;

	synthetic_run(&e, 700000000, 300000000, 700, 300, "main");
	cr_assert_eq(decide(&e, NULL), GATE_PASS);
	evidence_done(&e);
}

Test(chain, a_missing_caller_fails_and_is_named)
{
	struct evidence e;
	struct gate g;

	synthetic_run(&e, 700000000, 300000000, 700, 300, NULL);
	cr_assert_eq(decide(&e, &g), GATE_FAIL);
	cr_assert_not_null(strstr(g.text, "without its whole chain"), "%s", g.text);
	evidence_done(&e);
}

Test(chain, library_frames_between_two_functions_are_the_librarys_business)
{
	struct evidence e;

	synthetic_run(&e, 700000000, 300000000, 700, 300, "main");
	add(&e, (const char *const[]){"heavy", "qsort", "main"}, 3, "/usr/lib/libc.so.6", 100);
	cr_assert_eq(decide(&e, NULL), GATE_PASS);
	evidence_done(&e);
}

Test(chain, half_a_percent_of_cut_stacks_is_the_limit)
{
	struct evidence in, out;
	const char *const cut[] = {"heavy", "main", "[truncated: no frame pointer]"};

	synthetic_run(&in, 700000000, 300000000, 700, 295, "main");
	add(&in, cut, 3, "", 5);
	cr_assert_eq(decide(&in, NULL), GATE_PASS);
	synthetic_run(&out, 700000000, 300000000, 700, 294, "main");
	add(&out, cut, 3, "", 6);
	cr_assert_eq(decide(&out, NULL), GATE_FAIL);
	evidence_done(&in);
	evidence_done(&out);
}

Test(chain, a_function_of_the_program_that_was_never_called_fails)
{
	struct evidence e;
	struct gate g;

	synthetic_run(&e, 700000000, 300000000, 700, 300, "main");
	add(&e, (const char *const[]){"heavy", "innocent_next", "main"}, 3, "/opt/work", 10);
	cr_assert_eq(decide(&e, &g), GATE_FAIL);
	cr_assert_not_null(strstr(g.text, "innocent_next"), "%s", g.text);
	evidence_done(&e);
}

Test(chain, a_function_in_no_stack_fails_unless_it_used_next_to_nothing)
{
	struct evidence much, little;
	struct gate g;

	/* A sample is a millisecond. */
	synthetic_run(&much, 700000000, 17000000, 700, 0, "main");
	cr_assert_eq(decide(&much, &g), GATE_FAIL);
	cr_assert_not_null(strstr(g.text, "it is in no stack"), "%s", g.text);
	synthetic_run(&little, 700000000, 15000000, 700, 0, "main");
	cr_assert_eq(decide(&little, NULL), GATE_PASS);
	evidence_done(&much);
	evidence_done(&little);
}

Test(chain, without_a_profile_nothing_is_said)
{
	struct evidence e;

	synthetic_run(&e, 700000000, 300000000, 700, 300, "main");
	e.has_profile = false;
	cr_assert_eq(decide(&e, NULL), GATE_UNMEASURED);
	evidence_done(&e);
}

static enum gate_status decide_share(const struct scenario *s, const struct evidence *e)
{
	struct gate g = {.status = GATE_UNMEASURED};

	judge_share(&g, s, e, 1);
	gate_decide(&g);
	free(g.checks);
	return g.status;
}

Test(chain, a_share_outside_of_its_container_fails)
{
	struct scenario s;
	struct evidence e; /* whose samples have no label of a container */

	synthetic_scenario(&s);
	synthetic_run(&e, 700000000, 300000000, 700, 300, "main");
	s.expect[0].container = "";
	cr_assert_eq(decide_share(&s, &e), GATE_PASS);
	s.expect[0].container = "c0ffee5eed00";
	cr_assert_eq(decide_share(&s, &e), GATE_FAIL);
	evidence_done(&e);
	scenario_done(&s);
}
