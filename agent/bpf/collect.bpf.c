/*
 * The kernel side of the collector: on_sample (perf event) unwinds, hashes and counts stacks;
 * on_switch (sched_switch) keeps the ledger; seed (task iterator) opens the ledger at the start.
 *
 * THE WINDOW. User space stamps start_ns and stop_ns (CLOCK_MONOTONIC); an event counts when
 * start_ns <= its own stamp < stop_ns. Stamps decide, not the moment a program was attached, so the
 * window is the same on all CPUs.
 *
 * WEIGHTS. A sample's weight is the time since its CPU's last sample, the first one's since
 * start_ns. Idle samples move that time too, and count as idle. So on each CPU
 *	taken + idle + filtered = last_ns - start_ns
 * and the window's rest, stop_ns - last_ns, is less than one period; it is nobody's weight.
 * Some kernels take no samples on an idle CPU (measured on a 6.18 guest: an hrtimer came 860 ms
 * late, when the CPU woke). The first sample afterwards must not have all that time: on_switch, which
 * sees the idle task leave, gives a silence of more than two periods to idle and moves last_ns by it.
 *
 * THE LEDGER. One entry a thread, two lookups a switch. cpu_ns comes from our own stamps:
 *	switch-in sets since_ns, switch-out adds now - since_ns.
 * exec_ns is the scheduler's own account of the same stints (differences of se.sum_exec_runtime,
 * which is up to date for prev here). cpu_ns - exec_ns is the time the kernel does not charge to
 * threads: interrupts (CONFIG_IRQ_TIME_ACCOUNTING), steal (CONFIG_PARAVIRT_TIME_ACCOUNTING), and
 * the nanoseconds between the scheduler reading its clock and this tracepoint.
 * Off-CPU time is split when the thread next leaves a CPU:
 *	left while runnable: all of it is runnable;
 *	left blocked in a state: sched_info.run_delay has grown by the wait in the run queue after the
 *	wake-up; that part is runnable, the rest blocked in that state.
 * run_delay of the current wait is added after this tracepoint has run for the switch-in, which is why
 * the split waits for the switch-out (off_pending_ns carries the time until then).
 *
 * The ledger follows states from armed_ns on, before the window, and adds only the part of each
 * interval that lies in the window; so all states are known when the window opens. A missing entry is
 * information: events since armed_ns create one, so a thread without one has not switched since.
 * Leaving a CPU without an entry means it ran since armed_ns; entering one means it was off since
 * then, or since its birth. The iterator adds the threads that do not switch (BPF_NOEXIST: an event's
 * entry is better), so a busy loop alone on its CPU is in the ledger too.
 * on_cpu[] remembers who was switched in on each CPU, for two cases:
 *  - The same task leaves under another identity: a thread other than the leader called exec and
 *    took over the leader's tid and start time. The old identity is closed as dead.
 *  - Another task leaves: the kernel did not report a switch in between (seen for some threads on a
 *    6.18 guest kernel, in ftrace, too). It is counted, and who ran how long is taken from
 *    se.sum_exec_runtime when the threads are seen next.
 *
 * on_sample may run in NMI (hardware events): all its maps are preallocated, it uses no task
 * storage, its scratch is per CPU and guarded by in_use. Lint checks the helpers against
 * nmi_safe.txt.
 */
#include "agent/bpf/vmlinux.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "agent/bpf/sample.h"

#include "agent/bpf/deferred.h"
#include "agent/bpf/filter.h"
#include "agent/bpf/remap.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
const volatile __u64 period_max_ns;
const volatile bool key_tids;
const volatile __u32
	sample_turns; /* a seeded fault's (agent/fault.h); the loop of 0 is not loaded */

/* Written by user space while the programs run, in this order. 0: not yet. */
volatile __u64 armed_ns; /* the ledger follows states since */
volatile __u64 start_ns;
volatile __u64 stop_ns;

struct running {
	__u64 task; /* its address, as an identity */
	__u64 since_ns;
	struct ledger_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct ledger_key);
	__type(value, struct ledger_value);
} ledger SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct running);
} on_cpu SEC(".maps");

static __always_inline bool in_window(__u64 now)
{
	__u64 start = start_ns;
	__u64 stop = stop_ns;

	return start != 0 && now >= start && (stop == 0 || now < stop);
}

/*
 * ---- Stacks
 */

/*
 * There is no user part. In the middle of exec: the new memory is there, but the registers are still those of the
 * program before, whose code is not mapped any more. (fs/binfmt_elf.c sets end_code when all is mapped, right before
 * the new registers; a fork's is its parent's.) In the middle of exit: the memory is being taken apart, and what can
 * still be read at its addresses may be another's already (aarch64 does not flush the TLB of a memory that nobody will
 * use again).
 */
static __always_inline bool is_without_user(struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	if ((task->flags & (PF_KTHREAD | PF_IO_WORKER)) != 0)
		return false; /* these never have one, which is NO_USER */
	return !mm || mm->end_code == 0;
}

/* Where the user part begins. False: a 32-bit program, whose frames are others; its pc only. */
static __always_inline bool take_registers(
	struct bpf_perf_event_data *ctx, struct scratch *s, struct task_struct *task)
{
	struct unwind_state *u = &s->walk.state;
	bool is_64;

	u->is_call = 0;
	u->code_mask = arch_code_mask(task);
	if (ARCH_IS_USER(ctx->regs)) {
		ARCH_COPY_REGS(u->regs, ctx->regs);
		u->pc = ARCH_PC(ctx->regs);
		is_64 = ARCH_IS_64(ctx->regs);
		s->record.flags |= STACK_RECORD_INTERRUPTED;
		barrier();
	} else {
		struct pt_regs *saved = (struct pt_regs *)bpf_task_pt_regs(task);

		/* Left zero when it fails, which ends the stack as NO_USER. */
		__builtin_memset(&s->regs, 0, sizeof(s->regs));
		if ((task->flags & (PF_KTHREAD | PF_IO_WORKER)) == 0 && !is_without_user(task))
			(void)bpf_probe_read_kernel(&s->regs, sizeof(s->regs), saved);
		ARCH_COPY_REGS(u->regs, s->regs);
		u->pc = ARCH_PC(s->regs);
		is_64 = ARCH_IS_64(s->regs);
		if (arch_in_call(&s->regs, saved))
			u->is_call = 1; /* see unwind_cfi.h */
		else
			s->record.flags |= STACK_RECORD_INTERRUPTED;
	}
	u->sp = u->regs[UNWIND_REG_SP];
	u->fp = u->regs[UNWIND_REG_FP];
	u->regs_known = 1;
	if (is_64)
		return true;
	u->fp = UNWIND_FP_GONE;
	return false;
}

/* Kernel frames first, if the kernel was interrupted; then the user's. Fills record and frames. */
static __always_inline void take_stack(struct bpf_perf_event_data *ctx, struct scratch *s,
	struct task_struct *task, bool by_tables)
{
	struct stack_record *r = &s->record;
	bool has_tables;

	r->kernel_count = 0;
	r->flags = 0;
	if (!ARCH_IS_USER(ctx->regs)) {
		long size =
			bpf_get_stack(ctx, s->frames, SAMPLE_KERNEL_FRAMES_MAX * sizeof(__u64), 0);

		if (size > 0)
			r->kernel_count = size / sizeof(__u64);
	}
	if ((task->flags & PF_KTHREAD) != 0)
		r->flags |= STACK_RECORD_KTHREAD;
	walk_begin(s);
	has_tables = take_registers(ctx, s, task);
	if (unwind_is_user(s->walk.state.pc))
		walk_user(s, by_tables, has_tables);
	else
		s->walk.end = is_without_user(task) ? SAMPLE_END_ROOT : SAMPLE_END_NO_USER;
}

static __always_inline void fill_names(struct stack_record *r, struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	__builtin_memset(r->thread_comm, 0, sizeof(r->thread_comm));
	(void)bpf_get_current_comm(r->thread_comm, sizeof(r->thread_comm)); /* cannot fail */
	/* An unreadable leader leaves zeroes. */
	(void)bpf_probe_read_kernel(r->process_comm, sizeof(r->process_comm), &leader->comm);
	r->key.start_ns = leader->start_boottime;
	r->key.exec_id = remap_exec_id(leader);
	r->key.tgid = task->tgid;
	r->key.tid = key_tids ? task->pid : 0;
	r->key.pad = 0;
}

static __always_inline __u64 run_delay_of(struct task_struct *t)
{
	return bpf_core_field_exists(t->sched_info.run_delay) ? t->sched_info.run_delay : 0;
}

static __always_inline void read_comm(struct ledger_value *l, struct task_struct *t)
{
	/* Cannot fail: the task is alive. */
	(void)bpf_probe_read_kernel(l->comm, sizeof(l->comm), &t->comm);
}

/*
 * The entry of a thread seen for the first time; see the file comment for what that tells.
 * is_running: it is on a CPU now. A seed that was first keeps its own. NULL: ledger full.
 */
static __noinline struct ledger_value *open_entry(
	struct task_struct *t, const struct ledger_key *key, bool is_running)
{
	struct ledger_value init = {.tgid = t->tgid};

	if (t->start_time > armed_ns) {
		/* A newborn waits for its CPU; has it run already, its exec time says how long. */
		init.since_ns = t->start_time;
		init.state = TASK_RUNNING;
	} else {
		init.since_ns = armed_ns;
		init.run_delay_ns = run_delay_of(t);
		init.exec_last_ns = t->se.sum_exec_runtime;
		/* Once the window is open the seed has all threads that were running. */
		init.state = is_running && start_ns == 0 ? LEDGER_ON_CPU : LEDGER_STATE_UNKNOWN;
	}
	read_comm(&init, t);
	(void)bpf_map_update_elem(&ledger, key, &init, BPF_NOEXIST); /* the lookup tells */
	return bpf_map_lookup_elem(&ledger, key);
}

/* The sampled thread's share in the ledger, so that each thread's samples can be judged by it. */
static __always_inline void sample_to_ledger(
	struct cpu_counts *c, struct task_struct *task, __u64 weight)
{
	struct ledger_key key = {.start_ns = task->start_boottime, .tid = task->pid};
	struct ledger_value *l = bpf_map_lookup_elem(&ledger, &key);

	if (!l)
		l = open_entry(task, &key, true);
	if (!l) {
		count(&c->losses[SAMPLE_LOSS_LEDGER_FULL], weight);
		return;
	}
	l->samples++;
	l->sampled_ns += weight;
	l->sampled_sq += square_us2(weight);
}

static long turn(__u32 i, void *unused)
{
	return 0;
}

static __always_inline void sample(struct bpf_perf_event_data *ctx, struct cpu_counts *c, __u64 now,
	__u64 weight, bool by_tables)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);

	if (!s)
		return; /* cannot be: index 0 of an array of 1 */
	if (task->pid == 0) {
		count(&c->idle, weight);
		return;
	}
	if (!filter_wants(task)) {
		count(&c->filtered, weight);
		return;
	}
	count(&c->taken, weight);
	c->taken_sq += square_us2(weight);
	sample_to_ledger(c, task, weight);
	if (sample_turns > 0)
		bpf_loop(sample_turns, turn, 0, 0);
	fill_names(&s->record, task);
	s->record.cgroup_id = bpf_get_current_cgroup_id();
	s->record.seen_ns = now;
	take_stack(ctx, s, task, by_tables);
	if (by_tables && s->walk.end == UNWIND_MISS) {
		/* The walk has changed the registers. */
		bool has_tables = take_registers(ctx, s, task);

		ask(&s->walk.state);
		if (defer(s, has_tables, weight))
			return;
		s->walk.end = SAMPLE_END_NO_TABLE;
	}
	count_stack(s, c->ends, c->losses, weight);
}

static __always_inline int on_event(struct bpf_perf_event_data *ctx, bool by_tables)
{
	__u64 now = bpf_ktime_get_ns();
	struct cpu_counts *c = bpf_map_lookup_elem(&counts, &zero);
	__u64 last;

	if (!c || !in_window(now) || now < c->last_ns)
		return 0;
	if (c->in_use) {
		/* Its weight goes to the next sample: last_ns stays. */
		count(&c->losses[SAMPLE_LOSS_NESTED], 0);
		return 0;
	}
	c->in_use = 1;
	last = c->last_ns ? c->last_ns : start_ns;
	c->last_ns = now;
	if (now - last > c->gap_max_ns)
		c->gap_max_ns = now - last;
	sample(ctx, c, now, now - last, by_tables);
	c->in_use = 0;
	return 0;
}

/* One of the two is loaded. */
SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	return on_event(ctx, true);
}

SEC("perf_event")
int on_sample_fp(struct bpf_perf_event_data *ctx)
{
	return on_event(ctx, false);
}

/*
 * ---- Ledger
 */

static __always_inline void add_blocked(struct ledger_value *l, __u64 ns)
{
	if (l->state & TASK_NOLOAD) /* an idle kernel thread, which ps shows as I, not D */
		l->blocked_other_ns += ns;
	else if (l->state & TASK_INTERRUPTIBLE)
		l->blocked_s_ns += ns;
	else if (l->state & TASK_UNINTERRUPTIBLE)
		l->blocked_d_ns += ns;
	else
		l->blocked_other_ns += ns;
}

static __always_inline struct ledger_key ledger_key_of(const struct task_struct *t)
{
	struct ledger_key key = {.start_ns = t->start_boottime, .tid = t->pid};

	return key;
}

/* The part of since..now that lies in the window, which has not ended. */
static __always_inline __u64 in_window_ns(__u64 since, __u64 now)
{
	__u64 start = start_ns;

	if (start == 0 || now <= start)
		return 0;
	if (since < start)
		since = start;
	return now > since ? now - since : 0;
}

static __always_inline __u64 min64(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/*
 * Whoever was switched in on this CPU last is not the one that leaves. is_renamed: it is the same
 * task, which called exec.
 */
static __always_inline void give_up(const struct running *was, __u64 now, bool is_renamed)
{
	struct ledger_value *l = bpf_map_lookup_elem(&ledger, &was->key);
	__u64 ns;

	/* It may be on another CPU by now. */
	if (!l || !(l->state & LEDGER_ON_CPU) || l->since_ns != was->since_ns)
		return;
	if (is_renamed) {
		ns = in_window_ns(l->since_ns, now);
		l->cpu_ns += ns;
		l->exec_ns += ns;
		l->since_ns = now;
	}
	l->state = is_renamed ? TASK_DEAD : LEDGER_STATE_UNKNOWN;
}

/* Splits the wait before the stint that ends now; l->state still has the state it was left in. */
static __always_inline void split_off_time(struct ledger_value *l, __u64 run_delay_ns)
{
	__u64 wait = min64(run_delay_ns - l->run_delay_ns, l->off_pending_ns);

	l->runnable_ns += wait;
	add_blocked(l, l->off_pending_ns - wait);
	l->off_pending_ns = 0;
	l->run_delay_ns = run_delay_ns;
}

/* Adds the stint that ends now. */
static __always_inline void end_stint(struct ledger_value *l, __u64 now, __u64 exec_ns)
{
	__u64 ns = in_window_ns(l->since_ns, now);
	__u64 exec = exec_ns - l->exec_last_ns;

	l->cpu_ns += ns;
	/* The stint that the window's start cuts has no scheduler account of its own. */
	l->exec_ns += l->since_ns >= start_ns ? exec : min64(exec, ns);
}

/* The time since since_ns was spent off CPU, less what the scheduler says was a stint nobody saw. */
static __always_inline void add_unseen(struct ledger_value *l, __u64 now, __u64 exec_ns)
{
	__u64 off_ns = in_window_ns(l->since_ns, now);
	__u64 ran_ns = min64(exec_ns - l->exec_last_ns, off_ns);

	l->cpu_ns += ran_ns;
	l->exec_ns += ran_ns;
	l->exec_last_ns = exec_ns;
	if (l->state == TASK_RUNNING)
		l->runnable_ns += off_ns - ran_ns;
	else
		l->off_pending_ns = off_ns - ran_ns;
}

static __always_inline void leave(struct cpu_counts *c, struct task_struct *t,
	const struct ledger_key *key, __u64 now, bool is_renamed, bool runnable, __u32 state)
{
	struct ledger_value *l = bpf_map_lookup_elem(&ledger, key);
	__u64 exec_ns = t->se.sum_exec_runtime;
	__u64 run_delay_ns = run_delay_of(t);

	if (!l)
		l = open_entry(t, key, true);
	if (!l) {
		c->ledger_lost++;
		return;
	}
	if (l->state & LEDGER_ON_CPU)
		end_stint(l, now, exec_ns);
	else if (is_renamed) /* until now this was the leader, waiting for its end */
		l->blocked_other_ns += in_window_ns(l->since_ns, now);
	else
		add_unseen(l, now, exec_ns);
	split_off_time(l, run_delay_ns);
	l->exec_last_ns = exec_ns;
	l->since_ns = now;
	l->state = runnable ? TASK_RUNNING : state & ~(LEDGER_ON_CPU | LEDGER_STATE_UNKNOWN);
	if (in_window(now) && runnable)
		l->switches_involuntary++;
	else if (in_window(now))
		l->switches_voluntary++;
	read_comm(l, t);
}

static __always_inline void enter(
	struct cpu_counts *c, struct task_struct *t, const struct ledger_key *key, __u64 now)
{
	struct ledger_value *l = bpf_map_lookup_elem(&ledger, key);

	if (!l)
		l = open_entry(t, key, false);
	if (!l) {
		c->ledger_lost++;
		return;
	}
	l->state &= ~LEDGER_ON_CPU; /* set only if its last switch-out was missed */
	add_unseen(l, now, t->se.sum_exec_runtime);
	l->since_ns = now;
	l->state |= LEDGER_ON_CPU;
}

/*
 * The filter let it in when its stint began. If it does not any more, because it changed its name or
 * was moved, the stint is the last that counts; its entry is closed as off CPU.
 */
static __always_inline bool was_wanted(const struct ledger_key *key)
{
	struct ledger_value *l = filter_can_change() ? bpf_map_lookup_elem(&ledger, key) : 0;

	return l && (l->state & LEDGER_ON_CPU);
}

/* The idle task leaves this CPU. */
static __always_inline void end_idle(struct cpu_counts *c, __u64 now)
{
	__u64 since = c->idle_since_ns;
	__u64 start = start_ns;
	__u64 silent_ns;

	c->idle_since_ns = 0;
	if (!in_window(now))
		return;
	if (since < start)
		since = start;
	if (since < c->last_ns)
		since = c->last_ns;
	silent_ns = now - since;
	if (silent_ns <= 2 * period_max_ns)
		return;
	c->last_ns = (c->last_ns ? c->last_ns : start) + silent_ns;
	c->idle_withheld_ns += silent_ns;
	c->idle.weight_ns += silent_ns;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	unsigned int prev_state)
{
	__u64 now = bpf_ktime_get_ns();
	struct ledger_key from = ledger_key_of(prev);
	struct ledger_key to = ledger_key_of(next);
	struct running *was = bpf_map_lookup_elem(&on_cpu, &zero);
	struct cpu_counts *c = bpf_map_lookup_elem(&counts, &zero);
	bool is_renamed = false;
	__u64 stop = stop_ns;

	if (!was || !c || armed_ns == 0 || (stop != 0 && now >= stop))
		return 0;
	if (in_window(now))
		c->switches++;
	if (was->task != 0 && was->task != (__u64)prev) {
		c->switches_missed++;
		give_up(was, now, false);
	} else if (was->task != 0 &&
		   (was->key.tid != from.tid || was->key.start_ns != from.start_ns)) {
		is_renamed = true;
		give_up(was, now, true);
	}
	was->task = (__u64)next;
	was->since_ns = now;
	was->key = to;
	/* A thread with a pending signal does not go to sleep: its live state is running again. */
	if (prev->pid != 0 && (filter_wants(prev) || was_wanted(&from)))
		leave(c, prev, &from, now, is_renamed, preempt || prev->__state == TASK_RUNNING,
			prev_state);
	if (next->pid != 0 && filter_wants(next))
		enter(c, next, &to, now);
	if (prev->pid == 0)
		end_idle(c, now);
	if (next->pid == 0)
		c->idle_since_ns = now;
	return 0;
}

/*
 * Names of kernel addresses, asked for by user space (BPF_PROG_TEST_RUN). Reading /proc/kallsyms
 * instead means to have the kernel print all of its some 150,000 symbols for the few dozen that a
 * profile needs, which was half of what a short recording cost.
 */
struct name_batch name_batch;

static long name_one(__u32 i, void *unused)
{
	__u64 address;

	if (i >= NAME_BATCH_MAX || i >= name_batch.count)
		return 1;
	address = name_batch.addresses[i];
	/* A failure leaves the text empty: no name. */
	(void)BPF_SNPRINTF(name_batch.texts[i], NAME_BATCH_TEXT, "%pS", address);
	return 0;
}

SEC("syscall")
int name_addresses(void *ctx)
{
	bpf_loop(NAME_BATCH_MAX, name_one, 0, 0);
	return 0;
}

/* See remap.h. */
SEC("tp_btf/vm_unmapped_area")
int BPF_PROG(on_room, unsigned long start, struct vm_unmapped_area_info *info)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	struct remap_key key = {.start_ns = leader->start_boottime, .tgid = leader->tgid};
	struct process_key image = {.start_ns = key.start_ns, .tgid = key.tgid};
	struct table_process *p;

	image.exec_id = remap_exec_id(leader);
	p = bpf_map_lookup_elem(&procs, &image);
	if (p && unwind_is_user(start) && remap_replaces(p, start, start + info->length))
		remap_note(&key);
	return 0;
}

/* Walks what was deferred, asked for by user space when tables were built (BPF_PROG_TEST_RUN). */
SEC("syscall")
int resume(void *ctx)
{
	bpf_loop(deferred_slots, resume_one, 0, 0);
	return 0;
}

/* Opens the ledger for the threads that have not switched since armed_ns. */
SEC("iter/task")
int seed(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct ledger_value init = {};
	struct ledger_key key;
	struct cpu_counts *c;
	long error;

	if (!t || t->pid == 0 || !filter_wants(t))
		return 0;
	key = ledger_key_of(t);
	init.since_ns = armed_ns;
	init.run_delay_ns = run_delay_of(t);
	init.exec_last_ns = t->se.sum_exec_runtime;
	init.tgid = t->tgid;
	init.state = t->on_cpu ? LEDGER_ON_CPU : t->__state & ~LEDGER_ON_CPU;
	read_comm(&init, t);
	error = bpf_map_update_elem(&ledger, &key, &init, BPF_NOEXIST);
	c = bpf_map_lookup_elem(&counts, &zero);
	if (error != 0 && error != -EEXIST && c)
		__sync_fetch_and_add(&c->ledger_lost, 1);
	return 0;
}
