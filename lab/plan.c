/*
 * See plan.h. What varies from step to step is derived from the step's number by a seeded generator,
 * so that a plan is the same on every machine and every day.
 */
#include "lab/plan.h"

#include <errno.h>
#include <stdarg.h>

#include "base/def.h"
#include "base/rng.h"

/* By then a workload's stacks have been seen and their tables built; it is what stays that gate unwind_cost holds. */
static const uint64_t plan_warm_ms = 1000;
static const uint64_t plan_memory_max = 104857600; /* the 100 MB of DESIGN.md section 8 */

static _printf_(2, 3) const char *plan_text(struct arena *a, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* names are short, checked by the scenario */
	va_end(ap);
	return arena_strdup(a, text);
}

static int plan_args(const char *ret[JOB_ARGS_MAX], size_t *n, const struct scenario_args *args)
{
	for (size_t i = 0; i < args->count; i++) {
		if (*n >= JOB_ARGS_MAX - 1)
			return -E2BIG;
		ret[(*n)++] = args->item[i];
	}
	return 0;
}

/* A window as long as the workload lasts; later arguments replace earlier ones. */
static int plan_agent(struct arena *a, const struct scenario *s, const struct scenario_args *args,
	const char *binary, uint64_t seed, struct job_step *step)
{
	const char *const fixed[] = {"record", "--quiet", "--duration", "3600s", "--frequency",
		plan_text(a, "%llu", (unsigned long long)s->frequency_hz), "--jitter-seed",
		plan_text(a, "%llu", (unsigned long long)seed)};
	size_t n = 0;

	step->agent = binary;
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
		if (!fixed[i])
			return -ENOMEM;
		step->agent_args[n++] = fixed[i];
	}
	return plan_args(step->agent_args, &n, args);
}

/* Agent daemon and backend instead of a recording. */
static void plan_play(const struct scenario *s, uint64_t seed, struct job_step *step)
{
	step->agent = "flame-agent";
	step->backend = "flame-backend";
	step->play = s->play;
	step->frequency_hz = s->frequency_hz;
	step->jitter_seed = seed;
}

/* A step with the scenario's workload and the shipped agent. */
static int plan_step(struct arena *a, const struct scenario *s, const char *variant, uint64_t seed,
	struct job_step *step)
{
	size_t n = 0;
	int r;

	*step = (struct job_step){.workload = s->workload};
	step->name = plan_text(a, "%s.%s", s->name, variant);
	step->timeout_ms = s->step_timeout_s * 1000;
	step->verify = s->need[GATE_VERIFIER] != GATE_ABSENT;
	if (s->need[GATE_UNWIND_COST] != GATE_ABSENT)
		step->bpf_stats_after_ms = plan_warm_ms;
	step->memory_series = s->need[GATE_MEMORY_FLAT] != GATE_ABSENT;
	if (!step->name)
		return -ENOMEM;
	r = plan_args(step->workload_args, &n, &s->workload_args);
	for (size_t i = 0; i < s->beside.count; i++)
		step->beside[i] = s->beside.item[i];
	if (s->play)
		plan_play(s, seed, step);
	return r < 0 || s->play ? r : plan_agent(a, s, &s->agent_args, "flame-agent", seed, step);
}

static int plan_seeds(struct arena *a, const struct scenario *s, bool full, struct job_step *steps)
{
	int r = 0;

	for (size_t i = 0; i < s->seed_count && r == 0; i++) {
		char variant[32];

		(void)snprintf(variant, sizeof(variant), "seed%llu",
			(unsigned long long)s->seeds[i]); /* fits */
		r = plan_step(a, s, variant, s->seeds[i], &steps[i]);
		if (s->play)
			steps[i].play_count = full ? s->runs_full : s->runs_smoke;
	}
	return r;
}

static int plan_overhead(struct arena *a, const struct scenario *s, struct job_step *steps)
{
	int r = plan_step(a, s, "bare", s->seeds[0], &steps[0]);

	steps[0].agent = NULL;
	memset(steps[0].agent_args, 0, sizeof(steps[0].agent_args));
	if (r == 0)
		r = plan_step(a, s, "agent", s->seeds[0], &steps[1]);
	if (r == 0)
		r = plan_step(a, s, "limited", s->seeds[0], &steps[2]);
	steps[2].memory_max = plan_memory_max;
	steps[2].bpf_stats = true;
	return r;
}

/* Every program of the matrix, under its own name. */
static int plan_matrix(struct arena *a, const struct scenario *s, struct job_step *steps)
{
	int r = 0;

	for (size_t i = 0; i < s->program_count && r == 0; i++) {
		const struct scenario_program *p = &s->programs[i];
		size_t n = 0;

		r = plan_step(a, s, p->program, s->seeds[0], &steps[i]);
		steps[i].workload = p->program;
		if (r == 0)
			r = plan_args(steps[i].workload_args, &n, &p->args);
	}
	return r;
}

static int plan_perturb(
	struct arena *a, const struct scenario *s, struct job_step *steps, size_t count)
{
	struct rng rng = rng_seeded(s->seeds[0]);
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		char variant[32];

		(void)snprintf(variant, sizeof(variant), "run%03zu", i + 1); /* fits */
		r = plan_step(a, s, variant, rng_between(&rng, 1, UINT32_MAX), &steps[i]);
		steps[i].start_offset_ns = rng_between(&rng, 0, 20 * NSEC_PER_MSEC);
		steps[i].workload_env_pad = rng_between(&rng, 0, 4096);
	}
	return r;
}

static bool plan_has_cost(const struct scenario_fault *f)
{
	return f->red[GATE_UNWIND_COST] || f->green[GATE_UNWIND_COST];
}

/* What a sample costs is asked of this fault, or of one that is held against it. */
static bool plan_is_timed(const struct scenario *s, const struct scenario_fault *f)
{
	bool is_timed = plan_has_cost(f);

	for (size_t i = 0; i < s->fault_count; i++)
		is_timed |= plan_has_cost(&s->faults[i]) && s->faults[i].compare &&
			    strcmp(s->faults[i].compare, f->name) == 0;
	return is_timed;
}

static int plan_fault(struct arena *a, const struct scenario *s, const struct scenario_fault *f,
	struct job_step *step)
{
	int r = plan_step(a, s, f->name, s->seeds[0], step);
	size_t n = 0;

	memset(step->agent_args, 0, sizeof(step->agent_args));
	if (s->play) {
		step->backend = "flame-backend-faulty";
		step->play = f->play ? f->play : s->play;
		if (f->agent_env_count)
			step->agent = "flame-agent-faulty";
	}
	if (r == 0 && !s->play)
		r = plan_agent(a, s, f->agent_args.count ? &f->agent_args : &s->agent_args,
			"flame-agent-faulty", s->seeds[0], step);
	if (plan_is_timed(s, f))
		step->bpf_stats_after_ms = plan_warm_ms;
	for (size_t i = 0; i < f->env_count; i++)
		(s->play ? step->backend_env : step->agent_env)[i] = f->env[i];
	for (size_t i = 0; i < f->agent_env_count; i++)
		step->agent_env[i] = f->agent_env[i];
	if (f->workload && r == 0) {
		step->workload = f->workload;
		memset(step->workload_args, 0, sizeof(step->workload_args));
		r = plan_args(step->workload_args, &n, &f->workload_args);
	}
	return r;
}

static size_t plan_step_count(const struct scenario *s, const struct plan_options *o)
{
	switch (s->kind) {
	case SCENARIO_OVERHEAD:
		return 3;
	case SCENARIO_PERTURB:
		return o->runs ? o->runs : o->full ? s->runs_full : s->runs_smoke;
	case SCENARIO_SELFTEST:
		return s->fault_count;
	case SCENARIO_MATRIX:
		return s->program_count;
	default:
		return s->seed_count;
	}
}

static int plan_steps(
	struct arena *a, const struct scenario *s, bool full, struct job_step *steps, size_t count)
{
	int r = 0;

	switch (s->kind) {
	case SCENARIO_OVERHEAD:
		return plan_overhead(a, s, steps);
	case SCENARIO_PERTURB:
		return plan_perturb(a, s, steps, count);
	case SCENARIO_MATRIX:
		return plan_matrix(a, s, steps);
	case SCENARIO_SELFTEST:
		for (size_t i = 0; i < count && r == 0; i++)
			r = plan_fault(a, s, &s->faults[i], &steps[i]);
		return r;
	default:
		return plan_seeds(a, s, full, steps);
	}
}

/* Which boot a step goes to; a step that only reads another's recording goes nowhere. */
static size_t plan_boot_of(const struct scenario *s, size_t step)
{
	if (s->kind == SCENARIO_SELFTEST)
		return s->faults[step].boot;
	return step % s->boots;
}

static int plan_deal(struct arena *a, struct plan *p, const struct job_step *steps)
{
	const struct scenario *s = p->scenario;

	for (size_t b = 0; b < p->boot_count; b++) {
		struct job *j = &p->boots[b].job;
		size_t run = b / s->boots, n = 0;

		p->boots[b].dir_name =
			run ? plan_text(a, "%s.%zu.again%zu", s->name, b % s->boots, run)
			    : plan_text(a, "%s.%zu", s->name, b);
		j->steps = arena_alloc(a, (p->step_count + 1) * sizeof(*j->steps));
		if (!p->boots[b].dir_name || !j->steps)
			return -ENOMEM;
		for (size_t i = 0; i < p->step_count; i++)
			if (p->steps[i].boot == b % s->boots &&
				!(s->kind == SCENARIO_SELFTEST && s->faults[i].use))
				j->steps[n++] = steps[i];
		j->step_count = n;
		if (n > JOB_STEPS_MAX)
			return -E2BIG;
	}
	return 0;
}

static const char *plan_why_not(const struct scenario *s, enum vm_mode mode)
{
	if (mode == VM_EXACT && s->cpus != 1)
		return "exact mode has one CPU";
	if (mode != VM_EXACT && s->need[GATE_SAME_TWICE])
		return "only exact mode repeats to the nanosecond";
	if (mode == VM_HOST && s->arch != VM_X86_64)
		return "another architecture needs a VM";
	if (mode == VM_HOST && s->next_kernel)
		return "another kernel needs a VM";
	if (mode == VM_HOST && s->play && strcmp(s->play, "power_cut") == 0)
		return "power cuts need a VM's block devices";
	return NULL;
}

int plan_make(
	struct arena *a, const struct scenario *s, const struct plan_options *o, struct plan *ret)
{
	struct plan p = {.scenario = s, .mode = o->has_mode ? o->mode : s->mode};
	struct job_step *steps;
	int r;

	p.skipped = plan_why_not(s, p.mode);
	p.runs = MAX(s->repeat, o->repeat);
	p.runs = MAX(p.runs, 1);
	p.step_count = plan_step_count(s, o);
	p.boot_count = p.runs * s->boots;
	steps = arena_alloc(a, (p.step_count + 1) * sizeof(*steps));
	p.steps = arena_alloc(a, (p.step_count + 1) * sizeof(*p.steps));
	p.boots = arena_alloc(a, (p.boot_count + 1) * sizeof(*p.boots));
	if (!steps || !p.steps || !p.boots)
		return -ENOMEM;
	r = plan_steps(a, s, o->full, steps, p.step_count);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p.step_count; i++)
		p.steps[i] = (struct plan_step){.name = steps[i].name,
			.boot = plan_boot_of(s, i),
			.with_agent = steps[i].agent != NULL,
			.service = steps[i].play ? steps[i].workload : NULL};
	r = plan_deal(a, &p, steps);
	if (r == 0)
		*ret = p;
	return r;
}
