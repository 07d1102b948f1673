/* Plans: what a scenario becomes, and that it becomes the same every time. */
#include <criterion/criterion.h>

#include "base/def.h"
#include "lab/plan.h"

static struct scenario_list list;
static struct arena *arena;

static void setup(void)
{
	cr_assert_eq(scenario_list_load(&list, "lab/scenarios"), 0, "%s", list.message);
	arena = arena_new(64 << 20);
}

static void teardown(void)
{
	arena_free(arena);
	scenario_list_done(&list);
}

TestSuite(plan, .init = setup, .fini = teardown);

static void make(const char *name, const struct plan_options *o, struct plan *ret)
{
	struct scenario *s = scenario_find(&list, name);

	cr_assert_not_null(s, "%s", name);
	cr_assert_eq(plan_make(arena, s, o, ret), 0);
}

static bool has_arg(const char *const *args, const char *want)
{
	for (size_t i = 0; args[i]; i++)
		if (strcmp(args[i], want) == 0)
			return true;
	return false;
}

Test(plan, every_committed_scenario_becomes_valid_jobs)
{
	for (size_t i = 0; i < list.count; i++) {
		struct plan_options o = {0};
		struct plan p;

		make(list.items[i].name, &o, &p);
		for (size_t b = 0; b < p.boot_count; b++) {
			_cleanup_(buf_done) struct buf text = BUF_INIT(1 << 20);

			cr_assert_eq(
				job_write(&p.boots[b].job, &text), 0, "%s", p.boots[b].dir_name);
		}
	}
}

Test(plan, a_matrix_runs_each_program_once_with_its_own_arguments)
{
	struct plan_options o = {0};
	struct scenario *s = scenario_find(&list, "matrix");
	size_t steps = 0;
	struct plan p;

	make("matrix", &o, &p);
	cr_assert_eq(p.step_count, s->program_count);
	for (size_t b = 0; b < p.boot_count; b++)
		for (size_t i = 0; i < p.boots[b].job.step_count; i++, steps++) {
			const struct job_step *step = &p.boots[b].job.steps[i];
			size_t k = 0;

			while (strcmp(s->programs[k].program, step->workload) != 0)
				k++; /* it is there: the step was made of it */
			cr_assert_str_eq(step->workload_args[0], s->programs[k].args.item[0]);
			cr_assert(has_arg(step->agent_args, "997"));
		}
	cr_assert_eq(steps, s->program_count);
}

Test(plan, accuracy_runs_all_seeds_in_one_boot)
{
	struct plan_options o = {0};
	struct plan p;

	make("cpu_split", &o, &p);
	cr_assert_eq(p.boot_count, 1);
	cr_assert_eq(p.step_count, 8);
	cr_assert_eq(p.boots[0].job.step_count, 8);
	cr_assert_str_eq(p.steps[0].name, "cpu_split.seed11");
	cr_assert(has_arg(p.boots[0].job.steps[0].agent_args, "997"));
}

Test(plan, overhead_compares_bare_agent_and_limited)
{
	struct plan_options o = {0};
	const struct job_step *s;
	struct plan p;

	make("overhead", &o, &p);
	s = p.boots[0].job.steps;
	cr_assert_null(s[0].agent);
	cr_assert_str_eq(s[1].agent, "flame-agent");
	cr_assert_eq(s[1].memory_max, 0);
	cr_assert_eq(s[2].memory_max, 104857600);
	cr_assert(s[2].bpf_stats);
	cr_assert(!s[1].bpf_stats);
}

Test(plan, samples_are_timed_only_where_their_cost_is_judged_and_only_when_warm)
{
	static const char *const timed[] = {"plain_sample", "plain_sample_again", "sample_slow"};
	struct scenario *s = scenario_find(&list, "selftest");
	struct plan_options o = {0};
	size_t found = 0;
	struct plan p;

	make("unwind_cost", &o, &p);
	cr_assert(p.boots[0].job.steps[0].bpf_stats_after_ms > 0);
	cr_assert(!p.boots[0].job.steps[0].bpf_stats, "else the first samples count, too");
	make("matrix", &o, &p);
	cr_assert_eq(p.boots[0].job.steps[0].bpf_stats_after_ms, 0);
	make("selftest", &o, &p);
	for (size_t b = 0; b < p.boot_count; b++)
		for (size_t i = 0; i < p.boots[b].job.step_count; i++) {
			const char *name = p.boots[b].job.steps[i].name + strlen(s->name) + 1;
			bool want = false;

			for (size_t k = 0; k < ARRAY_SIZE(timed); k++)
				want |= strcmp(name, timed[k]) == 0;
			found += want;
			cr_expect_eq(
				p.boots[b].job.steps[i].bpf_stats_after_ms > 0, want, "%s", name);
		}
	cr_assert_eq(found, ARRAY_SIZE(timed));
}

Test(plan, perturb_varies_and_is_the_same_on_every_machine)
{
	struct plan_options o = {0}, full = {.full = true};
	const struct job_step *s;
	struct plan p, again;

	make("perturb", &o, &p);
	make("perturb", &o, &again);
	cr_assert_eq(p.step_count, 20);
	cr_assert_eq(p.boot_count, 2);
	cr_assert_eq(p.boots[0].job.step_count, 10);
	s = p.boots[0].job.steps;
	cr_assert_neq(s[0].start_offset_ns, s[1].start_offset_ns);
	cr_assert_neq(s[0].workload_env_pad, s[1].workload_env_pad);
	cr_assert_str_neq(s[0].agent_args[7], s[1].agent_args[7]);
	for (size_t i = 0; i < 10; i++) {
		cr_assert_eq(s[i].start_offset_ns, again.boots[0].job.steps[i].start_offset_ns);
		cr_assert_str_eq(s[i].agent_args[7], again.boots[0].job.steps[i].agent_args[7]);
	}
	make("perturb", &full, &p);
	cr_assert_eq(p.step_count, 100);
}

Test(plan, determinism_runs_the_same_job_in_two_vms)
{
	struct plan_options o = {0};
	struct plan p;
	_cleanup_(buf_done) struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);

	make("determinism", &o, &p);
	cr_assert_eq(p.runs, 2);
	cr_assert_eq(p.boot_count, 2);
	cr_assert_str_neq(p.boots[0].dir_name, p.boots[1].dir_name);
	cr_assert_eq(job_write(&p.boots[0].job, &a), 0);
	cr_assert_eq(job_write(&p.boots[1].job, &b), 0);
	cr_assert_str_eq(a.data, b.data);
}

Test(plan, selftest_steps_run_the_faulty_agent_and_reuse_recordings)
{
	struct plan_options o = {0};
	size_t steps = 0;
	struct plan p;

	make("selftest", &o, &p);
	for (size_t b = 0; b < p.boot_count; b++)
		for (size_t i = 0; i < p.boots[b].job.step_count; i++, steps++)
			cr_assert_str_eq(p.boots[b].job.steps[i].agent, "flame-agent-faulty");
	cr_assert_eq(steps, p.step_count - 1); /* truth_off_3_points has no step of its own */
}

Test(plan, modes_that_cannot_run_a_scenario_skip_it_with_the_reason)
{
	struct plan_options exact = {.has_mode = true, .mode = VM_EXACT};
	struct plan_options host = {.has_mode = true, .mode = VM_HOST};
	struct plan p;

	make("fast_smp2", &exact, &p);
	cr_assert_str_eq(p.skipped, "exact mode has one CPU");
	make("determinism", &host, &p);
	cr_assert_not_null(p.skipped);
	make("power_cut", &host, &p);
	cr_assert_not_null(p.skipped);
	make("cpu_split", &host, &p);
	cr_assert_null(p.skipped);
}

static const struct job_step *find_step(const struct plan *p, const char *name)
{
	for (size_t b = 0; b < p->boot_count; b++)
		for (size_t i = 0; i < p->boots[b].job.step_count; i++)
			if (strcmp(p->boots[b].job.steps[i].name, name) == 0)
				return &p->boots[b].job.steps[i];
	cr_assert(false, "no step %s", name);
	return NULL;
}

Test(plan, fleet_runs_daemon_and_backend_and_counts_by_suite)
{
	struct plan_options o = {0};
	struct plan p;
	const struct job_step *s;

	make("fleet_loop", &o, &p);
	s = &p.boots[0].job.steps[0];
	cr_assert_str_eq(s->play, "loop");
	cr_assert_str_eq(s->backend, "flame-backend");
	cr_assert_str_eq(p.steps[0].service, "cpu_split");
	cr_assert_eq(s->frequency_hz, 997);
	cr_assert_null(s->agent_args[0]);
	make("fleet_cycles", &o, &p);
	cr_assert_eq(p.boots[0].job.steps[0].play_count, 12);
	make("selftest_fleet", &o, &p);
	cr_assert_str_eq(find_step(&p, "selftest_fleet.ack_early")->play, "faults");
	cr_assert_str_eq(find_step(&p, "selftest_fleet.ack_early")->agent, "flame-agent");
	s = find_step(&p, "selftest_fleet.spool_unbounded");
	cr_assert_str_eq(s->play, "spool");
	cr_assert_str_eq(s->agent, "flame-agent-faulty");
	cr_assert_str_eq(s->agent_env[0], "FLAME_FAULT=spool_unbounded");
	cr_assert_null(s->backend_env[0]);
	o.full = true;
	make("fleet_cycles", &o, &p);
	cr_assert_eq(p.boots[0].job.steps[0].play_count, 100);
}
