/* until_ready COMMAND... - starts a recording and tells how long it took until sampling ran on all
 * CPUs.
 *
 * COMMAND gets `--ready-fd FD` appended, and SIGINT as soon as it has said 'R' there. Prints
 * "READY_NS EXIT_NS": from just before fork to the byte, and to the end of the process, both by
 * CLOCK_MONOTONIC. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READY_TIMEOUT_MS = 30000 }; /* a start takes well under a second; a hang must end */

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "until_ready: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC, &ts))
		fail("clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Runs in the child. */
static _Noreturn void start(int argc, char **argv, int ready_fd)
{
	char fd_text[16];
	char **args = calloc((size_t)argc + 2, sizeof *args);

	if (!args)
		fail("calloc");
	(void)snprintf(fd_text, sizeof fd_text, "%d", ready_fd); /* an int always fits */
	memcpy(args, argv + 1, (size_t)(argc - 1) * sizeof *args);
	args[argc - 1] = (char[]){"--ready-fd"};
	args[argc] = fd_text;
	execvp(args[0], args);
	fail(args[0]);
}

int main(int argc, char **argv)
{
	int fds[2], status;
	char byte = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: until_ready COMMAND...\n");
		return 2;
	}
	if (pipe(fds))
		fail("pipe");
	uint64_t t0 = now_ns();
	pid_t pid = fork();
	if (pid < 0)
		fail("fork");
	if (!pid) {
		close(fds[0]);
		start(argc, argv, fds[1]);
	}
	close(fds[1]);
	struct pollfd p = {.fd = fds[0], .events = POLLIN};
	int r = poll(&p, 1, READY_TIMEOUT_MS);
	if (r == 1)
		r = (int)read(fds[0], &byte, 1);
	uint64_t ready = now_ns();
	if (r != 1 || byte != 'R') {
		(void)kill(pid, SIGKILL); /* it may have ended already */
		fprintf(stderr, "until_ready: %s never became ready\n", argv[1]);
		return 1;
	}
	if (kill(pid, SIGINT) || waitpid(pid, &status, 0) != pid)
		fail("waitpid");
	uint64_t end = now_ns();
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "until_ready: %s failed, status %d\n", argv[1], status);
		return 1;
	}
	printf("%llu %llu\n", (unsigned long long)(ready - t0), (unsigned long long)(end - t0));
	return 0;
}
