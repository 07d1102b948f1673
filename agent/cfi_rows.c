/*
 * The rows of the chunk under way. Rows of one function are put from `first` on, so that cfi_shape.c can
 * take them back; a row that says what the one before says is none. UNWIND_CFA_FP_SHAPE with a push
 * is the exception, since its aux counts from where its row begins.
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

static uint32_t cfi_rows_hash(const struct unwind_rule *r)
{
	uint64_t words[2];

	memcpy(words, r, sizeof(words));
	uint64_t h = (words[0] ^ (words[1] * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;

	return (uint32_t)(h >> 40) % CFI_HASH;
}

int cfi_rows_rule(struct cfi_work *w, const struct unwind_rule *r)
{
	struct cfi_chunk *out = w->out;
	uint32_t at = cfi_rows_hash(r);

	while (w->hash[at]) { /* ends: there are twice as many places as rules */
		size_t i = w->hash[at] - 1U;

		if (memcmp(&out->rules[i], r, sizeof(*r)) == 0)
			return (int)i;
		at = (at + 1) % CFI_HASH;
	}
	if (out->rule_count == TABLE_RULES_MAX)
		return -ENOBUFS;
	out->rules[out->rule_count++] = *r;
	w->hash[at] = (uint16_t)out->rule_count;
	return (int)out->rule_count - 1;
}

int cfi_rows_put(
	struct cfi_work *w, size_t first, uint64_t pc, uint64_t end, const struct unwind_rule *r)
{
	struct cfi_chunk *out = w->out;

	pc = MAX(pc, w->start);
	if (pc >= MIN(end, w->end))
		return 0;
	int rule = cfi_rows_rule(w, r);

	if (rule < 0)
		return rule;
	if (out->row_count > first && out->rows[out->row_count - 1].rule == rule)
		return 0;
	if (out->row_count == TABLE_ROWS_MAX)
		return -ENOBUFS;
	out->rows[out->row_count++] =
		(struct cfi_row){.offset = (uint16_t)(pc - w->start), .rule = (uint16_t)rule};
	return 0;
}

/* Nothing runs in the padding between functions, so it may go on as what is before it. */
static int cfi_rows_gap(struct cfi_work *w, uint64_t to)
{
	const struct unwind_rule none = {.cfa = UNWIND_CFA_NONE};

	if (to <= w->covered_end ||
		(w->out->row_count > 0 && to - w->covered_end <= CFI_PADDING_MAX))
		return 0;
	return cfi_rows_put(w, MAX(w->out->row_count, 1U) - 1, w->covered_end, to, &none);
}

int cfi_rows_begin(struct cfi_work *w, uint64_t start, size_t *ret_first)
{
	int r = cfi_rows_gap(w, start);

	*ret_first = w->out->row_count;
	return r;
}

void cfi_rows_end(struct cfi_work *w, size_t first, uint64_t end)
{
	struct cfi_chunk *out = w->out;

	w->covered_end = MAX(w->covered_end, end);
	if (first == 0 || first >= out->row_count ||
		out->rows[first].rule != out->rows[first - 1].rule)
		return;
	const struct unwind_rule *r = &out->rules[out->rows[first].rule];

	if (r->cfa == UNWIND_CFA_FP_SHAPE && r->aux >= 0)
		return;
	memmove(&out->rows[first], &out->rows[first + 1],
		(out->row_count - first - 1) * sizeof(out->rows[0]));
	out->row_count--;
}

/* The last row, and no rule that no row has. */
int cfi_rows_finish(struct cfi_work *w)
{
	struct cfi_chunk *out = w->out;
	size_t used = 0;

	if (out->row_count == 0)
		return 0;
	int r = cfi_rows_gap(w, w->end);

	if (r < 0)
		return r;
	memset(w->rename, 0, sizeof(w->rename));
	for (size_t i = 0; i < out->row_count; i++)
		w->rename[out->rows[i].rule] = 1;
	for (size_t i = 0; i < out->rule_count; i++) {
		if (!w->rename[i])
			continue;
		w->rename[i] = (uint16_t)used;
		out->rules[used++] = out->rules[i];
	}
	for (size_t i = 0; i < out->row_count; i++)
		out->rows[i].rule = w->rename[out->rows[i].rule];
	out->rule_count = used;
	return 0;
}

int cfi_rows_plt(struct cfi_work *w, const struct cfi_plt *p, uint64_t end)
{
	bool is_x86 = w->c->arch == CFI_X86_64;
	struct unwind_rule entry = {.cfa = UNWIND_CFA_SP,
		.cfa_offset = is_x86 ? 8 : 0,
		.ra = is_x86 ? UNWIND_AT_CFA : UNWIND_SAME,
		.ra_offset = is_x86 ? -8 : 0};
	struct unwind_rule first = {
		.cfa = UNWIND_CFA_SP, .cfa_offset = 16, .ra = UNWIND_AT_CFA, .ra_offset = -8};
	struct unwind_rule pushed = first;
	uint64_t pc = p->start;
	size_t row;
	int r = cfi_rows_begin(w, pc, &row);

	if (r == 0 && p->is_lazy && is_x86) {
		pushed.cfa_offset = 24;
		entry.cfa = UNWIND_CFA_PLT;
		entry.cfa_offset = 0;
		entry.aux = p->push;
		r = cfi_rows_put(w, row, pc, MIN(pc + 6, end), &first);
		if (r == 0)
			r = cfi_rows_put(w, row, pc + 6, MIN(pc + 16, end), &pushed);
		pc += 16;
	} else if (r == 0 && p->is_lazy) {
		r = cfi_rows_put(w, row, pc, MIN(pc + (uint64_t)p->push, end), &entry);
		if (r == 0)
			r = cfi_rows_put(w, row, pc + (uint64_t)p->push, MIN(pc + 32, end), &first);
		pc += 32;
	}
	if (r == 0)
		r = cfi_rows_put(w, row, pc, end, &entry);
	if (r == 0)
		cfi_rows_end(w, row, end);
	return r;
}
