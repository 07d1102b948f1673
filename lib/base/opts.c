/*
 * Options from their three sources. A value from argv is never overwritten by a file, whichever is
 * parsed first, because the file's name is itself an option. Values that are not stored are still
 * checked: a broken file is refused on every run, not only on some.
 */
#include "base/opts.h"

#include <assert.h>
#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "base/file.h"
#include "base/opts_internal.h"
#include "base/str.h"

#define OPTS_SPECS_MAX      64
#define OPTS_FILE_MAX       ((size_t)1 << 20)
#define OPTS_ARENA_MAX      ((size_t)16 << 20) /* a file of many short list items, copied twice */
#define OPTS_MESSAGE_MAX    4096
#define OPTS_NAME_SHOWN_MAX 100

static const struct opts_place opts_argv = {0};

int opts_init(struct opts *o, const struct opt_spec *specs, void *target)
{
	static const struct opts_place at = {.file = "default"};
	size_t i = 0;

	*o = (struct opts){.specs = specs, .target = target, .message = BUF_INIT(OPTS_MESSAGE_MAX)};
	o->arena = arena_new(OPTS_ARENA_MAX);
	if (!o->arena)
		return -ENOMEM;
	for (; specs[i].name; i++) {
		int r = 0;

		opts_clear(o, &specs[i]);
		if (specs[i].def)
			r = opts_set(o, &at, &specs[i], specs[i].def, true);
		assert(r == 0 || r == -ENOMEM); /* the table is ours */
		if (r < 0) {
			opts_done(o);
			return r;
		}
	}
	assert(i <= OPTS_SPECS_MAX);
	return 0;
}

void opts_done(struct opts *o)
{
	if (!o)
		return;
	arena_free(o->arena);
	o->arena = NULL;
	buf_done(&o->message);
}

static const struct opt_spec *opts_find(const struct opts *o, const char *name, size_t size)
{
	for (const struct opt_spec *s = o->specs; s->name; s++) {
		if (strlen(s->name) == size && memcmp(s->name, name, size) == 0)
			return s;
	}
	return NULL;
}

static const struct opt_spec *opts_find_letter(const struct opts *o, char letter)
{
	for (const struct opt_spec *s = o->specs; s->name; s++) {
		if (s->letter && s->letter == letter)
			return s;
	}
	return NULL;
}

/* The shown option whose name is nearest, if near enough to be a slip, or that begins so. NULL otherwise. */
static const char *opts_nearest(const struct opts *o, const char *name, bool is_file)
{
	const char *best = NULL;
	size_t near = SIZE_MAX;

	for (const struct opt_spec *s = o->specs; s->name; s++) {
		size_t d = opts_distance(name, s->name);

		if (s->hidden || (is_file && s->argv_only))
			continue;
		if (*name && str_has_prefix(s->name, name))
			d = 0;
		if (d < near && d <= MAX(strlen(s->name) / 3, (size_t)1)) {
			near = d;
			best = s->name;
		}
	}
	return best;
}

static int opts_fail_unknown(
	struct opts *o, const struct opts_place *at, const char *name, bool is_file)
{
	const char *best = opts_nearest(o, name, is_file);
	const char *dashes = is_file ? "" : "--";

	(void)opts_fail(o, at, NULL, "unknown %s '%s", is_file ? "key" : "option", dashes);
	(void)str_append_utf8(&o->message, name, strlen(name), OPTS_NAME_SHOWN_MAX);
	(void)buf_append_char(&o->message, '\'');
	if (best)
		(void)buf_printf(&o->message, "; did you mean '%s%s'?", dashes, best);
	else if (!is_file)
		(void)buf_append_str(&o->message, "; --help lists them");
	return -EINVAL;
}

/* The list of a better source replaces that of a worse one; within one source it grows. */
static int opts_set_from_argv(struct opts *o, const struct opt_spec *spec, const char *text)
{
	uint64_t bit = UINT64_C(1) << (spec - o->specs);

	if (opts_is_list(spec) && !(o->seen & bit))
		opts_clear(o, spec);
	o->seen |= bit;
	return opts_set(o, &opts_argv, spec, text, true);
}

/* Where an argv parse stands: args[i] is looked at. */
struct opts_argv {
	int count;
	char **args;
	int i;
};

static int opts_take_value(
	struct opts *o, struct opts_argv *a, const struct opt_spec *spec, const char *value)
{
	if (!value && a->i + 1 < a->count)
		value = a->args[++a->i];
	if (!value)
		return opts_fail(
			o, &opts_argv, spec, "needs a value (%s)", spec->arg ? spec->arg : "VALUE");
	return opts_set_from_argv(o, spec, value);
}

static int opts_parse_long(struct opts *o, struct opts_argv *a)
{
	const char *name = a->args[a->i] + 2;
	size_t size = strcspn(name, "=");
	const char *value = name[size] == '=' ? name + size + 1 : NULL;
	const struct opt_spec *spec = opts_find(o, name, size);
	bool is_no = false;

	if (!spec && strncmp(name, "no-", 3) == 0) {
		spec = opts_find(o, name + 3, size - 3);
		is_no = true;
		if (spec && spec->type != OPT_FLAG)
			spec = NULL;
	}
	if (!spec) {
		char *bare = arena_strndup(o->arena, name, size);

		if (!bare)
			return -ENOMEM;
		if (strcmp(bare, "help") == 0 && !value)
			return 1;
		return opts_fail_unknown(o, &opts_argv, bare, false);
	}
	if (spec->type != OPT_FLAG)
		return opts_take_value(o, a, spec, value);
	if (value)
		return opts_fail(o, &opts_argv, spec,
			"takes no value; to switch it off use '--no-%s'", spec->name);
	return opts_set_from_argv(o, spec, is_no ? "off" : "on");
}

/* -v, -vq, -F99, -F 99 */
static int opts_parse_letters(struct opts *o, struct opts_argv *a)
{
	for (const char *p = a->args[a->i] + 1; *p; p++) {
		const struct opt_spec *spec = opts_find_letter(o, *p);
		int r;

		if (!spec && *p == 'h')
			return 1;
		if (!spec) {
			char shown[2] = {*p, '\0'};

			(void)opts_fail(o, &opts_argv, NULL, "%s", "unknown option '-");
			(void)str_append_utf8(&o->message, shown, 1, 3);
			(void)buf_append_str(&o->message, "'; --help lists them");
			return -EINVAL;
		}
		if (spec->type != OPT_FLAG)
			return opts_take_value(o, a, spec, p[1] ? p + 1 : NULL);
		r = opts_set_from_argv(o, spec, "on");
		if (r != 0)
			return r;
	}
	return 0;
}

int opts_parse_argv(struct opts *o, int argc, char **argv, int *ret_operands)
{
	struct opts_argv a = {.count = argc, .args = argv, .i = 1};
	char **options = arena_alloc(o->arena, ((size_t)argc * 2 + 1) * sizeof(*options));
	char **operands;
	int n_options = 0, n_operands = 0;

	if (!options)
		return -ENOMEM;
	operands = options + argc;
	for (bool is_ended = false; a.i < argc; a.i++) {
		char *arg = argv[a.i];
		int first = a.i;
		int r;

		if (is_ended || arg[0] != '-' || arg[1] == '\0') {
			operands[n_operands++] = arg;
			continue;
		}
		is_ended = strcmp(arg, "--") == 0;
		r = 0;
		if (!is_ended)
			r = arg[1] == '-' ? opts_parse_long(o, &a) : opts_parse_letters(o, &a);
		if (r != 0)
			return r;
		for (int k = first; k <= a.i; k++)
			options[n_options++] = argv[k];
	}
	/* Options move before operands, as in GNU programs: `run NAME --keep` works. */
	for (int k = 0; k < n_options; k++)
		argv[1 + k] = options[k];
	for (int k = 0; k < n_operands; k++)
		argv[1 + n_options + k] = operands[k];
	*ret_operands = MIN(1 + n_options, argc);
	return 0;
}

static bool opts_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends, in place. */
static char *opts_trim(char *s)
{
	size_t n;

	while (opts_is_blank(*s))
		s++;
	n = strlen(s);
	while (n > 0 && opts_is_blank(s[n - 1]))
		n--;
	s[n] = '\0';
	return s;
}

/* A '#' begins a comment at the start of a line and after a blank; elsewhere it is text. */
static void opts_cut_comment(char *s)
{
	for (char *p = s; *p; p++) {
		if (*p == '#' && (p == s || opts_is_blank(p[-1]))) {
			*p = '\0';
			return;
		}
	}
}

/* One line, which is overwritten. seen: the keys that this file has set so far. */
static int opts_parse_line(struct opts *o, const struct opts_place *at, char *line, uint64_t *seen)
{
	const struct opt_spec *spec;
	const char *text;
	char *key, *eq;
	uint64_t bit;
	bool store;

	opts_cut_comment(line);
	key = opts_trim(line);
	if (*key == '\0')
		return 0;
	eq = strchr(key, '=');
	if (!eq || eq == key)
		return opts_fail(o, at, NULL, "expected 'key = value'");
	*eq = '\0';
	key = opts_trim(key);
	spec = opts_find(o, key, strlen(key));
	if (!spec)
		return opts_fail_unknown(o, at, key, true);
	if (spec->argv_only)
		return opts_fail(o, at, spec, "may be given on the command line only");
	bit = UINT64_C(1) << (spec - o->specs);
	if ((*seen & bit) && !opts_is_list(spec))
		return opts_fail(o, at, spec, "is set twice");
	store = !(o->seen & bit);
	if (store && opts_is_list(spec) && !(*seen & bit))
		opts_clear(o, spec);
	*seen |= bit;
	text = arena_strdup(o->arena, opts_trim(eq + 1));
	return text ? opts_set(o, at, spec, text, store) : -ENOMEM;
}

static int opts_parse_text(struct opts *o, const char *path, char *text, size_t size)
{
	struct opts_place at = {.file = path, .line = 1};
	uint64_t seen = 0;

	for (char *end = text + size; text < end; at.line++) {
		char *newline = memchr(text, '\n', (size_t)(end - text));
		char *stop = newline ? newline : end;
		int r;

		if (memchr(text, '\0', (size_t)(stop - text)))
			return opts_fail(o, &at, NULL, "a NUL byte; this is not a text file");
		*stop = '\0'; /* a buf has a NUL behind its end already */
		r = opts_parse_line(o, &at, text, &seen);
		if (r < 0)
			return r;
		text = stop + 1;
	}
	return 0;
}

int opts_parse_file(struct opts *o, const char *path)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(OPTS_FILE_MAX);
	const struct opts_place at = {.file = path};
	int r = file_read(path, &b);

	if (r < 0) {
		(void)opts_fail(o, &at, NULL, "%s", strerrordesc_np(-r));
		return r;
	}
	return b.size ? opts_parse_text(o, path, b.data, b.size) : 0;
}
