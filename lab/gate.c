/* See gate.h. */
#include "lab/gate.h"

#include <math.h>
#include <stdarg.h>

#include "base/def.h"

static const struct {
	const char *name, *meaning;
} gate_kinds[GATE_KIND_COUNT] = {
	[GATE_SHARE] = {"share", "a function's share of the profile is not what it really used"},
	[GATE_SHARE_POOLED] = {"share_pooled",
		"the same over all jitter seeds together: a small but steady error in the shares"},
	[GATE_PATH] = {"path", "the callers above a function are wrong or out of order"},
	[GATE_CHAIN] = {"chain", "stacks end before main, or hold functions that were not there"},
	[GATE_FORBIDDEN] = {"forbidden", "a frame shows up in a view where it does not belong"},
	[GATE_LEDGER] = {"ledger", "CPU per thread differs from the kernel's own schedstat"},
	[GATE_SUM] = {"sum", "the stacks' weights do not sum to the CPU that was used"},
	[GATE_LOSSES] = {"losses", "samples were dropped"},
	[GATE_SYMBOLS] = {"symbols", "frames of the workload have no name"},
	[GATE_OVERHEAD] = {"overhead", "the agent costs more than 1 % of the CPU"},
	[GATE_MEMORY] = {"memory", "the agent needs more than 100 MB"},
	[GATE_UNWIND_COST] = {"unwind_cost", "a sample costs the kernel more than it did"},
	[GATE_SAME_TWICE] = {"same_twice", "the same inputs gave other figures the second time"},
	[GATE_PERTURB] = {"perturb", "a gate fails for no reason when seeds or offsets change"},
	[GATE_LEAK] = {"leak", "the agent's memory grows from window to window"},
	[GATE_AGENT_COST_SAME] = {"agent_cost_same", "this agent costs more than the plain one"},
	[GATE_CONSERVED] = {"conserved", "the ledger lost or invented time of a thread"},
	[GATE_NEGATIVE] = {"negative", "a time is negative or larger than the window"},
	[GATE_SELFTEST] = {"selftest", "the lab did not notice a fault that was put there"},
	[GATE_FLEET] = {"fleet", "agent and backend did not do together what they were asked"},
	[GATE_ARRIVED] = {"arrived", "the backend's answer is not what the agent sent"},
	[GATE_KEPT] = {"kept", "the backend lost a window or counted one twice"},
	[GATE_SPOOL] = {"spool",
		"the agent's spool grew above its limit, or dropped without a word"},
	[GATE_INGESTION] = {"ingestion", "a pushed profile costs the backend more than it did"},
	[GATE_DORMANT] = {"dormant", "an agent that only waits costs too much"},
	[GATE_UNLOADED] = {"unloaded", "something of the agent stays in the kernel or in memory"},
	[GATE_POWER_CUT] = {"power_cut",
		"after a power cut the backend lacks what it acknowledged"},
	[GATE_VERIFIER] = {"verifier", "a kernel refuses a BPF program, or nearly does"},
	[GATE_MEMORY_CROWD] = {"memory_crowd",
		"the agent needs more than 60 MB for many processes"},
	[GATE_MEMORY_FLAT] = {"memory_flat", "memory grows with files and processes that are gone"},
	[GATE_NAMES] = {"names", "names are missing, wrong, or inlined calls out of order"},
	[GATE_OVERHEAD_REAL] = {"overhead_real", "the agent costs too much on real hardware"},
};

const char *gate_kind_name(enum gate_kind k)
{
	return (unsigned int)k < GATE_KIND_COUNT ? gate_kinds[k].name : "?";
}

const char *gate_kind_meaning(enum gate_kind k)
{
	return (unsigned int)k < GATE_KIND_COUNT ? gate_kinds[k].meaning : "";
}

bool gate_kind_parse(const char *name, enum gate_kind *ret)
{
	for (unsigned int k = 0; k < GATE_KIND_COUNT; k++)
		if (strcmp(gate_kinds[k].name, name) == 0) {
			*ret = k;
			return true;
		}
	return false;
}

const char *gate_status_name(enum gate_status s)
{
	static const char *const names[GATE_STATUS_COUNT] = {
		"pass", "FAIL", "unmeasured", "excused"};

	return (unsigned int)s < GATE_STATUS_COUNT ? names[s] : "?";
}

struct gate *gate_add(struct gate_list *l, enum gate_kind kind, const char *scenario,
	const char *variant, enum gate_need need)
{
	struct gate *g;

	if (l->count == l->allocated) {
		size_t n = l->allocated ? l->allocated * 2 : 32;
		struct gate *items = reallocarray(l->items, n, sizeof(*items));

		if (!items) {
			l->no_memory = true;
			return NULL;
		}
		l->items = items;
		l->allocated = n;
	}
	g = &l->items[l->count++];
	*g = (struct gate){.kind = kind, .need = need, .status = GATE_UNMEASURED};
	(void)snprintf(g->scenario, sizeof(g->scenario), "%s", scenario); /* names are short */
	(void)snprintf(g->variant, sizeof(g->variant), "%s", variant ? variant : "");
	return g;
}

void gate_list_done(struct gate_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++)
		free(l->items[i].checks);
	free(l->items);
	*l = (struct gate_list){0};
}

static void gate_check_add(struct gate *g, const struct gate_check *c)
{
	if (g->check_count == g->check_allocated) {
		size_t n = g->check_allocated ? g->check_allocated * 2 : 8;
		struct gate_check *checks = reallocarray(g->checks, n, sizeof(*checks));

		if (!checks) {
			g->no_memory = true;
			return;
		}
		g->checks = checks;
		g->check_allocated = n;
	}
	g->checks[g->check_count++] = *c;
}

void gate_check_near(struct gate *g, const char *unit, double expected, double measured,
	double tolerance, const char *fmt, ...)
{
	struct gate_check c = {.expected = expected, .measured = measured, .tolerance = tolerance};
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c.what, sizeof(c.what), fmt, ap); /* a cut name still tells */
	va_end(ap);
	(void)snprintf(c.unit, sizeof(c.unit), "%s", unit);
	c.pass = isfinite(expected) && isfinite(measured) && fabs(measured - expected) <= tolerance;
	gate_check_add(g, &c);
}

void gate_check_most(struct gate *g, const char *unit, double limit, double measured,
	double tolerance, const char *fmt, ...)
{
	struct gate_check c = {
		.expected = limit, .measured = measured, .tolerance = tolerance, .at_most = true};
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c.what, sizeof(c.what), fmt, ap); /* a cut name still tells */
	va_end(ap);
	(void)snprintf(c.unit, sizeof(c.unit), "%s", unit);
	c.pass = isfinite(limit) && isfinite(measured) && measured <= limit + tolerance;
	gate_check_add(g, &c);
}

void gate_unmeasured(struct gate *g, const char *fmt, ...)
{
	va_list ap;

	if (g->text[0])
		return;
	va_start(ap, fmt);
	(void)vsnprintf(g->text, sizeof(g->text), fmt, ap); /* a cut reason still tells */
	va_end(ap);
}

/* How far a check used its tolerance up: above 1 it failed. */
static double gate_strain(const struct gate_check *c)
{
	double off = c->at_most ? c->measured - c->expected : fabs(c->measured - c->expected);
	double room = c->tolerance;

	/* A limit without tolerance is used up in proportion. */
	if (c->at_most && room <= 0 && c->expected > 0)
		return c->measured / c->expected;
	if (room <= 0)
		return c->pass ? 0 : INFINITY;
	return isfinite(off) ? off / room : INFINITY;
}

const struct gate_check *gate_worst(const struct gate *g)
{
	const struct gate_check *worst = NULL;

	for (size_t i = 0; i < g->check_count; i++) {
		const struct gate_check *c = &g->checks[i];

		if (!worst || (worst->pass && !c->pass) ||
			(worst->pass == c->pass && gate_strain(c) > gate_strain(worst)))
			worst = c;
	}
	return worst;
}

/* The unit in which people read a number, and what to divide by. */
static const char *gate_scale(const char *unit, double *ret)
{
	*ret = 1;
	if (strcmp(unit, "ns") != 0 && strcmp(unit, "B") != 0)
		return unit;
	*ret = 1e6;
	return unit[0] == 'n' ? "ms" : "MB";
}

/* "what: 69.8 %, truth 70.0 +- 1.5" */
static void gate_describe(struct gate *g, const struct gate_check *c, size_t failed)
{
	double by;
	const char *unit = gate_scale(c->unit, &by);
	int digits = unit[0] ? 3 : 0;
	char more[40] = "";

	if (failed > 1)
		(void)snprintf(more, sizeof(more), " (%zu of %zu checks)", failed, g->check_count);
	if (c->at_most)
		(void)snprintf(g->text, sizeof(g->text), "%s: %.*f%s%s, limit %.*f%s", c->what,
			digits, c->measured / by, unit[0] ? " " : "", unit, digits,
			(c->expected + c->tolerance) / by, more);
	else
		(void)snprintf(g->text, sizeof(g->text), "%s: %.*f%s%s, truth %.*f +- %.*f%s",
			c->what, digits, c->measured / by, unit[0] ? " " : "", unit, digits,
			c->expected / by, digits, c->tolerance / by, more);
}

void gate_decide(struct gate *g)
{
	const struct gate_check *worst = gate_worst(g);
	size_t failed = 0;

	for (size_t i = 0; i < g->check_count; i++)
		failed += !g->checks[i].pass;
	if (g->no_memory) {
		g->text[0] = 0;
		gate_unmeasured(g, "out of memory while judging");
		g->status = GATE_UNMEASURED;
		return;
	}
	/* A failure is known even when other data is missing; a pass is not. */
	if (failed) {
		gate_describe(g, worst, failed);
		g->status = GATE_FAIL;
		return;
	}
	if (g->text[0] || !worst) {
		gate_unmeasured(g, "nothing to check");
		g->status = GATE_UNMEASURED;
		return;
	}
	gate_describe(g, worst, failed);
	g->status = GATE_PASS;
}
