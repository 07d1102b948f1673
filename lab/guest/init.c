/*
 * lab-init: runs a job (lab/job.h), as PID 1 of the guest or as a plain program on a host.
 *
 *	PID 1           reads /payload/job, writes to the result device, powers off
 *	--host JOB OUT BIN
 *	                reads JOB, leaves STEP/FILE under OUT, takes agents and workloads from BIN
 *
 * Life signs are lines on the console (guest) or stdout (host), nothing between a step's start and
 * end, because a line costs guest time:
 *	flamelab: boot UPTIME_NS             the job is about to begin
 *	flamelab: step I/N NAME start
 *	flamelab: step I/N NAME end
 *	flamelab: error TEXT
 *	flamelab: full                       the result device was too small
 *	flamelab: done UPTIME_NS
 *
 * flamelab.die=panic|hang|poweroff|full on the kernel command line makes it die after the first
 * step, which is how the lab tests that it notices. flamelab.shell=1 gives a prompt instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/def.h"
#include "lab/guest/boot.h"
#include "lab/guest/job_read.h"
#include "lab/guest/sink.h"
#include "lab/guest/step.h"

#define PAYLOAD "/payload"
#define OUT_DIR "/run/out"

enum { JOB_SIZE_MAX = 4 << 20 };

static const char *const step_files[] = {"profile.pb.gz", "agent.json", "agent.log", "truth.json",
	"workload.log", "meters.json", "windows.spool", "fleet.json", "backend.log", "verify.log",
	"verifier.log", "power.json", "power.log"};

_printf_(1, 2) static void say(const char *fmt, ...)
{
	char text[512] = "flamelab: ";
	size_t size = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text + size, sizeof(text) - size - 1, fmt, ap);
	va_end(ap);
	size = strlen(text);
	text[size++] = '\n';
	if (write(1, text, size) < 0)
		return; /* nobody listens; the host's deadline speaks then */
}

static unsigned long long uptime_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_BOOTTIME, &ts); /* cannot fail with this clock */
	return (unsigned long long)ts.tv_sec * NSEC_PER_SEC + (unsigned long long)ts.tv_nsec;
}

static char *read_job_text(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = calloc(1, JOB_SIZE_MAX + 1);
	size_t size = 0;

	while (fd >= 0 && text && size < JOB_SIZE_MAX) {
		ssize_t n = read(fd, text + size, JOB_SIZE_MAX - size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			return text;
		if (n < 0)
			break;
		size += (size_t)n;
	}
	free(text);
	return NULL;
}

/* Takes a step's files to the sink, and out of the way in the guest. */
static int collect(struct sink *sink, const char *step, const char *dir)
{
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(step_files); i++) {
		char path[PATH_MAX], name[256];
		int one;

		(void)snprintf(path, sizeof(path), "%s/%s", dir, step_files[i]);
		(void)snprintf(name, sizeof(name), "%s/%s", step, step_files[i]);
		one = sink_add_file(sink, name, path);
		if (one < 0 && one != -ENOENT)
			err = one;
		if (sink->fd >= 0)
			(void)unlink(path);
	}
	return err;
}

/* A misbehaviour on demand, so that the lab's eyes can be tested. */
static void maybe_die(const char *how, struct sink *sink)
{
	if (strcmp(how, "panic") == 0) {
		int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, "c", 1) < 0)
			(void)close(fd);
	} else if (strcmp(how, "hang") == 0) {
		for (;;)
			(void)pause();
	} else if (strcmp(how, "poweroff") == 0) {
		boot_power_off();
	} else if (strcmp(how, "full") == 0) {
		char *data = calloc(1, 1 << 20);

		while (data && sink_add(sink, "fill", data, 1 << 20) == 0)
			;
		free(data);
	}
}

static int run_job(
	const struct job *j, struct sink *sink, const char *out, const char *bin, const char *die)
{
	struct group_root groups;
	int err;

	group_root_find(&groups);
	for (size_t i = 0; i < j->step_count; i++) {
		const struct job_step *s = &j->steps[i];
		char dir[1024];
		struct step_place place = {.groups = &groups, .bin_dir = bin, .out_dir = dir};

		(void)snprintf(dir, sizeof(dir), "%s/%s", out, s->name);
		if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
			say("error cannot make %s: %s", dir, strerror(errno));
			return -errno;
		}
		say("step %zu/%zu %s start", i + 1, j->step_count, s->name);
		err = step_run(s, &place);
		if (err < 0)
			say("error step %s: %s", s->name, strerror(-err));
		if (err == 0)
			err = collect(sink, s->name, dir);
		if (err == 0)
			err = sink_commit(sink, 0);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			; /* orphans of agent and workload end up here */
		if (err < 0 && err != -ENOSPC)
			return err;
		say("step %zu/%zu %s end", i + 1, j->step_count, s->name);
		maybe_die(die, sink);
	}
	return 0;
}

static void guest_shell(void)
{
	static const char *const argv[] = {"sh", "-l", NULL};
	static const char *const envp[] = {"PATH=/run/bin:/usr/sbin:/usr/bin:" PAYLOAD ":" PAYLOAD
					   "/workloads",
		"HOME=/tmp", "TERM=vt100", "LANG=C.UTF-8", "PS1=guest# ", NULL};
	pid_t pid = fork();

	if (pid == 0) {
		int fd = -1;

		if (mkdir("/run/bin", 0755) == 0 && fork() == 0) {
			execl("/usr/bin/busybox", "busybox", "--install", "-s", "/run/bin",
				(char *)NULL);
			_exit(127);
		}
		while (wait(NULL) > 0)
			;
		(void)setsid();
		/* aarch64's; there ttyS0 exists, too, and leads nowhere. */
		fd = open("/dev/ttyAMA0", O_RDWR);
		if (fd < 0)
			fd = open("/dev/ttyS0", O_RDWR);
		if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0)
			_exit(126);
		for (int i = 0; i < 3; i++)
			(void)dup2(fd, i);
		execve("/usr/bin/busybox", (char *const *)argv, (char *const *)envp);
		_exit(127);
	}
	for (pid_t p; (p = waitpid(-1, NULL, 0)) != pid;)
		if (p < 0 && errno != EINTR)
			break;
}

static void guest_main(void)
{
	_cleanup_(freep) char *text = NULL;
	char die[16], shell[4];
	unsigned int line = 0;
	const char *error;
	struct sink sink;
	struct job job;
	int err;

	boot_console();
	if ((error = boot_root()) || (error = boot_mounts())) {
		say("error %s", error);
		return;
	}
	boot_argument("flamelab.die", die, sizeof(die));
	boot_argument("flamelab.shell", shell, sizeof(shell));
	if (shell[0]) {
		guest_shell();
		return;
	}
	text = read_job_text(PAYLOAD "/job");
	if (!text || job_read(text, &job, &line) < 0) {
		say("error job line %u", line);
		return;
	}
	err = sink_open(&sink, boot_result_device());
	if (err < 0 || mkdir(OUT_DIR, 0755) < 0) {
		say("error result device: %s", strerror(err < 0 ? -err : errno));
		return;
	}
	say("boot %llu", uptime_ns());
	err = run_job(&job, &sink, OUT_DIR, PAYLOAD, die);
	if (err == 0)
		err = sink_add(&sink, "done", "ok\n", 3);
	if (err == -ENOSPC)
		say("full");
	else if (err < 0)
		say("error %s", strerror(-err));
	if (sink_commit(&sink, err == 0) < 0)
		say("error cannot write the result's header");
	if (err == 0)
		say("done %llu", uptime_ns());
}

static int host_main(char **argv)
{
	_cleanup_(freep) char *text = read_job_text(argv[0]);
	struct sink nowhere = {.fd = -1};
	unsigned int line = 0;
	char path[PATH_MAX];
	struct job job;
	int err;

	if (!text) {
		say("error cannot read %s", argv[0]);
		return 1;
	}
	if (job_read(text, &job, &line) < 0) {
		say("error %s line %u", argv[0], line);
		return 1;
	}
	/* What agent and workload leave behind becomes ours to reap, as it is PID 1's in the guest.
	 */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	say("boot %llu", uptime_ns());
	err = run_job(&job, &nowhere, argv[1], argv[2], "");
	if (err < 0)
		return 1;
	(void)snprintf(path, sizeof(path), "%s/done", argv[1]);
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, "ok\n", 3) != 3) {
		say("error cannot write %s: %s", path, strerror(errno));
		return 1;
	}
	say("done %llu", uptime_ns());
	return 0;
}

int main(int argc, char **argv)
{
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc == 5 && strcmp(argv[1], "--host") == 0)
		return host_main(argv + 2);
	if (getpid() != 1) {
		(void)fprintf(stderr, "usage: lab-init --host JOB OUT_DIR BIN_DIR\n"
				      "Without arguments it is PID 1 of a guest.\n");
		return 2;
	}
	guest_main();
	boot_power_off();
}
