/*
 * From a state of the machine to a rule of bpf/table.h, and the few DWARF expressions (DWARF 5 section
 * 2.5) that compilers and linkers write:
 *	breg R,a			R + a
 *	breg R,a; deref [plus_uconst b]	*(R + a) + b	realigned stacks; libcrypto's switched ones
 *	breg rsp,a; breg R,0; lit8; mul; plus; deref; plus_uconst b	*(rsp + 8 * R + a) + b	libcrypto's
 *			Montgomery multiplication
 *	breg rsp,8; breg rip,0; lit15; and; lit N; ge; lit3; shl; plus		.plt of x86-64
 */
#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_OP_DEREF = 0x06,
	CFI_OP_PLUS_UCONST = 0x23,
	CFI_OP_LIT0 = 0x30,
	CFI_OP_BREG0 = 0x70,
	CFI_OP_BREG31 = 0x8f,
	CFI_OP_BREGX = 0x92,
};

/* R + a, or *(R + a) + b. False: something else. */
static bool cfi_expression_plain(struct cursor *at, struct cfi_state *ret)
{
	uint8_t op = cursor_u8(at);
	int64_t *sum = &ret->cfa_offset;

	if (op != CFI_OP_BREGX && (op < CFI_OP_BREG0 || op > CFI_OP_BREG31))
		return false;
	ret->cfa = CFI_CFA_REG;
	ret->cfa_reg = op == CFI_OP_BREGX ? cursor_varint(at) : (uint64_t)op - CFI_OP_BREG0;
	ret->cfa_offset = cfi_sleb(at);
	ret->aux = 0;
	while (cursor_left(at) > 0) {
		op = cursor_u8(at);
		if (op == CFI_OP_DEREF && ret->cfa == CFI_CFA_REG) {
			ret->cfa = CFI_CFA_DEREF;
			sum = &ret->aux;
		} else if (op == CFI_OP_PLUS_UCONST) {
			uint64_t more = cursor_varint(at);

			if (more > INT32_MAX || __builtin_add_overflow(*sum, (int64_t)more, sum))
				return false;
		} else {
			return false;
		}
	}
	return !cursor_error(at);
}

/* *(rsp + 8 * R + a) + b. */
static bool cfi_expression_indexed(struct cursor at, struct cfi_state *ret)
{
	static const uint8_t tail[] = {0x38, 0x1e, 0x22, CFI_OP_DEREF, CFI_OP_PLUS_UCONST};
	bool is_it = cursor_u8(&at) == CFI_OP_BREG0 + CFI_X86_SP;
	int64_t offset = cfi_sleb(&at);
	uint8_t op = cursor_u8(&at);

	is_it = is_it && op >= CFI_OP_BREG0 && op < CFI_OP_BREG0 + CFI_X86_RA && cfi_sleb(&at) == 0;
	for (size_t i = 0; i < ARRAY_SIZE(tail); i++)
		is_it = cursor_u8(&at) == tail[i] && is_it;
	uint64_t more = cursor_varint(&at);

	if (!is_it || cursor_error(&at) || cursor_left(&at) > 0 || more > INT32_MAX)
		return false;
	ret->cfa = CFI_CFA_INDEXED;
	ret->cfa_reg = op - CFI_OP_BREG0;
	ret->cfa_offset = offset;
	ret->aux = (int64_t)more;
	return true;
}

static bool cfi_expression_plt(const struct cursor *at, int64_t *ret)
{
	static const uint8_t plt[] = {
		0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, CFI_OP_LIT0, 0x2a, 0x33, 0x24, 0x22};

	if (cursor_left(at) != sizeof(plt) || at->pos[6] < CFI_OP_LIT0 ||
		at->pos[6] >= CFI_OP_LIT0 + 32)
		return false;
	*ret = at->pos[6] - CFI_OP_LIT0;
	return memcmp(at->pos, plt, 6) == 0 && memcmp(at->pos + 7, plt + 7, sizeof(plt) - 7) == 0;
}

void cfi_expression_cfa(struct cursor code, struct cfi_state *ret)
{
	struct cfi_state s = *ret;
	int64_t aux = 0;

	if (cfi_expression_plt(&code, &aux)) {
		ret->cfa = CFI_CFA_PLT;
		ret->aux = aux;
		return;
	}
	if (cfi_expression_indexed(code, ret))
		return;
	if (!cfi_expression_plain(&code, &s))
		s.cfa = CFI_CFA_OTHER;
	*ret = s;
}

void cfi_expression_place(struct cursor code, struct cfi_place *ret)
{
	struct cfi_state s = {0};

	if (cfi_expression_plain(&code, &s) && s.cfa == CFI_CFA_REG)
		*ret = (struct cfi_place){CFI_AT_REG, s.cfa_reg, s.cfa_offset};
	else
		*ret = (struct cfi_place){.how = CFI_OTHER};
}

/* A place relative to the register that the CFA is relative to, is one relative to the CFA. */
static struct cfi_place cfi_rule_place(const struct cfi_state *s, struct cfi_place p)
{
	if (p.how == CFI_AT_REG && s->cfa == CFI_CFA_REG && p.reg == s->cfa_reg &&
		!__builtin_sub_overflow(p.offset, s->cfa_offset, &p.offset))
		p.how = CFI_AT_CFA;
	/* The frame record of aarch64 lies at its frame's low end, in a large frame far from the CFA. */
	if (p.how == CFI_AT_CFA && s->cfa == CFI_CFA_REG && p.offset < INT16_MIN &&
		!__builtin_add_overflow(p.offset, s->cfa_offset, &p.offset))
		p.how = CFI_AT_BASE;
	if (p.how != CFI_IN_REG && (p.offset < INT16_MIN || p.offset > INT16_MAX))
		p.how = CFI_OTHER;
	if (p.how == CFI_IN_REG && p.reg > INT16_MAX)
		p.how = CFI_OTHER;
	return p;
}

static void cfi_rule_fp(uint64_t fp, const struct cfi_state *s, struct unwind_rule *ret)
{
	struct cfi_place p = cfi_rule_place(s, s->fp);

	ret->fp = UNWIND_UNDEFINED;
	if (p.how == CFI_UNSET || p.how == CFI_SAME || (p.how == CFI_IN_REG && p.reg == fp)) {
		ret->fp = UNWIND_SAME;
	} else if (p.how == CFI_AT_CFA || (p.how == CFI_AT_REG && p.reg == fp)) {
		ret->fp = p.how == CFI_AT_CFA ? UNWIND_AT_CFA : UNWIND_AT_FP;
		ret->fp_offset = (int16_t)p.offset;
	} else if (p.how == CFI_AT_BASE) {
		ret->fp = UNWIND_AT_BASE;
		ret->fp_offset = (int16_t)p.offset;
	} else if (p.how == CFI_IN_REG) {
		ret->fp = UNWIND_IN_REG;
		ret->fp_offset = (int16_t)p.reg;
	}
}

static bool cfi_rule_ra(enum cfi_arch arch, const struct cfi_cie *cie, const struct cfi_state *s,
	struct unwind_rule *ret)
{
	struct cfi_place p = cfi_rule_place(s, s->ra);
	bool has_lr = arch == CFI_AARCH64;

	if (p.how == CFI_AT_CFA) {
		ret->ra = UNWIND_AT_CFA;
		ret->ra_offset = (int16_t)p.offset;
		return true;
	}
	if (has_lr && p.how == CFI_AT_BASE) {
		ret->ra = UNWIND_AT_BASE;
		ret->ra_offset = (int16_t)p.offset;
		return true;
	}
	if (has_lr &&
		((p.how == CFI_IN_REG && p.reg == CFI_ARM_LR) ||
			((p.how == CFI_UNSET || p.how == CFI_SAME) && cie->ra == CFI_ARM_LR))) {
		ret->ra = UNWIND_SAME;
		return true;
	}
	ret->ra = UNWIND_IN_REG;
	ret->ra_offset = (int16_t)p.reg;
	return p.how == CFI_IN_REG;
}

static bool cfi_rule_cfa(enum cfi_arch arch, const struct cfi_state *s, struct unwind_rule *ret)
{
	uint64_t sp = arch == CFI_X86_64 ? CFI_X86_SP : CFI_ARM_SP;
	uint64_t fp = arch == CFI_X86_64 ? CFI_X86_FP : CFI_ARM_FP;

	if (s->cfa == CFI_CFA_UNSET || s->cfa == CFI_CFA_OTHER || s->cfa_reg > UINT8_MAX ||
		s->cfa_offset < INT32_MIN || s->cfa_offset > INT32_MAX || s->aux < INT32_MIN ||
		s->aux > INT32_MAX)
		return false;
	if (s->cfa == CFI_CFA_PLT) {
		ret->cfa = UNWIND_CFA_PLT;
		ret->aux = (int32_t)s->aux;
		return arch == CFI_X86_64;
	}
	ret->cfa_offset = (int32_t)s->cfa_offset;
	if (s->cfa == CFI_CFA_DEREF || s->cfa == CFI_CFA_INDEXED) {
		ret->cfa = s->cfa == CFI_CFA_DEREF ? UNWIND_CFA_DEREF : UNWIND_CFA_INDEXED;
		if (s->cfa == CFI_CFA_INDEXED && arch != CFI_X86_64)
			return false;
		ret->reg = (uint8_t)s->cfa_reg;
		ret->aux = (int32_t)s->aux;
	} else if (s->cfa_reg == sp || s->cfa_reg == fp) {
		ret->cfa = s->cfa_reg == sp ? UNWIND_CFA_SP : UNWIND_CFA_FP;
	} else {
		ret->cfa = UNWIND_CFA_REG;
		ret->reg = (uint8_t)s->cfa_reg;
	}
	return true;
}

void cfi_rule_of(enum cfi_arch arch, const struct cfi_cie *cie, const struct cfi_state *s,
	struct unwind_rule *ret)
{
	struct unwind_rule r = {0};

	if (cie->is_signal) {
		*ret = (struct unwind_rule){.cfa = UNWIND_CFA_SIGNAL};
		return;
	}
	if (s->ra.how == CFI_UNDEFINED) {
		*ret = (struct unwind_rule){.cfa = UNWIND_CFA_END};
		return;
	}
	cfi_rule_fp(arch == CFI_X86_64 ? CFI_X86_FP : CFI_ARM_FP, s, &r);
	if (!cfi_rule_cfa(arch, s, &r) || !cfi_rule_ra(arch, cie, s, &r))
		r = (struct unwind_rule){.cfa = UNWIND_CFA_UNSUPPORTED};
	*ret = r;
}
