/*
 * Whole stacks: from the function that worked up to main, with nobody in between who was not there. What
 * unwinding without frame pointers is judged by. See judge.h.
 *
 * Between two functions of the program there may be frames of libraries (qsort between a caller and its
 * comparison, the signal frame between a handler and what it interrupted): the truth does not
 * know those, so its callers must stand in order, not side by side. Frames of the program itself
 * must all be known to the truth.
 */
#include "base/def.h"
#include "base/str.h"
#include "lab/judge.h"
#include "lab/stacks.h"

/* "main", or the function a thread was started with: the last caller that the truth names. */
static bool chain_is_entry(const struct truth *t, const char *name)
{
	for (size_t i = 0; i < t->function_count; i++) {
		const struct truth_function *f = &t->functions[i];

		if (f->caller_count && stacks_name_is(name, f->callers[f->caller_count - 1]))
			return true;
	}
	return false;
}

/* A C++ function of that namespace; an instance of a template has its return type before its name. */
static bool chain_is_in(const char *name, const char *space)
{
	const char *at = strstr(name, space);

	return at && (size_t)(at - name) <= strcspn(name, "(<") && (at == name || at[-1] == ' ');
}

bool judge_is_known(const struct scenario *s, const struct truth *t, const char *name)
{
	for (size_t i = 0; i < s->foreign.count; i++)
		if (str_has_prefix(name, s->foreign.item[i]))
			return true;
	for (size_t i = 0; i < t->function_count; i++) {
		const struct truth_function *f = &t->functions[i];

		if (stacks_name_is(name, f->name))
			return true;
		for (size_t k = 0; k < f->caller_count; k++)
			if (stacks_name_is(name, f->callers[k]))
				return true;
	}
	/* What every workload has: the truth's own code, and what was linked in from libraries. */
	return name[0] == '_' || str_has_suffix(name, "@plt") || chain_is_in(name, "truth::") ||
	       chain_is_in(name, "args::") || chain_is_in(name, "std::");
}

struct stacks_chain judge_truth_chain(const struct truth_function *f)
{
	return (struct stacks_chain){.name = f->name,
		.callers = f->callers,
		.caller_count = f->caller_count,
		.inlined = f->inlined};
}

/* A sample of function name, whose first occurrence counts, that lacks every chain of the truth. */
static bool chain_is_broken(const struct truth *t, const struct stacks *st, const struct sample *s,
	const char *name, bool *ret_has_it)
{
	uint32_t at = stacks_find(st, s, name);

	*ret_has_it = at < s->frame_count;
	if (!*ret_has_it)
		return false;
	for (size_t i = 0; i < t->function_count; i++) {
		struct stacks_chain c = judge_truth_chain(&t->functions[i]);

		c.between = STACKS_ANYTHING;
		if (strcmp(c.name, name) == 0 && stacks_chain_at(st, s, at, &c))
			return false;
	}
	return true;
}

static bool chain_is_cut(const struct stacks *st, const struct sample *s)
{
	for (uint32_t i = 0; i < s->frame_count; i++)
		if (str_has_prefix(stacks_frame_name(st, s, i), "[truncated"))
			return true;
	return false;
}

/* A frame of the program, between the leaf and the entry, that the truth does not know. */
static bool chain_has_stranger(const struct scenario *sc, const struct truth *t,
	const struct stacks *st, const struct sample *s, const char **ret_name)
{
	for (uint32_t i = 0; i < s->frame_count; i++) {
		const char *name = stacks_frame_name(st, s, i);

		if (chain_is_entry(t, name))
			return false;
		if (strcmp(stacks_frame_module(st, s, i), t->workload) != 0 ||
			judge_is_known(sc, t, name))
			continue;
		*ret_name = name;
		return true;
	}
	return false;
}

struct chain_sums {
	double all, cut, strange, with, broken;
	const char *stranger;
};

static void chain_sum(const struct scenario *sc, const struct stacks *st, const struct truth *t,
	const char *name, struct chain_sums *ret)
{
	const struct profile *p = st->profile;
	struct sample s;

	*ret = (struct chain_sums){.stranger = "nobody"};
	for (size_t i = 0; profile_sample_at(p, i, &s); i++) {
		double w = (double)s.values[st->weight_type];
		const char *stranger = NULL;
		bool has;

		if (!stacks_is_ours(st, &s))
			continue;
		ret->all += w;
		if (chain_is_cut(st, &s))
			ret->cut += w;
		if (chain_has_stranger(sc, t, st, &s, &stranger)) {
			ret->strange += w;
			ret->stranger = stranger;
		}
		if (!name)
			continue;
		if (chain_is_broken(t, st, &s, name, &has))
			ret->broken += w;
		ret->with += has ? w : 0;
	}
}

/* CPU of all functions of that name, by truth. */
static double chain_cpu_ns(const struct truth *t, const char *name)
{
	double sum = 0;

	for (size_t i = 0; i < t->function_count; i++)
		if (strcmp(t->functions[i].name, name) == 0)
			sum += (double)t->functions[i].cpu_ns;
	return sum;
}

/* With 16 samples expected, none at all is 1 in 9 million; with fewer it is chance. */
bool judge_expects_samples(const struct evidence *e, const struct stacks *st, const char *name)
{
	struct stacks_sum all = stacks_total(st, 0);

	return chain_cpu_ns(&e->truth, name) * all.count >= 16 * all.weight_ns;
}

static void chain_judge_function(struct gate *g, const struct scenario *sc, const struct stacks *st,
	const struct evidence *e, const char *name)
{
	struct chain_sums sums;

	chain_sum(sc, st, &e->truth, name, &sums);
	if (!judge_expects_samples(e, st, name))
		return;
	gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX,
		sums.with > 0 ? 100 * sums.broken / sums.with : 100, 0,
		"stacks of %s without its whole chain%s, %s", name,
		sums.with > 0 ? "" : " (it is in no stack)", e->step);
}

static void chain_judge(struct gate *g, const struct scenario *sc, const struct evidence *e)
{
	const struct truth *t = &e->truth;
	struct chain_sums sums;
	struct stacks st;

	if (stacks_open(e->profile, t->pid, &st) < 0) {
		gate_unmeasured(g, "%s: profile has no values in nanoseconds", e->step);
		return;
	}
	if (sc->family)
		st.comm = t->workload;
	chain_sum(sc, &st, t, NULL, &sums);
	if (!(sums.all > 0)) {
		gate_check_most(g, "%", 0, 100, 0, "no samples of the workload, %s", e->step);
		return;
	}
	gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX, 100 * sums.cut / sums.all, 0,
		"stacks cut before the thread's first frame, %s", e->step);
	if (judge_is_stripped(sc, t->workload))
		return; /* nobody knows what its functions are called */
	gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX, 100 * sums.strange / sums.all, 0,
		"stacks with functions the truth does not know (%.40s), %s", sums.stranger,
		e->step);
	for (size_t i = 0; i < t->function_count; i++) {
		size_t first = 0;

		while (strcmp(t->functions[first].name, t->functions[i].name) != 0)
			first++;
		if (first == i && t->functions[i].cpu_ns > 0)
			chain_judge_function(g, sc, &st, e, t->functions[i].name);
	}
}

void judge_chain(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!e[i].has_truth || !e[i].has_profile) {
			gate_unmeasured(g, "%s", !e[i].has_truth ? e[i].no_truth : e[i].no_profile);
			continue;
		}
		chain_judge(g, s, &e[i]);
	}
}
