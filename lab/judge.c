/* Which judges a recording gets, and the two gates that are made of other gates. See judge.h. */
#include "lab/judge.h"

#include "base/def.h"

static void judge_one_fleet(
	struct gate *g, const struct scenario *s, const struct evidence *e, size_t n)
{
	switch (g->kind) {
	case GATE_FLEET:
		judge_fleet(g, e, n);
		break;
	case GATE_ARRIVED:
		judge_arrived(g, e, n);
		break;
	case GATE_KEPT:
		judge_kept(g, e, n);
		break;
	case GATE_SPOOL:
		judge_spool(g, e, n);
		break;
	case GATE_DORMANT:
		judge_dormant(g, e, n);
		break;
	case GATE_UNLOADED:
		judge_unloaded(g, e, n);
		break;
	case GATE_POWER_CUT:
		judge_power_cut(g, e, n);
		break;
	default:
		gate_unmeasured(
			g, "a %s scenario does not measure this", scenario_kind_name(s->kind));
	}
}

static void judge_one(struct gate *g, const struct scenario *s, const struct evidence *e, size_t n)
{
	switch (g->kind) {
	case GATE_SHARE:
		judge_share(g, s, e, n);
		break;
	case GATE_SHARE_POOLED:
		judge_share_pooled(g, s, e, n);
		break;
	case GATE_PATH:
		judge_path(g, s, e, n);
		break;
	case GATE_CHAIN:
		judge_chain(g, s, e, n);
		break;
	case GATE_NAMES:
		judge_names(g, s, e, n);
		break;
	case GATE_FORBIDDEN:
		judge_forbidden(g, s, e, n);
		break;
	case GATE_LEDGER:
		judge_ledger(g, e, n);
		break;
	case GATE_SUM:
		judge_sum(g, e, n);
		break;
	case GATE_LOSSES:
		judge_losses(g, e, n);
		break;
	case GATE_SYMBOLS:
		judge_symbols(g, e, n);
		break;
	case GATE_CONSERVED:
		judge_conserved(g, e, n);
		break;
	case GATE_NEGATIVE:
		judge_negative(g, e, n);
		break;
	case GATE_LEAK:
		judge_leak(g, e, n);
		break;
	case GATE_VERIFIER:
		judge_verifier(g, e, n);
		break;
	case GATE_MEMORY_CROWD:
		judge_memory_crowd(g, e, n);
		break;
	case GATE_MEMORY_FLAT:
		judge_memory_flat(g, e, n);
		break;
	default:
		judge_one_fleet(g, s, e, n);
	}
}

void judge_recording(struct gate_list *l, const struct scenario *s, const char *variant,
	const struct evidence *e, size_t count, const bool want[GATE_KIND_COUNT])
{
	for (unsigned int k = 0; k < GATE_KIND_COUNT; k++) {
		struct gate *g;

		if (!want[k])
			continue;
		g = gate_add(l, k, s->name, variant, s->need[k] ? s->need[k] : GATE_REQUIRED);
		if (!g)
			return;
		judge_one(g, s, e, count);
		gate_decide(g);
		if (k == GATE_VERIFIER)
			judge_verifier_text(g, e);
	}
}

void judge_perturb(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count)
{
	static const enum gate_kind kinds[] = {
		GATE_SHARE, GATE_PATH, GATE_LEDGER, GATE_SUM, GATE_LOSSES, GATE_SYMBOLS};
	bool want[GATE_KIND_COUNT] = {0};
	size_t total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		want[kinds[i]] = true;
	for (size_t i = 0; i < count; i++) {
		_cleanup_(gate_list_done) struct gate_list one = {0};
		size_t alarms = 0;
		char which[80] = "none";

		judge_recording(&one, s, "", &e[i], 1, want);
		if (one.no_memory)
			gate_unmeasured(g, "out of memory while judging");
		for (size_t k = 0; k < one.count; k++) {
			if (one.items[k].status == GATE_UNMEASURED)
				gate_unmeasured(g, "%s", one.items[k].text);
			if (one.items[k].status != GATE_FAIL)
				continue;
			alarms++;
			(void)snprintf(which, sizeof(which), "%.16s: %.60s",
				gate_kind_name(one.items[k].kind), one.items[k].text);
		}
		total += alarms;
		if (alarms)
			gate_check_most(g, "", 0, (double)alarms, 0, "false alarms, %s (%s)",
				e[i].step, which);
	}
	gate_check_most(g, "", 0, (double)total, 0, "false alarms in %zu runs", count);
}

/* Every gate of a fault that is named; those of cost hold it against the fault-free case. */
static void judge_fault_gates(struct gate_list *l, const struct scenario *s,
	const struct scenario_fault *f, const struct evidence *e, const struct evidence *plain)
{
	static const struct {
		enum gate_kind kind;
		void (*judge)(
			struct gate *g, const struct evidence *e, const struct evidence *plain);
	} compared[] = {{GATE_AGENT_COST_SAME, judge_cost_same},
		{GATE_UNWIND_COST, judge_unwind_cost_same}};
	bool want[GATE_KIND_COUNT];

	for (unsigned int k = 0; k < GATE_KIND_COUNT; k++)
		want[k] = f->red[k] || f->green[k];
	for (size_t i = 0; i < ARRAY_SIZE(compared); i++) {
		enum gate_kind k = compared[i].kind;
		struct gate *g = want[k] ? gate_add(l, k, s->name, f->name, GATE_REQUIRED) : NULL;

		want[k] = false;
		if (g && plain)
			compared[i].judge(g, e, plain);
		if (g)
			gate_decide(g);
	}
	judge_recording(l, s, f->name, e, 1, want);
}

/* "red share_pooled, green path ledger": what a fault did, in the words of its scenario. */
static void judge_fault_text(
	struct gate *g, const struct scenario_fault *f, const struct gate_list *inner)
{
	size_t n = 0;
	int more;

	/* What is wrong comes first, in case the text is cut. */
	for (int wrong = 1; wrong >= 0; wrong--)
		for (size_t i = 0; i < inner->count && n < sizeof(g->text) - 1; i++) {
			const struct gate *in = &inner->items[i];
			bool is_wrong = (in->status == GATE_FAIL) != f->red[in->kind];

			if (is_wrong != (wrong == 1))
				continue;
			more = snprintf(g->text + n, sizeof(g->text) - n, "%s%s is %s%s%.110s%s",
				n ? ", " : "", gate_kind_name(in->kind),
				in->status == GATE_FAIL ? "red" : "green",
				is_wrong ? ", should not be (" : "", is_wrong ? in->text : "",
				is_wrong ? ")" : "");
			n += more > 0 ? (size_t)more : 0;
		}
}

static void judge_fault(struct gate_list *l, const struct scenario *s,
	const struct scenario_fault *f, const struct evidence *e, const struct evidence *plain)
{
	_cleanup_(gate_list_done) struct gate_list inner = {0};
	struct gate *g = gate_add(l, GATE_SELFTEST, s->name, f->name,
		s->need[GATE_SELFTEST] ? s->need[GATE_SELFTEST] : GATE_REQUIRED);

	if (!g)
		return;
	judge_fault_gates(&inner, s, f, e, plain);
	if (inner.no_memory)
		gate_unmeasured(g, "out of memory while judging");
	for (size_t i = 0; i < inner.count; i++) {
		const struct gate *in = &inner.items[i];
		bool red = f->red[in->kind];

		if (in->status == GATE_UNMEASURED) {
			gate_unmeasured(g, "%s: %s", gate_kind_name(in->kind), in->text);
			continue;
		}
		/* Measured 1 is red, 0 is green. */
		gate_check_near(g, "", red, in->status == GATE_FAIL, 0, "%s must be %s (%.70s)",
			gate_kind_name(in->kind), red ? "red" : "green", in->text);
	}
	gate_decide(g);
	if (g->status == GATE_PASS || g->status == GATE_FAIL)
		judge_fault_text(g, f, &inner);
}

/* An expectation that this fault's workload is about: the truth mentions it. */
static size_t judge_known(const struct scenario *s, const struct truth *t, struct scenario *ret)
{
	ret->expect_count = 0;
	for (size_t i = 0; i < s->expect_count; i++)
		for (size_t k = 0; k < t->function_count; k++)
			if (strcmp(s->expect[i].name, t->functions[k].name) == 0) {
				ret->expect[ret->expect_count++] = s->expect[i];
				break;
			}
	return ret->expect_count;
}

void judge_selftest(
	struct gate_list *l, const struct scenario *s, const struct evidence *e, size_t count)
{
	struct scenario *one = malloc(sizeof(*one)); /* too large for the stack */

	if (!one) {
		l->no_memory = true;
		return;
	}
	for (size_t i = 0; i < s->fault_count && i < count; i++) {
		const struct scenario_fault *f = &s->faults[i];
		const struct evidence *plain = NULL;

		for (size_t k = 0; f->compare && k < s->fault_count && k < count; k++)
			if (strcmp(s->faults[k].name, f->compare) == 0)
				plain = &e[k];
		/* Faults have workloads of their own; each is judged by its own functions. */
		*one = *s;
		if (e[i].has_truth)
			(void)judge_known(s, &e[i].truth, one); /* none: gates say so */
		judge_fault(l, one, f, &e[i], plain);
	}
	free(one);
}
