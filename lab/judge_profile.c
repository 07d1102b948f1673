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

bool judge_open(
	struct gate *g, const struct scenario *s, const struct evidence *e, struct stacks *ret)
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
	if (s && s->family)
		ret->comm = e->truth.workload;
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

/*
 * What is expected of a recording: the scenario's list, or, of a matrix, whatever the program's truth says: each
 * function, and each of its ways if there is more than one.
 */
static size_t judge_wanted(const struct scenario *s, const struct evidence *e,
	struct scenario_expect ret[TRUTH_FUNCTIONS_MAX])
{
	const struct truth *t = &e->truth;
	size_t n = 0;

	if (s->kind != SCENARIO_MATRIX) {
		for (; n < s->expect_count; n++)
			ret[n] = s->expect[n];
		return n;
	}
	for (size_t i = 0; e->has_truth && i < t->function_count; i++) {
		const struct truth_function *f = &t->functions[i];
		size_t same = 0;

		for (size_t k = 0; k < t->function_count; k++)
			same += strcmp(t->functions[k].name, f->name) == 0;
		if (f->cpu_ns == 0)
			continue;
		ret[n] = (struct scenario_expect){.name = f->name};
		if (same > 1)
			ret[n].caller_count = MIN(f->caller_count, SCENARIO_CALLERS_MAX);
		for (size_t k = 0; k < ret[n].caller_count; k++)
			ret[n].callers[k] = f->callers[k];
		n++;
	}
	return n;
}

/* The expectation as a question to the stacks; which callers are inlined, only truth knows. */
static struct stacks_chain judge_expect_chain(
	const struct scenario *s, const struct scenario_expect *x, const struct truth *t)
{
	struct stacks_chain c = {.name = x->name,
		.callers = x->callers,
		.caller_count = x->caller_count,
		.between = s->kind == SCENARIO_MATRIX ? STACKS_ANYTHING : STACKS_NOTHING};

	for (size_t i = 0; i < t->function_count && !c.inlined; i++)
		if (judge_expects(x, &t->functions[i]))
			c.inlined = t->functions[i].inlined;
	return c;
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
static bool judge_part_add(struct gate *g, const struct scenario *s,
	const struct scenario_expect *x, const struct evidence *e, struct judge_part *part)
{
	struct stacks_chain chain;
	double cpu, hz = judge_hz(e);
	struct stacks_sum sum;
	struct stacks st;

	if (!judge_open(g, s, e, &st))
		return false;
	chain = judge_expect_chain(s, x, &e->truth);
	cpu = judge_truth_cpu(x, &e->truth);
	if (cpu < 0) {
		gate_unmeasured(g, "%s: truth does not mention %s", e->step, x->name);
		return false;
	}
	part->truth_ns += cpu;
	part->process_ns += (double)(s->family ? e->truth.cpu_ns : truth_process_cpu_ns(&e->truth));
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

/* Every sample of the function says that it is in this container, or in none. */
static void judge_container(struct gate *g, const struct scenario *s,
	const struct scenario_expect *x, const struct evidence *e)
{
	double all = 0, astray = 0;
	struct sample sample;
	struct stacks st;

	if (!x->container || !judge_open(g, s, e, &st))
		return;
	for (size_t i = 0; profile_sample_at(st.profile, i, &sample); i++) {
		double w = (double)sample.values[st.weight_type];

		if (!stacks_is_ours(&st, &sample) ||
			stacks_find(&st, &sample, x->name) == sample.frame_count)
			continue;
		all += w;
		if (strcmp(stacks_label(&st, &sample, "container"), x->container) != 0)
			astray += w;
	}
	gate_check_most(g, "%", 0, all > 0 ? 100 * astray / all : 100, 0,
		"samples of %s that are not in container \"%s\", %s", x->name, x->container,
		e->step);
}

void judge_share(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	struct scenario_expect want[TRUTH_FUNCTIONS_MAX];

	for (size_t i = 0; i < count; i++) {
		size_t n = judge_wanted(s, &e[i], want);

		/* What a stripped program's functions are called, nobody knows. */
		if (e[i].has_truth && judge_is_stripped(s, e[i].truth.workload))
			continue;
		if (n == 0)
			gate_unmeasured(
				g, "%s", e[i].has_truth ? "truth names nothing" : e[i].no_truth);
		for (size_t k = 0; k < n; k++) {
			struct judge_part part = {0};

			if (judge_part_add(g, s, &want[k], &e[i], &part))
				judge_part_check(g, &want[k], &part, e[i].step);
			judge_container(g, s, &want[k], &e[i]);
		}
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
			whole = judge_part_add(g, s, &s->expect[k], &e[i], &part);
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

static void judge_path_of(struct gate *g, const struct scenario *s, const char *name,
	const struct stacks *st, const struct evidence *e)
{
	struct stacks_chain chains[TRUTH_FUNCTIONS_MAX];
	struct stacks_sum astray, all;
	double hz = judge_hz(e);
	size_t n = 0;

	for (size_t f = 0; f < e->truth.function_count; f++) {
		if (strcmp(e->truth.functions[f].name, name) != 0)
			continue;
		chains[n] = judge_truth_chain(&e->truth.functions[f]);
		chains[n].between = STACKS_FOREIGN;
		chains[n].foreign = s->foreign.item;
		chains[n++].foreign_count = s->foreign.count;
	}
	if (n == 0) {
		gate_unmeasured(g, "%s: truth does not mention %s", e->step, name);
		return;
	}
	astray = stacks_astray(st, name, chains, n, hz);
	all = stacks_under(st, &(struct stacks_chain){.name = name}, hz);
	if (s->kind == SCENARIO_MATRIX && !judge_expects_samples(e, st, name))
		return; /* of a few, one may be cut */
	if (!(all.weight_ns > 0)) {
		gate_check_most(g, "%", 0, 100, 0, "%s is in no stack, %s", name, e->step);
		return;
	}
	gate_check_most(g, "%", 100 * JUDGE_PATH_MAX, 100 * astray.weight_ns / all.weight_ns,
		100 * judge_share_tolerance(JUDGE_PATH_MAX, all.count),
		"stacks of %s without its callers, %s", name, e->step);
	judge_leaf(g, s, name, st, &all, e);
}

void judge_path(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	struct scenario_expect want[TRUTH_FUNCTIONS_MAX];

	for (size_t i = 0; i < count; i++) {
		struct stacks st;
		size_t n;

		if (!judge_open(g, s, &e[i], &st))
			continue;
		st.without_late = !e[i].exact;
		n = judge_wanted(s, &e[i], want);
		for (size_t k = 0; k < n; k++) {
			size_t first = 0;

			/* One check a function, however many of its callers are expected. */
			while (strcmp(want[first].name, want[k].name) != 0)
				first++;
			if (first == k)
				judge_path_of(g, s, want[k].name, &st, &e[i]);
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

		if (!judge_open(g, s, &e[i], &st))
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

		if (!judge_open(g, NULL, &e[i], &st))
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
