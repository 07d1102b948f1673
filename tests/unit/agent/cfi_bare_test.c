/*
 * Files without CFI that are the vdso of aarch64, and those that only look like one. Each is an ELF file of one
 * segment whose text is given word by word.
 */
#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/cfi.h"
#include "base/def.h"
#include "base/file.h"

enum { TEXT_AT = 256, WORDS_MAX = 1024 };

#define NOP   0xd503201fu
#define RET   0xd65f03c0u
#define MOV   0xd2801168u /* mov x8, 139 */
#define SVC   0xd4000001u /* svc 0 */
#define STP   0xa9be7bfdu /* stp x29, x30, [sp, -32]! */
#define STP_2 0xa9027bfdu /* stp x29, x30, [sp, 32] */

static struct cfi_chunk chunk;

/* cfi_open()'s return; with 0 the chunk is filled. */
static int compile(uint16_t machine, const uint32_t *words, size_t count)
{
	static uint8_t file[TEXT_AT + 4 * WORDS_MAX];
	size_t size = TEXT_AT + 4 * count;
	Elf64_Ehdr h = {.e_type = ET_DYN,
		.e_machine = machine,
		.e_version = 1,
		.e_phoff = sizeof(h),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1};
	Elf64_Phdr p = {.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_offset = TEXT_AT,
		.p_vaddr = TEXT_AT,
		.p_filesz = 4 * count,
		.p_memsz = 4 * count};
	_cleanup_(closep) int fd = memfd_create("vdso", MFD_CLOEXEC);
	const char *why = NULL;
	struct cfi *c = NULL;

	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	memset(file, 0, sizeof(file));
	memcpy(file, &h, sizeof(h));
	memcpy(file + sizeof(h), &p, sizeof(p));
	memcpy(file + TEXT_AT, words, 4 * count);
	cr_assert_eq(write(fd, file, size), (ssize_t)size);
	int r = cfi_open(fd, &why, &c);

	if (r == 0)
		cr_assert_eq(cfi_compile(c, 0, &chunk), 0);
	cfi_free(c);
	return r;
}

static struct unwind_rule rule_at(uint64_t vaddr)
{
	size_t i = 0;

	while (i + 1 < chunk.row_count && chunk.rows[i + 1].offset <= vaddr)
		i++;
	return chunk.rules[chunk.rows[i].rule];
}

Test(cfi_bare, the_trampoline_is_a_signal_frame_from_the_nop_before_it)
{
	const uint32_t words[] = {NOP, RET, NOP, MOV, SVC, NOP};

	cr_assert_eq(compile(EM_AARCH64, words, ARRAY_SIZE(words)), 0);
	cr_assert_eq(rule_at(TEXT_AT + 7).cfa, UNWIND_CFA_SP);
	for (uint64_t at = 8; at < 20; at++)
		cr_assert_eq(rule_at(TEXT_AT + at).cfa, UNWIND_CFA_SIGNAL);
	cr_assert_eq(rule_at(TEXT_AT + 20).cfa, UNWIND_CFA_SP);
}

Test(cfi_bare, functions_without_records_are_leaves)
{
	const uint32_t words[] = {NOP, RET, NOP, MOV, SVC, NOP};
	struct unwind_rule r;

	cr_assert_eq(compile(EM_AARCH64, words, ARRAY_SIZE(words)), 0);
	r = rule_at(TEXT_AT);
	cr_assert_eq(r.cfa, UNWIND_CFA_SP);
	cr_assert_eq(r.cfa_offset, 0);
	cr_assert_eq(r.ra, UNWIND_SAME);
	cr_assert_eq(r.fp, UNWIND_SAME);
	cr_assert_eq(rule_at(TEXT_AT - 4).cfa, UNWIND_CFA_NONE);
	cr_assert_eq(rule_at(TEXT_AT + sizeof(words)).cfa, UNWIND_CFA_NONE);
}

Test(cfi_bare, where_one_stores_a_record_nothing_is_said_of_functions)
{
	const uint32_t stores[] = {STP, STP_2};

	for (size_t i = 0; i < ARRAY_SIZE(stores); i++) {
		const uint32_t words[] = {stores[i], RET, NOP, MOV, SVC, NOP};

		cr_assert_eq(compile(EM_AARCH64, words, ARRAY_SIZE(words)), 0);
		cr_assert_eq(rule_at(TEXT_AT).cfa, UNWIND_CFA_NONE);
		cr_assert_eq(rule_at(TEXT_AT + 12).cfa, UNWIND_CFA_SIGNAL);
	}
}

Test(cfi_bare, a_trampoline_across_two_reads_is_found)
{
	uint32_t words[WORDS_MAX];

	for (size_t at = 250; at < 260; at++) {
		for (size_t i = 0; i < WORDS_MAX; i++)
			words[i] = NOP;
		words[at] = MOV;
		words[at + 1] = SVC;
		cr_assert_eq(compile(EM_AARCH64, words, WORDS_MAX), 0);
		cr_assert_eq(rule_at(TEXT_AT + 4 * at).cfa, UNWIND_CFA_SIGNAL);
	}
}

Test(cfi_bare, anything_else_without_cfi_has_none)
{
	const uint32_t without[] = {NOP, RET, NOP, MOV, NOP, SVC};
	const uint32_t first[] = {MOV, SVC, NOP};
	const uint32_t with[] = {NOP, RET, NOP, MOV, SVC, NOP};
	static uint32_t large[WORDS_MAX];

	cr_assert_eq(compile(EM_AARCH64, without, ARRAY_SIZE(without)), -ENODATA);
	cr_assert_eq(compile(EM_AARCH64, first, ARRAY_SIZE(first)), -ENODATA);
	cr_assert_eq(compile(EM_X86_64, with, ARRAY_SIZE(with)), -ENODATA);
	cr_assert_eq(compile(EM_AARCH64, large, WORDS_MAX), -ENODATA);
}
