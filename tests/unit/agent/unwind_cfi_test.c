/*
 * The step by tables over a stored stack and tables laid by hand: the same code that the kernel runs.
 * One slab holds a mapping list and one chunk; each test says which rows and rules it has.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "agent/bpf/sample.h"
#include "agent/bpf/table.h"

enum { WORDS = 2048, LIST_AT = 1024, CHUNK_AT = 4096, DIRS = 8, SLABS = 2, RULES = 600 };
#define STACK_BASE  0x7ffd00001000ULL
#define TEXT_BASE   0x555500000000ULL /* where the file's vaddr 0 lies */
#define SIGNAL_FROM 0x100

static uint64_t stack[WORDS];
static uint8_t text[65536];
static uint64_t slab_words[TABLE_SLAB_SIZE / 8];
static uint32_t dirs[DIRS], slab_used[SLABS];
static struct unwind_rule rules[RULES];

struct unwind_state;

static int read_stack(void *dst, size_t size, uint64_t address)
{
	if (address < STACK_BASE || address - STACK_BASE > sizeof(stack) - size)
		return -14;
	memcpy(dst, (const char *)stack + (address - STACK_BASE), size);
	return 0;
}

static int read_text(uint8_t *dst, uint64_t address)
{
	if (address - TEXT_BASE >= sizeof(text))
		return -14;
	*dst = text[address - TEXT_BASE];
	return 0;
}

/* Slab 0 is there, slab 1 is not. */
#define UNWIND_SLAB(index)                 ((index) == 0 ? (const __u8 *)slab_words : NULL)
#define UNWIND_DIR(index)                  ((index) < DIRS ? &dirs[index] : NULL)
#define UNWIND_RULE(index)                 ((index) < RULES ? &rules[index] : NULL)
#define UNWIND_USED(index)                 ((index) < SLABS ? &slab_used[index] : NULL)
#define UNWIND_READ(s, dst, size, address) read_stack(dst, size, address)
#define UNWIND_TEXT(s, dst, address)       read_text(dst, address)
#include "agent/bpf/unwind_cfi.h"

static uint64_t at(int word)
{
	return STACK_BASE + 8 * (uint64_t)word;
}

static void put16(size_t place, uint64_t value)
{
	uint16_t v = (uint16_t)value;

	memcpy((char *)slab_words + place, &v, sizeof(v));
}

struct row {
	uint16_t offset, id;
};

/* Lays the chunk at CHUNK_AT with ids wide enough for rule_count; rule_map is first + id. */
static void lay_chunk(const struct row *rows, size_t n, size_t rule_count, uint16_t first)
{
	size_t maps = CHUNK_AT + 8 + 2 * (TABLE_BLOCKS + 1);
	size_t offsets = maps + 2 * rule_count;
	size_t ids = offsets + 2 * n;

	put16(CHUNK_AT, n);
	put16(CHUNK_AT + 2, rule_count);
	for (size_t b = 0; b <= TABLE_BLOCKS; b++) {
		size_t last = 0;

		for (size_t i = 0; i < n; i++)
			if (b == TABLE_BLOCKS || rows[i].offset <= b << TABLE_BLOCK_SHIFT)
				last = i;
		put16(CHUNK_AT + 8 + 2 * b, last);
	}
	for (size_t i = 0; i < rule_count; i++)
		put16(maps + 2 * i, first + i);
	for (size_t i = 0; i < n; i++) {
		put16(offsets + 2 * i, rows[i].offset);
		if (rule_count > 256)
			put16(ids + 2 * i, rows[i].id);
		else
			((uint8_t *)slab_words)[ids + i] = (uint8_t)rows[i].id;
	}
	dirs[1] = CHUNK_AT;
}

static void lay_mappings(const struct table_mapping *m, size_t n)
{
	memcpy((char *)slab_words + LIST_AT, m, n * sizeof(*m));
}

static const struct table_mapping text_mapping = {.start = TEXT_BASE,
	.end = TEXT_BASE + 0x20000,
	.bias = TEXT_BASE,
	.dir = 1,
	.chunk_count = 2};

/* The whole chunk has one rule. */
static void lay_rule(struct unwind_rule rule)
{
	rules[TABLE_RULE_FIRST] = rule;
	lay_chunk((struct row[]){{0, 0}}, 1, 1, TABLE_RULE_FIRST);
}

static struct unwind_state state(uint64_t offset, int sp, uint64_t fp)
{
	return (struct unwind_state){.pc = TEXT_BASE + offset,
		.sp = at(sp),
		.fp = fp,
		.regs_known = 1,
		.now_s = 7,
		.now_ns = 1000,
		.process = {.list = LIST_AT, .count = 1}};
}

static void clear(void)
{
	memset(stack, 0, sizeof(stack));
	memset(text, 0x90, sizeof(text));
	memset(slab_words, 0, sizeof(slab_words));
	memset(dirs, 0, sizeof(dirs));
	memset(slab_used, 0, sizeof(slab_used));
	memset(rules, 0, sizeof(rules));
	rules[TABLE_RULE_END].cfa = UNWIND_CFA_END;
	lay_mappings(&text_mapping, 1);
}

static const struct unwind_rule sp_16 = {.cfa = UNWIND_CFA_SP,
	.cfa_offset = 16,
	.fp = UNWIND_AT_CFA,
	.fp_offset = -16,
	.ra = UNWIND_AT_CFA,
	.ra_offset = -8};

TestSuite(unwind_cfi, .init = clear);

Test(unwind_cfi, an_sp_rule_gives_pc_sp_and_the_saved_fp)
{
	struct unwind_state s = state(0x1234, 4, 99);

	lay_rule(sp_16);
	stack[4] = 0xabc0;
	stack[5] = TEXT_BASE + 0x77;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x77);
	cr_assert_eq(s.sp, at(6));
	cr_assert_eq(s.fp, 0xabc0);
	cr_assert_eq(s.is_call, 1);
	cr_assert_eq(s.regs_known, 0);
	cr_assert_eq(slab_used[0], 7);
}

Test(unwind_cfi, an_fp_rule_counts_from_the_frame_pointer)
{
	struct unwind_state s = state(0x10, 4, at(20));
	struct unwind_rule rule = sp_16;

	rule.cfa = UNWIND_CFA_FP;
	lay_rule(rule);
	stack[20] = at(30);
	stack[21] = TEXT_BASE + 1;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(22));
	cr_assert_eq(s.fp, at(30));
}

Test(unwind_cfi, a_register_rule_holds_for_interrupted_frames_only)
{
	struct unwind_state s = state(0x10, 4, 5);

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_REG,
		.reg = 10,
		.cfa_offset = 8,
		.ra = UNWIND_AT_CFA,
		.ra_offset = -8});
	s.regs[10] = at(9);
	stack[9] = TEXT_BASE + 5;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(10));
	cr_assert_eq(s.fp, 5);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_UNSUPPORTED);
}

Test(unwind_cfi, a_realigned_frame_finds_its_cfa_in_memory)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_DEREF,
		.reg = UNWIND_REG_FP,
		.cfa_offset = -8,
		.aux = 8,
		.fp = UNWIND_AT_FP,
		.ra = UNWIND_AT_CFA,
		.ra_offset = -8});
	stack[19] = at(40);
	stack[20] = at(60);
	stack[40] = TEXT_BASE + 3;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(41));
	cr_assert_eq(s.fp, at(60));
	cr_assert_eq(s.pc, TEXT_BASE + 3);
}

Test(unwind_cfi, a_cfa_that_stands_at_an_index_is_found_in_interrupted_frames_only)
{
	struct unwind_state s = state(0x10, 4, 5);

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_INDEXED,
		.reg = 9,
		.cfa_offset = 8,
		.aux = 8,
		.fp = UNWIND_AT_CFA,
		.fp_offset = -24,
		.ra = UNWIND_AT_CFA,
		.ra_offset = -8});
	s.regs[9] = 11;
	stack[4 + 11 + 1] = at(40);
	stack[38] = 0x7770;
	stack[40] = TEXT_BASE + 3;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 3);
	cr_assert_eq(s.sp, at(41));
	cr_assert_eq(s.fp, 0x7770);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_UNSUPPORTED);
}

Test(unwind_cfi, a_shape_of_frame_pointers_knows_its_prologue_body_and_ret)
{
	static const struct {
		uint64_t offset;
		int sp_after;
		bool fp_is_saved;
	} cases[] = {{0x200, 5, false}, {0x204, 5, false}, {0x205, 6, true}, {0x207, 6, true},
		{0x208, 22, true}, {0x280, 22, true}, {0x2ff, 5, false}};

	rules[2] = (struct unwind_rule){.cfa = UNWIND_CFA_FP_SHAPE, .aux = 4};
	lay_chunk((struct row[]){{0, 0}, {0x200, 0}}, 2, 1, 2);
	text[0x2ff] = UNWIND_RET;
	text[0x204] = 0x55;
	stack[4] = TEXT_BASE + 0x11;
	stack[5] = TEXT_BASE + 0x11;
	stack[21] = TEXT_BASE + 0x11;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct unwind_state s = state(cases[i].offset, 4, at(20));

		stack[20] = 0x77770;
		cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
		cr_assert_eq(s.sp, at(cases[i].sp_after), "at %#lx", cases[i].offset);
		cr_assert_eq(s.fp != at(20), cases[i].fp_is_saved, "at %#lx", cases[i].offset);
	}
}

Test(unwind_cfi, a_shape_row_behind_its_prologue_is_all_body)
{
	struct unwind_state s = state(0x10, 4, at(20));

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_FP_SHAPE, .aux = -1});
	stack[21] = TEXT_BASE + 0x11;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(22));
}

Test(unwind_cfi, a_return_address_in_a_shape_does_not_look_for_ret)
{
	struct unwind_state s = state(0x30, 4, at(20));

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_FP_SHAPE, .aux = 4});
	text[0x30] = UNWIND_RET;
	stack[21] = TEXT_BASE + 0x11;
	s.is_call = 1;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(22));
}

Test(unwind_cfi, a_plt_entry_has_pushed_its_index_from_its_second_half_on)
{
	struct unwind_state s = state(0x10a, 4, 3);

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_PLT, .aux = 11});
	stack[4] = TEXT_BASE + 1;
	stack[5] = TEXT_BASE + 2;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 1);
	cr_assert_eq(s.fp, 3);
	s = state(0x10b, 4, 3);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 2);
	cr_assert_eq(s.sp, at(6));
}

/* A ucontext whose registers are 1000 + their place; sp and pc as given. */
static void put_ucontext(int word, uint64_t sp, uint64_t pc)
{
	for (int i = 0; i < UNWIND_GREGS; i++)
		stack[word + 5 + i] = 1000 + (uint64_t)i;
	stack[word + 5 + 15] = sp;
	stack[word + 5 + 16] = pc;
}

Test(unwind_cfi, behind_a_signal_frame_pc_is_exact_and_registers_are_known)
{
	struct unwind_state s = state(SIGNAL_FROM + 1, 4, 0);

	rules[2] = (struct unwind_rule){.cfa = UNWIND_CFA_SIGNAL};
	rules[3] = (struct unwind_rule){
		.cfa = UNWIND_CFA_REG, .reg = 0, .ra = UNWIND_AT_CFA, .ra_offset = -8};
	lay_chunk((struct row[]){{0, 1}, {SIGNAL_FROM, 0}, {0x200, 1}}, 3, 2, 2);
	put_ucontext(4, at(100), TEXT_BASE + 0x200);
	stack[4 + 5 + 13] = at(120); /* rax */
	stack[119] = TEXT_BASE + 0x55;
	s.is_call = 1;
	s.regs_known = 0;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x200);
	cr_assert_eq(s.sp, at(100));
	cr_assert_eq(s.fp, 1010);
	cr_assert_eq(s.is_call, 0);
	cr_assert_eq(s.regs[15], 1007);
	cr_assert_eq(s.regs[5], 1008);
	cr_assert_eq(s.regs[4], 1009);
	cr_assert_eq(s.regs[3], 1011);
	cr_assert_eq(s.regs[1], 1012);
	cr_assert_eq(s.regs[2], 1014);
	/* Exact: pc - 1 would be another signal frame. Known: the rule needs rax. */
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(120));
	cr_assert_eq(s.pc, TEXT_BASE + 0x55);
}

Test(unwind_cfi, a_signal_frame_may_lead_down_to_another_stack)
{
	struct unwind_state s = state(SIGNAL_FROM, 200, 0);

	lay_rule((struct unwind_rule){.cfa = UNWIND_CFA_SIGNAL});
	put_ucontext(200, at(10), TEXT_BASE + 9);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(10));
}

Test(unwind_cfi, a_rule_that_says_so_leads_down_to_another_stack)
{
	struct unwind_rule rule = {.cfa = UNWIND_CFA_OTHER_STACK,
		.cfa_offset = 16,
		.fp = UNWIND_AT_CFA,
		.fp_offset = -16,
		.ra = UNWIND_AT_CFA,
		.ra_offset = -8};
	struct unwind_state s = state(0x10, 200, at(10));

	stack[10] = at(30);
	stack[11] = TEXT_BASE + 0x77;
	lay_rule(rule);
	int end = unwind_step_cfi(&s);

	cr_assert_eq(end, UNWIND_GO_ON, "%d", end);
	cr_assert_eq(s.sp, at(12));
	cr_assert_eq(s.fp, at(30));
	cr_assert_eq(s.pc, TEXT_BASE + 0x77);
	rule.cfa = UNWIND_CFA_FP;
	s = state(0x10, 200, at(10));
	lay_rule(rule);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BAD_CFA);
	rule.cfa = UNWIND_CFA_OTHER_STACK;
	s = state(0x10, 200, 0); /* cleared, as in a new thread */
	lay_rule(rule);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BAD_CFA);
}

Test(unwind_cfi, a_return_address_belongs_to_the_call_before_it)
{
	struct unwind_state s = state(0x200, 4, 0);

	rules[3] = sp_16;
	rules[3].cfa_offset = 32;
	rules[2] = sp_16;
	lay_chunk((struct row[]){{0, 0}, {0x200, 1}}, 2, 2, 2);
	stack[5] = stack[7] = TEXT_BASE + 1;
	s.is_call = 1;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(6));
	s = state(0x200, 4, 0);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.sp, at(8));
}

Test(unwind_cfi, vfork_keeps_its_return_address_in_a_register)
{
	struct unwind_state s = state(0x10, 4, 8);

	lay_rule((struct unwind_rule){
		.cfa = UNWIND_CFA_SP, .cfa_offset = 0, .ra = UNWIND_IN_REG, .ra_offset = 5});
	s.regs[5] = TEXT_BASE + 0x99;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, TEXT_BASE + 0x99);
	cr_assert_eq(s.sp, at(4));
	/* Once: then no register is known, so it cannot go round. */
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_UNSUPPORTED);
}

Test(unwind_cfi, an_undefined_return_address_is_the_root)
{
	struct unwind_state s = state(0x10, 4, 8);

	lay_chunk((struct row[]){{0, 0}}, 1, 1, TABLE_RULE_END);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_ROOT);
}

Test(unwind_cfi, a_cfa_that_does_not_climb_ends_the_walk)
{
	static const int32_t offsets[] = {0, -8, -4096, INT32_MIN};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		struct unwind_state s = state(0x10, 600, 8);
		struct unwind_rule rule = sp_16;

		rule.cfa_offset = offsets[i];
		lay_rule(rule);
		cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BAD_CFA, "%d", offsets[i]);
	}
}

Test(unwind_cfi, a_return_address_in_the_kernel_ends_the_walk)
{
	struct unwind_state s = state(0x10, 4, 8);

	lay_rule(sp_16);
	stack[5] = 0xffffffff81000000ULL;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BAD_CFA);
}

Test(unwind_cfi, a_stack_that_cannot_be_read_is_said_by_its_kind)
{
	struct unwind_state s = state(0x10, WORDS - 1, 8);

	lay_rule(sp_16);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_UNREADABLE);
	s.is_short = 1;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_SHORT_COPY);
}

Test(unwind_cfi, a_lost_frame_pointer_ends_what_needs_it)
{
	struct unwind_state s = state(0x10, 4, at(8));
	struct unwind_rule rule = sp_16;

	rule.fp = UNWIND_UNDEFINED;
	rules[2] = rule;
	rules[3] = sp_16;
	rules[3].cfa = UNWIND_CFA_FP;
	lay_chunk((struct row[]){{0, 0}, {0x100, 1}}, 2, 2, 2);
	stack[5] = TEXT_BASE + 0x180;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BAD_CFA);
}

Test(unwind_cfi, a_chunk_nobody_built_is_asked_for_once)
{
	struct unwind_state s = state(0x10010, 4, at(8));

	lay_rule(sp_16);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_MISS);
	cr_assert_eq(s.ask, 1);
	cr_assert_eq(s.miss.kind, TABLE_MISS_CHUNK);
	cr_assert_eq(s.miss.dir, 2);
	cr_assert_eq(s.miss.chunk, 1);
	cr_assert_eq(s.miss.pc, TEXT_BASE + 0x10010);
	cr_assert_eq(dirs[2], TABLE_WANTED);
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_MISS);
	cr_assert_eq(s.ask, 0);
}

Test(unwind_cfi, an_address_in_no_mapping_is_a_miss_until_the_list_is_final)
{
	struct unwind_state s = state(0x30000, 4, 4);

	cr_assert_eq(unwind_step_cfi(&s), UNWIND_MISS);
	cr_assert_eq(s.miss.kind, TABLE_MISS_MAPPING);
	cr_assert_eq(s.ask, 1);
	s.process.final_until_ns = s.now_ns + 1;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_NO_MAPPING);
}

Test(unwind_cfi, every_mapping_of_a_long_list_is_found)
{
	static struct table_mapping m[TABLE_MAPPINGS_MAX];
	static const uint32_t counts[] = {1, 2, 3, 63, 64, 65, 127, 1000, 4095, 4096};

	for (size_t i = 0; i < TABLE_MAPPINGS_MAX; i++)
		m[i] = (struct table_mapping){.start = TEXT_BASE + i * 0x2000,
			.end = TEXT_BASE + i * 0x2000 + 0x1000,
			.first_chunk = (uint32_t)i};
	lay_mappings(m, TABLE_MAPPINGS_MAX);
	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		struct unwind_state s = state(0, 4, 4);

		s.process.count = counts[k];
		s.process.final_until_ns = s.now_ns + 1;
		for (size_t i = 0; i < TABLE_MAPPINGS_MAX; i++) {
			int want = i < counts[k] ? UNWIND_GO_ON : SAMPLE_END_NO_MAPPING;

			cr_assert_eq(unwind_find_mapping(&s, m[i].start), want);
			cr_assert_eq(unwind_find_mapping(&s, m[i].end - 1), want);
			cr_assert(want != UNWIND_GO_ON || s.mapping.first_chunk == i);
			cr_assert_eq(unwind_find_mapping(&s, m[i].end), SAMPLE_END_NO_MAPPING);
		}
	}
	{
		struct unwind_state s = state(0, 4, 4);

		s.process.final_until_ns = s.now_ns + 1;
		cr_assert_eq(unwind_find_mapping(&s, TEXT_BASE - 1), SAMPLE_END_NO_MAPPING);
	}
}

Test(unwind_cfi, a_mapping_in_the_kernels_half_hides_none_below_it)
{
	struct table_mapping m[64];

	for (size_t n = 1; n < 64; n++) {
		struct unwind_state s = state(0, 4, 4);

		for (size_t i = 0; i < n; i++)
			m[i] = (struct table_mapping){.start = TEXT_BASE + i * 0x2000,
				.end = TEXT_BASE + i * 0x2000 + 0x1000};
		m[n] = (struct table_mapping){
			.start = 0xffffffffff600000, .end = 0xffffffffff601000};
		lay_mappings(m, n + 1);
		s.process.count = (uint32_t)n + 1;
		for (size_t i = 0; i < n; i++)
			cr_assert_eq(unwind_find_mapping(&s, m[i].start), UNWIND_GO_ON);
	}
}

Test(unwind_cfi, every_row_is_found_however_dense)
{
	static struct row rows[2000];
	static const uint16_t gaps[] = {1, 7, 31, 32, 33, 64, 300, 511, 512, 513, 1024, 1025};

	for (size_t k = 0; k < sizeof(gaps) / sizeof(gaps[0]); k++) {
		size_t n = 0;

		for (size_t i = 0; i < 300; i++)
			rules[i] = (struct unwind_rule){.cfa = UNWIND_CFA_SP, .cfa_offset = (int)i};
		for (; n < 1500 && n * gaps[k] < 65536; n++)
			rows[n] = (struct row){(uint16_t)(n * gaps[k]), (uint16_t)(n % 300)};
		lay_chunk(rows, n, 300, 0);
		for (uint32_t o = 0; o < 65536; o++) {
			size_t row = o / gaps[k] < n ? o / gaps[k] : n - 1;
			__u64 into;
			const struct unwind_rule *r =
				unwind_find_row((const __u8 *)slab_words, CHUNK_AT, o, &into);

			cr_assert_not_null(r);
			cr_assert_eq(r->cfa_offset, (int)(row % 300), "offset %u", o);
			cr_assert_eq(into, o - row * gaps[k]);
		}
	}
}

/* Of a block at an odd and at an even multiple of 512, rows that begin anywhere in it, the next block's first one too. */
Test(unwind_cfi, a_row_is_found_among_any_number_at_any_place_of_the_slab)
{
	static const uint64_t ends[] = {TABLE_SLAB_SIZE, TABLE_SLAB_SIZE - 2, 4096, 4098};
	uint16_t rows[48];
	uint64_t x = 88172645463325252ULL;

	for (size_t k = 0; k < 4000; k++) {
		size_t n = 1 + k % 48, want = 0;
		uint32_t block = 512 * (uint32_t)(k % 127), offset;
		uint64_t at = ends[k % 4] - 2 * n;
		uint32_t room = 512, before = block;

		rows[0] = (uint16_t)(block - (k % 3 && block ? 1 : 0));
		for (size_t i = 1; i < n; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			before += 1 + (uint32_t)(x % (room / (n - i)));
			room = block + 512 - before;
			rows[i] = (uint16_t)before;
		}
		memset(slab_words, 0, sizeof(slab_words));
		memcpy((uint8_t *)slab_words + at, rows, 2 * n);
		for (offset = block; offset < block + 512; offset++) {
			while (want + 1 < n && rows[want + 1] <= offset)
				want++;
			cr_assert_eq(unwind_search_rows((const __u8 *)slab_words, at, n, offset),
				at + 2 * want, "row of %u among %zu", offset, n);
			if (offset == block + 511)
				want = 0;
		}
	}
}

Test(unwind_cfi, without_a_rule_a_frame_record_needs_a_known_return_address)
{
	static const struct {
		uint32_t ref;
		int reason;
	} cases[] = {{TABLE_NO_CFI, SAMPLE_END_NO_CFI}, {TABLE_BROKEN, SAMPLE_END_BROKEN_CFI},
		{TABLE_FULL, SAMPLE_END_TABLE_FULL}, {CHUNK_AT, SAMPLE_END_NO_CFI}};

	lay_chunk((struct row[]){{0, 0}}, 1, 1, TABLE_RULE_NONE);
	stack[9] = 0;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct unwind_state s = state(0x10, 4, at(8));

		s.process.final_until_ns = s.now_ns + 1;
		dirs[1] = cases[i].ref;
		stack[9] = TEXT_BASE + 0x99;
		cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
		cr_assert_eq(s.pc, TEXT_BASE + 0x99);
		cr_assert_eq(s.sp, at(10));
		s = state(0x10, 4, at(8));
		s.process.final_until_ns = s.now_ns + 1;
		stack[9] = 0x123456789000;
		cr_assert_eq(unwind_step_cfi(&s), cases[i].reason);
		s = state(0x10, 4, 0x1235);
		cr_assert_eq(unwind_step_cfi(&s), cases[i].reason);
	}
}

Test(unwind_cfi, a_process_without_a_list_has_frame_pointers)
{
	struct unwind_state s = state(0x10, 4, at(8));

	s.process.list = 0;
	stack[9] = 0x123456;
	cr_assert_eq(unwind_step_cfi(&s), UNWIND_GO_ON);
	cr_assert_eq(s.pc, 0x123456);
	s.fp = 3;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_NO_FP);
}

Test(unwind_cfi, a_reference_out_of_the_slabs_is_broken)
{
	static const uint32_t refs[] = {1u << TABLE_SLAB_SHIFT, 2u << TABLE_SLAB_SHIFT, 0xffffffff};

	for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++) {
		struct unwind_state s = state(0x10, 4, 1);

		lay_rule(sp_16);
		dirs[1] = refs[i];
		cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BROKEN_CFI);
		s.mapping.end = 0;
		s.process.list = refs[i];
		cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BROKEN_CFI);
	}
}

Test(unwind_cfi, an_id_beyond_its_rules_is_broken)
{
	struct unwind_state s = state(0x10, 4, 1);

	lay_rule(sp_16);
	((uint8_t *)slab_words)[CHUNK_AT + 8 + 2 * (TABLE_BLOCKS + 1) + 2 + 2] = 1;
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BROKEN_CFI);
	lay_chunk((struct row[]){{0, 0}}, 1, 1, RULES);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_BROKEN_CFI);
}

/* Whatever stands in a slab, nothing outside of it is read (ASan's part of the proof). */
Test(unwind_cfi, a_slab_of_noise_stays_a_slab)
{
	uint64_t x = 88172645463325252ULL;

	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < TABLE_SLAB_SIZE / 8; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			slab_words[i] = round % 3 == 0   ? ~0ULL
					: round % 3 == 1 ? x
							 : x & 0x00ff00ff00ff00ffULL;
		}
		lay_mappings(&text_mapping, 1);
		for (uint32_t k = 0; k < 64; k++) {
			uint64_t place =
				k == 0 ? TABLE_SLAB_SIZE - 8 : (x >> k) & (TABLE_SLAB_SIZE - 8);
			struct unwind_state s = state((x >> (k & 15)) & 0xffff, 4, at(20));
			int end;

			dirs[1] = place < TABLE_REF_MIN ? TABLE_REF_MIN : (uint32_t)place;
			end = unwind_step_cfi(&s);
			cr_assert(end >= UNWIND_MISS && end < SAMPLE_END_COUNT);
		}
	}
}

Test(unwind_cfi, a_stack_of_512_frames_is_walked_to_its_root)
{
	struct unwind_state s = state(0x10, 0, 0);
	int n = 1;

	rules[2] = sp_16;
	rules[2].fp = UNWIND_SAME;
	lay_chunk((struct row[]){{0, 0}}, 1, 1, 2);
	for (int i = 0; i < 511; i++)
		stack[2 * i + 1] = TEXT_BASE + 0x1000 + (uint64_t)i;
	while (unwind_step_cfi(&s) == UNWIND_GO_ON)
		n++;
	cr_assert_eq(n, 512);
	cr_assert_eq(s.pc, TEXT_BASE + 0x1000 + 510);
	cr_assert_eq(unwind_step_cfi(&s), SAMPLE_END_ROOT);
}
