/*
 * The call frame instructions of DWARF 5, section 6.4.2. Only what is said about the CFA, the frame
 * pointer and the return address is kept; the rest is decoded and dropped.
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_ADVANCE_LOC = 0x40, /* these three keep an operand in the low six bits */
	CFI_OFFSET = 0x80,
	CFI_RESTORE = 0xc0,
	CFI_NOP = 0x00,
	CFI_SET_LOC = 0x01,
	CFI_ADVANCE_LOC1 = 0x02,
	CFI_ADVANCE_LOC2 = 0x03,
	CFI_ADVANCE_LOC4 = 0x04,
	CFI_OFFSET_EXTENDED = 0x05,
	CFI_RESTORE_EXTENDED = 0x06,
	CFI_UNDEFINED_REG = 0x07,
	CFI_SAME_VALUE = 0x08,
	CFI_REGISTER = 0x09,
	CFI_REMEMBER_STATE = 0x0a,
	CFI_RESTORE_STATE = 0x0b,
	CFI_DEF_CFA = 0x0c,
	CFI_DEF_CFA_REGISTER = 0x0d,
	CFI_DEF_CFA_OFFSET = 0x0e,
	CFI_DEF_CFA_EXPRESSION = 0x0f,
	CFI_EXPRESSION = 0x10,
	CFI_OFFSET_EXTENDED_SF = 0x11,
	CFI_DEF_CFA_SF = 0x12,
	CFI_DEF_CFA_OFFSET_SF = 0x13,
	CFI_VAL_OFFSET = 0x14,
	CFI_VAL_OFFSET_SF = 0x15,
	CFI_VAL_EXPRESSION = 0x16,
	CFI_NEGATE_RA_STATE_WITH_PC = 0x2c, /* aarch64 */
	CFI_NEGATE_RA_STATE = 0x2d,         /* aarch64 */
	CFI_GNU_ARGS_SIZE = 0x2e,
	CFI_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

void cfi_program_init(struct cfi_program *p, const struct cfi *c, const struct cfi_cie *cie,
	struct cursor code, uint64_t code_vaddr)
{
	p->code = code;
	p->c = c;
	p->cie = cie;
	p->code_vaddr = code_vaddr;
	p->code_start = code.pos;
	p->fp = c->arch == CFI_X86_64 ? CFI_X86_FP : CFI_ARM_FP;
	p->pc = 0;
	p->next = 0;
	p->state = cie->initial;
	p->depth = 0;
}

static struct cfi_place *cfi_program_place(struct cfi_program *p, uint64_t reg)
{
	if (reg == p->fp)
		return &p->state.fp;
	return reg == p->cie->ra ? &p->state.ra : NULL;
}

static void cfi_program_set(struct cfi_program *p, uint64_t reg, enum cfi_how how, int64_t offset)
{
	struct cfi_place *place = cfi_program_place(p, reg);

	if (place)
		*place = (struct cfi_place){.how = (uint8_t)how, .offset = offset};
}

static int64_t cfi_program_factored(struct cfi_program *p, int64_t v)
{
	int64_t product = 0;

	if (__builtin_mul_overflow(v, p->cie->data_align, &product))
		cursor_fail(&p->code);
	return product;
}

/* An unsigned operand that has to be a number we can calculate with. */
static int64_t cfi_program_unsigned(struct cfi_program *p)
{
	uint64_t v = cursor_varint(&p->code);

	if (v > INT64_MAX)
		cursor_fail(&p->code);
	return (int64_t)v;
}

static void cfi_program_restore(struct cfi_program *p, uint64_t reg)
{
	struct cfi_place *place = cfi_program_place(p, reg);

	if (place)
		*place = reg == p->fp ? p->cie->initial.fp : p->cie->initial.ra;
}

static void cfi_program_cfa(struct cfi_program *p, uint64_t reg, int64_t offset)
{
	p->state.cfa = CFI_CFA_REG;
	p->state.cfa_reg = reg;
	p->state.cfa_offset = offset;
}

/* For what changes one half of "register + offset". */
static void cfi_program_need_cfa_reg(struct cfi_program *p)
{
	if (p->state.cfa != CFI_CFA_REG)
		cursor_fail(&p->code);
}

static void cfi_program_stack(struct cfi_program *p, bool is_push)
{
	if (is_push ? p->depth == CFI_STATES_MAX : p->depth == 0)
		cursor_fail(&p->code);
	else if (is_push)
		p->stack[p->depth++] = p->state;
	else
		p->state = p->stack[--p->depth];
}

static void cfi_program_expression(struct cfi_program *p, uint8_t op)
{
	uint64_t reg = op == CFI_DEF_CFA_EXPRESSION ? 0 : cursor_varint(&p->code);
	struct cursor code = cursor_sub(&p->code, cursor_varint(&p->code));
	struct cfi_place *place = cfi_program_place(p, reg);

	if (op == CFI_DEF_CFA_EXPRESSION)
		cfi_expression_cfa(code, &p->state);
	else if (place && op == CFI_EXPRESSION)
		cfi_expression_place(code, place);
	else if (place)
		*place = (struct cfi_place){.how = CFI_OTHER};
}

static void cfi_program_cfa_op(struct cfi_program *p, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case CFI_DEF_CFA:
		reg = cursor_varint(&p->code);
		cfi_program_cfa(p, reg, cfi_program_unsigned(p));
		break;
	case CFI_DEF_CFA_SF:
		reg = cursor_varint(&p->code);
		cfi_program_cfa(p, reg, cfi_program_factored(p, cfi_sleb(&p->code)));
		break;
	case CFI_DEF_CFA_REGISTER:
		cfi_program_need_cfa_reg(p);
		p->state.cfa_reg = cursor_varint(&p->code);
		break;
	case CFI_DEF_CFA_OFFSET:
		cfi_program_need_cfa_reg(p);
		p->state.cfa_offset = cfi_program_unsigned(p);
		break;
	default: /* CFI_DEF_CFA_OFFSET_SF */
		cfi_program_need_cfa_reg(p);
		p->state.cfa_offset = cfi_program_factored(p, cfi_sleb(&p->code));
	}
}

static void cfi_program_register_op(struct cfi_program *p, uint8_t op)
{
	uint64_t reg = cursor_varint(&p->code);
	struct cfi_place *place = cfi_program_place(p, reg);
	uint64_t other;

	switch (op) {
	case CFI_OFFSET_EXTENDED:
		cfi_program_set(
			p, reg, CFI_AT_CFA, cfi_program_factored(p, cfi_program_unsigned(p)));
		break;
	case CFI_OFFSET_EXTENDED_SF:
		cfi_program_set(p, reg, CFI_AT_CFA, cfi_program_factored(p, cfi_sleb(&p->code)));
		break;
	case CFI_GNU_NEGATIVE_OFFSET_EXTENDED:
		cfi_program_set(
			p, reg, CFI_AT_CFA, -cfi_program_factored(p, cfi_program_unsigned(p)));
		break;
	case CFI_RESTORE_EXTENDED:
		cfi_program_restore(p, reg);
		break;
	case CFI_UNDEFINED_REG:
		cfi_program_set(p, reg, CFI_UNDEFINED, 0);
		break;
	case CFI_SAME_VALUE:
		cfi_program_set(p, reg, CFI_SAME, 0);
		break;
	case CFI_REGISTER:
		other = cursor_varint(&p->code);
		if (place)
			*place = (struct cfi_place){.how = CFI_IN_REG, .reg = other};
		break;
	case CFI_VAL_OFFSET:
		(void)cursor_varint(&p->code);
		cfi_program_set(p, reg, CFI_OTHER, 0);
		break;
	default: /* CFI_VAL_OFFSET_SF */
		(void)cfi_sleb(&p->code);
		cfi_program_set(p, reg, CFI_OTHER, 0);
	}
}

/* The location behind an instruction that moves it. */
static void cfi_program_move(struct cfi_program *p, uint8_t op)
{
	uint64_t delta = 0;

	switch (op) {
	case CFI_SET_LOC:
		p->next = cfi_pointer(p->c, &p->code, p->cie->encoding,
			p->code_vaddr + (uint64_t)(p->code.pos - p->code_start));
		if (p->next < p->pc)
			cursor_fail(&p->code);
		return;
	case CFI_ADVANCE_LOC1:
		delta = cursor_u8(&p->code);
		break;
	case CFI_ADVANCE_LOC2:
		delta = cursor_u16(&p->code);
		break;
	case CFI_ADVANCE_LOC4:
		delta = cursor_u32(&p->code);
		break;
	default:
		delta = op & 0x3f;
	}
	if (__builtin_mul_overflow(delta, p->cie->code_align, &delta) ||
		__builtin_add_overflow(p->pc, delta, &p->next))
		cursor_fail(&p->code);
}

/* 1 if the location moved, 0 if not. */
static int cfi_program_one(struct cfi_program *p)
{
	uint8_t op = cursor_u8(&p->code);

	if ((op & 0xc0) == CFI_OFFSET) {
		cfi_program_set(
			p, op & 0x3f, CFI_AT_CFA, cfi_program_factored(p, cfi_program_unsigned(p)));
	} else if ((op & 0xc0) == CFI_RESTORE) {
		cfi_program_restore(p, op & 0x3f);
	} else if ((op & 0xc0) == CFI_ADVANCE_LOC ||
		   (op >= CFI_SET_LOC && op <= CFI_ADVANCE_LOC4)) {
		cfi_program_move(p, op);
		return 1;
	} else if (op == CFI_REMEMBER_STATE || op == CFI_RESTORE_STATE) {
		cfi_program_stack(p, op == CFI_REMEMBER_STATE);
	} else if (op == CFI_DEF_CFA_EXPRESSION || op == CFI_EXPRESSION ||
		   op == CFI_VAL_EXPRESSION) {
		cfi_program_expression(p, op);
	} else if ((op >= CFI_DEF_CFA && op <= CFI_DEF_CFA_OFFSET) || op == CFI_DEF_CFA_SF ||
		   op == CFI_DEF_CFA_OFFSET_SF) {
		cfi_program_cfa_op(p, op);
	} else if ((op >= CFI_OFFSET_EXTENDED && op <= CFI_REGISTER) ||
		   (op >= CFI_OFFSET_EXTENDED_SF && op <= CFI_VAL_OFFSET_SF) ||
		   op == CFI_GNU_NEGATIVE_OFFSET_EXTENDED) {
		cfi_program_register_op(p, op);
	} else if (op == CFI_GNU_ARGS_SIZE) {
		(void)cursor_varint(&p->code); /* for exceptions only */
	} else if (op != CFI_NOP &&
		   !(p->c->arch == CFI_AARCH64 &&
			   (op == CFI_NEGATE_RA_STATE || op == CFI_NEGATE_RA_STATE_WITH_PC))) {
		cursor_fail(&p->code); /* signed or not, a return address stands at its place */
	}
	return 0;
}

int cfi_program_step(struct cfi_program *p, uint64_t *count)
{
	p->pc = p->next;
	while (cursor_left(&p->code) > 0) {
		if (++*count > CFI_INSTRUCTIONS_MAX)
			return -ENOBUFS;
		int moved = cfi_program_one(p);

		if (cursor_error(&p->code))
			return -EBADMSG;
		if (moved)
			return 1;
	}
	return cursor_error(&p->code) ? -EBADMSG : 0;
}
