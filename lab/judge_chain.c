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

static bool chain_is_known(const struct truth *t, const char *name)
{
	for (size_t i = 0; i < t->function_count; i++) {
		const struct truth_function *f = &t->functions[i];

		if (stacks_name_is(name, f->name))
			return true;
		for (size_t k = 0; k < f->caller_count; k++)
			if (stacks_name_is(name, f->callers[k]))
				return true;
	}
	/* What every workload has: the truth's own code, and what was linked in from libraries. */
	return str_has_prefix(name, "truth::") || str_has_prefix(name, "args::") ||
	       str_has_prefix(name, "std::") || name[0] == '_';
}

/* The callers, direct one first, above frame `at`, others in between allowed. */
static bool chain_follows(const struct stacks *st, const struct sample *s, uint32_t at,
	const struct truth_function *f)
{
	size_t k = 0;

	for (uint32_t i = at + 1; i < s->frame_count && k < f->caller_count; i++)
		if (stacks_name_is(stacks_frame_name(st, s, i), f->callers[k]))
			k++;
	return k == f->caller_count;
}

/* A sample of function name, whose first occurrence counts, that lacks every chain of the truth. */
static bool chain_is_broken(const struct truth *t, const struct stacks *st, const struct sample *s,
	const char *name, bool *ret_has_it)
{
	uint32_t at = stacks_find(st, s, name);

	*ret_has_it = at < s->frame_count;
	if (!*ret_has_it)
		return false;
	for (size_t i = 0; i < t->function_count; i++)
		if (strcmp(t->functions[i].name, name) == 0 &&
			chain_follows(st, s, at, &t->functions[i]))
			return false;
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
static bool chain_has_stranger(const struct truth *t, const struct stacks *st,
	const struct sample *s, const char **ret_name)
{
	const struct profile *p = st->profile;

	for (uint32_t i = 0; i < s->frame_count; i++) {
		const struct frame *f = profile_frame_at(p, s->frames[i]);
		const char *path = f && f->kind != FRAME_KERNEL ? profile_text(p, f->module) : "";
		const char *slash = strrchr(path, '/');
		const char *name = stacks_frame_name(st, s, i);

		if (chain_is_entry(t, name))
			return false;
		if (strcmp(slash ? slash + 1 : path, t->workload) != 0 || chain_is_known(t, name))
			continue;
		*ret_name = name;
		return true;
	}
	return false;
}

struct chain_sums {
	double all, cut, strange, with, broken;
	double samples; /* 0: the profile does not count them */
	const char *stranger;
};

static void chain_sum(
	const struct stacks *st, const struct truth *t, const char *name, struct chain_sums *ret)
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
		if (st->has_count)
			ret->samples += (double)s.values[st->count_type];
		if (chain_is_cut(st, &s))
			ret->cut += w;
		if (chain_has_stranger(t, st, &s, &stranger)) {
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

static void chain_judge_function(
	struct gate *g, const struct stacks *st, const struct evidence *e, const char *name)
{
	struct chain_sums sums;

	chain_sum(st, &e->truth, name, &sums);
	/* With 16 samples expected, none at all is 1 in 9 million; with fewer it is chance. */
	if (!(sums.with > 0) && chain_cpu_ns(&e->truth, name) * sums.samples < 16 * sums.all)
		return;
	gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX,
		sums.with > 0 ? 100 * sums.broken / sums.with : 100, 0,
		"stacks of %s without its whole chain%s, %s", name,
		sums.with > 0 ? "" : " (it is in no stack)", e->step);
}

static void chain_judge(struct gate *g, const struct evidence *e)
{
	const struct truth *t = &e->truth;
	struct chain_sums sums;
	struct stacks st;

	if (stacks_open(e->profile, t->pid, &st) < 0) {
		gate_unmeasured(g, "%s: profile has no values in nanoseconds", e->step);
		return;
	}
	chain_sum(&st, t, NULL, &sums);
	if (!(sums.all > 0)) {
		gate_check_most(g, "%", 0, 100, 0, "no samples of the workload, %s", e->step);
		return;
	}
	gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX, 100 * sums.cut / sums.all, 0,
		"stacks cut before the thread's first frame, %s", e->step);
	gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX, 100 * sums.strange / sums.all, 0,
		"stacks with functions the truth does not know (%.40s), %s", sums.stranger,
		e->step);
	for (size_t i = 0; i < t->function_count; i++) {
		size_t first = 0;

		while (strcmp(t->functions[first].name, t->functions[i].name) != 0)
			first++;
		if (first == i && t->functions[i].cpu_ns > 0)
			chain_judge_function(g, &st, e, t->functions[i].name);
	}
}

void judge_chain(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!e[i].has_truth || !e[i].has_profile) {
			gate_unmeasured(g, "%s", !e[i].has_truth ? e[i].no_truth : e[i].no_profile);
			continue;
		}
		chain_judge(g, &e[i]);
	}
}
