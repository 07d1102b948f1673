/*
 * The frame-pointer step over stored stacks: the same code that the kernel runs, reading from an
 * array in place of user memory.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "agent/bpf/sample.h"

enum { WORDS = 64 };
#define STACK_BASE 0x7ffd00001000ULL

static uint64_t stack[WORDS];

static int read_stack(void *dst, size_t size, uint64_t address)
{
	if (address < STACK_BASE || address - STACK_BASE > sizeof(stack) - size)
		return -14;
	memcpy(dst, (const char *)stack + (address - STACK_BASE), size);
	return 0;
}

#define UNWIND_READ(s, dst, size, address) read_stack(dst, size, address)
#include "agent/bpf/unwind.h"

static uint64_t at(int word)
{
	return STACK_BASE + 8 * (uint64_t)word;
}

static void frame(int word, uint64_t caller_fp, uint64_t return_address)
{
	stack[word] = caller_fp;
	stack[word + 1] = return_address;
}

/* Walks to the end like the driver in collect.bpf.c. */
static int walk(struct unwind_state s, uint64_t *pcs, int max, int *ret_count)
{
	int end = UNWIND_GO_ON;

	*ret_count = 0;
	while (end == UNWIND_GO_ON && *ret_count < max) {
		pcs[(*ret_count)++] = s.pc;
		end = unwind_step(&s);
	}
	return end == UNWIND_GO_ON ? SAMPLE_END_DEPTH : end;
}

static void clear(void)
{
	memset(stack, 0, sizeof(stack));
}

TestSuite(unwind, .init = clear);

Test(unwind, follows_the_chain_to_a_zero_frame_pointer)
{
	uint64_t pcs[8];
	int n;

	frame(4, at(10), 0x401111);
	frame(10, at(20), 0x402222);
	frame(20, 0, 0x403333);
	cr_assert_eq(
		walk((struct unwind_state){.pc = 0x400aaa, .sp = at(2), .fp = at(4)}, pcs, 8, &n),
		SAMPLE_END_ROOT);
	cr_assert_eq(n, 4);
	cr_assert_eq(pcs[0], 0x400aaa);
	cr_assert_eq(pcs[1], 0x401111);
	cr_assert_eq(pcs[2], 0x402222);
	cr_assert_eq(pcs[3], 0x403333);
}

Test(unwind, a_zero_return_address_is_the_root)
{
	uint64_t pcs[8];
	int n;

	frame(4, at(10), 0x401111);
	frame(10, at(20), 0);
	cr_assert_eq(walk((struct unwind_state){.pc = 1, .sp = at(2), .fp = at(4)}, pcs, 8, &n),
		SAMPLE_END_ROOT);
	cr_assert_eq(n, 2);
}

Test(unwind, a_frame_at_the_stack_pointer_is_believed)
{
	struct unwind_state s = {.pc = 1, .sp = at(4), .fp = at(4)};

	frame(4, at(10), 0x401111);
	cr_assert_eq(unwind_step(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(6));
	cr_assert_eq(s.fp, at(10));
	cr_assert_eq(s.pc, 0x401111);
}

Test(unwind, a_frame_below_the_stack_pointer_ends_as_no_fp)
{
	struct unwind_state s = {.pc = 1, .sp = at(5), .fp = at(4)};

	frame(4, at(10), 0x401111);
	cr_assert_eq(unwind_step(&s), SAMPLE_END_NO_FP);
}

Test(unwind, a_cycle_ends_as_no_fp)
{
	uint64_t pcs[512];
	int n;

	frame(4, at(10), 0x401111);
	frame(10, at(4), 0x402222);
	cr_assert_eq(walk((struct unwind_state){.pc = 1, .sp = at(2), .fp = at(4)}, pcs, 512, &n),
		SAMPLE_END_NO_FP);
	cr_assert_eq(n, 3);
}

Test(unwind, a_frame_that_points_to_itself_ends_as_no_fp)
{
	uint64_t pcs[512];
	int n;

	frame(4, at(4), 0x401111);
	cr_assert_eq(walk((struct unwind_state){.pc = 1, .sp = at(2), .fp = at(4)}, pcs, 512, &n),
		SAMPLE_END_NO_FP);
	cr_assert_eq(n, 2);
}

Test(unwind, data_in_the_frame_pointer_ends_as_no_fp)
{
	const uint64_t bad[] = {1, at(4) + 4, 0xffffffff81000000ULL, ~0ULL & ~7ULL,
		UNWIND_USER_END - 8, at(4) + UNWIND_FRAME_SIZE_MAX + 8};

	frame(4, 0, 0x401111);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct unwind_state s = {.pc = 1, .sp = at(4), .fp = bad[i]};

		cr_assert_eq(
			unwind_step(&s), SAMPLE_END_NO_FP, "fp %#llx", (unsigned long long)bad[i]);
	}
}

Test(unwind, a_stack_pointer_near_the_top_does_not_wrap_the_size_check)
{
	struct unwind_state s = {.pc = 1, .sp = ~0ULL - 7, .fp = at(4)};

	frame(4, 0, 0x401111);
	cr_assert_eq(unwind_step(&s), SAMPLE_END_NO_FP);
}

Test(unwind, memory_that_cannot_be_read_is_told_apart)
{
	struct unwind_state s = {.pc = 1, .sp = at(4), .fp = at(WORDS - 1)};

	cr_assert_eq(unwind_step(&s), SAMPLE_END_UNREADABLE);
}

Test(unwind, a_return_address_outside_user_space_ends_as_no_fp)
{
	const uint64_t bad[] = {1, 0xfff, UNWIND_USER_END, 0xffffffff81000000ULL};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct unwind_state s = {.pc = 7, .sp = at(2), .fp = at(4)};

		frame(4, at(10), bad[i]);
		cr_assert_eq(unwind_step(&s), SAMPLE_END_NO_FP);
		cr_assert_eq(s.pc, 7, "a step that failed changes nothing");
		cr_assert_eq(s.fp, at(4));
	}
}

Test(unwind, depth_is_the_callers_limit)
{
	uint64_t pcs[3];
	int n;

	for (int i = 0; i < 20; i += 2)
		frame(i, at(i + 2), 0x401000 + (uint64_t)i);
	cr_assert_eq(walk((struct unwind_state){.pc = 1, .sp = at(0), .fp = at(0)}, pcs, 3, &n),
		SAMPLE_END_DEPTH);
	cr_assert_eq(n, 3);
}

Test(unwind, the_hash_depends_on_order_and_every_word)
{
	uint64_t ab = unwind_hash(unwind_hash(1, 0x401000), 0x402000);
	uint64_t ba = unwind_hash(unwind_hash(1, 0x402000), 0x401000);

	cr_assert_neq(ab, ba);
	cr_assert_neq(ab, unwind_hash(unwind_hash(1, 0x401000), 0x402001));
	cr_assert_neq(ab, unwind_hash(unwind_hash(1, 0x401001), 0x402000));
	cr_assert_neq(unwind_hash(1, 0), unwind_hash(unwind_hash(1, 0), 0));
}
