/*
 * Names: the third thing that can be wrong with a stack whose frames are all there. See judge.h.
 *
 * A function's callers must stand in truth's order with the inlined ones unfolded; only frames that the scenario
 * calls foreign may be in between. Nothing of the program's own file may be called what neither truth nor scenario
 * knows, wherever it stands in a stack: a wrong name is worse than none. And next to no frame may be without a name,
 * but for the files that the scenario says are stripped: what is in no file, nobody can know. If the program itself
 * is one of them, its frames must be there, as "[file+0x...]".
 */
#include "base/def.h"
#include "base/str.h"
#include "lab/judge.h"

bool judge_is_stripped(const struct scenario *s, const char *module)
{
	for (size_t i = 0; i < s->stripped.count; i++)
		if (str_has_prefix(module, s->stripped.item[i]))
			return true;
	return false;
}

/* "[file+0x...]", and what stands for a file or a process that nobody could look into. */
static bool names_is_missing(const char *name)
{
	static const char *const words[] = {
		"[unknown]", "[anon]", "[kernel]", "[unnamed]", "[process gone]"};
	size_t size = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(name, words[i]) == 0)
			return true;
	return name[0] == '[' && name[size - 1] == ']' && strstr(name, "+0x") != NULL;
}

struct names_sums {
	double stacks, strange;       /* stacks, by weight */
	double absent;                /* stacks of no frame of the program */
	double frames, missing;       /* frames, by sample */
	const char *stranger, *which; /* examples */
};

static void names_add(const struct scenario *s, const struct truth *t, const struct stacks *st,
	const struct sample *sample, struct names_sums *ret)
{
	double w = (double)sample->values[st->weight_type];
	double n = st->has_count ? (double)sample->values[st->count_type] : 1;
	bool strange = false, absent = true;

	for (uint32_t i = 0; i < sample->frame_count; i++) {
		const struct frame *f = profile_frame_at(st->profile, sample->frames[i]);
		const char *name = f ? profile_text(st->profile, f->name) : "[unnamed]";
		const char *module = stacks_frame_module(st, sample, i);
		bool own = strcmp(module, t->workload) == 0, missing = names_is_missing(name);

		absent &= !own;
		if (own && !missing && !judge_is_known(s, t, name)) {
			strange = true;
			ret->stranger = name;
		}
		ret->frames += n;
		if (!missing || judge_is_stripped(s, module))
			continue;
		ret->missing += n;
		ret->which = name;
	}
	ret->stacks += w;
	ret->strange += strange ? w : 0;
	ret->absent += absent ? w : 0;
}

/* Callers in order, none left out: of each function that truth knows. */
static void names_judge_order(struct gate *g, const struct scenario *s, const struct stacks *st,
	const struct evidence *e, const char *name)
{
	struct stacks_chain chains[TRUTH_FUNCTIONS_MAX];
	struct stacks_sum astray, all;
	size_t n = 0, inlined = 0;

	for (size_t i = 0; i < e->truth.function_count; i++) {
		const struct truth_function *f = &e->truth.functions[i];

		if (strcmp(f->name, name) != 0)
			continue;
		chains[n] = judge_truth_chain(f);
		chains[n].inlined = NULL;
		chains[n].between = STACKS_FOREIGN;
		chains[n].foreign = s->foreign.item;
		chains[n++].foreign_count = s->foreign.count;
		for (size_t k = 0; k < f->caller_count; k++)
			inlined += f->inlined[k];
	}
	astray = stacks_astray(st, name, chains, n, 0);
	all = stacks_under(st, &(struct stacks_chain){.name = name}, 0);
	if (all.weight_ns > 0 && judge_expects_samples(e, st, name)) /* of a few, one may be cut */
		gate_check_most(g, "%", 100 * JUDGE_CHAIN_MAX,
			100 * astray.weight_ns / all.weight_ns, 0,
			"stacks of %s, %zu inlined, out of order, %s", name, inlined, e->step);
}

static void names_judge(struct gate *g, const struct scenario *s, const struct evidence *e)
{
	const struct truth *t = &e->truth;
	struct names_sums sums = {.stranger = "nobody", .which = "none"};
	struct sample sample;
	struct stacks st;
	bool stripped = judge_is_stripped(s, t->workload);

	if (!judge_open(g, s, e, &st))
		return;
	for (size_t i = 0; profile_sample_at(e->profile, i, &sample); i++)
		if (stacks_is_ours(&st, &sample))
			names_add(s, t, &st, &sample, &sums);
	if (!(sums.stacks > 0)) {
		gate_check_most(g, "%", 0, 100, 0, "no samples of the workload, %s", e->step);
		return;
	}
	gate_check_most(g, "%", 0, 100 * sums.strange / sums.stacks, 0,
		"stacks with names the truth does not know (%.40s), %s", sums.stranger, e->step);
	gate_check_most(g, "%", s->family ? 0 : 100 * JUDGE_UNNAMED_MAX,
		100 * sums.missing / (sums.frames > 0 ? sums.frames : 1), 0,
		"frames without a name (%.40s), %s", sums.which, e->step);
	if (stripped)
		gate_check_most(g, "%", 100 * JUDGE_PATH_MAX, 100 * sums.absent / sums.stacks, 0,
			"stacks of no frame of the program, %s", e->step);
	for (size_t i = 0; i < t->function_count && !stripped; i++) {
		size_t first = 0;

		while (strcmp(t->functions[first].name, t->functions[i].name) != 0)
			first++;
		if (first == i)
			names_judge_order(g, s, &st, e, t->functions[i].name);
	}
}

void judge_names(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++)
		names_judge(g, s, &e[i]);
}
