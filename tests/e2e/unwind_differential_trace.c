/*
 * The generator of stopped threads: PTRACE_SEIZE, PTRACE_INTERRUPT of all threads at drawn moments, then
 * single steps of one that was running, the others stopped. A blocked thread that has not moved since its
 * last record is not recorded again. A `syscall` instruction ends the stepping: it may block for good.
 */
#include "tests/e2e/unwind_differential_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "base/def.h"

enum { THREADS_MAX = 256, VDSO_MAX = 65536, PAUSE_MAX_US = 6000, USER_CS = 0x33 };

struct thread {
	pid_t tid;
	bool is_wanted, is_stopped, was_running;
	uint64_t last_pc, last_sp;
};

struct trace {
	const struct trace_options *o;
	trace_space_fn *on_space;
	trace_sample_fn *on_sample;
	void *data;
	pid_t pid;
	bool is_over, is_stopping;
	struct thread threads[THREADS_MAX];
	size_t thread_count;
	struct diff_space space;
	uint64_t space_hash, random, samples;
	struct diff_sample sample;
};

static uint64_t trace_random(struct trace *t, uint64_t limit)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random % limit;
}

static uint64_t trace_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

/* --- events --- */

static struct thread *trace_thread(struct trace *t, pid_t tid)
{
	for (size_t i = 0; i < t->thread_count; i++)
		if (t->threads[i].tid == tid)
			return &t->threads[i];
	if (t->thread_count == THREADS_MAX)
		return NULL;
	t->threads[t->thread_count] = (struct thread){.tid = tid, .is_wanted = t->is_stopping};
	return &t->threads[t->thread_count++];
}

static void trace_gone(struct trace *t, pid_t tid)
{
	for (size_t i = 0; i < t->thread_count; i++)
		if (t->threads[i].tid == tid)
			t->threads[i] = t->threads[--t->thread_count];
	t->is_over |= tid == t->pid;
}

static void trace_go(pid_t tid, int request, int signal)
{
	/* A thread that was killed meanwhile is told by waitpid(). */
	(void)ptrace(request, tid, NULL, (void *)(uintptr_t)signal);
}

static void trace_event(struct trace *t, pid_t tid, int status)
{
	int event = status >> 16, signal = WSTOPSIG(status);

	if (!WIFSTOPPED(status)) {
		trace_gone(t, tid);
		return;
	}
	struct thread *k = trace_thread(t, tid);

	if (event == PTRACE_EVENT_STOP && k && k->is_wanted)
		k->is_stopped = true;
	else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
		trace_go(tid, PTRACE_LISTEN, 0);
	else
		trace_go(tid, PTRACE_CONT, event != 0 ? 0 : signal);
	/* Any stop takes a pending interrupt with it (kernel/signal.c, ptrace_stop). */
	if (k && k->is_wanted && !k->is_stopped)
		(void)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
}

/* Lets the program run until then; only signals and new threads need us. */
static void trace_let_run(struct trace *t, uint64_t until_ns)
{
	sigset_t child;
	int status;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (uint64_t now = trace_now_ns(); now < until_ns && !t->is_over; now = trace_now_ns()) {
		uint64_t left = until_ns - now;
		struct timespec wait = {(time_t)(left / NSEC_PER_SEC), (long)(left % NSEC_PER_SEC)};
		pid_t tid;

		(void)sigtimedwait(&child, NULL, &wait); /* the loop sees what it was */
		while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
			trace_event(t, tid, status);
	}
}

static bool trace_all_stopped(const struct trace *t)
{
	for (size_t i = 0; i < t->thread_count; i++)
		if (!t->threads[i].is_stopped)
			return false;
	return true;
}

static void trace_stop_all(struct trace *t)
{
	int status;

	t->is_stopping = true;
	for (size_t i = 0; i < t->thread_count; i++) {
		t->threads[i].is_wanted = true;
		t->threads[i].is_stopped = false;
		(void)ptrace(PTRACE_INTERRUPT, t->threads[i].tid, NULL, NULL);
	}
	while (!t->is_over && !trace_all_stopped(t)) {
		pid_t tid = waitpid(-1, &status, __WALL);

		if (tid < 0)
			t->is_over = true;
		else
			trace_event(t, tid, status);
	}
}

static void trace_cont_all(struct trace *t)
{
	t->is_stopping = false;
	for (size_t i = 0; i < t->thread_count; i++) {
		t->threads[i].is_wanted = false;
		if (t->threads[i].is_stopped)
			trace_go(t->threads[i].tid, PTRACE_CONT, 0);
	}
}

/* --- records --- */

static ssize_t trace_read(const struct trace *t, uint64_t address, void *dst, size_t size)
{
	struct iovec to = {dst, size}, from = {(void *)address, size};

	return process_vm_readv(t->pid, &to, 1, &from, 1, 0);
}

static char *trace_maps_text(const struct trace *t, size_t *ret_size)
{
	char path[64];
	char *text = NULL;
	size_t size = 0, got;

	snprintf(path, sizeof(path), "/proc/%d/maps", t->pid);
	_cleanup_(fclosep) FILE *f = fopen(path, "r");

	do {
		char *more = f ? realloc(text, size + VDSO_MAX) : NULL;

		if (!more) {
			free(text);
			return NULL;
		}
		text = more;
		got = fread(text + size, 1, VDSO_MAX, f);
		size += got;
	} while (got > 0);
	*ret_size = size;
	return text;
}

static int trace_vdso(struct trace *t)
{
	static uint8_t bytes[VDSO_MAX];

	for (size_t i = 0; i < t->space.maps.count && t->space.vdso_fd < 0; i++) {
		const struct maps_region *r = &t->space.maps.regions[i];
		size_t size = r->end - r->start;

		if (r->kind == MAPS_VDSO && size <= sizeof(bytes) &&
			trace_read(t, r->start, bytes, size) == (ssize_t)size)
			return diff_space_set_vdso(&t->space, bytes, size);
	}
	return 0;
}

/* Reads the maps; the walkers are told when executable ones are others than before. */
static int trace_space(struct trace *t)
{
	struct maps maps;
	uint64_t hash = 1;
	size_t size = 0, used = 0;
	char *text = trace_maps_text(t, &size);

	if (!text)
		return -ESRCH;
	maps_init(&maps);
	int r = maps_feed(&maps, text, size, &used);

	for (size_t i = 0; i < maps.count; i++) {
		const struct maps_region *m = &maps.regions[i];

		hash = (hash ^ m->start) * 0x9e3779b97f4a7c15ULL;
		hash = (hash ^ m->end ^ m->inode << 20) * 0x9e3779b97f4a7c15ULL;
	}
	maps_done(&maps);
	if (r < 0 || hash == t->space_hash) {
		free(text);
		return r;
	}
	t->space_hash = hash;
	r = diff_space_set(&t->space, text, size);
	if (r == 0)
		r = trace_vdso(t);
	return r < 0 ? r : t->on_space(t->data, &t->space);
}

static bool trace_take_registers(struct trace *t, pid_t tid)
{
	struct diff_sample *s = &t->sample;
	struct user_regs_struct u;

	if (ptrace(PTRACE_GETREGS, tid, NULL, &u) < 0 || u.cs != USER_CS)
		return false;
	const uint64_t regs[DIFF_REGS] = {u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp,
		u.r8, u.r9, u.r10, u.r11, u.r12, u.r13, u.r14, u.r15};

	memcpy(s->regs, regs, sizeof(regs));
	s->pc = u.rip;
	s->orig_ax = (int64_t)u.orig_rax;
	return true;
}

static int trace_record(struct trace *t)
{
	enum { PAGE = 4096 };
	struct diff_sample *s = &t->sample;
	uint64_t end = s->regs[7] + DIFF_STACK_SIZE;

	s->stack_start = s->regs[7] - DIFF_BELOW;
	s->stack_size = 0;
	s->page_count = 0;
	s->live = t->pid;
	while (s->stack_start + s->stack_size < end) {
		uint64_t at = s->stack_start + s->stack_size;
		size_t size = MIN(end - at, PAGE - at % PAGE);

		if (trace_read(t, at, s->stack + s->stack_size, size) != (ssize_t)size)
			break;
		s->stack_size += size;
	}
	t->samples++;
	return t->on_sample(t->data, &t->space, s);
}

static int trace_record_thread(struct trace *t, struct thread *k)
{
	struct diff_sample *s = &t->sample;

	k->was_running = false;
	if (!trace_take_registers(t, k->tid))
		return 0;
	k->was_running = s->orig_ax < 0;
	if (!k->was_running && s->pc == k->last_pc && s->regs[7] == k->last_sp)
		return 0;
	k->last_pc = s->pc;
	k->last_sp = s->regs[7];
	return trace_record(t);
}

/* Steps of a thread that was running. A signal that comes meanwhile is delivered with the next. */
static int trace_steps(struct trace *t, pid_t tid)
{
	uint64_t steps = trace_random(t, t->o->steps + 1);
	int signal = 0, status, r = 0;

	for (uint64_t i = 0; i < steps && r == 0 && t->samples < t->o->samples; i++) {
		uint8_t code[2] = {0};

		if (!trace_take_registers(t, tid) ||
			trace_read(t, t->sample.pc, code, sizeof(code)) != sizeof(code) ||
			(code[0] == 0x0f && (code[1] == 0x05 || code[1] == 0x34)))
			break;
		trace_go(tid, PTRACE_SINGLESTEP, signal);
		signal = 0;
		if (waitpid(tid, &status, __WALL) != tid)
			return -ECHILD;
		if (!WIFSTOPPED(status)) {
			trace_gone(t, tid);
			return 0;
		}
		if (status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP)
			signal = WSTOPSIG(status);
		else if (trace_take_registers(t, tid))
			r = trace_record(t);
	}
	if (signal != 0)
		(void)syscall(SYS_tgkill, t->pid, tid, signal); /* not delivered yet */
	return r;
}

static int trace_stop(struct trace *t)
{
	pid_t running[THREADS_MAX];
	size_t count = 0;
	int r = 0;

	trace_stop_all(t);
	if (t->is_over)
		return 0;
	r = trace_space(t);
	for (size_t i = 0; i < t->thread_count && r == 0; i++) {
		r = trace_record_thread(t, &t->threads[i]);
		if (t->threads[i].was_running)
			running[count++] = t->threads[i].tid;
	}
	if (r == 0 && count > 0)
		r = trace_steps(t, running[trace_random(t, count)]);
	trace_cont_all(t);
	return r;
}

/* --- the program --- */

static void trace_child(const struct trace_options *o, const int *go)
{
	sigset_t none;
	char byte;
	int null = open("/dev/null", O_RDWR);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go[0], &byte, 1) != 1)
		_exit(127);
	close(go[0]);
	close(go[1]);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	execvp(o->argv[0], o->argv);
	_exit(127);
}

static int trace_start(struct trace *t)
{
	sigset_t child;
	int go[2];

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	if (pipe(go) < 0)
		return -errno;
	t->pid = fork();
	if (t->pid < 0)
		return -errno;
	if (t->pid == 0)
		trace_child(t->o, go);
	int r = ptrace(PTRACE_SEIZE, t->pid, NULL,
			(void *)(uintptr_t)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)) < 0
			? -errno
			: 0;

	close(go[0]);
	if (r == 0 && write(go[1], "g", 1) != 1)
		r = -errno;
	close(go[1]);
	if (r == 0)
		(void)trace_thread(t, t->pid);
	return r;
}

int trace_run(const struct trace_options *o, trace_space_fn *on_space, trace_sample_fn *on_sample,
	void *data)
{
	static struct trace t;
	int status;

	t = (struct trace){.o = o,
		.on_space = on_space,
		.on_sample = on_sample,
		.data = data,
		.space.vdso_fd = -1,
		.random = o->seed * 0x9e3779b97f4a7c15ULL + 1};
	maps_init(&t.space.maps);
	int r = trace_start(&t);
	uint64_t end = trace_now_ns() + o->seconds * NSEC_PER_SEC;

	while (r == 0 && !t.is_over && t.samples < o->samples && trace_now_ns() < end) {
		trace_let_run(&t, trace_now_ns() + 1000 * (200 + trace_random(&t, PAUSE_MAX_US)));
		if (!t.is_over)
			r = trace_stop(&t);
	}
	if (t.pid > 0) {
		pid_t tid = 0;

		kill(t.pid, SIGKILL);
		/* The process is told last, when all its threads have been. */
		while (tid >= 0 && (tid != t.pid || WIFSTOPPED(status)))
			tid = waitpid(-1, &status, __WALL);
	}
	return r;
}
