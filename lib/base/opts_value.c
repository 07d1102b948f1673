/*
 * Option values: from text to the field of the caller's struct, with a message that says what would
 * have been right.
 */
#include "base/opts_internal.h"

#include <errno.h>
#include <float.h>
#include <stdarg.h>

#include "base/arena.h"
#include "base/def.h"
#include "base/str.h"

#define OPTS_QUOTED_MAX 200
#define OPTS_WORD_MAX   64

void opts_append_quoted(struct buf *b, const char *s)
{
	(void)buf_append_char(b, '\'');
	(void)str_append_utf8(b, s, strlen(s), OPTS_QUOTED_MAX);
	(void)buf_append_char(b, '\'');
}

static void opts_begin_message(
	struct opts *o, const struct opts_place *at, const struct opt_spec *spec)
{
	buf_reset(&o->message);
	if (at->file) {
		(void)str_append_utf8(&o->message, at->file, strlen(at->file), OPTS_QUOTED_MAX);
		if (at->line > 0)
			(void)buf_printf(&o->message, ":%u", at->line);
		(void)buf_append_str(&o->message, ": ");
		if (spec)
			(void)buf_printf(&o->message, "'%s': ", spec->name);
	} else if (spec) {
		(void)buf_printf(&o->message, "option '--%s': ", spec->name);
	}
}

int opts_fail(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *fmt, ...)
{
	char text[512];
	va_list ap;

	opts_begin_message(o, at, spec);
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a message that long is cut */
	va_end(ap);
	(void)buf_append_str(&o->message, text);
	return -EINVAL;
}

static int opts_fail_value(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *value, const char *why)
{
	opts_begin_message(o, at, spec);
	opts_append_quoted(&o->message, value);
	(void)buf_printf(&o->message, " is not %s", why);
	return -EINVAL;
}

static int opts_fail_range(
	struct opts *o, const struct opts_place *at, const struct opt_spec *spec, const char *value)
{
	opts_begin_message(o, at, spec);
	opts_append_quoted(&o->message, value);
	(void)buf_append_str(&o->message, " is not in ");
	if (spec->min == 0 && spec->max == 0)
		(void)buf_append_str(&o->message, "the range of 64-bit numbers");
	else
		opts_append_limits(spec, &o->message);
	return -EINVAL;
}

char *opts_duration(uint64_t ns, char out[OPTS_DURATION_MAX])
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"h", 3600 * NSEC_PER_SEC}, {"m", 60 * NSEC_PER_SEC}, {"s", NSEC_PER_SEC},
		{"ms", NSEC_PER_MSEC}, {"us", 1000}, {"ns", 1}};
	size_t i = 0;

	if (ns == 0)
		i = 2; /* "0s" */
	while (ns % units[i].ns != 0)
		i++;
	(void)snprintf(out, OPTS_DURATION_MAX, "%llu%s", (unsigned long long)(ns / units[i].ns),
		units[i].name);
	return out;
}

static uint64_t opts_u64_bound(double v, uint64_t none)
{
	if (v <= 0)
		return none;
	return v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v;
}

static uint64_t opts_min_u64(const struct opt_spec *spec)
{
	return opts_u64_bound(spec->min, 0);
}

static uint64_t opts_max_u64(const struct opt_spec *spec)
{
	return opts_u64_bound(spec->max, UINT64_MAX);
}

void opts_append_limits(const struct opt_spec *spec, struct buf *b)
{
	char lo[OPTS_DURATION_MAX], hi[OPTS_DURATION_MAX];
	unsigned long long min = opts_min_u64(spec), max = opts_max_u64(spec);

	if (spec->min == 0 && spec->max == 0)
		return;
	switch (spec->type) {
	case OPT_U64:
	case OPT_U64_LIST:
		(void)buf_printf(b, "%llu..%llu", min, max);
		break;
	case OPT_F64:
		(void)buf_printf(b, "%g..%g", spec->min, spec->max);
		break;
	case OPT_DURATION:
		(void)buf_printf(b, "%s..%s", opts_duration(min, lo), opts_duration(max, hi));
		break;
	default:
		break;
	}
}

size_t opts_distance(const char *a, const char *b)
{
	/* Optimal string alignment, three rows of the table at a time. */
	size_t rows[3][OPTS_WORD_MAX + 1];
	size_t na = strlen(a), nb = strlen(b);

	if (na > OPTS_WORD_MAX || nb > OPTS_WORD_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t *row = rows[i % 3], *up = rows[(i - 1) % 3], *up2 = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t best = up[j - 1] + (a[i - 1] != b[j - 1]);

			best = MIN(best, MIN(up[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, up2[j - 2] + 1);
			row[j] = best;
		}
	}
	return rows[na % 3][nb];
}

static int opts_parse_flag(const char *text, bool *ret)
{
	static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(text, words[i]) == 0) {
			*ret = i % 2 == 1;
			return 0;
		}
	}
	return -EINVAL;
}

/* The index of text among "a|b|c", -EINVAL with the message otherwise. */
static int opts_parse_enum(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *text, int *ret)
{
	size_t near = SIZE_MAX;
	char best[OPTS_WORD_MAX + 1] = "";
	int i = 0;

	for (const char *p = spec->choices; *p; i++) {
		size_t n = strcspn(p, "|");
		char word[OPTS_WORD_MAX + 1];
		size_t d;

		(void)snprintf(word, sizeof(word), "%.*s", (int)n, p); /* our own words are short */
		if (strcmp(text, word) == 0) {
			*ret = i;
			return 0;
		}
		d = opts_distance(text, word);
		if (d < near && d <= MAX(n / 3, (size_t)1)) {
			near = d;
			memcpy(best, word, sizeof(best));
		}
		p += n + (p[n] == '|');
	}
	(void)opts_fail_value(o, at, spec, text, "one of ");
	for (const char *p = spec->choices; *p; p++) {
		if (*p == '|')
			(void)buf_append_str(&o->message, ", ");
		else
			(void)buf_append_char(&o->message, *p);
	}
	if (best[0])
		(void)buf_printf(&o->message, "; did you mean '%s'?", best);
	return -EINVAL;
}

static int opts_parse_duration(const struct opt_spec *spec, const char *text, uint64_t *ret)
{
	uint64_t v = 0;
	int r = str_to_duration_ns(text, &v);

	if (r < 0)
		return r;
	if (v < opts_min_u64(spec) || v > opts_max_u64(spec))
		return -ERANGE;
	*ret = v;
	return 0;
}

static int opts_parse_value(struct opts *o, const struct opts_place *at,
	const struct opt_spec *spec, const char *text, struct opts_value *ret)
{
	bool is_free = spec->min == 0 && spec->max == 0;
	const char *kind = "";
	int r = 0;

	switch (spec->type) {
	case OPT_FLAG:
		kind = "on or off";
		r = opts_parse_flag(text, &ret->flag);
		break;
	case OPT_U64:
	case OPT_U64_LIST:
		kind = "a whole number";
		r = str_to_u64(text, opts_min_u64(spec), opts_max_u64(spec), &ret->u64);
		break;
	case OPT_F64:
		kind = "a number";
		r = str_to_f64(text, is_free ? -DBL_MAX : spec->min, is_free ? DBL_MAX : spec->max,
			&ret->f64);
		break;
	case OPT_DURATION:
		kind = "a time such as 10s, 250ms, 5m or 2h";
		r = opts_parse_duration(spec, text, &ret->u64);
		break;
	case OPT_ENUM:
		return opts_parse_enum(o, at, spec, text, &ret->choice);
	case OPT_STR:
	case OPT_STR_LIST:
		ret->str = text;
		break;
	}
	if (r == -EINVAL)
		return opts_fail_value(o, at, spec, text, kind);
	if (r == -ERANGE)
		return opts_fail_range(o, at, spec, text);
	return r;
}

/* The field's type is the table's promise; memcpy keeps that the only assumption made. */
static void *opts_field(const struct opts *o, const struct opt_spec *spec)
{
	return (uint8_t *)o->target + spec->offset;
}

static int opts_store(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const struct opts_value *v)
{
	void *field = opts_field(o, spec);
	struct opt_list *list = field;

	switch (spec->type) {
	case OPT_FLAG:
		memcpy(field, &v->flag, sizeof(v->flag));
		return 0;
	case OPT_ENUM:
		memcpy(field, &v->choice, sizeof(v->choice));
		return 0;
	case OPT_U64:
	case OPT_DURATION:
		memcpy(field, &v->u64, sizeof(v->u64));
		return 0;
	case OPT_F64:
		memcpy(field, &v->f64, sizeof(v->f64));
		return 0;
	case OPT_STR:
		memcpy(field, &v->str, sizeof(v->str));
		return 0;
	case OPT_U64_LIST:
	case OPT_STR_LIST:
		break;
	}
	if (list->count >= OPT_LIST_MAX)
		return opts_fail(o, at, spec, "more than %d values", OPT_LIST_MAX);
	if (spec->type == OPT_U64_LIST)
		list->u64[list->count++] = v->u64;
	else
		list->str[list->count++] = v->str;
	return 0;
}

void opts_clear(struct opts *o, const struct opt_spec *spec)
{
	const struct opts_value zero = {0};

	if (opts_is_list(spec))
		((struct opt_list *)opts_field(o, spec))->count = 0;
	else
		(void)opts_store(o, NULL, spec, &zero); /* only a list can be full */
}

static int opts_set_one(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *text, bool store)
{
	struct opts_value v = {0};
	int r;

	if (*text == '\0' && spec->type != OPT_STR && spec->type != OPT_STR_LIST)
		return opts_fail(o, at, spec, "the value is empty");
	r = opts_parse_value(o, at, spec, text, &v);
	if (r < 0)
		return r;
	return store ? opts_store(o, at, spec, &v) : 0;
}

int opts_set(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *text, bool store)
{
	if (spec->type != OPT_U64_LIST)
		return opts_set_one(o, at, spec, text, store);
	for (;;) {
		size_t n = strcspn(text, ",");
		const char *item = arena_strndup(o->arena, text, n);
		int r;

		if (!item)
			return -ENOMEM;
		r = opts_set_one(o, at, spec, item, store);
		if (r < 0 || text[n] == '\0')
			return r;
		text += n + 1;
	}
}
