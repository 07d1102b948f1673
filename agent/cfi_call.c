/*
 * Callers whose CFA hangs on rbx: _dl_runtime_resolve_xsave* of ld.so, which binds a function at its first call. It
 * puts sp into rbx and makes room whose size is known when the program starts. A walk carries no rbx from frame to
 * frame, but the function called there has saved it, at a place that its own FDE says. The walk comes from there with
 * sp at the callee's CFA, so with rbx at CFA + k the caller's CFA rbx + n is *(sp + k) + n: UNWIND_CFA_DEREF.
 *
 * That rule gets a row for the last byte of the call alone, which is what a return address is looked up by and where no
 * instruction begins, so that an interrupted pc keeps the rule by rbx itself. While the callee has not pushed rbx yet
 * (the first nine bytes of _dl_fixup) the word is an older one, and the stack ends there as BAD_CFA or NO_MAPPING.
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum { CFI_CALL_RBX = 3, CFI_CALL_OPCODE = 0xe8, CFI_CALL_SIZE = 5, CFI_CALL_TRIES_MAX = 16 };

/* Where the function at target has saved rbx, from its CFA; false: nowhere, or at several places. */
static bool cfi_call_saved(
	struct cfi_work *w, const struct cfi_source *s, uint64_t target, int64_t *ret)
{
	struct cfi_program p;
	struct cfi_entry e;
	struct cfi_fde f = {0};
	uint64_t start = 0, entry = 0;
	size_t i = 0;
	int64_t offset = 0;
	int r = cfi_index_seek(w, s, target, &i);

	if (r < 0 || cfi_index_get(w, s, i, &start, &entry) < 0 || start != target ||
		cfi_entry_read(w, s, entry, &e) < 0 || cfi_fde_read(w, s, &e, &f) < 0)
		return false;
	cfi_program_init(&p, w->c, f.cie, f.code, f.code_vaddr);
	p.fp = CFI_CALL_RBX; /* is what is followed */
	p.next = f.start;
	do {
		r = cfi_program_step(&p, &w->instructions);
		if (r < 0 || (p.state.fp.how == CFI_AT_CFA && offset != 0 &&
				     p.state.fp.offset != offset))
			return false;
		if (p.state.fp.how == CFI_AT_CFA)
			offset = p.state.fp.offset;
	} while (r > 0);
	*ret = offset;
	return offset < 0 && offset >= INT16_MIN;
}

/* The row of the call that ends at `behind`, in row i; what follows it is as before. */
static int cfi_call_put(struct cfi_work *w, size_t i, uint64_t behind, uint64_t next, int64_t saved)
{
	struct cfi_chunk *out = w->out;
	struct cfi_row row = out->rows[i];
	struct unwind_rule by_memory = out->rules[row.rule];
	size_t more = behind < next ? 2 : 1;

	by_memory.cfa = UNWIND_CFA_DEREF;
	by_memory.reg = CFI_X86_SP;
	by_memory.aux = by_memory.cfa_offset;
	by_memory.cfa_offset = (int32_t)saved;
	int rule = cfi_rows_rule(w, &by_memory);

	if (rule < 0)
		return rule;
	if (out->row_count + more > TABLE_ROWS_MAX)
		return -ENOBUFS;
	memmove(&out->rows[i + 1 + more], &out->rows[i + 1],
		(out->row_count - i - 1) * sizeof(out->rows[0]));
	out->rows[i + 1] = (struct cfi_row){(uint16_t)(behind - 1), (uint16_t)rule};
	if (more > 1)
		out->rows[i + 2] = (struct cfi_row){(uint16_t)behind, row.rule};
	out->row_count += more;
	return 0;
}

/* The first such call of the row; what it has behind that is a row of its own then. */
static int cfi_call_row(struct cfi_work *w, const struct cfi_source *s, size_t i, uint64_t next)
{
	unsigned tries = 0;

	for (uint64_t at = w->out->rows[i].offset;
		at + CFI_CALL_SIZE <= next && tries < CFI_CALL_TRIES_MAX; at++) {
		uint64_t behind = at + CFI_CALL_SIZE;
		int32_t distance;
		int64_t saved;

		if (w->text[at] != CFI_CALL_OPCODE)
			continue;
		memcpy(&distance, &w->text[at + 1], sizeof(distance));
		uint64_t target = w->start + behind + (uint64_t)(int64_t)distance;

		tries++;
		if (cfi_is_code(w->c, target) && cfi_call_saved(w, s, target, &saved))
			return cfi_call_put(w, i, behind, next, saved);
	}
	return 0;
}

int cfi_call(struct cfi_work *w, const struct cfi_source *s, size_t first, uint64_t end)
{
	const struct cfi_chunk *out = w->out;
	int r = 0;

	for (size_t i = first; w->c->arch == CFI_X86_64 && i < out->row_count && r == 0; i++) {
		const struct unwind_rule *rule = &out->rules[out->rows[i].rule];
		uint64_t next = i + 1 < out->row_count ? out->rows[i + 1].offset
						       : MIN(end, w->end) - w->start;

		if (rule->cfa != UNWIND_CFA_REG || rule->reg != CFI_CALL_RBX)
			continue;
		r = cfi_shape_text(w);
		if (r == 0)
			r = cfi_call_row(w, s, i, next);
	}
	return r;
}
