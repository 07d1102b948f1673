/* Writes every report into the output directory, plots included where gnuplot is installed. */
#include <errno.h>

#include "base/child.h"
#include "base/def.h"
#include "base/file.h"
#include "lab/report.h"
#include "lab/report_internal.h"

static int report_write(const struct campaign *c, const char *name, const struct buf *b)
{
	char path[1500];

	if (buf_error(b))
		return buf_error(b);
	(void)snprintf(path, sizeof(path), "%s/%s", c->place.out, name);
	return file_write_atomic(path, buf_str(b), b->size);
}

/* Flame graphs as files of their own, one a step. */
static int report_write_flames(const struct campaign *c)
{
	char path[800], name[200];
	int r = 0;

	(void)snprintf(path, sizeof(path), "%s/flames", c->place.out);
	r = file_mkdir_parents(path);
	for (size_t i = 0; i < c->count && r == 0; i++)
		for (size_t k = 0; k < c->items[i].plan.step_count && r == 0; k++) {
			_cleanup_(buf_done) struct buf b = BUF_INIT(REPORT_SVG_MAX);
			const struct evidence *e = &c->items[i].evidence[k];

			if (c->items[i].plan.skipped || !e->has_profile)
				continue;
			r = report_flame(e, &b);
			(void)snprintf(name, sizeof(name), "flames/%s.svg", e->step);
			if (r == 0)
				r = report_write(c, name, &b);
		}
	return r;
}

static void report_plot_data(const struct gate *g, struct buf *out)
{
	(void)buf_append_str(out, "# difference in points, tolerance, truth, what\n");
	for (size_t i = 0; i < g->check_count; i++) {
		const struct gate_check *x = &g->checks[i];
		char what[GATE_WHAT_MAX];
		size_t n = 0;

		/* gnuplot reads quoted columns; a quote in a name would end one. */
		for (const char *p = x->what; *p && n < sizeof(what) - 1; p++)
			what[n++] = *p == '"' || *p == '\\' || (unsigned char)*p < 0x20 ? '?' : *p;
		what[n] = 0;
		(void)buf_printf(out, "%zu %.6f %.6f %.6f \"%s\"\n", i, x->measured - x->expected,
			x->tolerance, x->expected, what);
	}
}

static int report_plot(const struct campaign *c, const char *name, const struct gate *g)
{
	_cleanup_(buf_done) struct buf data = BUF_INIT(4 << 20);
	_cleanup_(buf_done) struct buf script = BUF_INIT(65536);
	_cleanup_(buf_done) struct buf message = BUF_INIT(65536);
	char file[900];
	char *argv[] = {(char *)"gnuplot", file, NULL}; /* execvp changes neither */
	int r;

	report_plot_data(g, &data);
	(void)snprintf(file, sizeof(file), "plots/%s.dat", name);
	r = report_write(c, file, &data);
	if (r < 0)
		return r;
	(void)buf_printf(&script,
		"set terminal svg noenhanced size 1000,420 dynamic font 'sans-serif,12'\n"
		"set output '%s/plots/%s.svg'\nset title 'measured share minus truth, %s'\n"
		"set ylabel 'points'\nset xlabel 'check'\nset grid y\nset key top right\n"
		"set xrange [-1:%zu]\n"
		"plot '%s/plots/%s.dat' using 1:(0):3 with yerrorbars pt 0 lc rgb '#bbbbbb' "
		"title 'tolerance', '' using 1:2 with points pt 7 ps 0.5 lc rgb '#e4572e' "
		"title 'difference'\n",
		c->place.out, name, name, g->check_count, c->place.out, name);
	(void)snprintf(file, sizeof(file), "plots/%s.gp", name);
	r = report_write(c, file, &script);
	if (r < 0)
		return r;
	(void)snprintf(file, sizeof(file), "%s/plots/%s.gp", c->place.out, name);
	r = child_run(argv, &message, 30000);
	return r == -ENOENT ? 1 : r < 0 ? r : r == 0 ? 0 : -EIO;
}

int report_plots(const struct campaign *c)
{
	char path[800], name[160];
	int r;

	(void)snprintf(path, sizeof(path), "%s/plots", c->place.out);
	r = file_mkdir_parents(path);
	for (size_t i = 0; i < c->count && r == 0; i++)
		for (size_t k = 0; k < c->items[i].gates.count && r == 0; k++) {
			const struct gate *g = &c->items[i].gates.items[k];

			if (!g->check_count ||
				(g->kind != GATE_SHARE && g->kind != GATE_SHARE_POOLED))
				continue;
			(void)snprintf(name, sizeof(name), "%.64s.%.40s", g->scenario,
				gate_kind_name(g->kind));
			r = report_plot(c, name, g);
		}
	return r;
}

int report_write_all(const struct campaign *c, const char **which)
{
	static const struct {
		const char *name;
		int (*write)(const struct campaign *, struct buf *);
	} files[] = {
		{"results.json", report_results},
		{"timings.json", report_timings},
		{"junit.xml", report_junit},
		{"summary.md", report_markdown},
		{"certificate.json", report_certificate},
		{"report.html", report_html},
	};
	int r = file_mkdir_parents(c->place.out);

	*which = c->place.out;
	for (size_t i = 0; i < ARRAY_SIZE(files) && r == 0; i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(REPORT_HTML_MAX);

		*which = files[i].name;
		r = files[i].write(c, &b);
		if (r == 0)
			r = report_write(c, files[i].name, &b);
	}
	if (r == 0) {
		*which = "flames";
		r = report_write_flames(c);
	}
	return r;
}
