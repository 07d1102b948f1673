/*
 * JUnit XML as CI systems read it: a testsuite per scenario, a testcase per gate. Failed gates are
 * failures, broken VMs are errors, what could not be measured is skipped with its reason.
 */
#include "base/def.h"
#include "base/str.h"
#include "lab/report.h"

enum { REPORT_MESSAGE_MAX = 1000, REPORT_CHECKS_MAX = 200 };

int report_xml(struct buf *out, const char *text, size_t size_max)
{
	_cleanup_(buf_done) struct buf clean = BUF_INIT(size_max + 8);
	size_t size = strlen(text);

	/* Control characters and broken UTF-8, which XML 1.0 forbids even escaped, go first. */
	(void)str_append_utf8(&clean, text, size, size_max);
	return str_append_xml(out, buf_str(&clean));
}

static void report_junit_checks(const struct gate *g, struct buf *out)
{
	size_t shown = 0;

	for (size_t i = 0; i < g->check_count && shown < REPORT_CHECKS_MAX; i++) {
		const struct gate_check *x = &g->checks[i];
		char line[400], measured[48], expected[48], tolerance[48];

		if (x->pass)
			continue;
		(void)snprintf(line, sizeof(line), "%s: measured %s, %s %s, tolerance %s", x->what,
			report_number(x->unit, x->measured, measured),
			x->at_most ? "limit" : "truth",
			report_number(x->unit, x->expected, expected),
			report_number(x->unit, x->tolerance, tolerance));
		(void)report_xml(out, line, REPORT_MESSAGE_MAX);
		(void)buf_append_char(out, '\n');
		shown++;
	}
}

static void report_junit_gate(const struct gate *g, struct buf *out)
{
	(void)buf_append_str(out, "    <testcase classname=\"flamelab.");
	(void)report_xml(out, g->scenario, 100);
	(void)buf_append_str(out, "\" name=\"");
	(void)report_xml(out, gate_kind_name(g->kind), 100);
	if (g->variant[0]) {
		(void)buf_append_char(out, '.');
		(void)report_xml(out, g->variant, 100);
	}
	(void)buf_append_str(out, "\">");
	if (g->status == GATE_FAIL) {
		(void)buf_append_str(out, "<failure message=\"");
		(void)report_xml(out, g->text, REPORT_MESSAGE_MAX);
		(void)buf_append_str(out, "\">");
		report_junit_checks(g, out);
		(void)buf_append_str(out, "</failure>");
	} else if (g->status != GATE_PASS) {
		(void)buf_append_str(out, "<skipped message=\"");
		(void)report_xml(out, gate_status_name(g->status), 40);
		(void)buf_append_str(out, ": ");
		(void)report_xml(out, g->text, REPORT_MESSAGE_MAX);
		(void)buf_append_str(out, "\"/>");
	}
	(void)buf_append_str(out, "</testcase>\n");
}

static void report_junit_boots(const struct campaign_item *it, struct buf *out)
{
	for (size_t b = 0; b < it->plan.boot_count; b++) {
		char text[400];

		if (!it->boots[b].job->step_count || !boots_failure(&it->boots[b], text))
			continue;
		(void)buf_append_str(out, "    <testcase classname=\"flamelab.boot\" name=\"");
		(void)report_xml(out, it->boots[b].name, 100);
		(void)buf_append_str(out, "\"><error message=\"");
		(void)report_xml(out, text, REPORT_MESSAGE_MAX);
		(void)buf_append_str(out, "\"/></testcase>\n");
	}
}

static void report_junit_item(const struct campaign_item *it, struct buf *out)
{
	struct policy_counts n = policy_count(&it->gates);

	(void)buf_append_str(out, "  <testsuite name=\"");
	(void)report_xml(out, it->plan.scenario->name, 100);
	(void)buf_printf(out, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n",
		it->gates.count + it->infrastructure + (it->plan.skipped != NULL), n.failed,
		it->infrastructure, n.unmeasured + n.excused + (it->plan.skipped != NULL));
	if (it->plan.skipped) {
		(void)buf_append_str(out, "    <testcase classname=\"flamelab\" name=\"scenario\">"
					  "<skipped message=\"");
		(void)report_xml(out, it->plan.skipped, REPORT_MESSAGE_MAX);
		(void)buf_append_str(out, "\"/></testcase>\n");
	} else {
		for (size_t k = 0; k < it->gates.count; k++)
			report_junit_gate(&it->gates.items[k], out);
		report_junit_boots(it, out);
	}
	(void)buf_append_str(out, "  </testsuite>\n");
}

int report_junit(const struct campaign *c, struct buf *out)
{
	(void)buf_append_str(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
	for (size_t i = 0; i < c->count; i++)
		report_junit_item(&c->items[i], out);
	return buf_append_str(out, "</testsuites>\n");
}
