/* What may be unmeasured, baselines, and the exit-code contract of DESIGN.md section 6. */
#include <criterion/criterion.h>

#include "base/def.h"
#include "lab/policy.h"

static const char excuses[] =
	"{\"schema\":\"flamelab-unmeasured/1\",\"gates\":[{\"gate\":\"overhead_real\","
	"\"scenario\":\"*\",\"platform\":\"exact\",\"reason\":\"no real hardware here\","
	"\"expiry\":\"2026-12-31\"}]}";
static const char baselines[] =
	"{\"schema\":\"flamelab-baselines/1\",\"baselines\":[{\"gate\":\"unwind_cost\","
	"\"scenario\":\"overhead\",\"key\":\"k1\",\"value\":1000,\"why\":\"first measured\"},"
	"{\"gate\":\"ingestion\",\"scenario\":\"overhead\",\"key\":\"k1\",\"value\":1000,"
	"\"why\":\"first measured\"}]}";

static struct policy *policy;

static void setup(void)
{
	policy = calloc(1, sizeof(*policy));
	cr_assert_eq(policy_parse_unmeasured(policy, excuses, sizeof(excuses) - 1), 0, "%s",
		policy->unmeasured.message);
	cr_assert_eq(policy_parse_baselines(policy, baselines, sizeof(baselines) - 1), 0, "%s",
		policy->baselines.message);
}

static void teardown(void)
{
	policy_done(policy);
	free(policy);
}

TestSuite(policy, .init = setup, .fini = teardown);

static enum gate_status excused(
	enum gate_kind kind, enum gate_need need, enum vm_mode mode, const char *today)
{
	struct gate_list l = {0};
	struct gate *g = gate_add(&l, kind, "overhead", "", need);
	enum gate_status status;

	gate_unmeasured(g, "no data");
	gate_decide(g);
	policy_excuse(policy, &l, mode, today);
	status = l.items[0].status;
	gate_list_done(&l);
	return status;
}

Test(policy, listed_gate_is_excused_on_its_platform_until_its_expiry)
{
	cr_assert_eq(
		excused(GATE_OVERHEAD_REAL, GATE_PLATFORM, VM_EXACT, "2026-12-31"), GATE_EXCUSED);
	cr_assert_eq(excused(GATE_OVERHEAD_REAL, GATE_PLATFORM, VM_EXACT, "2027-01-01"),
		GATE_UNMEASURED);
	cr_assert_eq(
		excused(GATE_OVERHEAD_REAL, GATE_PLATFORM, VM_FAST, "2026-12-31"), GATE_UNMEASURED);
	cr_assert_eq(excused(GATE_SHARE, GATE_PLATFORM, VM_EXACT, "2026-12-31"), GATE_UNMEASURED);
}

Test(policy, required_gate_is_never_excused)
{
	cr_assert_eq(excused(GATE_OVERHEAD_REAL, GATE_REQUIRED, VM_EXACT, "2026-12-31"),
		GATE_UNMEASURED);
}

Test(policy, exit_codes_follow_the_contract)
{
	const struct {
		struct policy_counts c;
		enum policy_exit code;
	} rows[] = {
		{{.passed = 3}, POLICY_PASS},
		{{.passed = 3, .excused = 1}, POLICY_PASS},
		{{.passed = 3, .failed = 1}, POLICY_FAIL},
		{{.passed = 3, .failed = 1, .infrastructure = 1, .unmeasured = 9}, POLICY_FAIL},
		{{.passed = 3, .infrastructure = 1, .unmeasured = 9}, POLICY_INFRASTRUCTURE},
		{{.passed = 3, .unmeasured = 1}, POLICY_INCONCLUSIVE},
		{{.skipped = 2}, POLICY_SKIPPED},
		{{.excused = 1}, POLICY_SKIPPED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		cr_expect_eq(policy_exit_code(&rows[i].c), rows[i].code, "row %zu", i);
	cr_assert_eq(POLICY_FAIL, 1);
	cr_assert_eq(POLICY_USAGE, 2);
	cr_assert_eq(POLICY_INFRASTRUCTURE, 3);
	cr_assert_eq(POLICY_INCONCLUSIVE, 4);
	cr_assert_eq(POLICY_SKIPPED, 77);
}

static enum gate_status against(enum gate_kind gate, const char *key, bool drifted, double value)
{
	struct gate_list l = {0};
	struct gate *g = gate_add(&l, gate, "overhead", "", GATE_PLATFORM);
	enum gate_status status;

	policy_judge_baseline(policy, g, key, drifted, true, value);
	gate_decide(g);
	status = g->status;
	gate_list_done(&l);
	return status;
}

static enum gate_status baseline(const char *key, bool drifted, double value)
{
	return against(GATE_UNWIND_COST, key, drifted, value);
}

Test(policy, ingestion_allows_three_percent_more_and_any_less)
{
	cr_assert_eq(against(GATE_INGESTION, "k1", false, 1029), GATE_PASS);
	cr_assert_eq(against(GATE_INGESTION, "k1", false, 500), GATE_PASS);
	cr_assert_eq(against(GATE_INGESTION, "k1", false, 1031), GATE_FAIL);
	cr_assert_eq(against(GATE_INGESTION, "k2", false, 1000), GATE_UNMEASURED);
}

/* The key of a machine that nobody has measured on is excused, a known one is not. */
Test(policy, baseline_of_a_known_key_is_required)
{
	static const struct {
		const char *key;
		bool drifted;
		enum gate_need need;
	} rows[] = {{"k1", false, GATE_REQUIRED}, {"k2", false, GATE_PLATFORM},
		{"k1", true, GATE_PLATFORM}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct gate_list l = {0};
		struct gate *g = gate_add(&l, GATE_UNWIND_COST, "overhead", "", GATE_PLATFORM);

		policy_judge_baseline(policy, g, rows[i].key, rows[i].drifted, false, 0);
		gate_decide(g);
		cr_expect_eq(g->status, GATE_UNMEASURED, "row %zu", i);
		cr_expect_eq(g->need, rows[i].need, "row %zu", i);
		gate_list_done(&l);
	}
}

Test(policy, unwind_cost_allows_one_and_a_half_percent_more_and_any_less)
{
	cr_assert_eq(baseline("k1", false, 1014), GATE_PASS);
	cr_assert_eq(baseline("k1", false, 500), GATE_PASS);
	cr_assert_eq(baseline("k1", false, 1016), GATE_FAIL);
	cr_assert_eq(baseline("k2", false, 1000), GATE_UNMEASURED);
	cr_assert_eq(baseline("k1", true, 1000), GATE_UNMEASURED);
}

Test(policy, rebaseline_moves_one_value_and_keeps_the_others)
{
	char dir[] = "/tmp/flamelab-policy-XXXXXX", path[128];
	struct policy *again = calloc(1, sizeof(*again));
	struct json j;

	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(policy_rebaseline(policy, dir, GATE_UNWIND_COST, "overhead", "k \"2\"", 77,
			     "a new image of the kernel"),
		0);
	(void)snprintf(path, sizeof(path), "%s/baselines.json", dir);
	cr_assert_eq(json_load(&j, path), 0, "%s", j.message);
	json_done(&j);
	{
		FILE *f = fopen(path, "re");
		char text[4096];
		size_t n;

		cr_assert_not_null(f);
		n = fread(text, 1, sizeof(text), f);
		cr_assert_eq(fclose(f), 0);
		cr_assert_eq(
			policy_parse_baselines(again, text, n), 0, "%s", again->baselines.message);
	}
	cr_assert_eq(again->item_count, 3);
	cr_assert_eq(policy_find(again, GATE_UNWIND_COST, "overhead", "k1")->value, 1000);
	cr_assert_eq(policy_find(again, GATE_UNWIND_COST, "overhead", "k \"2\"")->value, 77);
	policy_done(again);
	free(again);
	(void)unlink(path);
	(void)rmdir(dir);
}

Test(policy, an_excuse_without_a_proper_date_is_refused)
{
	static const char bad[] =
		"{\"schema\":\"flamelab-unmeasured/1\",\"gates\":[{\"gate\":\"share\","
		"\"scenario\":\"*\",\"platform\":\"any\",\"reason\":\"because I say so\","
		"\"expiry\":\"never\"}]}";
	struct policy *p = calloc(1, sizeof(*p));

	cr_assert_lt(policy_parse_unmeasured(p, bad, sizeof(bad) - 1), 0);
	cr_assert_str_eq(p->unmeasured.message,
		"unmeasured.json: gates[0].expiry: \"never\" is not YYYY-MM-DD");
	policy_done(p);
	free(p);
}
