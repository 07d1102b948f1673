/* The terminal's verdict table, the last line, and the Markdown for CI summaries. */
#include <math.h>

#include "base/def.h"
#include "base/str.h"
#include "lab/report.h"

const char *report_variant(const struct gate *g, char ret[64])
{
	(void)snprintf(
		ret, 64, "%s%s%s", g->variant[0] ? "[" : "", g->variant, g->variant[0] ? "]" : "");
	return ret;
}

const char *report_number(const char *unit, double v, char ret[48])
{
	char human[STR_HUMAN_MAX];
	bool negative = v < 0;
	double size = fabs(v);

	if (!isfinite(v))
		(void)snprintf(ret, 48, "?");
	else if (strcmp(unit, "%") == 0)
		(void)snprintf(ret, 48, "%.3f %%", v);
	else if (strcmp(unit, "ns") == 0 && size < 1e18)
		(void)snprintf(
			ret, 48, "%s%s", negative ? "-" : "", str_human_ns((uint64_t)size, human));
	else if (strcmp(unit, "B") == 0 && size < 1e18)
		(void)snprintf(ret, 48, "%s%s", negative ? "-" : "",
			str_human_bytes((uint64_t)size, human));
	else
		(void)snprintf(ret, 48, "%.10g%s%s", v, unit[0] ? " " : "", unit);
	return ret;
}

const char *report_gate_text(const struct campaign_item *it, const struct gate *g, char ret[320])
{
	if (it->plan.mode == VM_EXACT || g->status != GATE_PASS)
		return g->text;
	(void)snprintf(ret, 320, "%zu checks hold (figures in report.html)", g->check_count);
	return ret;
}

int report_failures(const struct campaign *c, struct buf *out)
{
	for (size_t i = 0; i < c->count; i++)
		for (size_t k = 0; k < c->items[i].gates.count; k++) {
			const struct gate *g = &c->items[i].gates.items[k];
			char variant[64];

			if (g->status != GATE_FAIL && g->status != GATE_UNMEASURED)
				continue;
			(void)report_variant(g, variant); /* before it is used twice below */
			(void)buf_printf(out, "%s: %s %s %s%s%s\n", gate_status_name(g->status),
				g->scenario, gate_kind_name(g->kind), variant,
				variant[0] ? " " : "", g->text);
		}
	return buf_error(out);
}

int report_last_line(const struct policy_counts *n, struct buf *out)
{
	return buf_printf(out, "%zu passed, %zu failed, %zu skipped\n", n->passed, n->failed,
		n->unmeasured + n->excused + n->skipped);
}

static const char *report_color(enum gate_status s, bool color)
{
	static const char *const codes[GATE_STATUS_COUNT] = {
		"\033[32m", "\033[1;31m", "\033[33m", "\033[36m"};

	return color ? codes[s] : "";
}

static void report_text_item(const struct campaign_item *it, bool color, struct buf *out)
{
	const struct scenario *s = it->plan.scenario;

	if (it->plan.skipped) {
		(void)buf_printf(
			out, "%-12s %-16s %-11s %s\n", s->name, "-", "skipped", it->plan.skipped);
		return;
	}
	for (size_t k = 0; k < it->gates.count; k++) {
		const struct gate *g = &it->gates.items[k];
		char variant[64], text[320];

		(void)report_variant(g, variant); /* before it is used twice below */
		(void)buf_printf(out, "%-12s %-16s %s%-11s%s %s%s%s\n", s->name,
			gate_kind_name(g->kind), report_color(g->status, color),
			gate_status_name(g->status), color ? "\033[0m" : "", variant,
			variant[0] ? " " : "", report_gate_text(it, g, text));
	}
}

/* The list of what is unmeasured must not outlive its reasons. */
static void report_stale(const struct campaign *c, struct buf *out)
{
	for (size_t k = 0; k < c->policy->excuse_count; k++) {
		const struct policy_excuse *x = &c->policy->excuses[k];

		for (size_t i = 0; i < c->count && !x->used; i++) {
			const struct campaign_item *it = &c->items[i];

			if (!it->plan.skipped && it->plan.scenario->need[x->gate] &&
				policy_covers(x, it->plan.scenario->name, it->plan.mode))
				(void)buf_printf(out,
					"note: lab/unmeasured.json lists %s of %s, which was "
					"measured\n",
					gate_kind_name(x->gate), it->plan.scenario->name);
		}
	}
}

int report_text(const struct campaign *c, bool color, struct buf *out)
{
	(void)buf_printf(out, "%-12s %-16s %-11s %s\n", "scenario", "gate", "verdict",
		"worst check: measured, truth +- tolerance");
	for (size_t i = 0; i < c->count; i++)
		report_text_item(&c->items[i], color, out);
	for (size_t i = 0; i < c->count; i++)
		for (size_t b = 0; b < c->items[i].plan.boot_count; b++) {
			const struct boots_item *boot = &c->items[i].boots[b];
			char text[400];

			if (!c->items[i].plan.skipped && boot->job->step_count &&
				boots_failure(boot, text))
				(void)buf_printf(out, "infrastructure: %s: %s\n", boot->name, text);
		}
	report_stale(c, out);
	if (c->counts.unmeasured)
		(void)buf_printf(out,
			"%zu unmeasured beyond lab/unmeasured.json: the run is inconclusive\n",
			c->counts.unmeasured);
	return buf_error(out);
}

/* A cell: no line breaks, no column separators, no markup. */
static void report_cell(struct buf *out, const char *text)
{
	for (; *text; text++)
		if (strchr("|\\`*_<>[]#&", *text))
			(void)buf_printf(out, "&#%d;", *text);
		else
			(void)buf_append_char(out, (unsigned char)*text < 0x20 ? ' ' : *text);
}

/* CI summaries refuse more than 1 MiB; the table stops well before. */
enum { REPORT_MARKDOWN_MAX = 900000 };

int report_markdown(const struct campaign *c, struct buf *out)
{
	(void)buf_printf(out,
		"## Flamelab\n\n%zu passed, %zu failed, %zu unmeasured, %zu excused, %zu "
		"skipped\n\n",
		c->counts.passed, c->counts.failed, c->counts.unmeasured, c->counts.excused,
		c->counts.skipped);
	(void)buf_append_str(
		out, "| scenario | gate | verdict | worst check |\n|---|---|---|---|\n");
	for (size_t i = 0; i < c->count; i++)
		for (size_t k = 0; k < c->items[i].gates.count; k++) {
			const struct gate *g = &c->items[i].gates.items[k];
			const char *mark = g->status == GATE_FAIL ? "**" : "";
			char variant[64], text[320];

			if (out->size > REPORT_MARKDOWN_MAX)
				return buf_append_str(out, "\n(cut)\n");
			(void)buf_append_str(out, "| ");
			report_cell(out, g->scenario);
			report_cell(out, report_variant(g, variant));
			(void)buf_append_str(out, " | ");
			report_cell(out, gate_kind_name(g->kind));
			(void)buf_printf(
				out, " | %s%s%s | ", mark, gate_status_name(g->status), mark);
			report_cell(out, report_gate_text(&c->items[i], g, text));
			(void)buf_append_str(out, " |\n");
		}
	return buf_error(out);
}
