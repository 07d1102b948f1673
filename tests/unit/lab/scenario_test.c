/* A wrong scenario is refused with file, field and reason; each message is fixed here. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "base/buf.h"
#include "base/def.h"
#include "lab/scenario.h"

static const char good[] = "{\"why\":\"made up for a unit "
			   "test\",\"kind\":\"accuracy\",\"suites\":[\"smoke\",\"full\"],"
			   "\"mode\":\"exact\",\"shift\":1,\"cpus\":1,"
			   "\"workload\":{\"program\":\"cpu_split\",\"args\":[\"--rounds\",\"7\"]},"
			   "\"agent\":{\"frequency_hz\":997,\"jitter_seeds\":[1,2,3]},"
			   "\"step_timeout_s\":60,\"cost_s\":1.5,"
			   "\"expect\":[{\"function\":\"split_heavy\",\"callers\":[\"path_a\"]}],"
			   "\"gates\":{\"share\":\"required\",\"losses\":\"platform\"}}";

Test(scenario, good_file_is_read_whole)
{
	struct scenario s;

	cr_assert_eq(scenario_parse(&s, "lab/scenarios/a_b.json", good, sizeof(good) - 1), 0, "%s",
		s.doc.message);
	cr_assert_str_eq(s.name, "a_b");
	cr_assert(s.smoke);
	cr_assert_eq(s.seed_count, 3);
	cr_assert_eq(s.seeds[2], 3);
	cr_assert_str_eq(s.workload_args.item[1], "7");
	cr_assert_str_eq(s.expect[0].callers[0], "path_a");
	cr_assert_eq(s.need[GATE_SHARE], GATE_REQUIRED);
	cr_assert_eq(s.need[GATE_LOSSES], GATE_PLATFORM);
	cr_assert_eq(s.need[GATE_PATH], GATE_ABSENT);
	scenario_done(&s);
}

/* Replaces from by to in the good file and expects the message. */
static void refuses(const char *from, const char *to, const char *message)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8192);
	const char *at = strstr(good, from);
	struct scenario s;

	cr_assert_not_null(at, "%s", from);
	cr_assert_eq(buf_append(&b, good, (size_t)(at - good)), 0);
	cr_assert_eq(buf_append_str(&b, to), 0);
	cr_assert_eq(buf_append_str(&b, at + strlen(from)), 0);
	cr_assert_lt(scenario_parse(&s, "x.json", b.data, b.size), 0, "%s", message);
	cr_expect_str_eq(s.doc.message, message);
	scenario_done(&s);
}

Test(scenario, refusals_name_file_field_and_reason)
{
	refuses("\"shift\":1", "\"shft\":1", "x.json: shft: unknown field");
	refuses("\"shift\":1", "\"shift\":\"1\"", "x.json: shift: must be a whole number");
	refuses("\"shift\":1", "\"shift\":1.5", "x.json: shift: must be a whole number");
	refuses("\"shift\":1", "\"shift\":11", "x.json: shift: 11 is not in 0..10");
	refuses("\"shift\":1", "\"shift\":1,\"shift\":2", "x.json: shift: stands there twice");
	refuses("\"cpus\":1", "\"cpus\":1,\"play\":\"loop\"",
		"x.json: play: only a fleet or selftest scenario has one");
	refuses("\"accuracy\"", "\"fleet\"", "x.json: play: is missing, a fleet scenario needs it");
	refuses("\"cpus\":1", "\"cpus\":2",
		"x.json: cpus: exact mode has one CPU (icount hangs with more)");
	refuses("\"exact\"", "\"exakt\"",
		"x.json: mode: \"exakt\" is not one of exact, fast, host");
	refuses("\"7\"", "7", "x.json: workload.args[1]: must be a string");
	refuses("\"7\"", "\"7\\n\"", "x.json: workload.args[1]: must not contain a line break");
	refuses("cpu_split", "../sh",
		"x.json: workload.program: \"../sh\" may only have a-z, 0-9 and _");
	refuses("[1,2,3]", "[]", "x.json: agent.jitter_seeds: has 0 elements, must have 1..32");
	refuses("[1,2,3]", "[1,2,1]", "x.json: agent.jitter_seeds[2]: is the same seed as [0]");
	refuses("997", "0", "x.json: agent.frequency_hz: 0 is not in 1..10000");
	refuses("\"share\":", "\"shares\":", "x.json: gates.shares: is not a gate");
	refuses("\"required\"", "\"optional\"",
		"x.json: gates.share: \"optional\" is not one of required, platform");
	refuses("{\"share\":\"required\",\"losses\":\"platform\"}", "{}",
		"x.json: gates: has no gate; a scenario that cannot fail proves nothing");
	refuses("made up for a unit test", "short", "x.json: why: has 5 bytes, must have 20..600");
	refuses("\"expect\":[{\"function\":\"split_heavy\",\"callers\":[\"path_a\"]}],", "",
		"x.json: expect: is missing, gates share and path need it");
	refuses("\"cost_s\":1.5", "\"cost_s\":-1", "x.json: cost_s: -1 is not in 0..3600");
	refuses("\"cost_s\":1.5,", "", "x.json: cost_s: is missing");
	refuses("\"kind\":\"accuracy\"", "\"kind\":\"perturb\"",
		"x.json: runs: is missing, a perturb scenario needs it");
	refuses("\"kind\":\"accuracy\"", "\"kind\":\"selftest\"",
		"x.json: faults: is missing, a selftest scenario needs it");
	refuses("}}", "}}x", "x.json: text after the document");
	refuses("}}", "}", "x.json: line 1: not JSON");
}

Test(scenario, faults_of_an_agent_in_a_play_need_a_play)
{
	refuses("\"kind\":\"accuracy\"",
		"\"kind\":\"selftest\",\"faults\":[{\"name\":\"a\",\"play\":\"spool\"}]",
		"x.json: faults[0]: play and agent_env need a scenario with a play");
}

Test(scenario, same_twice_without_a_repeat_is_refused)
{
	refuses("\"losses\":\"platform\"", "\"same_twice\":\"required\"",
		"x.json: repeat: must be 2 or more, gate same_twice compares");
}

Test(scenario, name_comes_from_the_file)
{
	struct scenario s;

	cr_assert_lt(scenario_parse(&s, "dir/Bad-Name.json", good, sizeof(good) - 1), 0);
	cr_assert_str_eq(s.doc.message,
		"dir/Bad-Name.json: the file's name may only have a-z, 0-9 and _, at most 40");
	scenario_done(&s);
}

Test(scenario, empty_and_binary_files_are_refused)
{
	struct scenario s;

	cr_assert_lt(scenario_parse(&s, "x.json", "", 0), 0);
	cr_assert_str_eq(s.doc.message, "x.json: is empty");
	scenario_done(&s);
	cr_assert_lt(scenario_parse(&s, "x.json", "{}\0{}", 5), 0);
	cr_assert_str_eq(s.doc.message, "x.json: contains a NUL byte");
	scenario_done(&s);
}

Test(scenario, every_committed_file_is_accepted)
{
	struct scenario_list l;

	cr_assert_eq(scenario_list_load(&l, "lab/scenarios"), 0, "%s", l.message);
	cr_assert_gt(l.count, 5);
	for (size_t i = 1; i < l.count; i++)
		cr_assert_lt(strcmp(l.items[i - 1].name, l.items[i].name), 0);
	scenario_list_done(&l);
}
