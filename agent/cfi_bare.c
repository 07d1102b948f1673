/*
 * The vdso of aarch64, which carries no CFI at all (arch/arm64/kernel/vdso/sigreturn.S says why: libgcc's cancellation
 * crashed by it). Two things are known all the same:
 *
 *  1. The signal trampoline is two instructions, mov x8, 139; svc 0, as libgcc and gdb know it. Its rule
 *     begins one instruction before, where the kernel has put a nop, because a handler's return
 *     address is looked up by the byte before it.
 *  2. Where no function of it stores x29 and x30, all are leaves: the return address is in the link register.
 *     Else the rest has no rule, and frame records are followed.
 *
 * Any file of one chunk at most that has that trampoline and no CFI is taken for one.
 */
#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_BARE_WORDS = 256,
	CFI_BARE_MOV_X8_139 = 0xd2801168,
	CFI_BARE_SVC_0 = 0xd4000001u,
	CFI_BARE_STP_MASK = 0x7fc07fff, /* stp x29, x30, [sp, ...], by pre-index or offset */
	CFI_BARE_STP_PRE = 0x29807bfd,
	CFI_BARE_STP_OFFSET = 0x29007bfd,
};

/* Where the text of a file of one chunk lies. */
static bool cfi_bare_is_small(const struct cfi *c, uint64_t *ret_offset)
{
	uint64_t size = c->text_end - c->text_start, left;

	return c->arch == CFI_AARCH64 && c->text_start % 4 == 0 && size <= CFI_CHUNK_SIZE &&
	       c->text_start >> TABLE_CHUNK_SHIFT == (c->text_end - 1) >> TABLE_CHUNK_SHIFT &&
	       cfi_file_offset(c, c->text_start, ret_offset, &left) && left >= size;
}

static void cfi_bare_look(struct cfi *c, uint64_t vaddr, uint32_t before, uint32_t word)
{
	if (before == CFI_BARE_MOV_X8_139 && word == CFI_BARE_SVC_0 && vaddr - c->text_start >= 8)
		c->bare_signal = vaddr - 4;
	c->bare_has_frames |= (word & CFI_BARE_STP_MASK) == CFI_BARE_STP_PRE ||
			      (word & CFI_BARE_STP_MASK) == CFI_BARE_STP_OFFSET;
}

bool cfi_bare_find(struct cfi *c)
{
	uint32_t words[CFI_BARE_WORDS], before = 0;
	uint64_t size = c->text_end - c->text_start, offset;

	if (!cfi_bare_is_small(c, &offset))
		return false;
	for (uint64_t at = 0; at + 4 <= size; at += sizeof(words)) {
		size_t count = (size_t)MIN(size - at, sizeof(words)) / 4;

		if (cfi_pread(c, offset + at, words, count * 4) < 0)
			return false;
		for (size_t i = 0; i < count; i++) {
			cfi_bare_look(c, c->text_start + at + i * 4, before, words[i]);
			before = words[i];
		}
	}
	return c->bare_signal != 0;
}

int cfi_bare_rows(struct cfi_work *w)
{
	const struct unwind_rule leaf = {.cfa = UNWIND_CFA_SP, .ra = UNWIND_SAME};
	const struct unwind_rule none = {.cfa = UNWIND_CFA_NONE};
	const struct unwind_rule signal = {.cfa = UNWIND_CFA_SIGNAL};
	const struct unwind_rule *rest = w->c->bare_has_frames ? &none : &leaf;
	uint64_t at = w->c->bare_signal;
	int r = cfi_rows_put(w, 0, w->start, w->c->text_start, &none);

	if (r == 0)
		r = cfi_rows_put(w, 0, w->c->text_start, at - 4, rest);
	if (r == 0)
		r = cfi_rows_put(w, 0, at - 4, at + 8, &signal);
	if (r == 0)
		r = cfi_rows_put(w, 0, at + 8, w->c->text_end, rest);
	if (r == 0)
		r = cfi_rows_put(w, 0, w->c->text_end, w->end, &none);
	return r == 0 ? cfi_rows_finish(w) : r;
}
