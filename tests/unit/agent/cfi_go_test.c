/*
 * cfi_go: rules of real functions of Go (fixtures/go), compared with what their code does to rsp and rbp, read
 * from `objdump -d` of the whole programs.
 */
#include <criterion/criterion.h>
#include <fcntl.h>

#include "agent/cfi.h"
#include "base/def.h"

static struct cfi_chunk chunk;

static struct cfi *fixture_cfi(const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC); /* is read from until the test's process ends */
	struct cfi *c = NULL;
	const char *why = NULL;

	cr_assert_geq(fd, 0, "%s: run from the top of the tree", name);
	cr_assert_eq(cfi_open(fd, &why, &c), 0, "%s: %s", name, why);
	return c;
}

static struct unwind_rule rule_at(struct cfi *c, uint64_t vaddr)
{
	size_t row = 0;

	cr_assert_eq(cfi_compile(c, vaddr >> TABLE_CHUNK_SHIFT, &chunk), 0);
	cr_assert_gt(chunk.row_count, 0);
	while (row + 1 < chunk.row_count && chunk.rows[row + 1].offset <= (vaddr & 0xffff))
		row++;
	return chunk.rules[chunk.rows[row].rule];
}

/* sp + offset; fp saved at cfa - 16, or still in its register. */
static void check_sp(struct cfi *c, uint64_t vaddr, int32_t offset, bool is_saved)
{
	struct unwind_rule r = rule_at(c, vaddr);

	cr_assert_eq(r.cfa, UNWIND_CFA_SP, "%lx: %d", vaddr, r.cfa);
	cr_assert_eq(r.cfa_offset, offset, "%lx: %d", vaddr, r.cfa_offset);
	cr_assert_eq(r.fp, is_saved ? UNWIND_AT_CFA : UNWIND_SAME, "%lx", vaddr);
	cr_assert_eq(r.fp_offset, is_saved ? -16 : 0, "%lx", vaddr);
	cr_assert(r.ra == UNWIND_AT_CFA && r.ra_offset == -8, "%lx", vaddr);
}

static void check_other_stack(struct cfi *c, uint64_t vaddr)
{
	struct unwind_rule r = rule_at(c, vaddr);

	cr_assert_eq(r.cfa, UNWIND_CFA_OTHER_STACK, "%lx: %d", vaddr, r.cfa);
	cr_assert_eq(r.cfa_offset, 16, "%lx", vaddr);
	cr_assert(r.fp == UNWIND_AT_CFA && r.fp_offset == -16, "%lx", vaddr);
	cr_assert(r.ra == UNWIND_AT_CFA && r.ra_offset == -8, "%lx", vaddr);
}

Test(cfi_go, push_and_sub_are_followed_instruction_by_instruction)
{
	struct cfi *c = fixture_cfi("fixtures/go/go1.26.elf"); /* main.(*shape).area */

	check_sp(c, 0x4b7da0, 8, false);
	check_sp(c, 0x4b7da6, 8, false); /* push rbp */
	check_sp(c, 0x4b7da7, 16, true);
	check_sp(c, 0x4b7daa, 16, true); /* sub rsp, 16 */
	check_sp(c, 0x4b7dae, 32, true);
	check_sp(c, 0x4b7df0, 32, true); /* add rsp, 16 */
	check_sp(c, 0x4b7df4, 16, true); /* pop rbp */
	check_sp(c, 0x4b7df5, 8, false); /* ret */
	check_sp(c, 0x4b7df6, 8, false); /* behind it, where morestack is called */
	cr_assert_eq(rule_at(c, 0x4b7e0c).cfa, UNWIND_CFA_NONE); /* padding */
	cfi_free(c);
}

Test(cfi_go, before_go_1_21_rbp_is_stored_behind_the_sub)
{
	struct cfi *c = fixture_cfi("fixtures/go/go1.19.elf"); /* main.(*shape).area */

	check_sp(c, 0x49d706, 8, false);  /* sub rsp, 24 */
	check_sp(c, 0x49d70a, 32, false); /* mov [rsp + 16], rbp */
	check_sp(c, 0x49d70f, 32, true);
	check_sp(c, 0x49d762, 32, true); /* add rsp, 24 */
	check_sp(c, 0x49d766, 8, false);
	cfi_free(c);
}

Test(cfi_go, a_frame_of_nothing_but_rbp_is_known)
{
	struct cfi *c = fixture_cfi("fixtures/go/go1.19.elf"); /* main.more.func1 */

	check_sp(c, 0x49e30a, 16, false); /* mov [rsp], rbp */
	check_sp(c, 0x49e30e, 16, true);
	cfi_free(c);
}

Test(cfi_go, systemstack_is_left_by_its_own_frame_pointer)
{
	struct cfi *c = fixture_cfi("fixtures/go/go1.26.elf");

	check_sp(c, 0x47fc20, 8, false);
	check_sp(c, 0x47fc21, 16, true);
	check_other_stack(c, 0x47fc69); /* the call on the system stack */
	check_other_stack(c, 0x47fc9f); /* pop rbp */
	check_sp(c, 0x47fca0, 8, false);
	check_sp(c, 0x47fca8, 8, false); /* jmp, where no stack is changed */
	cfi_free(c);
}

Test(cfi_go, systemstack_without_a_frame_is_left_where_it_has_changed_stacks)
{
	struct cfi *c = fixture_cfi("fixtures/go/go1.19.elf");

	check_sp(c, 0x45bfbe, 8, false); /* mov rsp, rbx */
	check_other_stack(c, 0x45bfc1);
	check_other_stack(c, 0x45bfe6); /* mov rsp, [rax + 56] */
	check_sp(c, 0x45bfea, 8, false);
	check_sp(c, 0x45bff3, 8, false); /* noswitch */
	cfi_free(c);
}

Test(cfi_go, asmcgocall_without_a_frame_has_the_old_stack_pointer_on_the_new_stack)
{
	struct cfi *c = fixture_cfi("fixtures/go/go1.19.elf");

	check_sp(c, 0x45de1f, 8, false);
	check_other_stack(c, 0x45de43); /* the call from a goroutine's stack */
	check_sp(c, 0x45de5e, 8, false);
	struct unwind_rule r = rule_at(c, 0x45de80); /* the call from the system stack */

	cr_assert(r.cfa == UNWIND_CFA_DEREF && r.reg == 7 && r.cfa_offset == 40 && r.aux == 8);
	check_sp(c, 0x45de89, 8, false);
	cfi_free(c);
}

Test(cfi_go, the_runtimes_first_functions_end_a_stack)
{
	static const struct {
		const char *file;
		uint64_t mcall, behind_switch, goexit, mstart;
	} cases[] = {
		{"fixtures/go/go1.19.elf", 0x45bf00, 0x45bf47, 0x45e041, 0x45bec0},
		{"fixtures/go/go1.26.elf", 0x47fba0, 0x47fbf4, 0x4816c1, 0x47fb60},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cfi *c = fixture_cfi(cases[i].file);

		check_sp(c, cases[i].mcall, 8, false);
		cr_assert_eq(rule_at(c, cases[i].behind_switch).cfa, UNWIND_CFA_END);
		cr_assert_eq(rule_at(c, cases[i].goexit).cfa, UNWIND_CFA_END);
		cr_assert_eq(rule_at(c, cases[i].mstart).cfa, UNWIND_CFA_END);
		cfi_free(c);
	}
}
