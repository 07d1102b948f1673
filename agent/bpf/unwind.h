/*
 * The unwinder's state and its frame-pointer step, over primitives, so that host tests run the very
 * code that the kernel runs (STYLE 33). The step by tables is unwind_cfi.h. The includer defines
 *
 *	UNWIND_READ(s, dst, size, address)	0 when size bytes (a constant, a multiple of 8) at the
 *						user address were copied to dst; s is the state
 *
 * before including this file. State goes in and out through struct unwind_state; the driver calls
 * unwind_step() until it returns something else than UNWIND_GO_ON.
 *
 * Frame-pointer rule of x86-64 (System V ABI, figure 3.3) and aarch64 (AAPCS64, 6.4.6): at fp stands
 * the caller's fp, at fp + 8 the return address. The caller's stack pointer is fp + 16; on aarch64,
 * whose records lie anywhere in their frames, at least that. A frame record is believed when
 *  1. fp is 8-byte aligned (push stores it so; code without frame pointers uses rbp for data),
 *  2. fp lies at or above sp and not more than UNWIND_FRAME_SIZE_MAX above it,
 *  3. fp is in the user half of the address space,
 *  4. the return address is in the user half and not in the first page.
 * The chain strictly climbs: the new sp is fp + 16, so rule 2 makes the next fp larger than this
 * one, which also ends every cycle. A fp of 0 or a return address of 0 is the thread's first frame,
 * as _start and clone() set them up.
 */
#ifndef AGENT_BPF_UNWIND_H
#define AGENT_BPF_UNWIND_H

#include "agent/bpf/arch.h"
#include "agent/bpf/table.h"

#define UNWIND_USER_END       ARCH_USER_END
#define UNWIND_USER_START     0x1000ULL
#define UNWIND_FRAME_SIZE_MAX (16ULL << 20)

/* Every other outcome is an enum sample_end. */
enum {
	UNWIND_GO_ON = -1,
	UNWIND_MISS = -2, /* a table is not there; state.miss says which */
};

enum {
	UNWIND_REGS = ARCH_REGS,   /* by DWARF number */
	UNWIND_GREGS = ARCH_GREGS, /* of a signal's context */
};

struct unwind_state {
	__u64 pc, sp, fp;
	/* What follows is for the step by tables. */
	__u64 regs[UNWIND_REGS]; /* as they were when the frame at hand was interrupted */
	__u32 regs_known;        /* they are this frame's */
	__u32 is_call;           /* pc is a return address: the call itself lies before it */
	__u32 is_short;          /* memory is a copy that ends early */
	__u32 sp_is_bound; /* aarch64: the frame's sp is not known, only that it is no lower */
	__u32 now_s;       /* for slab_used */
	__u64 now_ns;      /* CLOCK_MONOTONIC */
	struct table_process process;
	struct table_mapping mapping; /* where the last pc was found; empty: start == end */
	struct unwind_rule rule;      /* at the last address that was looked up */
	__u64 into;                   /* how far behind its row's beginning that lies */
	struct table_miss miss;       /* miss.process is the key, filled before the walk */
	__u32 ask;                    /* nobody has said this miss before */
	__u64 code_mask;              /* of arch_strip() */
	__u64 gregs[UNWIND_GREGS];    /* scratch of the step over a signal frame */
};

static inline int unwind_is_user(__u64 address)
{
	return address >= UNWIND_USER_START && address < UNWIND_USER_END;
}

/* Reads the frame record at fp and judges it; ret gets the caller's fp and the return address. */
static inline int unwind_read_record(struct unwind_state *s, __u64 ret[2])
{
	if (s->fp == 0)
		return SAMPLE_END_ROOT;
	if ((s->fp & 7) != 0 || s->fp < s->sp || s->fp - s->sp > UNWIND_FRAME_SIZE_MAX ||
		s->fp >= UNWIND_USER_END - 2 * sizeof(__u64))
		return SAMPLE_END_NO_FP;
	if (UNWIND_READ(s, ret, 2 * sizeof(__u64), s->fp) != 0)
		return s->is_short ? SAMPLE_END_SHORT_COPY : SAMPLE_END_UNREADABLE;
	ret[1] = arch_strip(ret[1], s->code_mask);
	if (ret[1] == 0)
		return SAMPLE_END_ROOT;
	return unwind_is_user(ret[1]) ? UNWIND_GO_ON : SAMPLE_END_NO_FP;
}

static inline void unwind_to_caller(struct unwind_state *s, const __u64 record[2])
{
	s->sp = s->fp + 2 * sizeof(__u64);
	s->fp = record[0];
	s->pc = record[1];
	s->is_call = 1;
	s->regs_known = 0;
	s->sp_is_bound = ARCH_HAS_LR;
}

/* From a frame to its caller: UNWIND_GO_ON with *s the caller's, or the enum sample_end. */
static inline int unwind_step(struct unwind_state *s)
{
	__u64 record[2];
	int end = unwind_read_record(s, record);

	if (end == UNWIND_GO_ON)
		unwind_to_caller(s, record);
	return end;
}

/* One word into the stack's hash; order matters, 64-bit golden-ratio multiply with a fold. */
static inline __u64 unwind_hash(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

#endif
