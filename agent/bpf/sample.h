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
#include <linux/types.h>
#endif

enum {
	SAMPLE_USER_FRAMES_MAX = 512,
	SAMPLE_KERNEL_FRAMES_MAX = 127,
	SAMPLE_COMM_SIZE = 16,
	SAMPLE_CPUS_MAX = 1024,
};

/* What an entry of a filter is: asked for, left out, or both (bpf/filter.h). */
enum { FILTER_ONLY = 1, FILTER_EXCEPT = 2 };

/* Keys of a filter's maps. */
struct filter_comm {
	char text[SAMPLE_COMM_SIZE]; /* zeroes after its end, as the kernel keeps it */
};

struct filter_cgroup {
	__u64 id;    /* the inode number of its directory */
	__u32 is_v1; /* in the tree of the one controller of version 1 that is followed */
	__u32 pad;
};

/* Why a stack ended; SAMPLE_END_ROOT is the only complete one. */
enum sample_end {
	/* Return address or frame pointer 0: the thread's first frame. Or there is no user part: exec, exit. */
	SAMPLE_END_ROOT,
	SAMPLE_END_NO_FP, /* frame pointer does not point into the stack above sp: callee keeps none
			   */
	SAMPLE_END_UNREADABLE, /* the frame record could not be read */
	SAMPLE_END_DEPTH,      /* SAMPLE_USER_FRAMES_MAX reached */
	SAMPLE_END_NO_USER,    /* kernel thread, or no user registers */
	/* Of the walk by tables (unwind_cfi.h). */
	SAMPLE_END_NO_TABLE,    /* the table was not built in time */
	SAMPLE_END_NO_MAPPING,  /* the address lies in no executable mapping */
	SAMPLE_END_NO_CFI,      /* the file says nothing here, and there is no frame pointer */
	SAMPLE_END_BROKEN_CFI,  /* what the file says makes no sense */
	SAMPLE_END_TABLE_FULL,  /* the budget does not hold the table */
	SAMPLE_END_UNSUPPORTED, /* an expression or a register that we do not follow */
	SAMPLE_END_BAD_CFA,     /* leads out of the stack */
	SAMPLE_END_SHORT_COPY,  /* deeper than the part of the stack that was kept */
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
	__u64 hash;     /* over kernel frames, user frames, end, flags and both names */
	__u64 start_ns; /* group leader's start time, boot clock: with tgid the process's identity
			 */
	__u32 tgid;
	__u32 tid;     /* 0 unless asked for: one thread's stacks count with its siblings' */
	__u32 exec_id; /* which image of the process: remap.h */
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
	__u32 flags;    /* STACK_RECORD_KTHREAD; STACK_RECORD_INTERRUPTED: user frame 0 was
			   interrupted, not called (no pc-1) */
	__u64 seen_ns;  /* when the sample was taken that sent this; CLOCK_MONOTONIC */
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
	__u64 exec_ns;          /* as cpu_ns, by the scheduler's own clock: without irq and steal */
	__u64 exec_last_ns;     /* task's se.sum_exec_runtime at the last switch-out */
	__u64 switches_voluntary;
	__u64 switches_involuntary;
	__u64 samples;
	__u64 sampled_ns; /* weights of the samples that hit this thread */
	__u64 sampled_sq; /* sum of their squares in us^2 */
	__u32 tgid;
	__u32 state; /* task state at the last switch-out, with LEDGER_ON_CPU while it runs */
	char comm[SAMPLE_COMM_SIZE];
};

#define LEDGER_ON_CPU        0x80000000u
#define LEDGER_STATE_UNKNOWN 0x40000000u /* nobody saw it leave its CPU */

/* A number of samples and their weight. */
struct sample_count {
	__u64 samples;
	__u64 weight_ns;
};

/* One per CPU. Only that CPU's sampling program writes it, except ledger_full. */
struct cpu_counts {
	__u64 last_ns;       /* time of this CPU's last sample; 0: none yet */
	__u64 gap_max_ns;    /* the largest weight: much above the period means it was held back */
	__u64 idle_since_ns; /* 0: not idle, or not seen to become so */
	__u64 idle_withheld_ns; /* idle time in which the kernel took no samples */
	__u32 in_use;           /* the scratch is; a second entry counts as nested */
	__u32 pad;
	struct sample_count taken;    /* in the profile */
	struct sample_count idle;     /* hit the idle task */
	struct sample_count filtered; /* hit a process that was not asked for */
	__u64 taken_sq;               /* sum of squared weights in us^2 */
	__u64 ends[SAMPLE_END_COUNT]; /* samples taken by how their stack ended */
	/* Parts of taken whose stack was not counted; LEDGER_FULL only lacks its thread's entry. */
	struct sample_count losses[SAMPLE_LOSS_COUNT];
	__u64 switches;
	__u64 ledger_lost;     /* switches whose thread found no room in the ledger */
	__u64 switches_missed; /* that the kernel did not report */
};

/* Samples that waited for a table (deferred.h). Written by one side at a time or atomically. */
struct resume_counts {
	__u64 deferred; /* samples kept */
	__u64 no_slot;  /* that could not be, for want of a slot; they end as NO_TABLE */
	__u64 waiting;  /* kept now */
	/* As in cpu_counts, of those that ended. */
	__u64 ends[SAMPLE_END_COUNT];
	struct sample_count losses[SAMPLE_LOSS_COUNT];
};

/* Kernel addresses in, "symbol+0xoffset/0xsize [module]" out; see name_addresses. */
enum { NAME_BATCH_MAX = 64, NAME_BATCH_TEXT = 128 };

struct name_batch {
	__u64 addresses[NAME_BATCH_MAX];
	char texts[NAME_BATCH_MAX][NAME_BATCH_TEXT];
	__u32 count;
	__u32 pad;
};

#define STACK_RECORD_KTHREAD     1u
#define STACK_RECORD_INTERRUPTED 2u

_Static_assert(sizeof(struct stack_key) == 32, "stack_key is shared with BPF");
_Static_assert(sizeof(struct stack_value) == 24, "stack_value is shared with BPF");
_Static_assert(sizeof(struct stack_record) == 32 + 16 + 16 + 8 + 16 + 8,
	"stack_record is shared with BPF");
_Static_assert(
	sizeof(struct cpu_counts) == 40 + 48 + 8 + 104 + 80 + 24, "cpu_counts is shared with BPF");
_Static_assert(sizeof(struct resume_counts) == 24 + 104 + 80, "resume_counts is shared with BPF");
_Static_assert(sizeof(struct name_batch) == 64 * (8 + 128) + 8, "name_batch is shared with BPF");
_Static_assert(sizeof(struct ledger_key) == 16, "ledger_key is shared with BPF");
_Static_assert(sizeof(struct ledger_value) == 144, "ledger_value is shared with BPF");

#endif
