/*
 * The step of aarch64, compiled for this machine: the same headers as the kernel program, with the other
 * architecture's arch_*.h. One file of 64 KB of code at TEXT_BASE, one chunk of rows, a stack of words.
 */
#define __TARGET_ARCH_arm64

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "agent/bpf/sample.h"
#include "agent/bpf/table.h"

enum { WORDS = 512, RULES = 8 };
#define STACK_BASE 0x0000fffff0000000ULL
#define TEXT_BASE  0x0000aaaa00000000ULL
/* What pauth of a 48-bit address space may have put above the address. */
#define SIGNATURE  0x002b000000000000ULL

struct unwind_state;

static uint64_t stack[WORDS];
static uint64_t slab_words[TABLE_SLAB_SIZE / 8];
static struct unwind_rule rules[RULES];
static uint32_t dirs[4], slab_used[4];

static int read_stack(void *dst, uint64_t size, uint64_t address)
{
	uint64_t offset = address - STACK_BASE;

	if (offset > sizeof(stack) || size > sizeof(stack) - offset)
		return -1;
	memcpy(dst, (uint8_t *)stack + offset, size);
	return 0;
}

#define UNWIND_READ(s, dst, size, address) read_stack(dst, size, address)
#define UNWIND_TEXT(s, dst, address)       (-1)
#define UNWIND_SLAB(index)                 ((index) == 0 ? (const __u8 *)slab_words : NULL)
#define UNWIND_DIR(index)                  ((index) < 4 ? &dirs[index] : NULL)
#define UNWIND_USED(index)                 ((index) < 4 ? &slab_used[index] : NULL)
#define UNWIND_RULE(index)                 ((index) < RULES ? &rules[index] : NULL)

#include "agent/bpf/unwind_cfi.h"

enum { LIST_AT = 1024, CHUNK_AT = 4096 };

static uint64_t at(int word)
{
	return STACK_BASE + (uint64_t)word * 8;
}

/* The whole chunk has one rule. */
static void lay_rule(struct unwind_rule rule)
{
	struct table_chunk head = {.row_count = 1, .rule_count = 1};
	struct table_mapping mapping = {.start = TEXT_BASE,
		.end = TEXT_BASE + 0x10000,
		.bias = TEXT_BASE,
		.dir = 1,
		.chunk_count = 1};
	uint8_t *slab = (uint8_t *)slab_words;
	uint8_t *p = slab + CHUNK_AT;

	memset(slab, 0, sizeof(slab_words));
	memset(stack, 0, sizeof(stack));
	memcpy(p, &head, sizeof(head));
	/* block_first[], rule_map[0] = 2, offsets[0] = 0, ids[0] = 0 */
	p[sizeof(head) + (TABLE_BLOCKS + 1) * 2] = 2;
	memcpy(slab + LIST_AT, &mapping, sizeof(mapping));
	dirs[1] = CHUNK_AT;
	rules[2] = rule;
}

static struct unwind_state state(uint64_t offset, int sp, uint64_t fp)
{
	struct unwind_state s = {.pc = TEXT_BASE + offset,
		.sp = at(sp),
		.fp = fp,
		.regs_known = 1,
		.code_mask = (1ULL << 48) - 1,
		.process = {.list = LIST_AT, .count = 1}};

	s.regs[ARCH_REG_LR] = TEXT_BASE + 0x500;
	return s;
}

static const struct unwind_rule leaf = {.cfa = UNWIND_CFA_SP, .ra = UNWIND_SAME};

Test(unwind_arm64, a_leaf_returns_to_the_link_register_and_moves_no_stack)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule(leaf);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x500);
	cr_assert_eq(s.sp, at(4));
	cr_assert_eq(s.fp, at(20));
	cr_assert_eq(s.regs_known, 0);
}

Test(unwind_arm64, a_caller_has_no_link_register_any_more)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule(leaf);
	s.regs_known = 0;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BROKEN_CFI);
}

Test(unwind_arm64, a_thread_in_a_system_call_still_has_it)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule(leaf);
	s.is_call = 1;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x500);
}

Test(unwind_arm64, signatures_are_cut_off_wherever_a_return_address_comes_from)
{
	const struct unwind_rule saved = {.cfa = UNWIND_CFA_SP,
		.cfa_offset = 32,
		.ra = UNWIND_AT_CFA,
		.ra_offset = -24,
		.fp = UNWIND_AT_CFA,
		.fp_offset = -32};
	struct unwind_state s = state(0x10, 4, 0);

	lay_rule(leaf);
	s.regs[ARCH_REG_LR] |= SIGNATURE;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x500);
	lay_rule(saved);
	stack[4] = at(30);
	stack[5] = SIGNATURE | (TEXT_BASE + 0x600);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x600);
	cr_assert_eq(s.fp, at(30));
	stack[30] = at(40);
	stack[31] = SIGNATURE | (TEXT_BASE + 0x700);
	cr_assert_eq(unwind_step(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x700);
}

Test(unwind_arm64, a_kernel_address_is_not_stripped_into_a_users)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule(leaf);
	s.regs[ARCH_REG_LR] = 0xffff800008001000ULL;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BAD_CFA);
}

Test(unwind_arm64, behind_a_frame_record_sp_is_not_believed)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_NONE});
	stack[20] = at(40);
	stack[21] = TEXT_BASE + 0x600;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x600);
	/* By sp the return address would be this one. */
	lay_rule((struct unwind_rule){
		.cfa = UNWIND_CFA_SP, .cfa_offset = 16, .ra = UNWIND_AT_CFA, .ra_offset = -8});
	stack[23] = TEXT_BASE + 0x999;
	stack[40] = at(50);
	stack[41] = TEXT_BASE + 0x700;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x700);
	/* By fp everything is known again. */
	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_FP,
		.cfa_offset = 32,
		.ra = UNWIND_AT_CFA,
		.ra_offset = -24,
		.fp = UNWIND_AT_CFA,
		.fp_offset = -32});
	stack[50] = at(60);
	stack[51] = TEXT_BASE + 0x800;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x800);
	cr_assert_eq(s.sp, at(54));
	cr_assert_eq(s.sp_is_bound, 0);
}

Test(unwind_arm64, a_record_at_the_low_end_of_a_large_frame_is_found)
{
	struct unwind_state s = state(0x10, 4, 0);

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_SP,
		.cfa_offset = 109136,
		.ra = UNWIND_AT_BASE,
		.ra_offset = 8,
		.fp = UNWIND_AT_BASE});
	stack[4] = at(400);
	stack[5] = TEXT_BASE + 0x600;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x600);
	cr_assert_eq(s.fp, at(400));
	cr_assert_eq(s.sp, at(4) + 109136);
}

Test(unwind_arm64, behind_a_signal_frame_pc_is_exact_and_registers_are_known)
{
	struct unwind_state s = state(0x10, 4, 0);
	uint64_t *context = stack + 4 + 312 / 8;

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_SIGNAL});
	for (int i = 0; i < 31; i++)
		context[i] = 1000 + (uint64_t)i;
	context[31] = at(200);
	context[32] = TEXT_BASE + 0x300;
	s.is_call = 1;
	s.regs_known = 0;
	s.sp_is_bound = 1;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x300);
	cr_assert_eq(s.sp, at(200));
	cr_assert_eq(s.fp, 1029);
	cr_assert_eq(s.regs[ARCH_REG_LR], 1030);
	cr_assert_eq(s.is_call, 0);
	cr_assert_eq(s.regs_known, 1);
	cr_assert_eq(s.sp_is_bound, 0);
}
