/*
 * aarch64; what the names mean stands in arch_x86.h. A return address may be in the link register, x30, and with
 * pointer authentication (Arm ARM, D8.10) the bits of a code pointer above the address space hold a signature;
 * they are cut off by the size of the task's address space. Bit 55 tells kernel from user addresses: the former stay
 * as they are, and nobody takes them for user code.
 */
#ifndef AGENT_BPF_ARCH_ARM64_H
#define AGENT_BPF_ARCH_ARM64_H

#define ARCH_USER_END (1ULL << 52)

enum {
	ARCH_REGS = 32, /* x0..x30 sp */
	ARCH_REG_FP = 29,
	ARCH_REG_LR = 30,
	ARCH_REG_SP = 31,
	ARCH_GREGS = 33,      /* x0..x30 sp pc */
	ARCH_GREGS_READ = 11, /* more would be too much for the 512 bytes of a program's stack */
	ARCH_GREG_SP = 31,
	ARCH_GREG_PC = 32,
	/* sp points to siginfo (128 bytes), then ucontext (176 up to its mcontext), then fault_address. */
	ARCH_SIGNAL_REGS = 312,
	ARCH_HAS_LR = 1,
};

static inline void arch_signal_regs(__u64 *to, const __u64 *g)
{
	for (int i = 0; i < ARCH_REGS; i++)
		to[i] = g[i];
}

static inline __u64 arch_strip(__u64 pc, __u64 mask)
{
	return pc & (1ULL << 55) ? pc : pc & mask;
}

#ifdef __bpf__
/* The barrier keeps clang from loading all before it stores any: what does not fit into registers lies on the stack. */
#define ARCH_COPY_4(to, r, i)                      \
	do {                                       \
		(to)[i] = (r).regs[i];             \
		(to)[(i) + 1] = (r).regs[(i) + 1]; \
		(to)[(i) + 2] = (r).regs[(i) + 2]; \
		(to)[(i) + 3] = (r).regs[(i) + 3]; \
		barrier();                         \
	} while (0)
#define ARCH_COPY_REGS(to, r)            \
	do {                             \
		ARCH_COPY_4(to, r, 0);   \
		ARCH_COPY_4(to, r, 4);   \
		ARCH_COPY_4(to, r, 8);   \
		ARCH_COPY_4(to, r, 12);  \
		ARCH_COPY_4(to, r, 16);  \
		ARCH_COPY_4(to, r, 20);  \
		ARCH_COPY_4(to, r, 24);  \
		(to)[28] = (r).regs[28]; \
		(to)[29] = (r).regs[29]; \
		(to)[30] = (r).regs[30]; \
		(to)[31] = (r).sp;       \
	} while (0)
#define ARCH_PC(regs)      ((regs).pc)
/* PSR_MODE_MASK; EL0t is 0. */
#define ARCH_IS_USER(regs) (((regs).pstate & 0xf) == 0)
/* PSR_MODE32_BIT */
#define ARCH_IS_64(regs)   (((regs).pstate & 0x10) == 0)

static __always_inline bool arch_in_call(const struct pt_regs *copy, const struct pt_regs *regs)
{
	const struct pt_regs___kernel *k = (const struct pt_regs___kernel *)regs;

	return BPF_CORE_READ(k, syscallno) >= 0; /* NO_SYSCALL is -1 */
}

static __always_inline __u64 arch_code_mask(const struct task_struct *task)
{
	return BPF_CORE_READ(task, mm, task_size) - 1;
}
#endif

#endif
