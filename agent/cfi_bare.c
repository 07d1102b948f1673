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
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_BARE_MOV_X8_139 = 0xd2801168,
	CFI_BARE_SVC_0 = 0xd4000001u,
	CFI_BARE_STP_MASK = 0x7fc07fff, /* stp x29, x30, [sp, ...], by pre-index or offset */
	CFI_BARE_STP_PRE = 0x29807bfd,
	CFI_BARE_STP_OFFSET = 0x29007bfd,
};

static uint32_t cfi_bare_word(const uint8_t *at)
{
	uint32_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

/* The text of a small file. Its size, or -errno. */
static ssize_t cfi_bare_read(const struct cfi *c, uint8_t text[CFI_CHUNK_SIZE])
{
	uint64_t size = c->text_end - c->text_start, offset, left;
	int r;

	if (c->arch != CFI_AARCH64 || size > CFI_CHUNK_SIZE || c->text_start % 4 != 0 ||
		c->text_start >> TABLE_CHUNK_SHIFT != (c->text_end - 1) >> TABLE_CHUNK_SHIFT ||
		!cfi_file_offset(c, c->text_start, &offset, &left) || left < size)
		return -ENODATA;
	r = cfi_pread(c, offset, text, size);
	return r < 0 ? r : (ssize_t)size;
}

bool cfi_bare_read_all(struct cfi *c)
{
	_cleanup_(freep) uint8_t *text = malloc(CFI_CHUNK_SIZE);
	ssize_t size = text ? cfi_bare_read(c, text) : -ENOMEM;

	c->bare_signal = 0;
	c->bare_has_frames = false;
	for (ssize_t i = 0; i + 8 <= size; i += 4) {
		uint32_t word = cfi_bare_word(text + i);

		if (word == CFI_BARE_MOV_X8_139 && cfi_bare_word(text + i + 4) == CFI_BARE_SVC_0 &&
			i >= 4)
			c->bare_signal = c->text_start + (uint64_t)i;
		c->bare_has_frames |= (word & CFI_BARE_STP_MASK) == CFI_BARE_STP_PRE ||
				      (word & CFI_BARE_STP_MASK) == CFI_BARE_STP_OFFSET;
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
