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
 * rets are compared, and each row of sp + 8 must be a ret and nothing else. The saved fp of a ret's row
 * is either said to be popped, or still at cfa - 16, below sp: the same value. A true ret where the rows
 * say fp + 16 (compilers that describe no epilogues) is walked by sp + 8, as the processor will.
 *
 * A function that began in an earlier chunk is judged by what this chunk has of it.
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum { CFI_SHAPE_ENDBR_SIZE = 4, CFI_SHAPE_PROLOGUE = 4, CFI_SHAPE_RET = 0xc3 };

/* Bytes that the file does not have are 0. */
static int cfi_shape_text(struct cfi_work *w)
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

/* Rows of the body from `at` on; size is where the function ends in the chunk. */
static bool cfi_shape_body(const struct cfi_work *w, size_t at, uint64_t size)
{
	const struct cfi_chunk *out = w->out;

	for (size_t i = at; i < out->row_count; i++) {
		const struct cfi_row *row = &out->rows[i];
		uint64_t next = i + 1 < out->row_count ? row[1].offset : size;

		if (cfi_shape_has(w, row, UNWIND_CFA_FP, 16, true))
			continue;
		if (!cfi_shape_has(w, row, UNWIND_CFA_SP, 8, false) &&
			!cfi_shape_has(w, row, UNWIND_CFA_SP, 8, true))
			return false;
		if (next - row->offset != 1 || w->text[row->offset] != CFI_SHAPE_RET)
			return false;
	}
	return true;
}

static bool cfi_shape_prologue(
	const struct cfi_work *w, size_t first, uint64_t start, int32_t *ret_push)
{
	const struct cfi_row *rows = &w->out->rows[first];
	uint64_t offset = start - w->start;

	if (w->out->row_count - first < 3 || !cfi_shape_has(w, &rows[0], UNWIND_CFA_SP, 8, false) ||
		!cfi_shape_has(w, &rows[1], UNWIND_CFA_SP, 16, true) || rows[0].offset != offset)
		return false;
	uint64_t push = rows[1].offset - 1U;
	const uint8_t *code = &w->text[push];

	if (push != offset && push != offset + CFI_SHAPE_ENDBR_SIZE)
		return false;
	if (push != offset &&
		memcmp(&w->text[offset], "\xf3\x0f\x1e\xfa", CFI_SHAPE_ENDBR_SIZE) != 0)
		return false;
	*ret_push = (int32_t)(push - offset);
	return rows[2].offset == push + CFI_SHAPE_PROLOGUE &&
	       (memcmp(code, "\x55\x48\x89\xe5", CFI_SHAPE_PROLOGUE) == 0 ||
		       memcmp(code, "\x55\x48\x8b\xec", CFI_SHAPE_PROLOGUE) == 0);
}

int cfi_shape(struct cfi_work *w, size_t first, uint64_t start, uint64_t end)
{
	struct cfi_chunk *out = w->out;
	struct unwind_rule shape = {.cfa = UNWIND_CFA_FP_SHAPE,
		.fp = UNWIND_AT_CFA,
		.ra = UNWIND_AT_CFA,
		.cfa_offset = 16,
		.fp_offset = -16,
		.ra_offset = -8,
		.aux = -1};
	uint64_t size = MIN(end, w->end) - w->start;
	size_t count = out->row_count - first;
	size_t body = first;

	if (w->c->arch != CFI_X86_64 || count < 2)
		return 0; /* a single row is not made better */
	if (start >= w->start && !cfi_shape_has(w, &out->rows[first + 1], UNWIND_CFA_SP, 16, true))
		return 0; /* spares reading the text */
	int r = cfi_shape_text(w);

	if (r < 0)
		return r;
	if (start >= w->start) {
		if (!cfi_shape_prologue(w, first, start, &shape.aux))
			return 0;
		body = first + 2;
	}
	if (!cfi_shape_body(w, body, size))
		return 0;
	r = cfi_rows_rule(w, &shape);
	if (r < 0)
		return r;
	out->rows[first].rule = (uint16_t)r;
	out->row_count = first + 1;
	return 0;
}
