/*
 * The option table as text for people: --help and a config file to start from.
 */
#include "base/opts.h"

#include "base/def.h"
#include "base/opts_internal.h"

#define OPTS_COLUMN_MAX 32

/* "  -d, --duration TIME" */
static void opts_append_usage(const struct opt_spec *s, struct buf *b)
{
	if (s->letter)
		(void)buf_printf(b, "  -%c, --%s", s->letter, s->name);
	else
		(void)buf_printf(b, "      --%s", s->name);
	if (s->type != OPT_FLAG)
		(void)buf_printf(b, " %s", s->arg ? s->arg : "VALUE");
}

/* " (1..10000; default 99; may repeat)" */
static void opts_append_notes(const struct opt_spec *s, struct buf *b)
{
	_cleanup_(buf_done) struct buf notes = BUF_INIT(1024);

	if (s->type == OPT_ENUM)
		(void)buf_append_str(&notes, s->choices);
	else
		opts_append_limits(s, &notes);
	if (s->def && *s->def)
		(void)buf_printf(&notes, "%sdefault %s", notes.size ? "; " : "", s->def);
	if (opts_is_list(s))
		(void)buf_printf(&notes, "%smay repeat", notes.size ? "; " : "");
	if (notes.size)
		(void)buf_printf(b, " (%s)", buf_str(&notes));
}

/* Help lines, each after the prefix; the first one's prefix is the caller's. */
static void opts_append_help(const char *help, const char *prefix, struct buf *b)
{
	for (const char *p = help ? help : ""; *p; p++) {
		(void)buf_append_char(b, *p);
		if (*p == '\n')
			(void)buf_append_str(b, prefix);
	}
}

static void opts_append_row(size_t column, const char *usage, struct buf *b)
{
	size_t size = strlen(usage);

	(void)buf_append_str(b, usage);
	if (size + 2 > column) {
		(void)buf_append_char(b, '\n');
		size = 0;
	}
	(void)buf_printf(b, "%*s", (int)(column - size), "");
}

static size_t opts_column(const struct opt_spec *specs)
{
	size_t column = sizeof("  -h, --help  ") - 1;

	for (const struct opt_spec *s = specs; s->name; s++) {
		_cleanup_(buf_done) struct buf usage = BUF_INIT(256);

		opts_append_usage(s, &usage);
		if (!s->hidden && usage.size + 2 <= OPTS_COLUMN_MAX)
			column = MAX(column, usage.size + 2);
	}
	return column;
}

int opts_help(const struct opt_spec *specs, struct buf *out)
{
	size_t column = opts_column(specs);
	char indent[OPTS_COLUMN_MAX + 1];
	bool has_h = false;

	(void)snprintf(indent, sizeof(indent), "%*s", (int)column, "");
	for (const struct opt_spec *s = specs; s->name; s++) {
		_cleanup_(buf_done) struct buf usage = BUF_INIT(256);

		has_h = has_h || s->letter == 'h';
		if (s->hidden)
			continue;
		opts_append_usage(s, &usage);
		opts_append_row(column, buf_str(&usage), out);
		opts_append_help(s->help, indent, out);
		opts_append_notes(s, out);
		(void)buf_append_char(out, '\n');
	}
	opts_append_row(column, has_h ? "      --help" : "  -h, --help", out);
	(void)buf_append_str(out, "show this\n");
	return buf_error(out);
}

static const char *opts_sample_value(const struct opt_spec *s)
{
	if (s->def)
		return s->def;
	switch (s->type) {
	case OPT_FLAG:
		return "off";
	case OPT_U64:
	case OPT_F64:
		return "0";
	case OPT_DURATION:
		return "0s";
	default:
		return "";
	}
}

int opts_sample_config(const struct opt_spec *specs, struct buf *out)
{
	bool is_first = true;

	for (const struct opt_spec *s = specs; s->name; s++) {
		const char *value = opts_sample_value(s);

		if (s->hidden || s->argv_only)
			continue;
		(void)buf_append_str(out, is_first ? "# " : "\n# ");
		is_first = false;
		opts_append_help(s->help, "# ", out);
		opts_append_notes(s, out);
		(void)buf_printf(out, "\n#%s =%s%s\n", s->name, *value ? " " : "", value);
	}
	return buf_error(out);
}
