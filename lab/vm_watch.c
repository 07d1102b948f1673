/*
 * Boots one VM and watches it die. QEMU exits 0 on a clean power-off and on a panic alike, so its
 * exit code says nothing; what happened is put together from the result device ("crashed" until the
 * guest overwrote it), QMP's SHUTDOWN reason and GUEST_PANICKED (pvpanic), the console's last words,
 * and clocks of the host.
 *
 * Three deadlines: the whole run's; silence before the job begins; and silence inside a step, which
 * is the step's own guest-time limit times what a busy guest second costs here. Nothing is asked of
 * the guest while it runs (in exact mode any input would change it).
 */
#include "lab/vm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/child.h"
#include "base/def.h"
#include "base/file.h"
#include "base/loop.h"
#include "lab/qmp.h"
#include "lab/vm_result.h"

#define LOOK_NS (100 * NSEC_PER_MSEC)

enum {
	TIMEOUT_MS_DEFAULT = 900000,
	BOOT_SILENCE_MS = 120000, /* 4-10 s of boot, on a host that may be ten times overloaded */
	STEP_SLACK_MS = 60000,
	/*
	 * From "done" to QEMU's end. The result is whole before the guest says so, hence ending QEMU
	 * loses nothing. Seen once, under a host that starved QEMU's main thread: a vCPU spun for minutes
	 * after "reboot: Power down".
	 */
	END_SILENCE_MS = 5000,
	QMP_GREETING_MS = 20000,
	/* Real seconds a busy guest second may cost: measured 0.4 to 6 at shift 0. */
	BUSY_COST_EXACT = 24,
	BUSY_COST_FAST = 4,
};

enum watch_end { WATCH_EXITED, WATCH_SILENT, WATCH_DEADLINE, WATCH_NO_QMP, WATCH_FAILED };

struct watch {
	struct loop *loop;
	struct child child;
	struct qmp qmp;
	struct loop_source *qmp_source;
	struct vm_signs signs;
	int console_fd;
	uint64_t start_ns, sign_ns, deadline_ns;
	uint64_t step_cost;
	enum watch_end end;
	int error;
};

static void read_console(struct watch *w)
{
	char bytes[8192];
	ssize_t n;

	while ((n = read(w->console_fd, bytes, sizeof(bytes))) > 0) {
		vm_signs_feed(&w->signs, bytes, (size_t)n);
		w->sign_ns = loop_now_ns();
	}
}

static uint64_t silence_max_ns(const struct watch *w)
{
	if (w->signs.finished)
		return END_SILENCE_MS * NSEC_PER_MSEC;
	if (!w->signs.booted || !w->signs.step[0])
		return BOOT_SILENCE_MS * NSEC_PER_MSEC;
	return (w->signs.timeout_ms * w->step_cost + STEP_SLACK_MS) * NSEC_PER_MSEC;
}

static void give_up(struct watch *w, enum watch_end end)
{
	w->end = end;
	loop_stop(w->loop);
}

static int on_look(struct loop *l _unused_, uint32_t events _unused_, void *data)
{
	struct watch *w = data;
	uint64_t now;

	read_console(w);
	now = loop_now_ns(); /* after the read, which notes the time of a sign */
	if (now >= w->deadline_ns)
		give_up(w, WATCH_DEADLINE);
	else if (!w->qmp.is_running && now - w->start_ns > QMP_GREETING_MS * NSEC_PER_MSEC)
		give_up(w, WATCH_NO_QMP);
	else if (now - w->sign_ns > silence_max_ns(w))
		give_up(w, WATCH_SILENT);
	return 0;
}

static int on_qmp(struct loop *l _unused_, uint32_t events _unused_, void *data)
{
	struct watch *w = data;
	int err = qmp_pump(&w->qmp);

	if (err == 0)
		return 0;
	/* Closed or broken: the process's end says the rest. */
	loop_remove(w->qmp_source);
	w->qmp_source = NULL;
	return 0;
}

static int on_exit_of_qemu(struct loop *l _unused_, uint32_t events _unused_, void *data)
{
	give_up(data, WATCH_EXITED);
	return 0;
}

static int watch_loop(struct watch *w)
{
	struct loop_source *child_source = NULL, *timer = NULL;
	int err;

	if ((err = loop_add_fd(w->loop, w->qmp.fd, EPOLLIN, on_qmp, w, &w->qmp_source)) < 0 ||
		(err = loop_add_fd(w->loop, w->child.pidfd, EPOLLIN, on_exit_of_qemu, w,
			 &child_source)) < 0 ||
		(err = loop_add_timer(w->loop, LOOK_NS, LOOK_NS, on_look, w, &timer)) < 0)
		return err;
	err = loop_run(w->loop);
	if (err == 0 && w->end == WATCH_EXITED) {
		err = child_wait(&w->child, 1000); /* its pidfd was readable */
		(void)qmp_pump(&w->qmp);           /* the last events may still lie there */
	}
	read_console(w);
	return err;
}

/* The first line of a file that looks like the cause, without QEMU's name. */
static void first_line(const char *path, char *out, size_t size)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 << 10);
	const char *line, *end;

	out[0] = 0;
	if (file_read(path, &b) < 0 && b.size == 0)
		return;
	line = strstr(buf_str(&b), "qemu-system");
	line = line && strstr(line, ": ") ? strstr(line, ": ") + 2 : buf_str(&b);
	end = strchr(line, '\n');
	(void)snprintf(out, size, "%.*s", (int)(end ? end - line : (long)strlen(line)), line);
}

static void say(struct vm_outcome *o, enum vm_end end, const char *fmt, ...) _printf_(3, 4);
static void say(struct vm_outcome *o, enum vm_end end, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(o->reason, sizeof(o->reason), fmt, ap);
	va_end(ap);
	o->end = end;
}

static const char *where(const struct vm_signs *s, char text[160])
{
	if (!s->booted)
		return "while booting";
	if (s->step[0])
		(void)snprintf(text, 160, "in step %s", s->step);
	else
		(void)snprintf(text, 160, "after step %u of %zu", s->done, s->job->step_count);
	return text;
}

static void explain_exit(
	const struct watch *w, const struct vm_place *p, const char *at, struct vm_outcome *o)
{
	char text[160], status[64];

	if (w->signs.panic[0] || w->qmp.panicked) {
		say(o, VM_CRASHED, "guest kernel died %s: %.120s", at,
			w->signs.panic[0] ? w->signs.panic : "panic reported by pvpanic");
	} else if (w->signs.error[0]) {
		say(o, VM_CRASHED, "guest gave up %s: %.150s", at, w->signs.error);
	} else if (w->qmp.shutdown[0]) {
		say(o, VM_CRASHED, "guest ended %s before the job was done (%.60s)", at,
			w->qmp.shutdown);
	} else {
		first_line(p->qemu_log, text, sizeof(text));
		say(o, w->qmp.is_running ? VM_CRASHED : VM_NO_START, "QEMU ended with %s%s%.150s",
			child_describe(w->child.status, status), text[0] ? ": " : "", text);
	}
}

/* How it ended without a good result. */
static void explain(const struct watch *w, const struct vm_place *p, struct vm_outcome *o)
{
	uint64_t now = loop_now_ns();
	unsigned long long seconds = (now - w->start_ns) / NSEC_PER_SEC;
	char text[160];
	const char *at = where(&w->signs, text);

	switch (w->end) {
	case WATCH_EXITED:
		explain_exit(w, p, at, o);
		return;
	case WATCH_SILENT:
		say(o, VM_HUNG, "no life sign from the guest for %llu s %s",
			(unsigned long long)((now - w->sign_ns) / NSEC_PER_SEC), at);
		return;
	case WATCH_DEADLINE:
		say(o, VM_HUNG, "the deadline of %llu s passed %s", seconds, at);
		return;
	case WATCH_NO_QMP:
		say(o, VM_NO_START, "QEMU did not start its guest within %llu s: %s", seconds,
			w->qmp.error[0] ? w->qmp.error : "no answer on QMP");
		return;
	case WATCH_FAILED:
		say(o, VM_NO_START, "cannot watch QEMU: %s", strerror(-w->error));
		return;
	}
}

static void judge_end(
	struct watch *w, const struct vm_place *p, const char *out_dir, struct vm_outcome *o)
{
	struct vm_result result = {0};
	int err = vm_result_extract(p->result, out_dir, &result);

	if (err == -ENOSPC || err == -EDQUOT)
		say(o, VM_NO_SPACE, "the disk is full: cannot write results to %.150s", out_dir);
	else if (err < 0 && w->end == WATCH_EXITED && w->signs.finished)
		say(o, VM_CRASHED, "the guest's result cannot be read: %s", strerror(-err));
	else if (err == 0 && result.state == VM_RESULT_FULL)
		say(o, VM_NO_SPACE, "the result device of %u MB is full after %u files",
			(unsigned int)(VM_RESULT_BYTES >> 20), result.files);
	else if (err == 0 && result.state == VM_RESULT_DONE && result.has_done)
		say(o, VM_OK, "done");
	else
		explain(w, p, o);
}

static int start_qemu(struct watch *w, const struct vm_config *c, enum vm_accel accel,
	const struct vm_place *p, int qmp_fd)
{
	_cleanup_(vm_argv_done) struct vm_argv a = {0};
	_cleanup_(closep) int log =
		open(p->qemu_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct child_io io = {.in = -1, .out = log, .err = log, .keep = &qmp_fd, .keep_count = 1};
	int err;

	if (log < 0)
		return -errno;
	err = vm_argv_build(c, accel, p, qmp_fd, &a);
	return err < 0 ? err : child_start(&w->child, a.argv, &io);
}

static void watch_done(struct watch *w)
{
	child_end(&w->child, 500); /* QEMU flushes nothing that we need */
	qmp_done(&w->qmp);
	vm_signs_done(&w->signs);
	closep(&w->console_fd);
	loop_free(w->loop);
}

/* The scratch files that QEMU needs. -ENOSPC comes from here when the disk is full. */
static int prepare(const struct vm_config *c, const struct job *j, const struct vm_place *p)
{
	int err = vm_initrd_write(c, j, p->initrd);

	return err < 0 ? err : vm_result_seed(p->result, VM_RESULT_BYTES);
}

int vm_boot(const struct vm_config *c, enum vm_accel accel, const struct job *j,
	const struct vm_place *p, const char *out_dir, vm_progress_fn *progress, void *data,
	struct vm_outcome *ret)
{
	_cleanup_(watch_done) struct watch w = {.child = {.pidfd = -1}, .console_fd = -1};
	int pair[2], err = prepare(c, j, p);

	if (err == -ENOSPC || err == -EDQUOT) {
		say(ret, VM_NO_SPACE, "the disk is full: cannot write %.150s", p->dir);
		return 0;
	}
	if (err < 0)
		return err;
	vm_signs_init(&w.signs, j, progress, data);
	w.step_cost = accel == VM_ACCEL_ICOUNT ? MAX(BUSY_COST_EXACT >> c->shift, BUSY_COST_FAST)
					       : BUSY_COST_FAST;
	if ((err = loop_new(&w.loop)) < 0)
		return err;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	_cleanup_(closep) int qmp_fd = pair[0];
	qmp_init(&w.qmp, qmp_fd);
	w.console_fd = open(p->console, O_RDONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	w.start_ns = w.sign_ns = loop_now_ns();
	w.deadline_ns =
		w.start_ns + (c->timeout_ms ? c->timeout_ms : TIMEOUT_MS_DEFAULT) * NSEC_PER_MSEC;
	err = w.console_fd < 0 ? -errno : start_qemu(&w, c, accel, p, pair[1]);
	(void)close(pair[1]); /* QEMU has its own */
	if (err == -ENOENT) {
		say(ret, VM_NO_START, "%s is not installed (make deps installs it)",
			vm_qemu(c->arch));
		return 0;
	}
	if (err < 0) {
		say(ret, VM_NO_START, "cannot start %s: %s", vm_qemu(c->arch), strerror(-err));
		return 0;
	}
	w.error = watch_loop(&w);
	if (w.error < 0)
		w.end = WATCH_FAILED;
	child_end(&w.child, 500);
	judge_end(&w, p, out_dir, ret);
	ret->guest_ns = w.signs.guest_ns;
	ret->host_ns = loop_now_ns() - w.start_ns;
	return 0;
}
