/* child: exec errors, descriptors, signals, deadlines over whole groups. */
#include "base/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/loop.h"
#include "base/str.h"

/* A shell that runs the script. */
#define SH(script) ((char *const[]){(char *)"sh", (char *)"-c", (char *)(script), NULL})

TestSuite(child, .timeout = 30);

static const struct child_io silent = {.in = -1, .out = -1, .err = -1};

Test(child, run_returns_the_exit_code_and_both_outputs)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

	cr_assert_eq(child_run(SH("echo out; echo err >&2; exit 3"), &out, 10000), 3);
	cr_assert_str_eq(buf_str(&out), "out\nerr\n");
	cr_assert_eq(child_run(SH("exit 0"), NULL, 10000), 0);
	cr_assert_eq(child_run(SH("kill -9 $$"), NULL, 10000), 128 + SIGKILL);
}

Test(child, an_exec_that_fails_is_reported_with_its_errno)
{
	char *const none[] = {(char *)"flame-no-such-program", NULL};
	char *const dir[] = {(char *)"/tmp", NULL};
	struct child_io io = silent;
	struct child c = {.pidfd = -1};

	cr_assert_eq(child_start(&c, none, &silent), -ENOENT);
	cr_assert_eq(child_start(&c, dir, &silent), -EACCES);
	io.cwd = "/no/such/dir";
	cr_assert_eq(child_start(&c, SH("true"), &io), -ENOENT);
	cr_assert_eq(c.pid, 0);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "all reaped");
	cr_assert_eq(errno, ECHILD);
}

Test(child, output_above_the_limit_is_dropped_but_the_child_ends_normally)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(100);

	cr_assert_eq(child_run(SH("head -c 3000000 /dev/zero; exit 5"), &out, 20000), 5);
	cr_assert_eq(out.size, 100);
	cr_assert_eq(buf_error(&out), -ENOBUFS);
}

/* Reads the pid that the script printed. */
static pid_t read_pid(int fd)
{
	char text[32] = "";
	size_t n = 0;
	uint64_t v = 0;

	while (n < sizeof(text) - 1 && read(fd, text + n, 1) == 1 && text[n] != '\n')
		n++;
	text[n] = '\0';
	cr_assert_eq(str_to_u64(text, 1, INT32_MAX, &v), 0, "'%s'", text);
	return (pid_t)v;
}

/* The last writer's end closes the pipe: 1 when that happened within 5 s. */
static int wait_for_eof(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;

	return poll(&p, 1, 5000) == 1 && read(fd, &c, 1) == 0;
}

static const char *const stubborn = "trap '' TERM; (trap '' TERM; echo $$; sleep 600; sleep 600) & "
				    "echo $!; wait; sleep 600";

Test(child, end_kills_the_whole_group_also_grandchildren_that_ignore_sigterm)
{
	struct child c = {.pidfd = -1};
	struct child_io io = silent;
	uint64_t begin;
	int ends[2];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	io.out = ends[1];
	cr_assert_eq(child_start(&c, SH(stubborn), &io), 0);
	cr_assert_eq(close(ends[1]), 0);
	cr_assert_eq(getpgid(c.pid), c.pid);
	(void)read_pid(ends[0]);
	(void)read_pid(ends[0]);
	begin = loop_now_ns();
	child_end(&c, 50);
	cr_assert_geq(loop_now_ns() - begin, 50 * NSEC_PER_MSEC, "the grace was given");
	cr_assert_eq(c.status, SIGKILL);
	cr_assert_eq(c.pid, 0);
	cr_assert_eq(c.pidfd, -1);
	cr_assert(wait_for_eof(ends[0]), "no grandchild holds the pipe");
	child_end(&c, 50);
}

Test(child, end_lets_a_polite_child_go_within_the_grace)
{
	struct child c = {.pidfd = -1};
	struct child_io io = silent;
	int ends[2];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	io.out = ends[1];
	cr_assert_eq(child_start(&c,
			     SH("trap 'exit 7' TERM; echo $$; while :; do sleep 0.01; done"), &io),
		0);
	(void)read_pid(ends[0]);
	child_end(&c, 20000);
	cr_assert(WIFEXITED(c.status));
	cr_assert_eq(WEXITSTATUS(c.status), 7);
}

Test(child, end_wakes_a_stopped_child)
{
	struct child c = {.pidfd = -1};
	int status = 0;

	cr_assert_eq(child_start(&c, SH("kill -STOP $$; exit 9"), &silent), 0);
	cr_assert_eq(waitpid(c.pid, &status, WUNTRACED), c.pid);
	cr_assert(WIFSTOPPED(status));
	child_end(&c, 20000);
	cr_assert_eq(c.status, SIGTERM);
}

Test(child, run_kills_the_group_at_the_deadline_though_output_never_pauses)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);
	uint64_t begin = loop_now_ns();

	cr_assert_eq(child_run(SH("yes & yes"), &out, 200), -ETIMEDOUT);
	cr_assert_leq(loop_now_ns() - begin, 10 * NSEC_PER_SEC);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "reaped");
}

Test(child, run_does_not_wait_for_what_the_child_left_behind)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

	cr_assert_eq(child_run(SH("sleep 600 & echo done"), &out, 20000), 0);
	cr_assert_str_eq(buf_str(&out), "done\n");
}

Test(child, wait_times_out_and_later_gives_the_status)
{
	struct child c = {.pidfd = -1};
	struct child_io io = silent;
	int ends[2];

	cr_assert_eq(child_wait(&c, 0), -ECHILD);
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	io.in = ends[0];
	cr_assert_eq(child_start(&c, SH("read x; exit 4"), &io), 0);
	cr_assert_eq(child_wait(&c, 0), -ETIMEDOUT);
	cr_assert_eq(child_wait(&c, 20), -ETIMEDOUT);
	cr_assert_eq(close(ends[1]), 0);
	cr_assert_eq(child_wait(&c, UINT64_MAX), 0);
	cr_assert_eq(WEXITSTATUS(c.status), 4);
	cr_assert_eq(child_wait(&c, 0), -ECHILD);
}

Test(child, gets_no_descriptor_but_those_named)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);
	int leak = open("/dev/null", O_RDONLY); /* on purpose without CLOEXEC */
	int kept = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct child_io io = silent;
	struct child c = {.pidfd = -1};
	char script[200], *argv[] = {(char *)"sh", (char *)"-c", script, NULL};

	io.keep = &kept;
	io.keep_count = 1;
	cr_assert_neq(leak, kept);
	(void)snprintf(script, sizeof(script),
		"test -e /proc/self/fd/%d && test ! -e /proc/self/fd/%d", kept, leak);
	cr_assert_eq(child_start(&c, argv, &io), 0);
	cr_assert_eq(child_wait(&c, 10000), 0);
	cr_assert_eq(c.status, 0);
}

Test(child, stdio_may_be_given_crosswise)
{
	int ends[2], saved_out = dup(1), saved_err = dup(2);
	struct child_io io = {.in = -1, .out = 2, .err = 1};
	struct child c = {.pidfd = -1};
	char text[8] = "";

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	/* Our 1 is the pipe and 2 is /dev/null; the child's 2 is our 1. */
	cr_assert_geq(dup2(ends[1], 1), 0);
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	cr_assert_geq(dup2(null, 2), 0);
	int r = child_start(&c, SH("echo out; echo err >&2"), &io);
	(void)dup2(saved_out, 1);
	(void)dup2(saved_err, 2);
	cr_assert_eq(r, 0);
	cr_assert_eq(child_wait(&c, 10000), 0);
	cr_assert_eq(read(ends[0], text, 7), 4);
	cr_assert_str_eq(text, "err\n");
}

Test(child, starts_with_no_signal_blocked_or_ignored)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);
	sigset_t set;

	sigfillset(&set);
	cr_assert_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	cr_assert_neq(signal(SIGPIPE, SIG_IGN), SIG_ERR);
	cr_assert_neq(signal(SIGUSR2, SIG_IGN), SIG_ERR);
	/* libc's own signal, which some parents leave ignored: the kernel's struct sigaction, by hand. */
	const uint64_t ignore[4] = {(uintptr_t)SIG_IGN};
	cr_assert_eq(syscall(SYS_rt_sigaction, 32, ignore, NULL, 8), 0);
	char *const argv[] = {(char *)"grep", (char *)"-E", (char *)"Sig(Blk|Ign)",
		(char *)"/proc/self/status", NULL};
	cr_assert_eq(child_run(argv, &out, 10000), 0);
	cr_assert_str_eq(buf_str(&out), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

Test(child, environment_and_directory_are_those_given)
{
	char *const envp[] = {(char *)"ONLY=this", NULL};
	struct child_io io = {.in = -1, .err = -1, .cwd = "/usr", .envp = envp};
	struct child c = {.pidfd = -1};
	char text[100] = "";
	int ends[2];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	io.out = ends[1];
	cr_assert_eq(child_start(&c, SH("echo \"$ONLY $HOME $(pwd)\""), &io), 0);
	cr_assert_eq(child_wait(&c, 10000), 0);
	cr_assert_gt(read(ends[0], text, sizeof(text) - 1), 0);
	cr_assert_str_eq(text, "this  /usr\n");
}

/* The middle process dies by SIGKILL; its child must follow, seen by the end of the pipe. */
Test(child, dies_with_its_parent)
{
	int ends[2], ready[2];
	char c;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	pid_t middle = fork();
	if (middle == 0) {
		struct child_io io = {.in = -1, .out = ends[1], .err = -1};
		struct child grandchild = {.pidfd = -1};

		if (child_start(&grandchild, SH("exec sleep 600"), &io) == 0)
			(void)!write(ready[1], "x", 1);
		raise(SIGKILL);
	}
	cr_assert_eq(close(ends[1]), 0);
	cr_assert_eq(close(ready[1]), 0);
	cr_assert_eq(read(ready[0], &c, 1), 1);
	cr_assert_eq(waitpid(middle, NULL, 0), middle);
	cr_assert(wait_for_eof(ends[0]));
}

Test(child, pidfd_and_error_pipe_do_not_leak)
{
	int before = dup(2);

	(void)close(before);
	for (int i = 0; i < 5; i++) {
		char *const none[] = {(char *)"flame-no-such-program", NULL};
		_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

		cr_assert_eq(child_run(SH("true"), &out, 10000), 0);
		cr_assert_eq(child_run(none, &out, 10000), -ENOENT);
	}
	cr_assert_eq(dup(2), before);
}

Test(child, describes_how_it_ended)
{
	char out[64];

	cr_assert_str_eq(child_describe(3 << 8, out), "exit 3");
	cr_assert_str_eq(child_describe(SIGKILL, out), "signal 9 (Killed)");
	cr_assert_str_eq(child_describe(SIGSEGV | 0x80, out), "signal 11 (Segmentation fault)");
}
