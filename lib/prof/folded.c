/*
 * Folded stacks, both ways.
 *
 *	line   := stack ' ' integer
 *	stack  := name (';' name)*		root first
 *	name   := with "\\" for a backslash, "\x3b" for ';', "\x0a" for a newline
 *
 * Two more escapes keep names apart from syntax that readers give a meaning: '#' at the start of a
 * line (a comment to us and to gProfiler) is "\x23", and the '[' of a name's own ending that looks
 * like a kind's suffix is "\x5b". Other backslashes come from tools that do not escape and stay.
 *
 * Suffixes follow gProfiler and async-profiler (_[k], _[p], _[j]); the ones for node and go are
 * ours. Lines of value 0 are left out: they draw nothing.
 */
#include "prof/folded.h"

#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "prof/intern.h"
#include "prof/profile_internal.h"

struct suffix {
	const char *text;
	enum frame_kind kind;
};

/* The first of a kind is the one that is written. */
static const struct suffix suffixes[] = {
	{"_[k]", FRAME_KERNEL},
	{"_[p]", FRAME_PYTHON},
	{"_[pe]", FRAME_PYTHON},
	{"_[j]", FRAME_JAVA},
	{"_[i]", FRAME_JAVA},
	{"_[0]", FRAME_JAVA},
	{"_[1]", FRAME_JAVA},
	{"_[n]", FRAME_NODE},
	{"_[g]", FRAME_GO},
};

static const struct suffix *suffix_of_name(const char *name, size_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t n = strlen(suffixes[i].text);

		if (size > n && memcmp(name + size - n, suffixes[i].text, n) == 0)
			return &suffixes[i];
	}
	return NULL;
}

static const struct suffix *suffix_of_kind(uint32_t kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (suffixes[i].kind == kind)
			return &suffixes[i];
	}
	return NULL;
}

/* The escape of the byte at i, NULL for one that stands for itself. */
static const char *escape_at(const char *name, size_t i, size_t bracket, bool line_start)
{
	switch (name[i]) {
	case '\\':
		return "\\\\";
	case ';':
		return "\\x3b";
	case '\n':
		return "\\x0a";
	case '#':
		return i == 0 && line_start ? "\\x23" : NULL;
	case '[':
		return i == bracket ? "\\x5b" : NULL;
	default:
		return NULL;
	}
}

/* The buffer keeps the first error, so the pieces of a line are appended and checked once. */
static void put_name(struct buf *b, const char *name, bool line_start)
{
	size_t size = strlen(name);
	const struct suffix *own = suffix_of_name(name, size);
	size_t bracket = own ? size - strlen(own->text) + 1 : size;
	size_t done = 0;

	for (size_t i = 0; i < size; i++) {
		const char *escape = escape_at(name, i, bracket, line_start);

		if (!escape)
			continue;
		(void)buf_append(b, name + done, i - done);
		(void)buf_append_str(b, escape);
		done = i + 1;
	}
	(void)buf_append(b, name + done, size - done);
}

static int put_stack(const struct profile *p, const struct folded_options *o,
	const struct sample *s, struct buf *b)
{
	const char *comm = o->with_comm ? profile_sample_label(p, s, "comm") : "";

	buf_reset(b);
	if (*comm)
		put_name(b, comm, true);
	for (uint32_t i = s->frame_count; i > 0; i--) {
		const struct frame *f = profile_frame_at(p, s->frames[i - 1]);
		const struct suffix *suffix = o->with_suffix ? suffix_of_kind(f->kind) : NULL;

		if (b->size)
			(void)buf_append_char(b, ';');
		put_name(b, profile_text(p, f->name), b->size == 0);
		if (suffix)
			(void)buf_append_str(b, suffix->text);
	}
	if (b->size == 0)
		(void)buf_append_str(b, "[no stack]");
	return buf_error(b);
}

struct line {
	const char *text;
	size_t size;
	int64_t value;
};

static int compare_lines(const void *a, const void *b)
{
	const struct line *x = a;
	const struct line *y = b;
	int r = memcmp(x->text, y->text, MIN(x->size, y->size));

	if (r)
		return r;
	return x->size < y->size ? -1 : x->size > y->size;
}

/* A line's record is its text, then the sum of its values, unaligned. */
static int write_sorted(const struct intern *texts, struct buf *out)
{
	_cleanup_(freep) struct line *lines = calloc(MAX(texts->count, 1U), sizeof(*lines));

	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < texts->count; i++) {
		lines[i].text = intern_at(texts, i, &lines[i].size);
		memcpy(&lines[i].value, lines[i].text + lines[i].size, sizeof(lines[i].value));
	}
	qsort(lines, texts->count, sizeof(*lines), compare_lines);
	for (size_t i = 0; i < texts->count && !buf_error(out); i++) {
		if (lines[i].value == 0)
			continue;
		(void)buf_append(out, lines[i].text, lines[i].size);
		(void)buf_printf(out, " %lld\n", (long long)lines[i].value);
	}
	return buf_error(out);
}

int folded_write(const struct profile *p, const struct folded_options *o, struct buf *out)
{
	/* One stack's text: every byte of a name may need four, and a comm and suffixes come on
	 * top. */
	_cleanup_(buf_done) struct buf stack =
		BUF_INIT((size_t)(PROFILE_DEPTH_MAX + 2) * (4 * PROFILE_NAME_MAX + 8));
	_cleanup_(arena_freep) struct arena *arena = arena_new(SIZE_MAX);
	struct intern texts;
	struct sample s;

	if (o->type >= profile_type_count(p))
		return profile_type_count(p) ? -EINVAL : 0;
	if (!arena)
		return -ENOMEM;
	intern_init(&texts, arena, SIZE_MAX);
	for (size_t i = 0; profile_sample_at(p, i, &s); i++) {
		int64_t id, sum;
		char *at;
		int r = put_stack(p, o, &s, &stack);

		if (r < 0)
			return r;
		id = intern_put(&texts, stack.data, stack.size, sizeof(sum), NULL);
		if (id < 0)
			return -ENOMEM;
		at = (char *)intern_at(&texts, (size_t)id, NULL) + stack.size;
		memcpy(&sum, at, sizeof(sum));
		sum = profile_saturating_add(sum, s.values[o->type]);
		memcpy(at, &sum, sizeof(sum));
	}
	return write_sorted(&texts, out);
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* The byte of one of our own \x escapes, or -1. */
static int unescape_hex(const char *s, size_t left)
{
	int hi, lo, byte;

	if (left < 4 || s[1] != 'x')
		return -1;
	hi = hex_value(s[2]);
	lo = hex_value(s[3]);
	if (hi < 0 || lo < 0)
		return -1;
	byte = hi << 4 | lo;
	return byte == ';' || byte == '\n' || byte == '#' || byte == '[' ? byte : -1;
}

/* Takes one escaped name apart and gives the frame's id, or an error. */
static int64_t read_frame(struct profile *p, const char *s, size_t size, struct buf *name)
{
	const struct suffix *suffix = suffix_of_name(s, size);
	struct frame f = {.kind = suffix ? suffix->kind : FRAME_NATIVE};
	int64_t id;

	if (suffix)
		size -= strlen(suffix->text);
	buf_reset(name);
	for (size_t i = 0; i < size; i++) {
		int byte = s[i] == '\\' ? unescape_hex(s + i, size - i) : -1;

		if (byte >= 0) {
			(void)buf_append_char(name, (char)byte);
			i += 3;
		} else {
			(void)buf_append_char(name, s[i]);
			if (s[i] == '\\' && i + 1 < size && s[i + 1] == '\\')
				i++;
		}
	}
	if (buf_error(name))
		return buf_error(name);
	id = profile_string(p, buf_str(name), name->size);
	if (id < 0)
		return id;
	f.name = (uint32_t)id;
	return profile_frame(p, &f);
}

/* Digits after an optional minus sign. 0 or -EBADMSG. */
static int read_value(const char *s, size_t size, int64_t *ret)
{
	bool negative = size > 0 && s[0] == '-';
	int64_t value = 0;

	if (size == (size_t)negative)
		return -EBADMSG;
	for (size_t i = negative; i < size; i++) {
		if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
			__builtin_sub_overflow(value, s[i] - '0', &value))
			return -EBADMSG;
	}
	/* Summed up below zero, where one more number fits. */
	if (!negative && value == INT64_MIN)
		return -EBADMSG;
	*ret = negative ? value : -value;
	return 0;
}

/* One line without its newline. Walks from the leaf, so that a cut stack costs nothing more. */
static int read_line(struct profile *p, const char *s, size_t size, struct buf *name)
{
	const char *space = memrchr(s, ' ', size);
	uint32_t frames[PROFILE_DEPTH_MAX];
	uint32_t count = 0;
	int64_t value;
	size_t left;

	if (!space || space == s || read_value(space + 1, (size_t)(s + size - space - 1), &value))
		return -EBADMSG;
	left = (size_t)(space - s);
	for (;;) {
		const char *semicolon = memrchr(s, ';', left);
		size_t start = semicolon ? (size_t)(semicolon - s) + 1 : 0;
		int64_t id;

		if (semicolon && count == PROFILE_DEPTH_MAX - 1) {
			id = profile_mark_cut(p, frames);
			if (id < 0)
				return (int)id;
			count++;
			break;
		}
		id = read_frame(p, s + start, left - start, name);
		if (id < 0)
			return (int)id;
		frames[count++] = (uint32_t)id;
		if (!semicolon)
			break;
		left = start - 1;
	}
	return profile_add(p, frames, count, NULL, 0, &value);
}

int folded_read(
	const void *data, size_t size, size_t memory_max, size_t *line, struct profile **ret)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	_cleanup_(buf_done) struct buf name = BUF_INIT(size + 1);
	const char *at = size ? data : "";
	const char *end = at + size;
	int64_t r = profile_new(memory_max, &p);

	if (r == 0)
		r = profile_sample_type(p, "samples", "count");
	for (size_t n = 1; r >= 0 && at < end; n++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((newline ? newline : end) - at);

		if (line)
			*line = n;
		if (length && at[length - 1] == '\r')
			length--;
		if (length && at[0] != '#')
			r = read_line(p, at, length, &name);
		at = newline ? newline + 1 : end;
	}
	if (r < 0)
		return (int)r;
	*ret = steal_ptr(&p);
	return 0;
}
