/*
 * One unwind step by tables: from a frame to its caller by the rule of its pc (call frame
 * information, DWARF 5 section 6.4), x86-64 and aarch64 (arch.h). Primitives: those of unwind.h and unwind_table.h, and
 *
 *	UNWIND_TEXT(s, dst, address)	0 when the byte of code at the user address was copied to dst
 *
 * WHICH ADDRESS IS LOOKED UP. A return address belongs to the call before it, which may be the last
 * instruction of its function (a noreturn callee): pc - 1. An interrupted pc and one restored from a signal
 * frame are exact. A thread in a system call stands behind its `syscall` instruction, which changes no
 * register that a CFA is made of: it is treated as a call, since it, too, can end its CFI (__restore_rt).
 *
 * WHAT IS BELIEVED
 *  1. A CFA lies above the old stack pointer and in the user half: the stack climbs, so no cycle lasts.
 *     Equal is allowed when the return address is in a register (vfork pops it, a leaf of aarch64).
 *  2. A signal frame may lead to another stack (sigaltstack), downwards, too, and so may a rule that says so
 *     (UNWIND_CFA_OTHER_STACK).
 *  3. A return address lies in the user half; 0 is the first frame.
 *  4. Where there is no rule (no CFI, generated code, broken or unbuildable tables) a frame record is
 *     followed if its return address lies in an executable mapping; else that reason ends the stack.
 *  5. Registers other than sp and fp, the link register among them, are known in interrupted frames only.
 *  6. Behind a frame record of aarch64 sp is not known: there a rule by sp gives way to the next record.
 */
#ifndef AGENT_BPF_UNWIND_CFI_H
#define AGENT_BPF_UNWIND_CFI_H

#include "agent/bpf/unwind_common.h"

/* What a rule comes to at one pc. */
struct unwind_caller {
	__u64 cfa;
	__u64 fp_offset, ra_offset; /* signed, wrap; or register numbers */
	__u32 fp, ra;               /* enum unwind_where */
};

/* Without a rule. */
static inline int unwind_fall_back(struct unwind_state *s, int reason)
{
	__u64 record[2];
	int end = unwind_read_record(s, record);

	if (end == SAMPLE_END_NO_FP)
		return reason;
	if (end != UNWIND_GO_ON)
		return end;
	if (s->process.list >= TABLE_REF_MIN) {
		end = UNWIND_FIND_MAPPING(s, record[1] - 1);
		if (end != UNWIND_GO_ON)
			return end == UNWIND_MISS ? end : reason;
	}
	unwind_to_caller(s, record);
	return UNWIND_GO_ON;
}

/* The interrupted frame's registers stand in the ucontext that the kernel has pushed. */
static inline int unwind_signal(struct unwind_state *s)
{
	const __u64 *g = s->gregs;

#pragma GCC unroll 4
	for (int i = 0; i < UNWIND_GREGS; i += ARCH_GREGS_READ)
		if (UNWIND_READ(s, s->gregs + i, ARCH_GREGS_READ * sizeof(__u64),
			    s->sp + ARCH_SIGNAL_REGS + i * sizeof(__u64)) != 0)
			return unwind_unreadable(s);
	if (!unwind_is_user(g[ARCH_GREG_PC]) || !unwind_is_user(g[ARCH_GREG_SP]))
		return SAMPLE_END_BAD_CFA;
	arch_signal_regs(s->regs, g);
	s->fp = s->regs[UNWIND_REG_FP];
	s->sp = g[ARCH_GREG_SP];
	s->pc = arch_strip(g[ARCH_GREG_PC], s->code_mask);
	s->sp_is_bound = 0;
	s->is_call = 0;
	s->regs_known = 1;
	return UNWIND_GO_ON;
}

/* UNWIND_CFA_FP_SHAPE; into counts from the row's beginning, aux is where its push is. */
static inline void unwind_fp_shape(
	struct unwind_state *s, __s64 aux, __u64 into, struct unwind_caller *c)
{
	__s64 behind_push = (__s64)into - aux;
	__u8 code = 0;

	c->ra = UNWIND_AT_CFA;
	c->ra_offset = -8ULL;
	c->fp = UNWIND_AT_CFA;
	c->fp_offset = -16ULL;
	c->cfa = s->fp + 16;
	if (aux >= 0 && behind_push <= 0) {
		c->cfa = s->sp + 8;
		c->fp = UNWIND_SAME;
	} else if (aux >= 0 && behind_push < 4) {
		c->cfa = s->sp + 16;
	} else if (!s->is_call && UNWIND_TEXT(s, &code, s->pc) == 0 && code == UNWIND_RET) {
		c->cfa = s->sp + 8;
		c->fp = UNWIND_SAME;
	}
}

static inline int unwind_deref(
	struct unwind_state *s, const struct unwind_rule *rule, struct unwind_caller *c)
{
	__u64 word;
	int end = unwind_register(s, rule->reg, &c->cfa);

	if (end != UNWIND_GO_ON)
		return end;
	if (rule->cfa == UNWIND_CFA_INDEXED)
		c->cfa = s->sp + sizeof(word) * c->cfa;
	if (UNWIND_READ(s, &word, sizeof(word), c->cfa + (__u64)(__s64)rule->cfa_offset) != 0)
		return unwind_unreadable(s);
	c->cfa = word + (__u64)(__s64)rule->aux;
	return UNWIND_GO_ON;
}

/* The rule at this pc. UNWIND_GO_ON or why the walk ends. */
static inline int unwind_apply(
	struct unwind_state *s, const struct unwind_rule *rule, __u64 into, struct unwind_caller *c)
{
	int end;

	c->fp = rule->fp;
	c->ra = rule->ra;
	c->fp_offset = (__u64)(__s64)rule->fp_offset;
	c->ra_offset = (__u64)(__s64)rule->ra_offset;
	if (ARCH_HAS_LR && c->fp == UNWIND_AT_BASE) {
		c->fp = UNWIND_AT_CFA;
		c->fp_offset -= (__u64)(__s64)rule->cfa_offset;
	}
	if (ARCH_HAS_LR && c->ra == UNWIND_AT_BASE) {
		c->ra = UNWIND_AT_CFA;
		c->ra_offset -= (__u64)(__s64)rule->cfa_offset;
	}
	switch (rule->cfa) {
	case UNWIND_CFA_SP:
		c->cfa = s->sp + (__u64)(__s64)rule->cfa_offset;
		return UNWIND_GO_ON;
	case UNWIND_CFA_OTHER_STACK:
	case UNWIND_CFA_FP:
		c->cfa = s->fp + (__u64)(__s64)rule->cfa_offset;
		return UNWIND_GO_ON;
	case UNWIND_CFA_REG:
		end = unwind_register(s, rule->reg, &c->cfa);
		c->cfa += (__u64)(__s64)rule->cfa_offset;
		return end;
	case UNWIND_CFA_DEREF:
	case UNWIND_CFA_INDEXED:
		return unwind_deref(s, rule, c);
	case UNWIND_CFA_FP_SHAPE:
		unwind_fp_shape(s, rule->aux, into, c);
		return UNWIND_GO_ON;
	case UNWIND_CFA_PLT:
		c->cfa = s->sp + 8 + ((__s64)(s->pc & 15) >= rule->aux ? 8 : 0);
		c->fp = UNWIND_SAME;
		c->ra = UNWIND_AT_CFA;
		c->ra_offset = -8ULL;
		return UNWIND_GO_ON;
	case UNWIND_CFA_UNSUPPORTED:
		return SAMPLE_END_UNSUPPORTED;
	default:
		return SAMPLE_END_BROKEN_CFI;
	}
}

/* What the caller's frame pointer was: UNWIND_GO_ON or why the walk ends. */
static inline int unwind_caller_fp(
	struct unwind_state *s, const struct unwind_caller *c, __u64 *ret)
{
	__u64 at;

	*ret = s->fp;
	if (c->fp == UNWIND_SAME)
		return UNWIND_GO_ON;
	if (c->fp == UNWIND_IN_REG)
		return unwind_register(s, c->fp_offset, ret);
	if (c->fp != UNWIND_AT_CFA && c->fp != UNWIND_AT_FP) {
		*ret = UNWIND_FP_GONE;
		return UNWIND_GO_ON;
	}
	at = (c->fp == UNWIND_AT_FP ? s->fp : c->cfa) + c->fp_offset;
	return UNWIND_READ(s, ret, sizeof(*ret), at) == 0 ? UNWIND_GO_ON : unwind_unreadable(s);
}

static inline int unwind_caller_pc(
	struct unwind_state *s, const struct unwind_caller *c, __u64 *ret)
{
	int end;

	if (c->ra == UNWIND_AT_CFA) {
		if (UNWIND_READ(s, ret, sizeof(*ret), c->cfa + c->ra_offset) != 0)
			return unwind_unreadable(s);
	} else if (c->ra == UNWIND_IN_REG) {
		end = unwind_register(s, c->ra_offset, ret);
		if (end != UNWIND_GO_ON)
			return end;
	} else if (ARCH_HAS_LR && s->regs_known) {
		*ret = s->regs[ARCH_REG_LR];
	} else {
		return SAMPLE_END_BROKEN_CFI;
	}
	*ret = arch_strip(*ret, s->code_mask);
	if (*ret == 0)
		return SAMPLE_END_ROOT;
	return unwind_is_user(*ret) ? UNWIND_GO_ON : SAMPLE_END_BAD_CFA;
}

static inline int unwind_follow(struct unwind_state *s, const struct unwind_caller *c)
{
	__u64 pc = 0, fp = 0;
	int end;

	if ((c->cfa < s->sp && s->rule.cfa != UNWIND_CFA_OTHER_STACK) || !unwind_is_user(c->cfa) ||
		(c->cfa == s->sp && c->ra == UNWIND_AT_CFA))
		return SAMPLE_END_BAD_CFA;
	/* The saved fp lies below the return address: one copy of the stack has both. */
	end = unwind_caller_fp(s, c, &fp);
	if (end != UNWIND_GO_ON)
		return end;
	end = unwind_caller_pc(s, c, &pc);
	if (end != UNWIND_GO_ON)
		return end;
	s->pc = pc;
	s->sp = c->cfa;
	s->fp = fp;
	s->is_call = 1;
	s->regs_known = 0;
	s->sp_is_bound = 0;
	return UNWIND_GO_ON;
}

/* By s->rule, which was found for this frame. */
static inline int unwind_by_rule(struct unwind_state *s)
{
	const struct unwind_rule *rule = &s->rule;
	struct unwind_caller c = {};
	int end;

	if (unwind_is_common(rule))
		return unwind_by_common_rule(s, rule);
	if (rule->cfa == UNWIND_CFA_END)
		return SAMPLE_END_ROOT;
	if (rule->cfa == UNWIND_CFA_SIGNAL)
		return unwind_signal(s);
	end = unwind_apply(s, rule, s->into, &c);
	return end == UNWIND_GO_ON ? unwind_follow(s, &c) : end;
}

/* The three parts of a step; see UNWIND_FIND_MAPPING. */
#ifndef UNWIND_FIND_RULE
#define UNWIND_FIND_RULE(s, at)     unwind_find_rule(s, at)
#define UNWIND_BY_RULE(s)           unwind_by_rule(s)
#define UNWIND_FALL_BACK(s, reason) unwind_fall_back(s, reason)
#endif

/* From a frame to its caller: UNWIND_GO_ON with *s the caller's, UNWIND_MISS, or the enum sample_end. */
static inline int unwind_step_cfi(struct unwind_state *s)
{
	int end;

	if (s->process.list < TABLE_REF_MIN)
		return UNWIND_FALL_BACK(s, SAMPLE_END_NO_FP);
	end = UNWIND_FIND_RULE(s, s->is_call ? s->pc - 1 : s->pc);
	if (end == UNWIND_MISS)
		return end;
	if (end == UNWIND_GO_ON && s->rule.cfa == UNWIND_CFA_NONE)
		end = SAMPLE_END_NO_CFI;
	if (end != UNWIND_GO_ON)
		return UNWIND_FALL_BACK(s, end);
	if (s->sp_is_bound && s->rule.cfa != UNWIND_CFA_FP && s->rule.cfa != UNWIND_CFA_END &&
		s->rule.cfa != UNWIND_CFA_SIGNAL)
		return UNWIND_FALL_BACK(s, SAMPLE_END_UNSUPPORTED);
	return UNWIND_BY_RULE(s);
}

#endif
