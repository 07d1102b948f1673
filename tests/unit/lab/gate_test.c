/* Gates: what decides, and what the text says. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/def.h"
#include "lab/gate.h"

static struct gate_list list;

static struct gate *fresh(void)
{
	gate_list_done(&list);
	return gate_add(&list, GATE_SHARE, "s", "", GATE_REQUIRED);
}

Test(gate, without_checks_is_unmeasured_never_pass)
{
	struct gate *g = fresh();

	gate_decide(g);
	cr_assert_eq(g->status, GATE_UNMEASURED);
	cr_assert_str_eq(g->text, "nothing to check");
	gate_list_done(&list);
}

Test(gate, not_a_number_fails)
{
	struct gate *g = fresh();

	gate_check_near(g, "%", 1, NAN, 100, "x");
	gate_check_most(g, "%", 1, NAN, 100, "x");
	gate_check_most(g, "%", 1, -INFINITY, 100, "x");
	for (size_t i = 0; i < 3; i++)
		cr_assert(!g->checks[i].pass);
	gate_decide(g);
	cr_assert_eq(g->status, GATE_FAIL);
	gate_list_done(&list);
}

Test(gate, text_shows_the_worst_check)
{
	struct gate *g = fresh();

	gate_check_near(g, "%", 70, 70.5, 1, "near");
	gate_check_near(g, "%", 70, 70.9, 1, "nearer the edge");
	gate_check_near(g, "%", 70, 70.1, 1, "best");
	gate_decide(g);
	cr_assert_eq(g->status, GATE_PASS);
	cr_assert_str_eq(g->text, "nearer the edge: 70.900 %, truth 70.000 +- 1.000");
	gate_check_near(g, "ns", 1000000, 3500000, 500000, "off");
	gate_decide(g);
	cr_assert_eq(g->status, GATE_FAIL);
	cr_assert_str_eq(g->text, "off: 3.500 ms, truth 1.000 +- 0.500");
	gate_list_done(&list);
}

Test(gate, missing_data_keeps_a_pass_away_but_not_a_failure)
{
	struct gate *g = fresh();

	gate_check_near(g, "", 1, 1, 0, "fine");
	gate_unmeasured(g, "second run missing");
	gate_decide(g);
	cr_assert_eq(g->status, GATE_UNMEASURED);
	cr_assert_str_eq(g->text, "second run missing");
	gate_check_near(g, "", 1, 2, 0, "wrong");
	gate_decide(g);
	cr_assert_eq(g->status, GATE_FAIL);
	gate_list_done(&list);
}

Test(gate, names_are_unique_and_parse_back)
{
	for (unsigned int k = 0; k < GATE_KIND_COUNT; k++) {
		enum gate_kind back = GATE_KIND_COUNT;

		cr_assert(gate_kind_parse(gate_kind_name(k), &back));
		cr_assert_eq(back, k);
		cr_assert_gt(strlen(gate_kind_meaning(k)), 10);
	}
	cr_assert(!gate_kind_parse("", &(enum gate_kind){0}));
}
