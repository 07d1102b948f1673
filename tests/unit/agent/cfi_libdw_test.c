/*
 * cfi: every row of installed libraries says the same as libdw. Both are evaluated over the same made-up
 * registers and memory (each address holds a number made of it), at the first byte of each of libdw's
 * rows as an interrupted pc, and at its last byte as a return address minus one.
 *
 * What may differ, and is counted apart:
 *	popped	the fp behind its pop: libdw reads the slot below sp, whose value is what the fp holds
 *	padding	the nops behind a ret, which the function's rule covers
 *	unsupported	expressions that cfi.h does not know (libcrypto's multi-block SHA)
 */
#include <criterion/criterion.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <glob.h>
#include <inttypes.h>

#include "agent/cfi.h"
#include "base/def.h"

enum { REGS = 17, FP = 6, SP = 7, RA = 16, LISTED_MAX = 20 };

struct frame {
	bool is_end, is_unsupported, fp_is_gone, is_popped;
	uint64_t cfa, fp, ra;
};

struct counts {
	uint64_t tested, popped, padding, unsupported, different, gaps, shapes;
};

struct both {
	const char *path;
	int fd;
	struct cfi *c;
	struct cfi_chunk *chunk;
	uint64_t index; /* of chunk; UINT64_MAX: none */
	Elf *elf;
	Dwarf_CFI *dw;
	uint8_t *text;
	uint64_t text_vaddr, text_size;
	struct counts n;
};

/* Memory: sums of addresses never meet by chance. */
static uint64_t word_at(uint64_t address)
{
	uint64_t x = address * 0x9e3779b97f4a7c15ULL;

	return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ULL;
}

static uint64_t reg(uint64_t number)
{
	return number == SP ? 0x7ffc00001000 : word_at(0xabcdef + 64 * number) >> 8;
}

/* What DWARF operations come to; false: one that is not known here. */
static bool evaluate(
	const Dwarf_Op *ops, size_t n, uint64_t pc, uint64_t cfa, uint64_t *ret, bool *is_value)
{
	uint64_t stack[16] = {0};
	size_t d = 0;

	*is_value = false;
	for (size_t i = 0; i < n; i++) {
		const Dwarf_Op *o = &ops[i];
		uint64_t top = d > 0 ? stack[d - 1] : 0;
		uint64_t below = d > 1 ? stack[d - 2] : 0;

		if (d == ARRAY_SIZE(stack) - 1)
			return false;
		if (o->atom >= DW_OP_breg0 && o->atom <= DW_OP_breg31) {
			uint64_t r = o->atom - DW_OP_breg0;

			stack[d++] = (r == RA ? pc : reg(r)) + o->number;
		} else if (o->atom == DW_OP_bregx) {
			stack[d++] = reg(o->number) + o->number2;
		} else if (o->atom == DW_OP_regx) {
			stack[d++] = reg(o->number);
			*is_value = true;
		} else if (o->atom >= DW_OP_reg0 && o->atom <= DW_OP_reg31) {
			stack[d++] = reg(o->atom - DW_OP_reg0);
			*is_value = true;
		} else if (o->atom >= DW_OP_lit0 && o->atom <= DW_OP_lit31) {
			stack[d++] = o->atom - DW_OP_lit0;
		} else if (o->atom == DW_OP_call_frame_cfa) {
			stack[d++] = cfa;
		} else if (o->atom == DW_OP_plus_uconst) {
			stack[d - 1] = top + o->number;
		} else if (o->atom == DW_OP_deref) {
			stack[d - 1] = word_at(top);
		} else if (o->atom == DW_OP_stack_value) {
			*is_value = true;
		} else if (o->atom == DW_OP_and) {
			stack[--d - 1] = below & top;
		} else if (o->atom == DW_OP_plus) {
			stack[--d - 1] = below + top;
		} else if (o->atom == DW_OP_mul) {
			stack[--d - 1] = below * top;
		} else if (o->atom == DW_OP_shl) {
			stack[--d - 1] = below << top;
		} else if (o->atom == DW_OP_ge) {
			stack[--d - 1] = (int64_t)below >= (int64_t)top;
		} else {
			cr_log_error("operation 0x%x at 0x%" PRIx64, o->atom, pc);
			return false;
		}
	}
	*ret = d > 0 ? stack[d - 1]
		     : 0; /* below it may stand the CFA, which DW_CFA_expression pushes */
	return d > 0;
}

/* A register of the caller by libdw; false: undefined. */
static bool libdw_register(
	Dwarf_Frame *f, int number, uint64_t pc, struct frame *ret, uint64_t *value)
{
	Dwarf_Op memory[3];
	Dwarf_Op *ops;
	size_t n;
	bool is_value;

	cr_assert_eq(dwarf_frame_register(f, number, memory, &ops, &n), 0);
	if (n == 0 && ops == memory)
		return false;
	if (n == 0) {
		*value = reg((uint64_t)number);
		return true;
	}
	cr_assert(evaluate(ops, n, pc, ret->cfa, value, &is_value));
	if (!is_value) {
		ret->is_popped |= number == FP && *value < reg(SP) && *value + 256 > reg(SP);
		*value = word_at(*value);
	}
	return true;
}

static struct frame by_libdw(Dwarf_Frame *f, uint64_t pc)
{
	struct frame ret = {0};
	Dwarf_Op *ops;
	size_t n;
	bool is_value;

	if (dwarf_frame_cfa(f, &ops, &n) != 0 || n == 0) {
		ret.is_end = true; /* libdw gives no CFA where there is no caller */
		return ret;
	}
	cr_assert(evaluate(ops, n, pc, 0, &ret.cfa, &is_value), "operations of a CFA at 0x%" PRIx64,
		pc);
	ret.fp_is_gone = !libdw_register(f, FP, pc, &ret, &ret.fp);
	ret.is_end = !libdw_register(f, RA, pc, &ret, &ret.ra);
	return ret;
}

static uint8_t text_at(const struct both *b, uint64_t pc)
{
	return pc - b->text_vaddr < b->text_size ? b->text[pc - b->text_vaddr] : 0;
}

/* The rule that covers pc, as the kernel's programs find it; *into counts from its row. */
static struct unwind_rule rule_at(struct both *b, uint64_t pc, uint64_t *into)
{
	uint64_t offset = pc & ((1 << TABLE_CHUNK_SHIFT) - 1);
	size_t low = 0;

	if (b->index != pc >> TABLE_CHUNK_SHIFT) {
		b->index = pc >> TABLE_CHUNK_SHIFT;
		cr_assert_eq(cfi_compile(b->c, b->index, b->chunk), 0, "%s chunk %" PRIu64, b->path,
			b->index);
	}
	*into = 0;
	if (b->chunk->row_count == 0)
		return (struct unwind_rule){.cfa = UNWIND_CFA_NONE};
	for (size_t step = TABLE_ROWS_MAX; step > 0; step /= 2) {
		if (low + step < b->chunk->row_count && b->chunk->rows[low + step].offset <= offset)
			low += step;
	}
	*into = offset - b->chunk->rows[low].offset;
	return b->chunk->rules[b->chunk->rows[low].rule];
}

static void shape(
	const struct both *b, struct unwind_rule *r, uint64_t pc, uint64_t into, bool is_call)
{
	int64_t behind = (int64_t)into - r->aux;

	r->cfa = UNWIND_CFA_FP;
	if (r->aux >= 0 && behind < 4) {
		r->cfa = UNWIND_CFA_SP;
		r->cfa_offset = behind <= 0 ? 8 : 16;
	} else if (!is_call && text_at(b, pc) == 0xc3) {
		r->cfa = UNWIND_CFA_SP;
		r->cfa_offset = 8;
	}
	if (r->cfa_offset == 8) {
		r->fp = UNWIND_SAME;
		r->fp_offset = 0;
	}
}

static struct frame by_rule(
	const struct both *b, struct unwind_rule r, uint64_t pc, uint64_t into, bool is_call)
{
	struct frame ret = {0};

	if (r.cfa == UNWIND_CFA_FP_SHAPE)
		shape(b, &r, pc, into, is_call);
	ret.is_end = r.cfa == UNWIND_CFA_END;
	ret.is_unsupported = r.cfa == UNWIND_CFA_UNSUPPORTED;
	ret.fp_is_gone = r.fp == UNWIND_UNDEFINED;
	if (r.cfa == UNWIND_CFA_SIGNAL) { /* ucontext at sp, gregs at 40: rbp 10, rsp 15, rip 16 */
		ret.fp = word_at(reg(SP) + 40 + 80);
		ret.cfa = word_at(reg(SP) + 40 + 120);
		ret.ra = word_at(reg(SP) + 40 + 128);
		return ret;
	}
	if (r.cfa == UNWIND_CFA_SP)
		ret.cfa = reg(SP) + (uint64_t)(int64_t)r.cfa_offset;
	else if (r.cfa == UNWIND_CFA_FP)
		ret.cfa = reg(FP) + (uint64_t)(int64_t)r.cfa_offset;
	else if (r.cfa == UNWIND_CFA_REG)
		ret.cfa = reg(r.reg) + (uint64_t)(int64_t)r.cfa_offset;
	else if (r.cfa == UNWIND_CFA_DEREF)
		ret.cfa = word_at(reg(r.reg) + (uint64_t)(int64_t)r.cfa_offset) +
			  (uint64_t)(int64_t)r.aux;
	else if (r.cfa == UNWIND_CFA_INDEXED)
		ret.cfa = word_at(reg(SP) + 8 * reg(r.reg) + (uint64_t)(int64_t)r.cfa_offset) +
			  (uint64_t)(int64_t)r.aux;
	else if (r.cfa == UNWIND_CFA_PLT)
		ret.cfa = reg(SP) + 8 + ((int32_t)(pc & 15) >= r.aux ? 8 : 0);
	ret.fp = reg(FP);
	if (r.fp == UNWIND_AT_CFA)
		ret.fp = word_at(ret.cfa + (uint64_t)(int64_t)r.fp_offset);
	else if (r.fp == UNWIND_AT_FP)
		ret.fp = word_at(reg(FP) + (uint64_t)(int64_t)r.fp_offset);
	else if (r.fp == UNWIND_IN_REG)
		ret.fp = reg((uint64_t)r.fp_offset);
	if (r.ra == UNWIND_AT_CFA)
		ret.ra = word_at(ret.cfa + (uint64_t)(int64_t)r.ra_offset);
	else if (r.ra == UNWIND_IN_REG)
		ret.ra = reg((uint64_t)r.ra_offset);
	return ret;
}

static void compare(struct both *b, Dwarf_Frame *f, uint64_t pc, bool is_call)
{
	uint64_t into;
	struct unwind_rule r = rule_at(b, pc, &into);
	struct frame dw = by_libdw(f, pc);
	struct frame own = by_rule(b, r, pc, into, is_call);

	b->n.tested++;
	b->n.shapes += r.cfa == UNWIND_CFA_FP_SHAPE;
	if (dw.is_end && own.is_end)
		return;
	if (own.is_unsupported) {
		b->n.unsupported++;
		cr_log_warn("%s 0x%" PRIx64 ": unsupported", b->path, pc);
		return;
	}
	if (!dw.is_end && !own.is_end && r.cfa != UNWIND_CFA_NONE && dw.cfa == own.cfa &&
		dw.ra == own.ra) {
		if (dw.fp_is_gone == own.fp_is_gone && (dw.fp == own.fp || dw.fp_is_gone))
			return;
		if (dw.is_popped && own.fp == reg(FP)) {
			b->n.popped++;
			return;
		}
	}
	if (b->n.different++ < LISTED_MAX)
		cr_log_warn("%s 0x%" PRIx64
			    ": rule %d reg %d %+d fp %d %+d ra %d %+d, aux %d, differs",
			b->path, pc, r.cfa, r.reg, r.cfa_offset, r.fp, r.fp_offset, r.ra,
			r.ra_offset, r.aux);
}

/* The row of libdw that covers pc; returns where it ends. */
static uint64_t compare_row(struct both *b, uint64_t pc)
{
	Dwarf_Frame *f = NULL;
	Dwarf_Addr start, end;
	bool is_signal;
	uint64_t into;

	if (dwarf_cfi_addrframe(b->dw, pc, &f) != 0) {
		struct unwind_rule r = rule_at(b, pc, &into);

		/* Only padding may have a rule; what is longer has none, or that of a .plt. */
		b->n.gaps += r.cfa != UNWIND_CFA_NONE && r.cfa != UNWIND_CFA_PLT;
		return pc + 1;
	}
	cr_assert_geq(dwarf_frame_info(f, &start, &end, &is_signal), 0);
	cr_assert_gt(end, pc);
	compare(b, f, pc, false);
	if (end - pc > 1 && text_at(b, pc) == 0xc3 &&
		rule_at(b, pc, &into).cfa == UNWIND_CFA_FP_SHAPE)
		b->n.padding++;
	else if (end - pc > 1)
		compare(b, f, end - 1, true);
	free(f);
	return end;
}

/* Of the largest executable segment. */
static void read_text(struct both *b)
{
	GElf_Phdr p;
	size_t n = 0;
	off_t offset = 0;

	cr_assert_eq(elf_getphdrnum(b->elf, &n), 0);
	for (size_t i = 0; i < n; i++) {
		cr_assert_not_null(gelf_getphdr(b->elf, (int)i, &p));
		if (p.p_type != PT_LOAD || !(p.p_flags & PF_X) || p.p_filesz <= b->text_size)
			continue;
		b->text_vaddr = p.p_vaddr;
		b->text_size = p.p_filesz;
		offset = (off_t)p.p_offset;
	}
	b->text = malloc(b->text_size);
	cr_assert_eq(pread(b->fd, b->text, b->text_size, offset), (ssize_t)b->text_size);
}

static void agree(const char *path)
{
	struct both b = {.path = path, .index = UINT64_MAX};
	const char *why;

	b.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (b.fd < 0)
		cr_skip("%s is not installed here", path);
	(void)elf_version(EV_CURRENT); /* only the first call's value means something */
	cr_assert_eq(cfi_open(b.fd, &why, &b.c), 0, "%s", why);
	b.chunk = malloc(sizeof(*b.chunk));
	b.elf = elf_begin(b.fd, ELF_C_READ_MMAP, NULL);
	b.dw = dwarf_getcfi_elf(b.elf);
	cr_assert_not_null(b.dw);
	read_text(&b);
	for (uint64_t pc = b.text_vaddr; pc < b.text_vaddr + b.text_size;)
		pc = compare_row(&b, pc);
	(void)fprintf(stderr,
		"cfi: %s: %" PRIu64 " places, %" PRIu64 " in shapes, %" PRIu64 " popped, %" PRIu64
		" paddings, %" PRIu64 " bytes of padding, %" PRIu64 " unsupported, %" PRIu64
		" different\n",
		path, b.n.tested, b.n.shapes, b.n.popped, b.n.padding, b.n.gaps, b.n.unsupported,
		b.n.different);
	cr_expect_gt(b.n.tested, 1000);
	cr_expect_leq(1000 * (b.n.different + b.n.unsupported), b.n.tested);
	(void)dwarf_cfi_end(b.dw); /* 0, or it was NULL */
	(void)elf_end(b.elf);      /* the count of references left */
	free(b.text);
	free(b.chunk);
	cfi_free(b.c);
	(void)close(b.fd);
}

Test(cfi_libdw, agrees_on_libc)
{
	agree("/lib/x86_64-linux-gnu/libc.so.6");
}

Test(cfi_libdw, agrees_on_the_dynamic_linker)
{
	agree("/lib64/ld-linux-x86-64.so.2");
}

Test(cfi_libdw, agrees_on_libstdcxx)
{
	agree("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
}

Test(cfi_libdw, agrees_on_libcrypto)
{
	agree("/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
}

Test(cfi_libdw, agrees_on_bash)
{
	agree("/bin/bash");
}

Test(cfi_libdw, agrees_on_libpython)
{
	agree("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0");
}

/* Mostly functions of the standard shape. */
Test(cfi_libdw, agrees_on_libjvm)
{
	agree("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so");
}

/* Debian's is a library behind a program of a few functions; others' are one program. */
Test(cfi_libdw, agrees_on_node)
{
	glob_t found = {0};
	int r = glob("/usr/lib/*/libnode.so.*", 0, NULL, &found);

	agree(r == 0 ? found.gl_pathv[0] : "/usr/bin/node");
	globfree(&found);
}
