/*
 * Names, lines and inlined calls of one address, from Go's table (runtime/symtab.go, symtabinl.go).
 *
 * A table of values is pairs of varints: what is added to the value (zig-zag; a 0 that is not the first ends
 * it) and for how many quanta it holds; the value is -1 before. pcfile gives an index behind the function's
 * unit, pcln a line, pcdata 2 the innermost inlined call, an index into funcdata 3, the call tree:
 *
 *	before 1.20: i16 parent, u8 id, u8, i32 file, line, name, pc of the call (from the function's entry)
 *	since:       u8 id, u8 [3], i32 name, pc of the call, start line
 *
 * The caller of an inlined call is what the pc of the call is in.
 */
#include <errno.h>

#include "agent/go_pclntab_internal.h"
#include "base/cursor.h"

enum {
	GO_PCDATA_INLINED = 2,
	GO_FUNCDATA_INLINED = 3,
	GO_TREES_CHECKED = 32,
	GO_FUNCTIONS_CHECKED = 4096,
	GO_STEP_SIZE = 10, /* two varints of 32 bits */
};

struct go_call {
	uint32_t name, parent_pc, start_line;
};

/* One step of a table of values at *at: 1; 0: its end; -EBADMSG, -errno. */
static int go_step(struct go_pclntab *g, uint64_t *at, bool is_first, uint64_t *pc, int32_t *value)
{
	uint8_t bytes[GO_STEP_SIZE] = {0};
	uint64_t left = *at < g->functions ? g->functions - *at : 0;
	size_t size = (size_t)MIN(left, (uint64_t)sizeof(bytes));
	int r = go_read(g, *at, bytes, size);
	struct cursor c = cursor_over(bytes, size);

	if (r < 0)
		return r;
	uint64_t delta = cursor_varint(&c);

	if (delta == 0 && !is_first)
		return cursor_error(&c) ? -EBADMSG : 0;
	uint64_t quanta = cursor_varint(&c);

	if (cursor_error(&c) || delta > UINT32_MAX || quanta > UINT32_MAX)
		return -EBADMSG;
	uint32_t change = (uint32_t)delta & 1 ? ~((uint32_t)delta >> 1) : (uint32_t)delta >> 1;

	*value = (int32_t)((uint32_t)*value + change);
	*pc += quanta * g->elf.quantum;
	*at += (size_t)(c.pos - bytes);
	return 1;
}

int go_names_value(struct go_pclntab *g, const struct go_function *f, uint32_t table, uint64_t pc,
	int32_t *ret)
{
	uint64_t at = g->pcs + table, end = f->start;
	int32_t value = -1;

	*ret = -1;
	for (size_t i = 0; table != 0 && i < GO_VALUE_STEPS_MAX; i++) {
		int r = go_step(g, &at, i == 0, &end, &value);

		if (r <= 0)
			return r;
		if (pc < end) {
			*ret = value;
			return 0;
		}
	}
	return 0;
}

int go_pclntab_sp_begin(struct go_pclntab *g, const struct go_function *f, struct go_sp *ret)
{
	if (f->pcsp == 0)
		return -ENODATA;
	*ret = (struct go_sp){
		.start = f->start, .end = f->start, .value = -1, .place = g->pcs + f->pcsp};
	return 0;
}

int go_pclntab_sp_next(struct go_pclntab *g, struct go_sp *s)
{
	bool is_first = s->start == s->end;

	s->start = s->end;
	return go_step(g, &s->place, is_first, &s->end, &s->value);
}

/* A name begins behind the NUL of the one before. */
static int go_name(struct go_pclntab *g, uint32_t name, char *to, size_t size, size_t *ret_size)
{
	uint64_t at = g->names + name;
	char before = '\0';

	if (at >= g->units)
		return -EBADMSG;
	int r = name > 0 ? go_read(g, at - 1, &before, 1) : 0;

	if (r == 0 && before != '\0')
		r = -EBADMSG;
	return r < 0 ? r : go_read_text(g, at, g->units, to, size, ret_size);
}

int go_pclntab_function_name(
	struct go_pclntab *g, const struct go_function *f, char *to, size_t size)
{
	size_t length;

	return go_name(g, f->name, to, size, &length);
}

static int go_path(struct go_pclntab *g, uint64_t file, char *to, size_t size, size_t *ret_size)
{
	uint64_t at = g->units + file * sizeof(uint32_t);
	uint32_t offset;

	if (at + sizeof(offset) > g->files)
		return -EBADMSG;
	int r = go_read(g, at, &offset, sizeof(offset));

	if (r < 0)
		return r;
	if (offset >= g->pcs - g->files)
		return -EBADMSG;
	return go_read_text(g, g->files + offset, g->pcs, to, size, ret_size);
}

static bool go_is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || (unsigned char)c >= 0x80;
}

/* Size of the bracket that begins there, with all in it; 0: it does not end. */
static size_t go_bracket(const char *name, size_t size)
{
	size_t depth = 0;

	for (size_t i = 0; i < size; i++) {
		depth += name[i] == '[';
		depth -= name[i] == ']';
		if (depth == 0)
			return i + 1;
	}
	return 0;
}

/* A list of type arguments stands behind an identifier; the bracket of an array type does not. */
int go_pclntab_generic(const char *name, size_t size, struct buf *b)
{
	size_t from = 0;

	for (size_t i = 1; i < size; i++) {
		size_t n = name[i] == '[' && go_is_word(name[i - 1])
				   ? go_bracket(name + i, size - i)
				   : 0;

		if (n == 0)
			continue;
		(void)buf_append(b, name + from, i - from); /* buf keeps the error */
		(void)buf_append_str(b, "[...]");
		from = i + n;
		i = from - 1;
	}
	return buf_append(b, name + from, size - from);
}

/* File and line are left out where they cannot be read. */
static int go_add(struct go_pclntab *g, const struct go_function *f, uint64_t pc, uint32_t name,
	uint32_t start_line, struct names *ret)
{
	_cleanup_(buf_done) struct buf generic = BUF_INIT(2 * GO_TEXT_MAX);
	char text[GO_TEXT_MAX], path[GO_TEXT_MAX];
	size_t size = 0, path_size = 0;
	int32_t file = -1, line = -1;
	int r = go_name(g, name, text, sizeof(text), &size);

	if (r == 0 && size == 0)
		r = -EBADMSG;
	if (r == 0)
		r = go_pclntab_generic(text, size, &generic);
	if (r < 0)
		return r;
	bool has_file =
		go_names_value(g, f, f->pcfile, pc, &file) == 0 && file >= 0 &&
		go_path(g, (uint64_t)f->unit + (uint32_t)file, path, sizeof(path), &path_size) == 0;
	bool has_line = has_file && go_names_value(g, f, f->pcln, pc, &line) == 0 && line > 0;

	return names_add(ret, generic.data, generic.size, has_file ? path : NULL, path_size,
		has_line ? (uint32_t)line : 0, start_line <= INT32_MAX ? start_line : 0);
}

/* Where the pcdata of f lies in the table; 0: it has none of this number. */
static int go_pcdata(
	struct go_pclntab *g, const struct go_function *f, uint32_t number, uint32_t *ret)
{
	uint64_t at = f->record + (g->layout == GO_1_18 ? 40 : 44);

	*ret = 0;
	return number < f->pcdata_count ? go_read(g, at + number * 4ULL, ret, sizeof(*ret)) : 0;
}

/* The address of the funcdata of f; 0: none. */
static int go_funcdata(
	struct go_pclntab *g, const struct go_function *f, uint32_t number, uint64_t *ret)
{
	uint64_t at = f->record + (g->layout == GO_1_18 ? 40 : 44) + f->pcdata_count * 4ULL;
	uint32_t offset = UINT32_MAX;
	int r = 0;

	*ret = 0;
	if (number >= f->funcdata_count)
		return 0;
	if (g->layout == GO_1_16) /* pointers */
		return go_read(g, (at + 7) / 8 * 8 + number * 8ULL, ret, sizeof(*ret));
	r = go_read(g, at + number * 4ULL, &offset, sizeof(offset));
	if (r == 0 && offset != UINT32_MAX)
		*ret = g->funcdata + offset;
	return r;
}

static int go_call(struct go_pclntab *g, const struct go_function *f, uint64_t tree, int32_t index,
	struct go_call *ret)
{
	uint8_t bytes[20];
	size_t size = g->layout == GO_1_20 ? 16 : 20;
	int r = go_read_vaddr(g, tree + (uint64_t)(uint32_t)index * size, bytes, size);
	struct cursor c = cursor_over(bytes, size);
	struct go_call call = {0};

	if (r < 0)
		return r;
	(void)cursor_bytes(&c, g->layout == GO_1_20 ? 4 : 12);
	call.name = cursor_u32(&c);
	call.parent_pc = cursor_u32(&c);
	call.start_line = g->layout == GO_1_20 ? cursor_u32(&c) : 0;
	if (call.parent_pc >= f->end - f->start)
		return -EBADMSG;
	*ret = call;
	return 0;
}

bool go_names_inlining(struct go_pclntab *g)
{
	size_t trees = 0;

	for (size_t i = 0; i < g->count && i < GO_FUNCTIONS_CHECKED && trees < GO_TREES_CHECKED;
		i++) {
		struct go_function f;
		struct go_call call;
		uint64_t tree = 0;
		char text[2];
		size_t size = 0;
		int r = go_pclntab_function(g, i, &f);

		if (r == 0)
			r = go_funcdata(g, &f, GO_FUNCDATA_INLINED, &tree);
		if (r == 0 && tree == 0)
			continue;
		trees++;
		if (r == 0)
			r = go_call(g, &f, tree, 0, &call);
		if (r == 0)
			r = go_name(g, call.name, text, sizeof(text), &size);
		if (r < 0 || size == 0)
			return false;
	}
	return true;
}

/* The calls that were inlined at *pc, which becomes an address of the real function. */
static int go_inlined(
	struct go_pclntab *g, const struct go_function *f, uint64_t *pc, struct names *ret)
{
	uint64_t tree = 0;
	uint32_t table = 0;
	int r = go_pcdata(g, f, GO_PCDATA_INLINED, &table);

	if (r == 0)
		r = go_funcdata(g, f, GO_FUNCDATA_INLINED, &tree);
	if (r < 0 || table == 0 || tree == 0)
		return r;
	for (size_t depth = 0; depth < NAMES_FRAMES_MAX; depth++) {
		struct go_call call;
		int32_t index;

		r = go_names_value(g, f, table, *pc, &index);
		if (r < 0 || index < 0)
			return r;
		r = go_call(g, f, tree, index, &call);
		if (r == 0)
			r = go_add(g, f, *pc, call.name, call.start_line, ret);
		if (r < 0)
			return r;
		*pc = f->start + call.parent_pc;
	}
	return -EBADMSG; /* calls that call themselves */
}

/*
 * A signal handler returns to the first byte of the restorer, and who asks for its caller's name asks for the byte
 * before, which is not the function's before: that ends in a jump.
 */
static bool go_restorer(struct go_pclntab *g, uint64_t vaddr, size_t index, struct go_function *f)
{
	static const char restorer[] = "runtime.sigreturn";
	struct go_function next;
	char name[sizeof(restorer)] = "";

	if (vaddr + 1 != f->end || go_pclntab_function(g, index + 1, &next) < 0 ||
		go_pclntab_function_name(g, &next, name, sizeof(name)) < 0 ||
		strcmp(name, restorer) != 0)
		return false;
	*f = next;
	return true;
}

int go_pclntab_find(struct go_pclntab *g, uint64_t vaddr, struct names *ret)
{
	struct go_function f = {0};
	uint64_t pc = vaddr;
	size_t index = 0;

	names_reset(ret);
	int r = go_pclntab_seek(g, vaddr, &index);

	if (r == 0)
		r = go_pclntab_function(g, index, &f);
	if (r < 0)
		return r;
	if (go_restorer(g, vaddr, index, &f))
		pc = f.start;
	if (g->is_inlining && go_inlined(g, &f, &pc, ret) < 0) {
		names_reset(ret);
		pc = MAX(vaddr, f.start);
	}
	r = go_add(g, &f, pc, f.name, f.start_line, ret);
	if (r < 0) {
		names_reset(ret);
		return r;
	}
	ret->start = f.start;
	ret->size = f.end - f.start;
	ret->kind = NAMES_GO;
	return 0;
}
