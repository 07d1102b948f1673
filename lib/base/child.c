/*
 * Child processes. Between fork and exec only async-signal-safe calls are made, since the parent
 * may have threads. What fails in there travels back through a CLOEXEC pipe: an exec that worked
 * closes it, so end of file means success.
 *
 * A group is killed before its leader is reaped: until then the kernel cannot give the leader's
 * number, which is the group's too, to anybody else.
 */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/loop.h"

/* Enough for a tool to remove its temporary files; a hung one should not hold up our own end. */
#define CHILD_GRACE_MS 500

#define CHILD_EXIT_FAILED 127

/*
 * Reads in one go: more than a pipe holds, and yet an end, so that a child that writes without
 * pause cannot keep us from looking at the deadline.
 */
#define CHILD_DRAIN_READS_MAX 256

static _Noreturn void child_fail(int error_fd)
{
	int error = errno;

	/* Without the pipe the exit status still tells. */
	if (write(error_fd, &error, sizeof(error)) < 0)
		_exit(CHILD_EXIT_FAILED);
	_exit(CHILD_EXIT_FAILED);
}

/*
 * By the system call: libc's sigaction() refuses 32 and 33, which it keeps for threads, and a starter
 * that ignores them hands that on through exec.
 */
static void child_reset_signals(void)
{
	static const uint64_t
		dfl[4]; /* the kernel's struct sigaction: handler SIG_DFL, no flags, no mask */
	sigset_t none;

	for (int signo = 1; signo < NSIG; signo++)
		(void)syscall(
			SYS_rt_sigaction, signo, dfl, NULL, 8); /* refused for SIGKILL, SIGSTOP */
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
}

static int child_set_stdio(const struct child_io *io)
{
	const int given[3] = {io->in, io->out, io->err};
	int high[3];

	/* All above 2 first, or one dup2 would overwrite what a later one copies. */
	for (int i = 0; i < 3; i++) {
		int fd = given[i] >= 0 ? given[i] : open("/dev/null", O_RDWR | O_CLOEXEC);

		high[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (high[i] < 0)
			return -1;
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(high[i], i) < 0)
			return -1;
	}
	return 0;
}

static int child_set_fds(const struct child_io *io)
{
	/* Marked rather than closed: the error pipe must live until exec. */
	if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return -1;
	for (size_t i = 0; i < io->keep_count; i++) {
		if (io->keep[i] > 2 && fcntl(io->keep[i], F_SETFD, 0) < 0)
			return -1;
	}
	return 0;
}

static _Noreturn void child_become(
	char *const argv[], const struct child_io *io, pid_t parent, int error_fd)
{
	int high_fd = fcntl(error_fd, F_DUPFD_CLOEXEC, 3);

	if (high_fd < 0)
		child_fail(error_fd);
	if (setpgid(0, 0) < 0)
		child_fail(high_fd);
	if (!io->no_pdeathsig) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			child_fail(high_fd);
		/* The parent may have died before the call. */
		if (getppid() != parent)
			_exit(CHILD_EXIT_FAILED);
	}
	child_reset_signals();
	if (child_set_stdio(io) < 0 || child_set_fds(io) < 0)
		child_fail(high_fd);
	if (io->cwd && chdir(io->cwd) < 0)
		child_fail(high_fd);
	(void)execvpe(argv[0], argv, io->envp ? io->envp : environ); /* returns only to fail */
	child_fail(high_fd);
}

/* fork with all signals blocked, so that no handler of ours runs in the child. */
static int child_fork(char *const argv[], const struct child_io *io, int error_fd, pid_t *ret)
{
	pid_t parent = getpid(), pid;
	sigset_t all, before;
	int r;

	sigfillset(&all);
	r = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (r != 0)
		return -r;
	pid = fork();
	if (pid == 0)
		child_become(argv, io, parent, error_fd);
	r = pid < 0 ? -errno : 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* was valid before */
	if (r == 0)
		*ret = pid;
	return r;
}

static int child_reap(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* What the child's exec failed with, 0 when it worked. */
static int child_read_error(int fd)
{
	int error = 0;
	ssize_t n;

	/* Not bounded by a timeout: the child either execs or exits, and both close the pipe. */
	do {
		n = read(fd, &error, sizeof(error));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == sizeof(error) ? -error : 0;
}

int child_start(struct child *c, char *const argv[], const struct child_io *io)
{
	static const struct child_io nothing = {.in = -1, .out = -1, .err = -1};
	int ends[2], r;
	pid_t pid = 0;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	_cleanup_(closep) int read_fd = ends[0];
	_cleanup_(closep) int write_fd = ends[1];

	r = child_fork(argv, io ? io : &nothing, write_fd, &pid);
	if (r < 0)
		return r;
	closep(&write_fd);
	write_fd = -1;
	r = child_read_error(read_fd);
	if (r == 0) {
		int pidfd = pidfd_open(pid, 0); /* always CLOEXEC */

		if (pidfd >= 0) {
			*c = (struct child){.pid = pid, .pidfd = pidfd};
			return 0;
		}
		r = -errno;
	}
	(void)kill(pid, SIGKILL); /* may be gone already */
	(void)child_reap(pid);
	return r;
}

static void child_ended(struct child *c)
{
	c->status = child_reap(c->pid);
	closep(&c->pidfd);
	c->pidfd = -1;
	c->pid = 0;
}

static uint64_t child_deadline_ns(uint64_t timeout_ms)
{
	uint64_t ns;

	if (__builtin_mul_overflow(timeout_ms, NSEC_PER_MSEC, &ns) ||
		__builtin_add_overflow(ns, loop_now_ns(), &ns))
		return UINT64_MAX;
	return ns;
}

/* poll until the deadline: the number of ready descriptors, 0 when it passed, -errno. */
static int child_poll(struct pollfd *fds, nfds_t count, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now = loop_now_ns();
		uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
		struct timespec ts = {.tv_sec = (time_t)(left / NSEC_PER_SEC),
			.tv_nsec = (long)(left % NSEC_PER_SEC)};
		int n = ppoll(fds, count, &ts, NULL);

		if (n >= 0)
			return n;
		if (errno != EINTR)
			return -errno;
	}
}

int child_wait(struct child *c, uint64_t timeout_ms)
{
	struct pollfd fd = {.fd = c->pidfd, .events = POLLIN};
	int n;

	if (c->pid <= 0)
		return -ECHILD;
	n = child_poll(&fd, 1, child_deadline_ns(timeout_ms));
	if (n < 0)
		return n;
	if (n == 0)
		return -ETIMEDOUT;
	child_ended(c);
	return 0;
}

void child_end(struct child *c, uint64_t grace_ms)
{
	struct pollfd fd = {.fd = c->pidfd, .events = POLLIN};

	if (c->pid <= 0)
		return;
	/* SIGCONT too: a stopped process would not see the SIGTERM. */
	if (grace_ms > 0 && kill(-c->pid, SIGTERM) == 0 && kill(-c->pid, SIGCONT) == 0)
		(void)child_poll(&fd, 1, child_deadline_ns(grace_ms)); /* SIGKILL comes anyway */
	/* Also when the leader ended in time: others of its group may have not. */
	(void)kill(-c->pid, SIGKILL);
	child_ended(c);
}

void child_done(struct child *c)
{
	if (c)
		child_end(c, CHILD_GRACE_MS);
}

char *child_describe(int status, char out[64])
{
	const char *name;

	if (WIFEXITED(status)) {
		(void)snprintf(out, 64, "exit %d", WEXITSTATUS(status));
	} else if (WIFSIGNALED(status)) {
		name = sigdescr_np(WTERMSIG(status));
		(void)snprintf(
			out, 64, "signal %d (%s)", WTERMSIG(status), name ? name : "unknown");
	} else {
		(void)snprintf(out, 64, "wait status 0x%x", (unsigned int)status);
	}
	return out;
}

static int child_exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Appends what is there to out. 1 when more may come, 0 at the end, -errno. */
static int child_drain(int fd, struct buf *out)
{
	char block[4096];

	for (int i = 0; i < CHILD_DRAIN_READS_MAX; i++) {
		ssize_t n = read(fd, block, sizeof(block));

		if (n > 0)
			/* Past its limit output is read and dropped; out->error says so. */
			(void)buf_append(out, block, (size_t)n);
		else if (n == 0)
			return 0;
		else if (errno == EAGAIN)
			return 1;
		else if (errno != EINTR)
			return -errno;
	}
	return 1;
}

/* Reads until the child ended or the deadline came. */
static int child_follow(struct child *c, int out_fd, struct buf *out, uint64_t deadline_ns)
{
	struct pollfd fds[2] = {
		{.fd = c->pidfd, .events = POLLIN}, {.fd = out_fd, .events = POLLIN}};

	for (;;) {
		int n = child_poll(fds, 2, deadline_ns);
		int r;

		if (n < 0)
			return n;
		if (n == 0 || (!fds[0].revents && loop_now_ns() >= deadline_ns))
			return -ETIMEDOUT;
		if (fds[1].revents) {
			r = child_drain(out_fd, out);
			if (r < 0)
				return r;
			if (r == 0)
				fds[1].fd = -1; /* poll passes over it */
		}
		if (fds[0].revents)
			break;
	}
	/* The pipe may be held open by what the child left behind: that ends now as well. */
	(void)kill(-c->pid, SIGKILL);
	return fds[1].fd >= 0 ? MIN(child_drain(out_fd, out), 0) : 0;
}

int child_run(char *const argv[], struct buf *out, uint64_t timeout_ms)
{
	_cleanup_(child_done) struct child c = {.pidfd = -1};
	struct child_io io = {.in = -1, .out = 1, .err = 2};
	uint64_t deadline_ns = child_deadline_ns(timeout_ms);
	int ends[2] = {-1, -1};
	int r;

	if (out && pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	_cleanup_(closep) int read_fd = ends[0];
	_cleanup_(closep) int write_fd = ends[1];

	if (out) {
		/* Our end only: the child's programs expect a blocking pipe. */
		if (fcntl(read_fd, F_SETFL, O_NONBLOCK) < 0)
			return -errno;
		io.out = io.err = write_fd;
	}
	r = child_start(&c, argv, &io);
	if (r < 0)
		return r;
	closep(&write_fd);
	write_fd = -1;
	r = child_follow(&c, read_fd, out, deadline_ns);
	if (r < 0)
		return r;
	child_ended(&c);
	return child_exit_code(c.status);
}
