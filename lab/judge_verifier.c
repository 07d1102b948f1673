/*
 * Gate verifier: every BPF program loads on this kernel and leaves its verifier room, because what takes
 * nearly all of the million instructions that one kernel allows is refused by the next.
 */
#include "base/def.h"
#include "base/str.h"
#include "lab/judge.h"

/* One walk by tables and one by frame pointers, or the figures are of something else. */
static bool judge_verified_all(const struct verifier *v)
{
	size_t walks = 0;

	for (size_t i = 0; i < v->count; i++)
		walks += str_has_prefix(v->programs[i].name, "on_sample");
	return walks == 2;
}

void judge_verifier(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct verifier *v = &e[i].verifier;

		if (!e[i].has_verifier) {
			gate_unmeasured(g, "%s",
				e[i].no_verifier[0] ? e[i].no_verifier : "no program was loaded");
			continue;
		}
		/* An exit that is not 0 is a program that was refused, or took too much. */
		gate_check_most(g, "", 0, strcmp(v->exit, "0") != 0, 0, "exit is %s on %s, %.60s",
			v->exit, v->kernel, v->said);
		for (size_t k = 0; k < v->count; k++)
			gate_check_most(g, "", JUDGE_VERIFIER_MAX,
				(double)v->programs[k].instructions, 0,
				"instructions verified of %s %s on %s", v->programs[k].unwind,
				v->programs[k].name, v->kernel);
		if (!judge_verified_all(v))
			gate_unmeasured(g, "%s: %zu programs, not those that walk stacks",
				e[i].step, v->count);
	}
}

void judge_verifier_text(struct gate *g, const struct evidence *e)
{
	const struct verifier *v = &e->verifier;
	size_t n;

	if (g->status != GATE_PASS)
		return;
	n = (size_t)snprintf(g->text, sizeof(g->text), "%s:", v->kernel); /* short */
	for (size_t i = 0; i < v->count && n < sizeof(g->text); i++)
		n += (size_t)snprintf(g->text + n, sizeof(g->text) - n, " %s%s%s %llu%s",
			i == 0 || strcmp(v->programs[i].unwind, v->programs[i - 1].unwind) != 0
				? v->programs[i].unwind
				: "",
			i == 0 || strcmp(v->programs[i].unwind, v->programs[i - 1].unwind) != 0
				? " "
				: "",
			v->programs[i].name, (unsigned long long)v->programs[i].instructions,
			i + 1 < v->count ? "," : " instructions");
}
