/*
 * What crosses between the kernel programs (collect.bpf.c) and user space (collect.c): map keys,
 * map values, ring records and the configuration in .rodata. Both sides compile this file; sizes
 * are asserted.
 *
 * Life of a sample: the program unwinds into per-CPU scratch, folds a 64-bit hash over the frames,
 * and counts (key -> value). Only the first sight of a key sends one struct stack_record with the
 * frames through the ring buffer. If that record cannot be sent the key is not inserted, so the
 * next sight tries again; the sample's weight is then counted under its loss.
 */
#ifndef AGENT_BPF_SAMPLE_H
#define AGENT_BPF_SAMPLE_H

#ifndef __bpf__
#include <stdint.h>
typedef uint32_t __u32;
typedef uint64_t __u64;
typedef int32_t __s32;
#endif

enum {
	SAMPLE_USER_FRAMES_MAX = 512,
	SAMPLE_KERNEL_FRAMES_MAX = 127,
	SAMPLE_COMM_SIZE = 16,
	SAMPLE_CPUS_MAX = 1024,
};

/* Why a stack ended; SAMPLE_END_ROOT is the only complete one. */
enum sample_end {
	SAMPLE_END_ROOT,  /* return address or frame pointer 0: the thread's first frame */
	SAMPLE_END_NO_FP, /* frame pointer does not point into the stack above sp: callee keeps none
			   */
	SAMPLE_END_UNREADABLE, /* the frame record could not be read */
	SAMPLE_END_DEPTH,      /* SAMPLE_USER_FRAMES_MAX reached */
	SAMPLE_END_NO_USER,    /* kernel thread, or no user registers */
	SAMPLE_END_COUNT
};

/* Losses, one per-CPU counter of samples and of weight each. */
enum sample_loss {
	SAMPLE_LOSS_RING_FULL,
	SAMPLE_LOSS_MAP_FULL,
	SAMPLE_LOSS_MAP_BUSY,
	SAMPLE_LOSS_LEDGER_FULL,
	SAMPLE_LOSS_NESTED, /* scratch was in use: program interrupted by itself */
	SAMPLE_LOSS_COUNT
};

struct stack_key {
	__u64 hash;     /* over kernel frames, user frames and end */
	__u64 start_ns; /* group leader's start time, boot clock: with tgid the process's identity
			 */
	__u32 tgid;
	__u32 tid;
	__u32 exec_id; /* task_struct.self_exec_id of the leader: exec generation */
	__u32 pad;
};

struct stack_value {
	__u64 samples;
	__u64 weight_ns;
	__u64 weight_sq; /* sum of squared weights in us^2, for the sampling error */
};

struct stack_record {
	struct stack_key key;
	char thread_comm[SAMPLE_COMM_SIZE];
	char process_comm[SAMPLE_COMM_SIZE]; /* group leader's */
	__u64 cgroup_id;
	__u32 kernel_count;
	__u32 user_count;
	__u32 end;      /* enum sample_end */
	__u32 flags;    /* bit 0: kernel thread; bit 1: user frame 0 was interrupted, not called (no
			   pc-1) */
	__u64 frames[]; /* kernel_count kernel frames, then user_count user frames, leaf first */
};

struct ledger_key {
	__u64 start_ns; /* the thread's own start time */
	__u32 tid;
	__u32 pad;
};

struct ledger_value {
	__u64 since_ns; /* ktime of the last change; 0: not seen yet */
	__u64 cpu_ns;
	__u64 runnable_ns;
	__u64 blocked_s_ns;     /* interruptible sleep */
	__u64 blocked_d_ns;     /* uninterruptible */
	__u64 blocked_other_ns; /* stopped, traced, parked, dead */
	__u64 run_delay_ns;     /* task's sched_info.run_delay at the last switch-out */
	__u64 off_pending_ns;   /* off-CPU time before the running stint, split at its end */
	__u64 switches_voluntary;
	__u64 switches_involuntary;
	__u32 tgid;
	__u32 state; /* task state at the last switch-out; LEDGER_ON_CPU while it runs */
	char comm[SAMPLE_COMM_SIZE];
};

#define LEDGER_ON_CPU 0x80000000u

_Static_assert(sizeof(struct stack_key) == 32, "stack_key is shared with BPF");
_Static_assert(sizeof(struct stack_value) == 24, "stack_value is shared with BPF");
_Static_assert(
	sizeof(struct stack_record) == 32 + 16 + 16 + 8 + 16, "stack_record is shared with BPF");
_Static_assert(sizeof(struct ledger_key) == 16, "ledger_key is shared with BPF");
_Static_assert(sizeof(struct ledger_value) == 104, "ledger_value is shared with BPF");

#endif
