/*
 * results.json (figures), timings.json (what differs from run to run), certificate.json (what one
 * agent binary passed; unsigned until releases are).
 */
#include <math.h>

#include "base/def.h"
#include "base/str.h"
#include "lab/report.h"

static void report_field(struct buf *out, const char *name, const char *text)
{
	(void)buf_printf(out, "\"%s\": ", name);
	(void)str_append_json(out, text); /* errors stick to the buffer */
}

/* JSON has no infinity. */
static void report_f64(struct buf *out, const char *name, double v)
{
	if (isfinite(v))
		(void)buf_printf(out, "\"%s\": %.15g", name, v);
	else
		(void)buf_printf(out, "\"%s\": null", name);
}

static void report_image(const struct image_info *image, struct buf *out)
{
	(void)buf_append_str(out, "{ ");
	report_field(out, "image", image->hash);
	(void)buf_append_str(out, ", ");
	report_field(out, "kernel", image->kernel);
	(void)buf_append_str(out, ", ");
	report_field(out, "qemu", image->qemu);
	(void)buf_append_str(out, ", ");
	report_field(out, "toolchain", image->toolchain);
	(void)buf_printf(out, ", \"drifted\": %s }", image->drifted ? "true" : "false");
}

static void report_keys(const struct campaign *c, struct buf *out)
{
	report_image(&c->image[VM_X86_64], out);
	if (!c->has_image[VM_AARCH64])
		return;
	(void)buf_append_str(out, ",\n\t\"keys_aarch64\": ");
	report_image(&c->image[VM_AARCH64], out);
}

static void report_check(const struct gate_check *x, struct buf *out)
{
	(void)buf_append_str(out, "\t\t\t{ ");
	report_field(out, "what", x->what);
	(void)buf_append_str(out, ", ");
	report_field(out, "unit", x->unit);
	(void)buf_append_str(out, ", ");
	report_f64(out, x->at_most ? "limit" : "expected", x->expected);
	(void)buf_append_str(out, ", ");
	report_f64(out, "measured", x->measured);
	(void)buf_append_str(out, ", ");
	report_f64(out, "tolerance", x->tolerance);
	(void)buf_printf(out, ", \"pass\": %s }", x->pass ? "true" : "false");
}

static void report_gate(const struct campaign_item *it, const struct gate *g, struct buf *out)
{
	char text[320];
	bool first = true;

	(void)buf_append_str(out, "\t\t{ ");
	report_field(out, "scenario", g->scenario);
	(void)buf_append_str(out, ", ");
	report_field(out, "variant", g->variant);
	(void)buf_append_str(out, ", ");
	report_field(out, "gate", gate_kind_name(g->kind));
	(void)buf_append_str(out, ", ");
	report_field(out, "need", g->need == GATE_REQUIRED ? "required" : "platform");
	(void)buf_append_str(out, ", ");
	report_field(out, "mode", scenario_mode_name(it->plan.mode));
	(void)buf_printf(out, ", \"shift\": %u, ", it->plan.scenario->shift);
	report_field(out, "verdict", g->status == GATE_FAIL ? "fail" : gate_status_name(g->status));
	(void)buf_append_str(out, ", ");
	report_field(out, "text", report_gate_text(it, g, text));
	(void)buf_append_str(out, ",\n\t\t  \"checks\": [");
	/* Figures of inexact clocks differ from run to run; a failure must be told all the same. */
	for (size_t i = 0; i < g->check_count; i++) {
		if (it->plan.mode != VM_EXACT && g->checks[i].pass)
			continue;
		(void)buf_append_str(out, first ? "\n" : ",\n");
		report_check(&g->checks[i], out);
		first = false;
	}
	(void)buf_append_str(out, " ] }");
}

static void report_gates(const struct campaign *c, struct buf *out)
{
	bool first = true;

	for (size_t i = 0; i < c->count; i++)
		for (size_t k = 0; k < c->items[i].gates.count; k++) {
			(void)buf_append_str(out, first ? "\n" : ",\n");
			report_gate(&c->items[i], &c->items[i].gates.items[k], out);
			first = false;
		}
}

static void report_profiles(const struct campaign *c, struct buf *out)
{
	bool first = true;

	for (size_t i = 0; i < c->count; i++)
		for (size_t k = 0; k < c->items[i].plan.runs * c->items[i].plan.step_count; k++) {
			const struct evidence *e = &c->items[i].evidence[k];

			if (c->items[i].plan.skipped || c->items[i].plan.mode != VM_EXACT ||
				!e->has_agent)
				continue;
			(void)buf_append_str(out, first ? "\n\t\t{ " : ",\n\t\t{ ");
			report_field(out, "step", e->step);
			(void)buf_append_str(out, ", ");
			report_field(out, "event", e->agent.event);
			(void)buf_append_str(out, ", ");
			report_field(out, "sha256", e->agent.profile_sha256);
			(void)buf_printf(out,
				", \"samples\": %llu, \"weight_ns\": %llu, \"sigma_ns\": %llu, "
				"\"agent_window_ns\": %llu, \"agent_flush_ns\": %llu, "
				"\"agent_start_ns\": %llu, \"workload_cpu_ns\": %llu }",
				(unsigned long long)e->agent.samples,
				(unsigned long long)e->agent.weight_ns,
				(unsigned long long)e->agent.sigma_ns,
				(unsigned long long)e->meters.agent_window_ns,
				(unsigned long long)e->meters.agent_flush_ns,
				(unsigned long long)e->meters.agent_start_ns,
				(unsigned long long)e->meters.workload_cpu_ns);
			first = false;
		}
}

int report_results(const struct campaign *c, struct buf *out)
{
	(void)buf_append_str(out, "{\n\t\"schema\": \"flamelab-results/1\",\n\t\"keys\": ");
	report_keys(c, out);
	(void)buf_append_str(out, ",\n\t");
	report_field(out, "agent_sha256", c->agent_sha256);
	(void)buf_printf(out,
		",\n\t\"passed\": %zu, \"failed\": %zu, \"unmeasured\": %zu, \"excused\": %zu, "
		"\"skipped\": %zu, \"infrastructure\": %zu,\n\t\"exit\": %d,\n\t\"gates\": [",
		c->counts.passed, c->counts.failed, c->counts.unmeasured, c->counts.excused,
		c->counts.skipped, c->counts.infrastructure, policy_exit_code(&c->counts));
	report_gates(c, out);
	(void)buf_append_str(out, "\n\t],\n\t\"profiles\": [");
	report_profiles(c, out);
	return buf_append_str(out, "\n\t]\n}\n");
}

int report_timings(const struct campaign *c, struct buf *out)
{
	bool first = true;

	(void)buf_append_str(out, "{\n\t\"schema\": \"flamelab-timings/1\",\n\t");
	report_field(out, "started", c->started);
	(void)buf_append_str(out, ",\n\t\"boots\": [");
	for (size_t i = 0; i < c->count; i++)
		for (size_t b = 0; b < c->items[i].plan.boot_count; b++) {
			const struct boots_item *x = &c->items[i].boots[b];

			if (!x->ran)
				continue;
			(void)buf_append_str(out, first ? "\n\t\t{ " : ",\n\t\t{ ");
			report_field(out, "boot", x->name);
			(void)buf_append_str(out, ", ");
			report_field(out, "end", boots_end_name(x->outcome.end));
			(void)buf_append_str(out, ", ");
			report_field(out, "accel", x->outcome.accel);
			(void)buf_printf(out,
				", \"guest_ns\": %llu, \"host_ns\": %llu, \"retries\": %u }",
				(unsigned long long)x->outcome.guest_ns,
				(unsigned long long)x->outcome.host_ns, x->retries);
			first = false;
		}
	return buf_append_str(out, "\n\t]\n}\n");
}

int report_certificate(const struct campaign *c, struct buf *out)
{
	bool first = true;

	(void)buf_append_str(out,
		"{\n\t\"schema\": \"flamelab-certificate/1\",\n\t\"signature\": \"unsigned\",\n\t");
	report_field(out, "agent_sha256", c->agent_sha256);
	(void)buf_append_str(out, ",\n\t");
	report_field(out, "issued", c->started);
	(void)buf_append_str(out, ",\n\t\"keys\": ");
	report_keys(c, out);
	(void)buf_printf(out, ",\n\t\"valid\": %s,\n\t",
		policy_exit_code(&c->counts) == POLICY_PASS ? "true" : "false");
	report_field(out, "note", "real-hardware overhead: unmeasured");
	(void)buf_append_str(out, ",\n\t\"gates\": [");
	for (size_t i = 0; i < c->count; i++)
		for (size_t k = 0; k < c->items[i].gates.count; k++) {
			const struct gate *g = &c->items[i].gates.items[k];
			const char *verdict = g->status == GATE_FAIL ? "fail"
					      : g->status == GATE_EXCUSED
						      ? "unmeasured"
						      : gate_status_name(g->status);

			(void)buf_append_str(out, first ? "\n\t\t{ " : ",\n\t\t{ ");
			report_field(out, "scenario", g->scenario);
			(void)buf_append_str(out, ", ");
			report_field(out, "variant", g->variant);
			(void)buf_append_str(out, ", ");
			report_field(out, "gate", gate_kind_name(g->kind));
			(void)buf_append_str(out, ", ");
			report_field(out, "mode", scenario_mode_name(c->items[i].plan.mode));
			(void)buf_append_str(out, ", ");
			report_field(out, "verdict", verdict);
			(void)buf_append_str(out, " }");
			first = false;
		}
	return buf_append_str(out, "\n\t]\n}\n");
}
