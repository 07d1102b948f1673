/*
 * The kernel types that our programs read, and of each type only the fields they read. Written by
 * hand: preserve_access_index makes clang record every access by name, and libbpf moves it to where
 * the running kernel's BTF has that field (CO-RE), so offsets and order here mean nothing and no
 * header of any kernel version is needed. A field that some kernel may lack is asked for with
 * bpf_core_field_exists() first. Target: Linux 6.1 and later, x86-64 and aarch64.
 *
 * Two types are exceptions and carry the real layout, because they are ABI: struct pt_regs of
 * x86-64 (ptrace, arch/x86/include/uapi/asm/ptrace.h), the user part of aarch64's (struct user_pt_regs), and struct bpf_perf_event_data
 * (include/uapi/linux/bpf_perf_event.h). The verifier wants whole 8-byte loads from that context,
 * and since FRED (6.9) the kernel declares cs and ss as 2-byte members of a union, which CO-RE
 * would turn into 2-byte loads. The upper bits of cs and ss mean something else there: mask them.
 */
#ifndef AGENT_BPF_VMLINUX_H
#define AGENT_BPF_VMLINUX_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef _Bool bool;
/* bpf_helper_defs.h mentions these in prototypes we do not call. */
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

enum { false = 0, true = 1 };

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

/* include/linux/sched.h; stable since 2.6 resp. 5.12. */
enum {
	PF_IO_WORKER = 0x00000010, /* io_uring worker: a user thread without user registers */
	PF_KTHREAD = 0x00200000,
};
enum {
	TASK_RUNNING = 0x00,
	TASK_INTERRUPTIBLE = 0x01,
	TASK_UNINTERRUPTIBLE = 0x02,
	TASK_DEAD = 0x80,
	TASK_NOLOAD = 0x400,
};

#ifdef __TARGET_ARCH_arm64
struct pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
#else
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax; /* system call number, else negative */
	unsigned long ip, cs, flags, sp, ss;
};
#endif

struct bpf_perf_event_data {
	struct pt_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	unsigned long task_size;
	unsigned long end_code;
};

struct vm_unmapped_area_info {
	unsigned long length;
};

#ifdef __TARGET_ARCH_arm64
struct pt_regs___kernel {
	int syscallno;
};
#endif

struct sched_entity {
	__u64 sum_exec_runtime; /* what /proc/TID/schedstat shows first */
};

struct sched_info { /* empty without CONFIG_SCHED_INFO */
	unsigned long long run_delay;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct cgroup *ancestors[]; /* "ancestor_ids" before 6.1 */
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state
		*subsys[1]; /* CGROUP_SUBSYS_COUNT, which is the kernel's configuration */
	struct cgroup *dfl_cgrp;
};

struct kuid {
	__u32 val;
};

struct cred {
	struct kuid euid;
};

struct task_struct {
	unsigned int __state; /* "state" before 5.14, which we do not support */
	unsigned int flags;
	int on_cpu;
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
	struct mm_struct *mm;
	const struct cred *real_cred;
	struct css_set *cgroups;
	__u64 start_time;     /* monotonic clock */
	__u64 start_boottime; /* boot clock: /proc/PID/stat shows this one */
	__u64 self_exec_id;
	struct sched_entity se;
	struct sched_info sched_info;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
