/*
 * x86-64. Every arch_*.h defines
 *
 *	ARCH_REGS, ARCH_REG_FP, ARCH_REG_SP	registers by DWARF number
 *	ARCH_GREGS, ARCH_GREG_SP, ARCH_GREG_PC	of the context that the kernel pushes for a signal
 *	ARCH_GREGS_READ			how many of them are read at once; a divisor
 *	ARCH_SIGNAL_REGS			where it stands from the sp that the handler returns to
 *	ARCH_USER_END				first address that is nobody's
 *	ARCH_HAS_LR				a return address can be in the link register
 *	arch_signal_regs(to, gregs)		from a signal's context to DWARF order
 *	arch_strip(pc, mask)			a code pointer without what is no address
 *
 * and for the kernel programs, by struct pt_regs of vmlinux.h; macros, because regs may be the program's
 * context, which no pointer may stand for:
 *
 *	ARCH_COPY_REGS(to, regs)	DWARF order
 *	ARCH_PC(regs)
 *	ARCH_IS_USER(regs)		user code was interrupted
 *	ARCH_IS_64(regs)		user code is 64-bit
 *	arch_in_call(copy, regs)	the copy of the task's saved registers is of a system call
 *	arch_code_mask(task)		mask of arch_strip
 */
#ifndef AGENT_BPF_ARCH_X86_H
#define AGENT_BPF_ARCH_X86_H

#define ARCH_USER_END 0x00007ffffffff000ULL

enum {
	ARCH_REGS = 16, /* rax rdx rcx rbx rsi rdi rbp rsp r8..r15 */
	ARCH_REG_FP = 6,
	ARCH_REG_SP = 7,
	ARCH_GREGS = 17, /* r8..r15 rdi rsi rbp rbx rdx rax rcx rsp rip */
	ARCH_GREGS_READ = 17,
	ARCH_GREG_SP = 15,
	ARCH_GREG_PC = 16,
	ARCH_SIGNAL_REGS = 40, /* uc_mcontext.gregs in struct ucontext, which sp points to */
	ARCH_HAS_LR = 0,
	ARCH_REG_LR = 0,
};

static inline void arch_signal_regs(__u64 *to, const __u64 *g)
{
	for (int i = 0; i < 8; i++)
		to[8 + i] = g[i];
	to[5] = g[8];
	to[4] = g[9];
	to[6] = g[10];
	to[3] = g[11];
	to[1] = g[12];
	to[0] = g[13];
	to[2] = g[14];
	to[7] = g[15];
}

static inline __u64 arch_strip(__u64 pc, __u64 mask)
{
	(void)mask; /* all bits are address */
	return pc;
}

#ifdef __bpf__
#define ARCH_COPY_REGS(to, regs)       \
	do {                           \
		(to)[0] = (regs).ax;   \
		(to)[1] = (regs).dx;   \
		(to)[2] = (regs).cx;   \
		(to)[3] = (regs).bx;   \
		(to)[4] = (regs).si;   \
		(to)[5] = (regs).di;   \
		(to)[6] = (regs).bp;   \
		(to)[7] = (regs).sp;   \
		(to)[8] = (regs).r8;   \
		(to)[9] = (regs).r9;   \
		(to)[10] = (regs).r10; \
		(to)[11] = (regs).r11; \
		(to)[12] = (regs).r12; \
		(to)[13] = (regs).r13; \
		(to)[14] = (regs).r14; \
		(to)[15] = (regs).r15; \
	} while (0)
#define ARCH_PC(regs)      ((regs).ip)
#define ARCH_IS_USER(regs) (((regs).cs & 3) == 3)
/* __USER_CS; the upper bits mean something else with FRED. */
#define ARCH_IS_64(regs)   (((regs).cs & 0xffff) == 0x33)

static inline bool arch_in_call(const struct pt_regs *copy, const struct pt_regs *regs)
{
	return (long)copy->orig_ax >= 0;
}

static inline __u64 arch_code_mask(const struct task_struct *task)
{
	return ~0ULL;
}
#endif

#endif
