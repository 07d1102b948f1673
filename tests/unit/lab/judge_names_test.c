/* Names: what passes as named, and what each kind of wrong or missing name is called. */
#include <criterion/criterion.h>

#include "base/buf.h"
#include "base/def.h"
#include "lab/judge.h"

/* leaf < inner (inlined) < outer (inlined) < host < main, and other < host < main. */
static const char truth_text[] =
	"{\"schema\":\"flame-truth/1\",\"workload\":\"work\",\"argv\":[],\"pid\":100,\"seed\":1,"
	"\"checksum\":\"ab\",\"wall_ns\":1000000000,\"cpu_ns\":1000000000,\"functions\":["
	"{\"name\":\"leaf\",\"callers\":[\"inner\",\"outer\",\"host\",\"main\"],"
	"\"inlined\":[\"inner\",\"outer\"],\"cpu_ns\":900000000,\"wall_ns\":1,\"count\":1,\"wait_"
	"ns\":{}},"
	"{\"name\":\"other\",\"callers\":[\"host\",\"main\"],\"cpu_ns\":100000000,\"wall_ns\":1,"
	"\"count\":1,"
	"\"wait_ns\":{}}],\"threads\":[],\"wait_ns\":{}}";

static const char *const whole[] = {"leaf", "inner", "outer", "host", "main"};

/* samples of a stack given leaf first, all frames of one file; comm NULL: the workload's process */
static void add(struct evidence *e, const char *const *names, size_t count, const char *module,
	const char *comm, uint64_t samples)
{
	struct profile *p = e->profile;
	struct label labels[2] = {
		{.key = (uint32_t)profile_str(p, "pid"), .num = comm ? 200 : 100},
		{.key = (uint32_t)profile_str(p, "comm"),
			.str = (uint32_t)profile_str(p, comm ? comm : "work")},
	};
	int64_t values[2] = {(int64_t)samples, (int64_t)(samples * NSEC_PER_MSEC)};
	uint32_t ids[8];

	for (size_t i = 0; i < count; i++) {
		struct frame f = {.name = (uint32_t)profile_str(p, names[i]),
			.module = (uint32_t)profile_str(p, module)};

		ids[i] = (uint32_t)profile_frame(p, &f);
	}
	cr_assert_eq(profile_add(p, ids, (uint32_t)count, labels, 2, values), 0);
}

static void made(struct evidence *e)
{
	*e = (struct evidence){
		.step = "made", .has_truth = true, .has_agent = true, .has_profile = true};
	cr_assert_eq(truth_parse(&e->truth, "t.json", truth_text, sizeof(truth_text) - 1), 0, "%s",
		e->truth.doc.message);
	e->agent.frequency_real_hz = 1000;
	cr_assert_eq(profile_new(1 << 20, &e->profile), 0);
	cr_assert_geq(profile_sample_type(e->profile, "samples", "count"), 0);
	cr_assert_geq(profile_sample_type(e->profile, "cpu", "nanoseconds"), 0);
}

static enum gate_status decide(const struct scenario *s, const struct evidence *e, struct gate *ret)
{
	static const struct scenario plain = {.name = "made_up"};
	struct gate g = {.status = GATE_UNMEASURED};

	judge_names(&g, s ? s : &plain, e, 1);
	gate_decide(&g);
	if (ret)
		*ret = g;
	free(g.checks);
	return g.status;
}

Test(names, whole_chains_with_inlined_callers_in_order_pass)
{
	struct evidence e;

	made(&e);
	add(&e, whole, 5, "/opt/work", NULL, 900);
	add(&e, (const char *const[]){"other", "host", "main"}, 3, "/opt/work", NULL, 100);
	cr_assert_eq(decide(NULL, &e, NULL), GATE_PASS);
	evidence_done(&e);
}

static void fails(const char *const *names, size_t count, const char *module, uint64_t samples,
	const char *why)
{
	struct evidence e;
	struct gate g;

	made(&e);
	add(&e, whole, 5, "/opt/work", NULL, 1000 - samples);
	add(&e, names, count, module, NULL, samples);
	cr_assert_eq(decide(NULL, &e, &g), GATE_FAIL, "%s", why);
	cr_assert_not_null(strstr(g.text, why), "%s: %s", why, g.text);
	evidence_done(&e);
}

Test(names, inlined_callers_missing_swapped_or_interrupted_fail)
{
	fails((const char *const[]){"leaf", "host", "main"}, 3, "/opt/work", 6, "out of order");
	fails((const char *const[]){"leaf", "inner", "host", "main"}, 4, "/opt/work", 6,
		"out of order");
	fails((const char *const[]){"leaf", "outer", "inner", "host", "main"}, 5, "/opt/work", 6,
		"out of order");
	fails((const char *const[]){"leaf", "inner", "other", "outer", "host", "main"}, 6,
		"/opt/work", 6, "out of order");
}

Test(names, half_a_percent_of_stacks_out_of_order_is_the_limit)
{
	struct evidence e;

	made(&e);
	add(&e, whole, 5, "/opt/work", NULL, 995);
	add(&e, (const char *const[]){"leaf", "host", "main"}, 3, "/opt/work", NULL, 5);
	cr_assert_eq(decide(NULL, &e, NULL), GATE_PASS);
	evidence_done(&e);
}

Test(names, one_name_that_the_truth_does_not_know_fails_wherever_it_stands)
{
	fails((const char *const[]){"innocent_next", "leaf", "inner", "outer", "host", "main"}, 6,
		"/opt/work", 1, "innocent_next");
	fails((const char *const[]){"leaf", "inner", "outer", "host", "main", "innocent_next"}, 6,
		"/opt/work", 1, "innocent_next");
}

Test(names, what_every_workload_has_is_known_by_its_namespace)
{
	static const char *const known[] = {"args::parse(int, char**)",
		"void args::parse<5ul>(char const*)", "std::vector<node>::size() const",
		"truth::meter::stop(truth::function&)", "_start", "read@plt"};
	static const char *const strange[] = {"innocent(std::string)", "run(truth::function&)",
		"not_std::sort(int*)", "f<args::option>(int)"};
	struct evidence e;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		made(&e);
		add(&e, whole, 5, "/opt/work", NULL, 900);
		add(&e, &known[i], 1, "/opt/work", NULL, 100);
		cr_expect_eq(decide(NULL, &e, NULL), GATE_PASS, "%s", known[i]);
		evidence_done(&e);
	}
	for (size_t i = 0; i < ARRAY_SIZE(strange); i++) {
		made(&e);
		add(&e, whole, 5, "/opt/work", NULL, 900);
		add(&e, &strange[i], 1, "/opt/work", NULL, 100);
		cr_expect_eq(decide(NULL, &e, NULL), GATE_FAIL, "%s", strange[i]);
		evidence_done(&e);
	}
}

Test(names, foreign_functions_may_stand_between_and_anywhere)
{
	struct scenario s = {
		.name = "made_up", .foreign = {.item = {"runtime.", "_cgo"}, .count = 2}};
	const char *const names[] = {"leaf", "_cgoexp_1_leaf", "inner", "outer", "runtime.call",
		"host", "main", "runtime.goexit"};
	struct evidence e;

	made(&e);
	add(&e, names, 8, "/opt/work", NULL, 1000);
	cr_assert_eq(decide(&s, &e, NULL), GATE_PASS);
	cr_assert_eq(decide(NULL, &e, NULL), GATE_FAIL);
	evidence_done(&e);
}

Test(names, frames_without_a_name_have_a_limit_of_half_a_percent)
{
	static const char *const unnamed[] = {"[libx.so+0x10]", "[unknown]", "[anon]"};
	struct evidence e;

	for (size_t i = 0; i < ARRAY_SIZE(unnamed); i++) {
		made(&e);
		/* 24 of 4,896 frames, and 26 of 4,894. */
		add(&e, whole, 5, "/opt/work", NULL, 1000 - 26);
		add(&e, &unnamed[i], 1, "/opt/libx.so", NULL, 24);
		cr_assert_eq(decide(NULL, &e, NULL), GATE_PASS);
		add(&e, &unnamed[i], 1, "/opt/libx.so", NULL, 2);
		cr_assert_eq(decide(NULL, &e, NULL), GATE_FAIL);
		evidence_done(&e);
	}
}

Test(names, a_cut_stack_is_not_a_missing_name)
{
	struct evidence e;

	made(&e);
	add(&e, whole, 5, "/opt/work", NULL, 900);
	add(&e, (const char *const[]){"[truncated: too deep]"}, 1, "", NULL, 100);
	cr_assert_eq(decide(NULL, &e, NULL), GATE_PASS);
	evidence_done(&e);
}

Test(names, only_a_stripped_files_own_frames_are_excused)
{
	struct scenario s = {
		.name = "made_up", .stripped = {.item = {"work", "libc.so.6"}, .count = 2}};
	const char *const frames[] = {"[work+0x10]", "[work+0x20]", "[work+0x30]"};
	struct evidence e;
	struct gate g;

	made(&e);
	add(&e, frames, 3, "/opt/work", NULL, 1000);
	cr_assert_eq(decide(&s, &e, NULL), GATE_PASS);
	cr_assert_eq(decide(NULL, &e, NULL), GATE_FAIL);
	/* A name out of nothing. */
	add(&e, (const char *const[]){"innocent_next"}, 1, "/opt/work", NULL, 1);
	cr_assert_eq(decide(&s, &e, &g), GATE_FAIL);
	cr_assert_not_null(strstr(g.text, "innocent_next"), "%s", g.text);
	evidence_done(&e);

	made(&e);
	add(&e, frames, 3, "/opt/work", NULL, 900);
	add(&e, (const char *const[]){"[unknown]"}, 1, "", NULL, 100);
	cr_assert_eq(decide(&s, &e, NULL), GATE_FAIL);
	evidence_done(&e);

	/* Stacks that lost the program's frames altogether have no unnamed ones either. */
	made(&e);
	add(&e, frames, 3, "/opt/work", NULL, 900);
	add(&e, (const char *const[]){"read"}, 1, "/usr/lib/libc.so.6", NULL, 100);
	cr_assert_eq(decide(&s, &e, &g), GATE_FAIL);
	cr_assert_not_null(strstr(g.text, "no frame of the program"), "%s", g.text);
	evidence_done(&e);
}

Test(names, of_a_family_every_frame_of_every_program_has_a_name)
{
	struct scenario s = {.name = "made_up", .family = true};
	struct evidence e;

	made(&e);
	add(&e, whole, 5, "/opt/work", "work", 100000);
	cr_assert_eq(decide(&s, &e, NULL), GATE_PASS);
	add(&e, (const char *const[]){"[unknown]"}, 1, "", "other", 1);
	cr_assert_eq(decide(&s, &e, NULL), GATE_PASS);
	add(&e, (const char *const[]){"[unknown]"}, 1, "", "work", 1);
	cr_assert_eq(decide(&s, &e, NULL), GATE_FAIL);
	evidence_done(&e);
}

Test(names, no_samples_fail_and_no_profile_is_unmeasured)
{
	struct evidence e;

	made(&e);
	cr_assert_eq(decide(NULL, &e, NULL), GATE_FAIL);
	e.has_profile = false;
	cr_assert_eq(decide(NULL, &e, NULL), GATE_UNMEASURED);
	evidence_done(&e);
}
