/* The second half of a campaign: evidence to verdicts. See campaign.h. */
#include <errno.h>

#include "base/def.h"
#include "lab/campaign.h"

/* Loads every step of every run; a boot that failed is the reason why its steps have nothing. */
static void campaign_load(struct campaign_item *it)
{
	const struct plan *p = &it->plan;
	const struct scenario *s = p->scenario;

	for (size_t run = 0; run < p->runs; run++)
		for (size_t i = 0; i < p->step_count; i++) {
			struct evidence *e = &it->evidence[run * p->step_count + i];
			size_t from = i;
			const struct boots_item *boot;
			char text[400];

			if (s->kind == SCENARIO_SELFTEST && s->faults[i].use)
				from = scenario_fault_find(s, s->faults[i].use);
			boot = &it->boots[run * s->boots + p->steps[from].boot];
			if (p->steps[from].service)
				evidence_load_fleet(e, boot->dir, p->steps[from].name,
					p->steps[from].service, boots_failure(boot, text));
			else
				evidence_load(e, boot->dir, p->steps[from].name,
					p->steps[from].with_agent, boots_failure(boot, text));
			e->exact = p->mode == VM_EXACT;
			if (s->kind == SCENARIO_SELFTEST && e->has_truth &&
				s->faults[i].truth_points > 0)
				(void)truth_falsify(&e->truth, s->faults[i].truth_points);
		}
	for (size_t b = 0; b < p->boot_count; b++) {
		char text[400];

		it->infrastructure +=
			it->boots[b].job->step_count && boots_failure(&it->boots[b], text) != NULL;
	}
}

static void campaign_judge_baseline(
	struct campaign *c, const struct campaign_item *it, struct gate *g)
{
	const struct image_info *image = &c->image[it->plan.scenario->arch];
	char key[POLICY_KEY_MAX];

	policy_key(image, it->plan.scenario->shift, key);
	if (it->plan.mode != VM_EXACT || !c->has_image[it->plan.scenario->arch])
		gate_unmeasured(g, "baselines are for exact mode");
	else
		policy_judge_baseline(c->policy, g, key, image->drifted, it->has_cost, it->cost);
}

static void campaign_judge_overhead(struct campaign_item *it, struct gate *g)
{
	const struct evidence *e = it->evidence;

	switch (g->kind) {
	case GATE_OVERHEAD:
		if (it->plan.mode != VM_EXACT) {
			gate_unmeasured(g, "only exact mode compares runs to the nanosecond");
			break;
		}
		judge_overhead(g, &e[0], &e[1], &e[2], &it->overhead);
		/* An agent that samples less than it was asked to is cheap. */
		judge_rate(g, (double)it->plan.scenario->frequency_hz, &e[1]);
		judge_rate(g, (double)it->plan.scenario->frequency_hz, &e[2]);
		break;
	case GATE_MEMORY:
		judge_memory(g, &e[1], &e[2]);
		break;
	default:
		gate_unmeasured(g, "an overhead scenario does not measure this");
	}
}

/* Gates that are not about one recording. False: judge_recording() has it. */
static bool campaign_is_special(enum gate_kind k)
{
	return k == GATE_OVERHEAD || k == GATE_MEMORY || k == GATE_UNWIND_COST ||
	       k == GATE_SAME_TWICE || k == GATE_PERTURB || k == GATE_OVERHEAD_REAL ||
	       k == GATE_INGESTION;
}

static void campaign_judge_special(struct campaign *c, struct campaign_item *it, struct gate *g)
{
	const struct plan *p = &it->plan;

	switch (g->kind) {
	case GATE_SAME_TWICE:
		judge_same_twice(g, it->evidence, p->step_count, p->runs);
		break;
	case GATE_PERTURB:
		judge_perturb(g, p->scenario, it->evidence, p->step_count);
		break;
	case GATE_INGESTION:
		it->has_cost = judge_ingestion(g, it->evidence, p->scenario->shift, &it->cost);
		campaign_judge_baseline(c, it, g);
		break;
	case GATE_UNWIND_COST:
		it->has_cost = judge_unwind_cost(
			g, it->evidence, p->step_count, p->scenario->shift, &it->cost);
		campaign_judge_baseline(c, it, g);
		break;
	case GATE_OVERHEAD_REAL:
		gate_unmeasured(g, "real-hardware overhead: unmeasured, a VM cannot tell");
		break;
	default:
		campaign_judge_overhead(it, g);
	}
	gate_decide(g);
}

static void campaign_judge_item(struct campaign *c, struct campaign_item *it)
{
	const struct plan *p = &it->plan;
	const struct scenario *s = p->scenario;
	size_t from = s->kind == SCENARIO_OVERHEAD ? 1 : 0; /* the first step has no agent */
	/* Repetitions are the same in exact mode and gated for that; elsewhere each is judged. */
	size_t count = p->mode == VM_EXACT || from ? p->step_count : p->runs * p->step_count;

	for (unsigned int k = 0; k < GATE_KIND_COUNT; k++) {
		bool want[GATE_KIND_COUNT] = {0};
		struct gate *g;

		if (s->need[k] == GATE_ABSENT || k == GATE_SELFTEST)
			continue;
		want[k] = true;
		if (!campaign_is_special(k)) {
			judge_recording(&it->gates, s, "", it->evidence + from, count - from, want);
			continue;
		}
		g = gate_add(&it->gates, k, s->name, "", s->need[k]);
		if (g)
			campaign_judge_special(c, it, g);
	}
	if (s->kind == SCENARIO_SELFTEST)
		judge_selftest(&it->gates, s, it->evidence, p->step_count);
	/* A repeated run must repeat, whether its scenario says so or the command line does. */
	if (p->runs > 1 && p->mode == VM_EXACT && s->need[GATE_SAME_TWICE] == GATE_ABSENT) {
		struct gate *g = gate_add(&it->gates, GATE_SAME_TWICE, s->name, "", GATE_REQUIRED);

		if (g)
			campaign_judge_special(c, it, g);
	}
}

int campaign_judge(struct campaign *c)
{
	for (size_t i = 0; i < c->count; i++) {
		struct campaign_item *it = &c->items[i];
		struct policy_counts n;

		if (it->plan.skipped) {
			c->counts.skipped++;
			continue;
		}
		campaign_load(it);
		campaign_judge_item(c, it);
		if (it->gates.no_memory) {
			(void)snprintf(c->error, sizeof(c->error), "out of memory while judging");
			return -ENOMEM;
		}
		policy_excuse(c->policy, &it->gates, it->plan.mode, c->today);
		n = policy_count(&it->gates);
		c->counts.passed += n.passed;
		c->counts.failed += n.failed;
		c->counts.unmeasured += n.unmeasured;
		c->counts.excused += n.excused;
		c->counts.infrastructure += it->infrastructure;
	}
	return 0;
}
