/*
 * The rules that most frames have, in one straight line. Everything else is unwind_cfi.h, whose header says
 * what is believed; the same holds here.
 */
#ifndef AGENT_BPF_UNWIND_COMMON_H
#define AGENT_BPF_UNWIND_COMMON_H

#include "agent/bpf/unwind_table.h"

enum {
	UNWIND_REG_FP = ARCH_REG_FP,
	UNWIND_REG_SP = ARCH_REG_SP,
	UNWIND_RET = 0xc3,
	UNWIND_FP_GONE = 1, /* no frame record: unaligned */
};

static inline int unwind_unreadable(const struct unwind_state *s)
{
	return s->is_short ? SAMPLE_END_SHORT_COPY : SAMPLE_END_UNREADABLE;
}

/* sp, fp, or another register if it is known. UNWIND_GO_ON, or SAMPLE_END_UNSUPPORTED. */
static inline int unwind_register(const struct unwind_state *s, __u64 number, __u64 *ret)
{
	if (number == UNWIND_REG_SP) {
		*ret = s->sp;
		return UNWIND_GO_ON;
	}
	if (number == UNWIND_REG_FP) {
		*ret = s->fp;
		return UNWIND_GO_ON;
	}
	if (!s->regs_known || number >= UNWIND_REGS)
		return SAMPLE_END_UNSUPPORTED;
	UNWIND_HIDE(number); /* else clang leaves out the mask, which the verifier of 6.1 wants */
	*ret = s->regs[number & (UNWIND_REGS - 1)];
	return UNWIND_GO_ON;
}

_Static_assert((UNWIND_CFA_SP ^ UNWIND_CFA_FP) == 1, "unwind_is_common");
_Static_assert(UNWIND_SAME == 0 && UNWIND_AT_CFA == 1, "unwind_is_common");

/* Most rules: the CFA by sp or fp, the return address in memory, the caller's fp there or unchanged. */
static inline int unwind_is_common(const struct unwind_rule *rule)
{
	return (((rule->cfa ^ UNWIND_CFA_SP) & ~1) | (rule->fp & ~1) |
		       (rule->ra ^ UNWIND_AT_CFA)) == 0;
}

/*
 * As unwind_apply() and unwind_follow() would, but without a branch on which of them it is, since that is another one
 * from frame to frame and no processor foresees it. A fp that is not in memory is read from the return address's place.
 */
static inline int unwind_by_common_rule(struct unwind_state *s, const struct unwind_rule *rule)
{
	__u64 by_fp = 0 - (__u64)(rule->cfa & 1), is_saved = 0 - (__u64)(rule->fp & 1);
	__u64 cfa, pc_at, fp_at, fp = 0, pc = 0;

	UNWIND_HIDE(by_fp);
	UNWIND_HIDE(is_saved);
	cfa = (s->sp ^ ((s->sp ^ s->fp) & by_fp)) + (__u64)(__s64)rule->cfa_offset;
	if (cfa <= s->sp || cfa >= UNWIND_USER_END)
		return SAMPLE_END_BAD_CFA;
	pc_at = cfa + (__u64)(__s64)rule->ra_offset;
	fp_at = pc_at + ((__u64)((__s64)rule->fp_offset - rule->ra_offset) & is_saved);
	if (UNWIND_READ(s, &fp, sizeof(fp), fp_at) != 0 ||
		UNWIND_READ(s, &pc, sizeof(pc), pc_at) != 0)
		return unwind_unreadable(s);
	pc = arch_strip(pc, s->code_mask);
	if (pc == 0)
		return SAMPLE_END_ROOT;
	if (!unwind_is_user(pc))
		return SAMPLE_END_BAD_CFA;
	s->fp ^= (s->fp ^ fp) & is_saved;
	s->pc = pc;
	s->sp = cfa;
	s->is_call = 1;
	s->regs_known = 0;
	s->sp_is_bound = 0;
	return UNWIND_GO_ON;
}

#endif
