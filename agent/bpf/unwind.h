/*
 * The unwinder: one step over one read primitive, so that host tests run the very code that the
 * kernel runs (STYLE 33). The includer defines
 *
 *	UNWIND_READ(dst, size, address)	0 when size bytes at the user address were copied to dst
 *
 * before including this file. State goes in and out through struct unwind_state; the driver calls
 * unwind_step() until it returns something else than UNWIND_GO_ON. Another way to step (CFI tables)
 * takes the place of unwind_step_fp() inside unwind_step() and nothing else changes.
 *
 * Frame-pointer rule of x86-64 (System V ABI, figure 3.3): at fp stands the caller's fp, at fp + 8
 * the return address, and the caller's stack pointer is fp + 16. A frame record is believed when
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

#define UNWIND_USER_END       0x00007ffffffff000ULL
#define UNWIND_USER_START     0x1000ULL
#define UNWIND_FRAME_SIZE_MAX (16ULL << 20)

enum { UNWIND_GO_ON = -1 }; /* every other outcome is an enum sample_end */

struct unwind_state {
	__u64 pc;
	__u64 sp;
	__u64 fp;
};

static inline int unwind_step_fp(struct unwind_state *s)
{
	__u64 record[2]; /* caller's fp, return address */

	if (s->fp == 0)
		return SAMPLE_END_ROOT;
	if ((s->fp & 7) != 0 || s->fp < s->sp || s->fp - s->sp > UNWIND_FRAME_SIZE_MAX ||
		s->fp >= UNWIND_USER_END - sizeof(record))
		return SAMPLE_END_NO_FP;
	if (UNWIND_READ(record, sizeof(record), s->fp) != 0)
		return SAMPLE_END_UNREADABLE;
	if (record[1] == 0)
		return SAMPLE_END_ROOT;
	if (record[1] < UNWIND_USER_START || record[1] >= UNWIND_USER_END)
		return SAMPLE_END_NO_FP;
	s->sp = s->fp + sizeof(record);
	s->fp = record[0];
	s->pc = record[1];
	return UNWIND_GO_ON;
}

/* From a frame to its caller: UNWIND_GO_ON with *s the caller's, or the enum sample_end. */
static inline int unwind_step(struct unwind_state *s)
{
	return unwind_step_fp(s);
}

/* One word into the stack's hash; order matters, 64-bit golden-ratio multiply with a fold. */
static inline __u64 unwind_hash(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

#endif
