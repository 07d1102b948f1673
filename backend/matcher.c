/*
 * Selectors as in Prometheus, {name="value", other=~"a|b"}, and their evaluation.
 *
 * Expressions are POSIX extended ones, anchored at both ends. What people write for RE2 is translated where it
 * means the same: (?: becomes (, \d a class. What could eat the server is refused: back references take
 * exponential time, and glibc copies what stands before {m,n} and +, so that nested ones multiply. The size
 * of what it builds is estimated while translating.
 */
#include <errno.h>
#include <limits.h>
#include <regex.h>

#include "backend/store.h"
#include "base/buf.h"
#include "base/def.h"

enum { REGEX_SIZE_MAX = 4096, REGEX_DEPTH_MAX = 64, REGEX_TEXT_MAX = 5 * 2048 };

struct scanner {
	const char *at;
	const char *why;
};

static int bad(struct scanner *s, const char *why)
{
	s->why = why;
	return -EINVAL;
}

static void skip_blanks(struct scanner *s)
{
	while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n')
		s->at++;
}

static bool is_name_char(char c, bool is_first)
{
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
		return true;
	return !is_first &&
	       ((c >= '0' && c <= '9') || c == '.' || c == '-' || c == '/' || c == ':');
}

static int scan_name(struct scanner *s, char to[256])
{
	size_t n = 0;

	for (; is_name_char(*s->at, n == 0); s->at++) {
		if (n == 255)
			return bad(s, "label name too long");
		to[n++] = *s->at;
	}
	to[n] = '\0';
	return n ? 0 : bad(s, "expected a label name");
}

static int scan_op(struct scanner *s, enum match_op *ret)
{
	static const struct {
		char text[3];
		enum match_op op;
	} ops[] = {{"=~", MATCH_RE}, {"!~", MATCH_NRE}, {"!=", MATCH_NE}, {"=", MATCH_EQ}};

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		size_t size = strlen(ops[i].text);

		if (strncmp(s->at, ops[i].text, size) == 0) {
			s->at += size;
			*ret = ops[i].op;
			return 0;
		}
	}
	return bad(s, "expected =, !=, =~ or !~");
}

static int scan_value(struct scanner *s, char to[2048])
{
	size_t n = 0;

	if (*s->at != '"')
		return bad(s, "expected a value in double quotes");
	for (s->at++; *s->at != '"'; s->at++) {
		char c = *s->at;

		if (!c)
			return bad(s, "value without its closing quote");
		if (c == '\\') {
			c = *++s->at;
			if (c == 'n')
				c = '\n';
			else if (c == 't')
				c = '\t';
			else if (c != '"' && c != '\\')
				return bad(s, "unknown escape in a value");
		}
		if (n == 2047)
			return bad(s, "value too long");
		to[n++] = c;
	}
	s->at++;
	to[n] = '\0';
	return 0;
}

/* The end of the bracket expression that starts at s, or NULL. */
static const char *bracket_end(const char *s)
{
	const char *p = s + 1;

	if (*p == '^')
		p++;
	if (*p == ']')
		p++;
	for (; *p && *p != ']'; p++) {
		if (*p == '[' && (p[1] == ':' || p[1] == '.' || p[1] == '=')) {
			char kind = p[1];

			for (p += 2; *p && !(*p == kind && p[1] == ']'); p++)
				;
			if (!*p)
				return NULL;
			p++;
		}
	}
	return *p ? p : NULL;
}

/* How many copies "{m,n}" at s makes; an open one is a copy more than its start. */
static unsigned int repeat_max(const char *s)
{
	unsigned int max = 1, number = 0;

	for (s++; *s && *s != '}'; s++) {
		if (*s >= '0' && *s <= '9')
			number = MIN(number * 10 + (unsigned int)(*s - '0'),
				(unsigned int)REGEX_SIZE_MAX);
		else
			number = 0;
		max = MAX(max, number);
	}
	return max + 1;
}

/* The size of what was read so far, in atoms, per open parenthesis. */
struct size_estimate {
	unsigned int sum[REGEX_DEPTH_MAX + 1];
	unsigned int last; /* of what a repetition would copy */
	unsigned int depth;
	bool can_repeat; /* what stands before is no repetition */
};

static bool is_repetition(char c)
{
	return c == '*' || c == '+' || c == '?' || c == '{';
}

/* Takes the character at p, which is no escape and no bracket. False when it is too much or unbalanced. */
static bool estimate(struct size_estimate *e, const char *p)
{
	unsigned int *sum = &e->sum[e->depth];

	if (is_repetition(*p) && !e->can_repeat)
		return false;
	e->can_repeat = !is_repetition(*p) && *p != '(' && *p != '|' && *p != '^' && *p != '}';
	if (*p == '(') {
		if (e->depth == REGEX_DEPTH_MAX)
			return false;
		e->sum[++e->depth] = 1;
		e->last = 0;
	} else if (*p == ')') {
		/* An unbalanced one would close our own parenthesis, and with it the anchors. */
		if (e->depth == 0)
			return false;
		e->last = *sum;
		sum = &e->sum[--e->depth];
		*sum += e->last;
	} else if (is_repetition(*p)) {
		unsigned int copies = *p == '{' ? repeat_max(p) : 2;

		*sum += e->last * (copies - 1);
		e->last *= copies;
	} else {
		*sum += 1;
		e->last = 1;
	}
	return *sum <= REGEX_SIZE_MAX && e->last <= REGEX_SIZE_MAX;
}

/* Translates value for regcomp. False when it is refused. */
static bool translate(const char *value, struct buf *out)
{
	struct size_estimate e = {0};

	(void)buf_append_str(out, "^(");
	for (const char *p = value; *p; p++) {
		if (*p == '\\' && p[1] >= '0' && p[1] <= '9')
			return false;
		if (*p == '\\' && p[1]) {
			(void)buf_append(out, p[1] == 'd' ? "[0-9]" : p, p[1] == 'd' ? 5 : 2);
			p++;
			if (!estimate(&e, "x"))
				return false;
		} else if (*p == '[') {
			const char *end = bracket_end(p);

			if (!end || !estimate(&e, "x"))
				return false;
			(void)buf_append(out, p, (size_t)(end - p) + 1);
			p = end;
		} else {
			if (!estimate(&e, p))
				return false;
			(void)buf_append_char(out, *p);
			if (*p == '(' && p[1] == '?' && p[2] == ':')
				p += 2;
			else if ((*p == '*' || *p == '+' || *p == '?') && p[1] == '?')
				p++; /* not greedy */
		}
	}
	(void)buf_append_str(out, ")$");
	return true;
}

static int compile(const char *value, const char **why, regex_t *ret)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(REGEX_TEXT_MAX);

	if (!translate(value, &text)) {
		*why = "regular expression not supported: unbalanced, too large, or a back "
		       "reference";
		return -EINVAL;
	}
	if (buf_error(&text))
		return -ENOMEM;
	if (regcomp(ret, text.data, REG_EXTENDED | REG_NOSUB) != 0) {
		*why = "not a valid regular expression";
		return -EINVAL;
	}
	return 0;
}

static int scan_matcher(struct scanner *s, struct matcher *ret)
{
	regex_t regex;
	int r = scan_name(s, ret->name);

	skip_blanks(s);
	if (r == 0)
		r = scan_op(s, &ret->op);
	skip_blanks(s);
	if (r == 0)
		r = scan_value(s, ret->value);
	if (r == 0 && (ret->op == MATCH_RE || ret->op == MATCH_NRE)) {
		r = compile(ret->value, &s->why, &regex);
		if (r == 0)
			regfree(&regex);
	}
	return r;
}

int matcher_parse(
	const char *text, const char **why, struct matcher ret[MATCHERS_MAX], size_t *ret_count)
{
	struct scanner s = {.at = text, .why = ""};
	bool in_braces;
	size_t count = 0;
	int r = 0;

	skip_blanks(&s);
	in_braces = *s.at == '{';
	if (in_braces)
		s.at++;
	for (;;) {
		skip_blanks(&s);
		if (*s.at == (in_braces ? '}' : '\0'))
			break;
		r = count < MATCHERS_MAX ? scan_matcher(&s, &ret[count])
					 : bad(&s, "too many matchers");
		if (r < 0)
			break;
		count++;
		skip_blanks(&s);
		if (*s.at == ',') {
			s.at++;
		} else if (*s.at != (in_braces ? '}' : '\0')) {
			r = bad(&s, "expected a comma");
			break;
		}
	}
	if (r == 0 && in_braces) {
		s.at++;
		skip_blanks(&s);
		if (*s.at)
			r = bad(&s, "text after the closing brace");
	}
	if (r == -EINVAL)
		*why = s.why;
	if (r == 0)
		*ret_count = count;
	return r;
}

struct match_set {
	const struct matcher *matchers;
	size_t count;
	regex_t regex[MATCHERS_MAX];
	bool compiled[MATCHERS_MAX];
};

int match_set_new(const struct matcher *m, size_t count, struct match_set **ret)
{
	struct match_set *set;
	const char *why;
	int r = 0;

	if (count > MATCHERS_MAX)
		return -EINVAL;
	set = calloc(1, sizeof(*set));
	if (!set)
		return -ENOMEM;
	set->matchers = m;
	set->count = count;
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (m[i].op != MATCH_RE && m[i].op != MATCH_NRE)
			continue;
		r = compile(m[i].value, &why, &set->regex[i]);
		set->compiled[i] = r == 0;
	}
	if (r < 0) {
		match_set_free(set);
		return r;
	}
	*ret = set;
	return 0;
}

void match_set_free(struct match_set *set)
{
	if (!set)
		return;
	for (size_t i = 0; i < set->count; i++) {
		if (set->compiled[i])
			regfree(&set->regex[i]);
	}
	free(set);
}

static const char *label_value(const struct push_label *labels, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(labels[i].name, name) == 0)
			return labels[i].value;
	}
	return "";
}

bool match_set_takes(const struct match_set *set, const struct push_label *labels, size_t count,
	const char *type, const char *unit)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct matcher *m = &set->matchers[i];
		const char *value;
		bool is_equal;

		if (strcmp(m->name, "__type__") == 0)
			value = type;
		else if (strcmp(m->name, "__unit__") == 0)
			value = unit;
		else
			value = label_value(labels, count, m->name);
		if (set->compiled[i])
			is_equal = regexec(&set->regex[i], value, 0, NULL, 0) == 0;
		else
			is_equal = strcmp(value, m->value) == 0;
		if (is_equal != (m->op == MATCH_EQ || m->op == MATCH_RE))
			return false;
	}
	return true;
}
