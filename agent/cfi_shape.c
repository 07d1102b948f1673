/*
 * Functions that keep a frame pointer in the usual way are one row (UNWIND_CFA_FP_SHAPE):
 *
 *	[endbr64]		sp + 8
 *	push rbp		sp + 8
 *	mov rbp, rsp		sp + 16, fp at cfa - 16
 *	...			fp + 16, fp at cfa - 16
 *	ret			sp + 8
 *	...			fp + 16, fp at cfa - 16
 *
 * The program that walks sees a ret by its byte at the interrupted pc, so here the bytes of prologue and
 * rets are compared. Rows of fp + 16 are always a body: a true ret among them (compilers that describe
 * no epilogues) is walked by sp + 8, as the processor will. A row of sp + 8 is part of it when it is a
 * ret and nothing else; the saved fp of its row is either said to be popped, or still at cfa - 16, below
 * sp: the same value. The prologue is part of it when it is the three bytes of one of the two forms of mov
 * behind its push. Every other row stays as it is.
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum { CFI_SHAPE_ENDBR_SIZE = 4, CFI_SHAPE_PROLOGUE = 4, CFI_SHAPE_RET = 0xc3 };

int cfi_shape_text(struct cfi_work *w)
{
	uint64_t offset = 0;
	uint64_t left = 0;

	if (w->has_text)
		return 0;
	memset(w->text, 0, sizeof(w->text));
	for (size_t i = 0; i < w->c->segment_count; i++) {
		const struct cfi_segment *s = &w->c->segments[i];
		uint64_t from = MAX(s->vaddr, w->start);
		uint64_t to = MIN(s->vaddr + s->file_size, w->start + sizeof(w->text));

		if (!s->is_code || from >= to || !cfi_file_offset(w->c, from, &offset, &left))
			continue;
		int r = cfi_pread(w->c, offset, w->text + (from - w->start), MIN(to - from, left));

		if (r < 0)
			return r;
	}
	w->has_text = true;
	return 0;
}

static bool cfi_shape_has(const struct cfi_work *w, const struct cfi_row *row, enum unwind_cfa cfa,
	int32_t offset, bool is_saved)
{
	const struct unwind_rule *r = &w->out->rules[row->rule];

	return r->cfa == cfa && r->cfa_offset == offset && r->ra == UNWIND_AT_CFA &&
	       r->ra_offset == -8 && r->fp == (is_saved ? UNWIND_AT_CFA : UNWIND_SAME) &&
	       r->fp_offset == (is_saved ? -16 : 0);
}

/* Size of the nop or int3 at code, of at most left bytes; 0: it is something else. */
static size_t cfi_shape_nop(const uint8_t *code, size_t left)
{
	size_t n = 0;

	while (n < left && (code[n] == 0x66 || code[n] == 0x2e))
		n++;
	if (n < left && (code[n] == 0x90 || code[n] == 0xcc))
		return n + 1;
	if (left - n < 3 || code[n] != 0x0f || code[n + 1] != 0x1f)
		return 0;
	uint8_t modrm = code[n + 2];
	size_t size = n + 3 + ((modrm & 7) == 4) + (modrm >> 6 == 1 ? 1 : modrm >> 6 == 2 ? 4 : 0);

	return modrm >> 6 != 3 && size <= left ? size : 0;
}

/* A ret, and nothing behind it up to `next` but what aligns the next instruction. */
static bool cfi_shape_is_ret(const struct cfi_work *w, uint64_t at, uint64_t next)
{
	if (w->text[at++] != CFI_SHAPE_RET)
		return false;
	while (at < next) {
		size_t n = cfi_shape_nop(&w->text[at], next - at);

		if (n == 0)
			return false;
		at += n;
	}
	return true;
}

/* Rows i and i + 1 are those behind a push and behind the whole prologue. */
static bool cfi_shape_prologue(const struct cfi_work *w, size_t i)
{
	const struct cfi_row *row = &w->out->rows[i];

	if (row->offset == 0 || i + 1 >= w->out->row_count ||
		!cfi_shape_has(w, &row[0], UNWIND_CFA_SP, 16, true) ||
		!cfi_shape_has(w, &row[1], UNWIND_CFA_FP, 16, true) ||
		row[1].offset != row->offset + CFI_SHAPE_PROLOGUE - 1)
		return false;
	const uint8_t *code = &w->text[row->offset - 1];

	return memcmp(code, "\x55\x48\x89\xe5", CFI_SHAPE_PROLOGUE) == 0 ||
	       memcmp(code, "\x55\x48\x8b\xec", CFI_SHAPE_PROLOGUE) == 0;
}

/* Where the row of the prologue at row i begins, with the offset of its push in *ret. */
static uint16_t cfi_shape_start(const struct cfi_work *w, size_t i, size_t first, int32_t *ret)
{
	const struct cfi_row *row = &w->out->rows[i];
	uint16_t push = (uint16_t)(row->offset - 1);
	uint16_t before = (uint16_t)(push - CFI_SHAPE_ENDBR_SIZE);

	*ret = 0;
	if (i != first + 1 || push < CFI_SHAPE_ENDBR_SIZE || row[-1].offset != before ||
		memcmp(&w->text[before], "\xf3\x0f\x1e\xfa", CFI_SHAPE_ENDBR_SIZE) != 0)
		return push;
	*ret = CFI_SHAPE_ENDBR_SIZE;
	return before;
}

/* Where rows are written to while later ones are read; it is never ahead of the reader. */
struct cfi_shape_out {
	size_t count;
	bool is_shape; /* the last row written goes on as body */
};

static int cfi_shape_put(struct cfi_work *w, struct cfi_shape_out *o, uint16_t offset, int32_t aux)
{
	const struct unwind_rule shape = {.cfa = UNWIND_CFA_FP_SHAPE,
		.fp = UNWIND_AT_CFA,
		.ra = UNWIND_AT_CFA,
		.cfa_offset = 16,
		.fp_offset = -16,
		.ra_offset = -8,
		.aux = aux};
	int rule = cfi_rows_rule(w, &shape);

	if (rule < 0)
		return rule;
	w->out->rows[o->count++] = (struct cfi_row){offset, (uint16_t)rule};
	o->is_shape = true;
	return 0;
}

/* A row that stays; where the fp was popped for a tail call, it is the row of a function's entry. */
static int cfi_shape_keep(struct cfi_work *w, struct cfi_shape_out *o, struct cfi_row row)
{
	const struct unwind_rule entry = {.cfa = UNWIND_CFA_SP,
		.fp = UNWIND_SAME,
		.ra = UNWIND_AT_CFA,
		.cfa_offset = 8,
		.ra_offset = -8};

	if (o->is_shape && cfi_shape_has(w, &row, UNWIND_CFA_SP, 8, true)) {
		int rule = cfi_rows_rule(w, &entry);

		if (rule < 0)
			return rule;
		row.rule = (uint16_t)rule;
	}
	w->out->rows[o->count++] = row;
	o->is_shape = false;
	return 0;
}

static int cfi_shape_rewrite(struct cfi_work *w, size_t first, uint64_t size)
{
	struct cfi_chunk *out = w->out;
	struct cfi_shape_out o = {.count = first};
	int r = 0;

	for (size_t i = first; i < out->row_count && r == 0; i++) {
		struct cfi_row row = out->rows[i];
		uint64_t next = i + 1 < out->row_count ? out->rows[i + 1].offset : size;
		bool is_popped = cfi_shape_has(w, &row, UNWIND_CFA_SP, 8, false) ||
				 cfi_shape_has(w, &row, UNWIND_CFA_SP, 8, true);
		int32_t push;

		if (i > first && cfi_shape_prologue(w, i)) {
			uint16_t start = cfi_shape_start(w, i, first, &push);

			if (o.count > first && out->rows[o.count - 1].offset == start)
				o.count--;
			r = cfi_shape_put(w, &o, start, push);
			i++; /* the row behind the prologue */
		} else if (cfi_shape_has(w, &row, UNWIND_CFA_FP, 16, true)) {
			if (!o.is_shape)
				r = cfi_shape_put(w, &o, row.offset, -1);
		} else if (!o.is_shape || !is_popped || !cfi_shape_is_ret(w, row.offset, next)) {
			r = cfi_shape_keep(w, &o, row);
		}
	}
	out->row_count = o.count;
	return r;
}

int cfi_shape(struct cfi_work *w, size_t first, uint64_t end)
{
	const struct cfi_chunk *out = w->out;
	bool has_body = false;

	if (w->c->arch != CFI_X86_64 || out->row_count - first < 2)
		return 0; /* a single row is not made better */
	for (size_t i = first; i < out->row_count && !has_body; i++)
		has_body = cfi_shape_has(w, &out->rows[i], UNWIND_CFA_FP, 16, true);
	if (!has_body)
		return 0; /* spares reading the text */
	int r = cfi_shape_text(w);

	return r < 0 ? r : cfi_shape_rewrite(w, first, MIN(end, w->end) - w->start);
}
