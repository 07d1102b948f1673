/* Gates on the recorded stacks: shares, callers, forbidden frames, names. See judge.h. */
#include <errno.h>
#include <math.h>

#include "base/def.h"
#include "lab/judge.h"
#include "lab/stacks.h"

double judge_share_tolerance(double p, double n)
{
	p = fmin(fmax(p, 0), 1);
	if (!(n > 0))
		return INFINITY;
	return JUDGE_Z * sqrt(p * (1 - p) * (1 + JUDGE_JITTER_CV2) / n) + JUDGE_SYSTEMATIC;
}

/* For sampling errors: what the recording says, or the daemon's windows. */
static double judge_hz(const struct evidence *e)
{
	return e->is_fleet ? e->windows.frequency_hz : e->agent.frequency_real_hz;
}

/* Opens the profile of the workload's process, or says why the gate is unmeasured. */
static bool judge_open(struct gate *g, const struct evidence *e, struct stacks *ret)
{
	if (!e->has_truth || !e->has_profile || (!e->has_agent && !e->is_fleet)) {
		gate_unmeasured(g, "%s",
			!e->has_truth     ? e->no_truth
			: !e->has_profile ? e->no_profile
					  : e->no_agent);
		return false;
	}
	/* The backend answers by service, whose only process is the workload's. */
	if (stacks_open(e->profile, e->is_fleet ? 0 : e->truth.pid, ret) < 0) {
		gate_unmeasured(g, "%s: profile has no values in nanoseconds", e->step);
		return false;
	}
	return true;
}

/* Callers of the expectation are a prefix of the truth's. */
static bool judge_expects(const struct scenario_expect *x, const struct truth_function *f)
{
	if (strcmp(x->name, f->name) != 0 || x->caller_count > f->caller_count)
		return false;
	for (size_t i = 0; i < x->caller_count; i++)
		if (strcmp(x->callers[i], f->callers[i]) != 0)
			return false;
	return true;
}

/* CPU of the expected function by truth; -1 when truth does not know it. */
static double judge_truth_cpu(const struct scenario_expect *x, const struct truth *t)
{
	double sum = -1;

	for (size_t i = 0; i < t->function_count; i++)
		if (judge_expects(x, &t->functions[i]))
			sum = fmax(sum, 0) + (double)t->functions[i].cpu_ns;
	return sum;
}

/* "split_heavy < path_a" */
static void judge_name(const struct scenario_expect *x, char ret[96])
{
	(void)snprintf(ret, 96, "%.60s%s%.30s", x->name, x->caller_count ? " < " : "",
		x->caller_count ? x->callers[0] : "");
}

struct judge_part {
	double truth_ns, process_ns;
	struct stacks_sum measured, total;
};

/* Adds one step's figures for one expectation. */
static bool judge_part_add(struct gate *g, const struct scenario_expect *x,
	const struct evidence *e, struct judge_part *part)
{
	struct stacks_chain chain = {x->name, x->callers, x->caller_count};
	double cpu, hz = judge_hz(e);
	struct stacks_sum sum;
	struct stacks st;

	if (!judge_open(g, e, &st))
		return false;
	cpu = judge_truth_cpu(x, &e->truth);
	if (cpu < 0) {
		gate_unmeasured(g, "%s: truth does not mention %s", e->step, x->name);
		return false;
	}
	part->truth_ns += cpu;
	part->process_ns += (double)truth_process_cpu_ns(&e->truth);
	sum = stacks_under(&st, &chain, hz);
	part->measured.weight_ns += sum.weight_ns;
	part->measured.count += sum.count;
	sum = stacks_total(&st, hz);
	part->total.weight_ns += sum.weight_ns;
	part->total.count += sum.count;
	return true;
}

static void judge_part_check(struct gate *g, const struct scenario_expect *x,
	const struct judge_part *part, const char *where)
{
	double expected = part->truth_ns / part->process_ns;
	double measured = part->measured.weight_ns / part->total.weight_ns;
	double tolerance = judge_share_tolerance(expected, part->total.count);
	char name[96];

	judge_name(x, name);
	if (!(part->process_ns > 0)) {
		gate_unmeasured(g, "%s: truth has no CPU", where);
		return;
	}
	/* An empty profile is a wrong one, not a missing one: the workload did run. */
	if (!(part->total.weight_ns > 0)) {
		gate_check_near(g, "%", 100 * expected, 0, 0, "%s, no samples, %s", name, where);
		return;
	}
	gate_check_near(
		g, "%", 100 * expected, 100 * measured, 100 * tolerance, "%s, %s", name, where);
}

void judge_share(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < s->expect_count; k++) {
			struct judge_part part = {0};

			if (judge_part_add(g, &s->expect[k], &e[i], &part))
				judge_part_check(g, &s->expect[k], &part, e[i].step);
		}
}

void judge_share_pooled(
	struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	for (size_t k = 0; k < s->expect_count; k++) {
		struct judge_part part = {0};
		char where[48];
		bool whole = true;

		for (size_t i = 0; i < count && whole; i++)
			whole = judge_part_add(g, &s->expect[k], &e[i], &part);
		if (!whole || count == 0)
			continue;
		(void)snprintf(where, sizeof(where), "%zu runs pooled", count);
		judge_part_check(g, &s->expect[k], &part, where);
	}
}

/*
 * A function that burns its CPU itself has nothing below it but the odd interrupt; on a real machine
 * that may be percents, so only exact mode looks.
 */
static void judge_leaf(struct gate *g, const struct scenario *s, const char *name,
	const struct stacks *st, const struct stacks_sum *all, const struct evidence *e)
{
	struct stacks_sum above;
	bool leaf = false;

	for (size_t k = 0; k < s->expect_count; k++)
		leaf |= s->expect[k].leaf && strcmp(s->expect[k].name, name) == 0;
	if (!leaf || !e->exact)
		return;
	above = stacks_above(st, name, e->agent.frequency_real_hz);
	gate_check_most(g, "%", 100 * JUDGE_PATH_MAX, 100 * above.weight_ns / all->weight_ns,
		100 * judge_share_tolerance(JUDGE_PATH_MAX, all->count),
		"stacks of %s with frames below it, %s", name, e->step);
}

void judge_path(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double hz = judge_hz(&e[i]);
		struct stacks st;

		if (!judge_open(g, &e[i], &st))
			continue;
		st.without_late = !e[i].exact;
		for (size_t k = 0; k < s->expect_count; k++) {
			struct stacks_chain chains[TRUTH_FUNCTIONS_MAX];
			const char *name = s->expect[k].name;
			struct stacks_sum astray, all;
			size_t n = 0;

			/* One check a function, however many of its callers are expected. */
			if (k && strcmp(s->expect[k - 1].name, name) == 0)
				continue;
			for (size_t f = 0; f < e[i].truth.function_count; f++)
				if (strcmp(e[i].truth.functions[f].name, name) == 0)
					chains[n++] = (struct stacks_chain){name,
						e[i].truth.functions[f].callers,
						e[i].truth.functions[f].caller_count};
			if (n == 0) {
				gate_unmeasured(
					g, "%s: truth does not mention %s", e[i].step, name);
				continue;
			}
			astray = stacks_astray(&st, name, chains, n, hz);
			all = stacks_under(&st, &(struct stacks_chain){.name = name}, hz);
			if (!(all.weight_ns > 0)) {
				gate_check_most(g, "%", 0, 100, 0, "%s is in no stack, %s", name,
					e[i].step);
				continue;
			}
			gate_check_most(g, "%", 100 * JUDGE_PATH_MAX,
				100 * astray.weight_ns / all.weight_ns,
				100 * judge_share_tolerance(JUDGE_PATH_MAX, all.count),
				"stacks of %s without its callers, %s", name, e[i].step);
			judge_leaf(g, s, name, &st, &all, &e[i]);
		}
	}
}

void judge_forbidden(
	struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double hz = judge_hz(&e[i]);
		struct stacks_sum sum, total;
		struct stacks st;

		if (!judge_open(g, &e[i], &st))
			continue;
		total = stacks_total(&st, hz);
		if (!(total.weight_ns > 0)) {
			gate_unmeasured(g, "%s: profile has no samples of the workload", e[i].step);
			continue;
		}
		for (size_t k = 0; k < s->forbid_count; k++) {
			const struct scenario_forbid *f = &s->forbid[k];

			sum = stacks_under(&st, &(struct stacks_chain){.name = f->frame}, hz);
			gate_check_most(g, "%", 100 * f->share_max,
				100 * sum.weight_ns / total.weight_ns,
				f->share_max > 0
					? 100 * judge_share_tolerance(f->share_max, total.count)
					: 0,
				"%s, %s", f->frame, e[i].step);
		}
	}
}

void judge_symbols(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double hz = judge_hz(&e[i]);
		struct stacks_sum unnamed, total;
		struct stacks st;

		if (!judge_open(g, &e[i], &st))
			continue;
		unnamed = stacks_unnamed(&st, e[i].truth.workload, hz);
		total = stacks_total(&st, hz);
		if (!(total.weight_ns > 0)) {
			gate_unmeasured(g, "%s: profile has no samples of the workload", e[i].step);
			continue;
		}
		gate_check_most(g, "%", 100 * JUDGE_SYMBOLS_MAX,
			100 * unnamed.weight_ns / total.weight_ns, 0,
			"stacks with unnamed frames of %s, %s", e[i].truth.workload, e[i].step);
	}
}
