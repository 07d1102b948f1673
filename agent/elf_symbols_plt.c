/*
 * Names for PLT slots. A slot jumps through a GOT entry, the relocation of that entry names the
 * function: true for .plt, .plt.sec (IBT) and .plt.got alike, whatever order the linker chose.
 *
 *	[f3 0f 1e fa]		endbr64
 *	[f2] ff 25 disp32	jmp *disp(%rip)
 *
 * and on aarch64, behind the first 32 bytes of .plt:
 *
 *	adrp x16, page; ldr x17, [x16, low]; add x16, x16, low; br x17
 */
#include "agent/elf_symbols_internal.h"

#include <elf.h>
#include <stdio.h>

#include "base/def.h"

enum {
	ELF_SYMBOLS_RELA_WINDOW = 256,
	ELF_SYMBOLS_RELA_SCAN_MAX = 1 << 16, /* relocations looked at per slot */
};

/* The address of the GOT entry that the slot jumps through; 0 when it is no such slot. */
static uint64_t elf_symbols_slot_target(const uint8_t *slot, size_t size, uint64_t vaddr)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	size_t at = 0;
	int32_t displacement;

	if (memcmp(slot, endbr64, sizeof(endbr64)) == 0)
		at += sizeof(endbr64);
	if (slot[at] == 0xf2)
		at++;
	if (at + 6 > size || slot[at] != 0xff || slot[at + 1] != 0x25)
		return 0;
	memcpy(&displacement, slot + at + 2, sizeof(displacement));
	return vaddr + at + 6 + (uint64_t)(int64_t)displacement;
}

/* The same of aarch64 (Arm ARM, C6.2: ADRP; LDR, immediate, unsigned offset). */
static uint64_t elf_symbols_slot_target_arm(const uint8_t *slot, size_t size, uint64_t vaddr)
{
	uint32_t adrp, ldr;
	int64_t pages;

	if (size < 2 * sizeof(uint32_t))
		return 0;
	memcpy(&adrp, slot, sizeof(adrp));
	memcpy(&ldr, slot + sizeof(adrp), sizeof(ldr));
	if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
		return 0;
	pages = (int64_t)((uint64_t)((adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3)) << 43) >> 43;
	return (vaddr & ~0xfffULL) + ((uint64_t)pages << 12) + (uint64_t)(ldr >> 10 & 0xfff) * 8;
}

static bool elf_symbols_rela_symbol(
	const struct elf_symbols *e, const struct elf_symbols_relas *r, uint64_t got, uint32_t *ret)
{
	Elf64_Rela window[ELF_SYMBOLS_RELA_WINDOW];
	uint64_t count = MIN(r->count, ELF_SYMBOLS_RELA_SCAN_MAX);

	for (uint64_t i = 0; i < count; i += ELF_SYMBOLS_RELA_WINDOW) {
		size_t n = MIN(count - i, ELF_SYMBOLS_RELA_WINDOW);

		if (elf_symbols_pread(
			    e, r->offset + i * sizeof(*window), window, n * sizeof(*window)) < 0)
			return false;
		for (size_t k = 0; k < n; k++) {
			if (window[k].r_offset != got)
				continue;
			*ret = (uint32_t)ELF64_R_SYM(window[k].r_info);
			return *ret != 0;
		}
	}
	return false;
}

bool elf_symbols_find_plt(const struct elf_symbols *e, const struct elf_symbols_code *code,
	uint64_t vaddr, struct elf_symbols_answer *ret)
{
	const struct elf_symbols_table *t = &e->tables[ELF_SYMBOLS_DYNSYM];
	uint64_t slot = (vaddr - code->start) / code->slot_size * code->slot_size;
	uint8_t bytes[16] = {0};
	uint32_t index = 0;
	bool found = false;
	Elf64_Sym symbol;

	if (elf_symbols_pread(e, code->offset + slot, bytes, code->slot_size) < 0)
		return false;
	uint64_t got =
		e->is_arm ? elf_symbols_slot_target_arm(bytes, code->slot_size, code->start + slot)
			  : elf_symbols_slot_target(bytes, code->slot_size, code->start + slot);

	for (size_t i = 0; got && !found && i < e->rela_count; i++)
		found = elf_symbols_rela_symbol(e, &e->relas[i], got, &index);
	if (!found || index >= t->count)
		return false;
	if (elf_symbols_pread(e, t->offset + index * sizeof(symbol), &symbol, sizeof(symbol)) < 0)
		return false;
	if (!elf_symbols_name(e, ELF_SYMBOLS_DYNSYM, symbol.st_name, ret->name, sizeof(ret->name)))
		return false;
	ret->start = code->start + slot;
	ret->size = code->slot_size;
	ret->is_plt = true;
	return true;
}
