/*
 * report.html: one file that loads nothing and runs nothing (its Content-Security-Policy says so),
 * so that it can be mailed and opened anywhere. Flame graphs are images in data: URLs, where a
 * script in an SVG does not run; the interactive files lie beside it in flames/.
 */
#include <errno.h>
#include <math.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"
#include "lab/report.h"
#include "lab/report_internal.h"
#include "prof/svg.h"

static const char report_head[] =
	"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
	"style-src 'unsafe-inline'\">\n"
	"<meta name=\"viewport\" content=\"width=device-width\">\n<title>Flamelab report</title>\n"
	"<style>\n"
	"body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1240px;padding:0 1em;"
	"color:#222}\n"
	"table{border-collapse:collapse;width:100%;margin:.5em 0 1.5em}\n"
	"th,td{text-align:left;padding:.25em .6em;border-bottom:1px solid "
	"#ddd;vertical-align:top}\n"
	"td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
	".pass{color:#0a7a2f}.fail{color:#b00020;font-weight:bold}.unmeasured{color:#9a6700}"
	".excused{color:#555}\n"
	".bar{position:relative;height:14px;background:#eee;width:300px}\n"
	".bar i{position:absolute;top:0;height:7px;background:#e4572e}\n"
	".bar b{position:absolute;top:7px;height:7px;background:#4a7bd0}\n"
	"img{max-width:100%;border:1px solid #ccc}\ncode{background:#f3f3f3;padding:0 .3em}\n"
	"details{margin:.4em 0}summary{cursor:pointer}\n"
	"@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}"
	"th,td{border-color:#333}.bar{background:#333}code{background:#2a2a2a}"
	".pass{color:#5fd38d}.fail{color:#ff6b7a}.unmeasured{color:#e0b050}.excused{color:#aaa}}\n"
	"</style></head><body>\n<h1>Flamelab report</h1>\n";

static void html_text(struct buf *out, const char *text)
{
	(void)report_xml(out, text, 2000);
}

static const char *html_class(enum gate_status s)
{
	static const char *const names[GATE_STATUS_COUNT] = {
		"pass", "fail", "unmeasured", "excused"};

	return names[s];
}

static void html_image(const struct image_info *image, struct buf *out)
{
	(void)buf_append_str(out, "<tr><th>image</th><td><code>");
	html_text(out, image->hash);
	(void)buf_printf(out, "</code>%s</td></tr><tr><th>kernel</th><td>",
		image->drifted ? " drifted" : "");
	html_text(out, image->kernel);
	(void)buf_append_str(out, "</td></tr><tr><th>QEMU</th><td>");
	html_text(out, image->qemu);
	(void)buf_append_str(out, "</td></tr><tr><th>toolchain</th><td>");
	html_text(out, image->toolchain);
	(void)buf_append_str(out, "</td></tr>");
}

static void html_summary(const struct campaign *c, struct buf *out)
{
	enum policy_exit code = policy_exit_code(&c->counts);
	const char *word = code == POLICY_PASS             ? "Passed"
			   : code == POLICY_FAIL           ? "Failed"
			   : code == POLICY_INFRASTRUCTURE ? "Broken infrastructure"
			   : code == POLICY_SKIPPED        ? "Nothing ran"
							   : "Inconclusive";

	(void)buf_printf(out,
		"<p><strong>%s</strong> (exit %d): %zu gates passed, %zu failed, %zu unmeasured, "
		"%zu "
		"excused by <code>lab/unmeasured.json</code>; %zu scenarios skipped.</p>\n",
		word, code, c->counts.passed, c->counts.failed, c->counts.unmeasured,
		c->counts.excused, c->counts.skipped);
	(void)buf_append_str(out, "<table><tr><th>agent</th><td><code>");
	html_text(out, c->agent_sha256);
	(void)buf_append_str(out, "</code></td></tr>");
	for (enum vm_arch arch = VM_X86_64; arch < VM_ARCH_COUNT; arch++)
		if (c->has_image[arch] || arch == VM_X86_64)
			html_image(&c->image[arch], out);
	(void)buf_append_str(out, "</table>\n");
}

static void html_verdicts(const struct campaign *c, struct buf *out)
{
	(void)buf_append_str(out, "<h2>Verdicts</h2>\n<table><tr><th>scenario</th><th>gate</th>"
				  "<th>verdict</th><th>worst check</th></tr>\n");
	for (size_t i = 0; i < c->count; i++) {
		const struct campaign_item *it = &c->items[i];

		if (it->plan.skipped) {
			(void)buf_append_str(out, "<tr><td>");
			html_text(out, it->plan.scenario->name);
			(void)buf_append_str(
				out, "</td><td></td><td class=\"excused\">skipped</td><td>");
			html_text(out, it->plan.skipped);
			(void)buf_append_str(out, "</td></tr>\n");
		}
		for (size_t k = 0; k < it->gates.count; k++) {
			const struct gate *g = &it->gates.items[k];
			char variant[64];

			(void)buf_append_str(out, "<tr><td>");
			html_text(out, g->scenario);
			html_text(out, report_variant(g, variant));
			(void)buf_append_str(out, "</td><td title=\"red means: ");
			html_text(out, gate_kind_meaning(g->kind));
			(void)buf_printf(out, "\">%s</td><td class=\"%s\">%s</td><td>",
				gate_kind_name(g->kind), html_class(g->status),
				gate_status_name(g->status));
			html_text(out, g->text);
			(void)buf_append_str(out, "</td></tr>\n");
		}
	}
	(void)buf_append_str(out, "</table>\n");
}

/* Truth above (red), measured below (blue), on a common scale of 0..100 %. */
static void html_bar(struct buf *out, const struct gate_check *x)
{
	double truth = fmin(fmax(isfinite(x->expected) ? x->expected : 0, 0), 100);
	double measured = fmin(fmax(isfinite(x->measured) ? x->measured : 0, 0), 100);

	(void)buf_printf(out,
		"<div class=\"bar\"><i style=\"width:%.2f%%\"></i><b "
		"style=\"width:%.2f%%\"></b></div>",
		truth, measured);
}

static void html_checks(const struct gate *g, struct buf *out)
{
	bool shares = g->kind == GATE_SHARE || g->kind == GATE_SHARE_POOLED;
	char number[48];

	(void)buf_printf(out, "<details%s><summary class=\"%s\">%s: %zu checks</summary>\n<table>",
		g->kind == GATE_SHARE_POOLED || g->status == GATE_FAIL ? " open" : "",
		html_class(g->status), gate_kind_name(g->kind), g->check_count);
	(void)buf_printf(out,
		"<tr><th>what</th><th>%s</th><th>measured</th><th>tolerance</th>%s</tr>\n",
		shares ? "truth" : "expected or limit",
		shares ? "<th>truth (above) and measured</th>" : "");
	for (size_t i = 0; i < g->check_count; i++) {
		const struct gate_check *x = &g->checks[i];

		(void)buf_printf(out, "<tr><td class=\"%s\">", x->pass ? "pass" : "fail");
		html_text(out, x->what);
		(void)buf_printf(out, "</td><td class=\"n\">%s%s</td>",
			x->at_most ? "&#8804; " : "", report_number(x->unit, x->expected, number));
		(void)buf_printf(out, "<td class=\"n\">%s</td>",
			report_number(x->unit, x->measured, number));
		(void)buf_printf(out, "<td class=\"n\">&#177; %s</td>",
			report_number(x->unit, x->tolerance, number));
		if (shares) {
			(void)buf_append_str(out, "<td>");
			html_bar(out, x);
			(void)buf_append_str(out, "</td>");
		}
		(void)buf_append_str(out, "</tr>\n");
	}
	(void)buf_append_str(out, "</table></details>\n");
}

static void html_overhead(const struct campaign_item *it, struct buf *out)
{
	const struct judge_overhead *o = &it->overhead;

	if (!o->known)
		return;
	(void)buf_printf(out,
		"<table><tr><th>agent CPU, window and flush</th><td class=\"n\">%.4f %%</td></tr>"
		"<tr><th>BPF run time</th><td class=\"n\">%.4f %%</td></tr>"
		"<tr><th>slowdown of the workload</th><td class=\"n\">%.4f %%</td></tr>"
		"<tr><th>sum (limit %.0f %%)</th><td class=\"n\"><strong>%.4f %%</strong></td></tr>"
		"<tr><th>start-up, once</th><td class=\"n\">%.3f s of CPU</td></tr></table>\n",
		100 * o->agent, 100 * o->bpf, 100 * o->slowdown, 100 * JUDGE_OVERHEAD_MAX,
		100 * o->sum, o->start_cpu_s);
}

/* The step whose flame graph stands for the scenario: the first with a profile. */
static const struct evidence *html_flame_step(const struct campaign_item *it)
{
	for (size_t k = 0; k < it->plan.step_count; k++)
		if (it->evidence[k].has_profile)
			return &it->evidence[k];
	return NULL;
}

int report_flame(const struct evidence *e, struct buf *out)
{
	struct svg_options o = {.type = profile_default_type(e->profile),
		.title = e->step,
		.width_px = 1200,
		.with_comm = true};
	char subtitle[160];

	(void)snprintf(subtitle, sizeof(subtitle), "%.40s at %.1f Hz, %llu samples",
		e->has_agent ? e->agent.event : "?", e->agent.frequency_real_hz,
		(unsigned long long)e->agent.samples);
	o.subtitle = subtitle;
	return svg_write(e->profile, &o, out);
}

static void html_flame(const struct campaign_item *it, struct buf *out)
{
	_cleanup_(buf_done) struct buf svg = BUF_INIT(REPORT_SVG_MAX);
	const struct evidence *e = html_flame_step(it);

	if (!e || report_flame(e, &svg) < 0)
		return;
	(void)buf_append_str(out, "<p><a href=\"flames/");
	html_text(out, e->step);
	(void)buf_append_str(out, ".svg\">");
	html_text(out, e->step);
	(void)buf_append_str(out, "</a> (the file is interactive, the picture is not)</p>\n"
				  "<img alt=\"flame graph of ");
	html_text(out, e->step);
	(void)buf_append_str(out, "\" src=\"data:image/svg+xml;base64,");
	report_base64(out, buf_str(&svg), svg.size);
	(void)buf_append_str(out, "\">\n");
}

void report_base64(struct buf *out, const char *data, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < size; i += 3) {
		size_t left = size - i;
		uint32_t v = (uint32_t)(uint8_t)data[i] << 16;
		char four[4];

		if (left > 1)
			v |= (uint32_t)(uint8_t)data[i + 1] << 8;
		if (left > 2)
			v |= (uint8_t)data[i + 2];
		four[0] = digits[v >> 18];
		four[1] = digits[v >> 12 & 63];
		four[2] = digits[v >> 6 & 63];
		four[3] = digits[v & 63];
		if (left < 3)
			four[3] = '=';
		if (left < 2)
			four[2] = '=';
		(void)buf_append(out, four, 4); /* errors stick to the buffer */
	}
}

int report_html(const struct campaign *c, struct buf *out)
{
	(void)buf_append_str(out, report_head);
	html_summary(c, out);
	html_verdicts(c, out);
	for (size_t i = 0; i < c->count; i++) {
		const struct campaign_item *it = &c->items[i];

		(void)buf_append_str(out, "<h2>");
		html_text(out, it->plan.scenario->name);
		(void)buf_append_str(out, "</h2>\n<p>");
		html_text(out, it->plan.scenario->why);
		(void)buf_printf(out,
			"</p>\n<p>mode %s, shift %u, %u CPU, %zu steps, %zu runs</p>\n",
			scenario_mode_name(it->plan.mode), it->plan.scenario->shift,
			it->plan.scenario->cpus, it->plan.step_count, it->plan.runs);
		if (it->plan.skipped)
			continue;
		html_overhead(it, out);
		for (size_t k = 0; k < it->gates.count; k++)
			if (it->gates.items[k].check_count)
				html_checks(&it->gates.items[k], out);
		html_flame(it, out);
	}
	return buf_append_str(out, "</body></html>\n");
}
