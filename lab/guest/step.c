/*
 * One step: agent up (its ready byte), start offset, workload, SIGINT to the agent, its end,
 * meters.
 *
 * Everything is waited for in one poll() with the step's deadline: the ready pipe, the two
 * processes (pidfd) and a 10 Hz timer that looks at the agent's memory. The timer also runs when
 * there is no agent, and looks at an empty cgroup then: so the run that an overhead is measured
 * against carries the same cost of being watched.
 */
#include "lab/guest/step.h"

#include "lab/guest/fleet.h"
#include "lab/guest/power.h"
#include "lab/guest/step_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/def.h"

enum { MEMORY_PERIOD_NS = 100000000, READY_FD = 9, PAD_MAX = 100000 };

uint64_t step_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail with this clock */
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

void step_path(const struct run *r, const char *file, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%s/%s", r->place->out_dir, file);
}

/* The child's side. Descriptors: 0 /dev/null, 1 and 2 the log, READY_FD the ready pipe if any. */
static void child_exec(const struct process *p, const char **argv, const char **envp,
	const char *log, int ready_fd)
{
	int in = open("/dev/null", O_RDONLY);
	int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* host mode: nothing outlives a killed lab-init */
	group_join(&p->group);
	if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	if (ready_fd >= 0 && (dup2(ready_fd, READY_FD) < 0 || fcntl(READY_FD, F_SETFD, 0) < 0))
		_exit(126); /* dup2 onto itself would keep CLOEXEC */
	if (syscall(SYS_close_range, READY_FD + 1, ~0U, 0) < 0)
		_exit(126);
	execve(argv[0], (char *const *)argv, (char *const *)envp);
	dprintf(2, "lab-init: cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int step_start(struct run *r, struct process *p, const char **argv, const char **envp,
	const char *log, int ready_fd)
{
	char path[PATH_MAX];
	pid_t pid;

	step_path(r, log, path);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child_exec(p, argv, envp, path, ready_fd);
	p->pid = pid;
	p->group.pid = pid;
	p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (p->pidfd < 0) {
		int err = -errno;

		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		p->pid = 0;
		return err;
	}
	return 0;
}

/* Reaps it when it has ended. */
static void process_check(struct process *p)
{
	if (p->pidfd < 0 || wait4(p->pid, &p->status, WNOHANG, &p->usage) != p->pid)
		return;
	(void)close(p->pidfd);
	p->pidfd = -1;
}

static void sample_memory(struct run *r)
{
	uint64_t bytes = group_memory_bytes(&r->agent.group);

	r->memory_samples++;
	r->memory_peak = MAX(r->memory_peak, bytes);
	if (r->step->memory_series && r->workload.pidfd >= 0 &&
		r->memory_series_count < MEMORY_SERIES_MAX)
		r->memory_series[r->memory_series_count++] =
			group_memory_kept_bytes(&r->agent.group);
}

static void read_ready(struct run *r)
{
	char c = 0;
	ssize_t n = read(r->ready_fd, &c, 1);

	if (n < 0 && errno == EINTR)
		return;
	r->ready = n == 1 && c == 'R';
	r->ready_seen = true; /* stays open: an agent that repeats may say it again */
}

/* Waits for the next thing to happen, until_ns at most, and takes note of it. */
void step_poll(struct run *r, uint64_t until_ns)
{
	struct pollfd p[5] = {
		{.fd = r->ready_seen ? -1 : r->ready_fd, .events = POLLIN},
		{.fd = r->agent.pidfd, .events = POLLIN},
		{.fd = r->workload.pidfd, .events = POLLIN},
		{.fd = r->timer_fd, .events = POLLIN},
		{.fd = r->backend.pidfd, .events = POLLIN},
	};
	uint64_t now = step_now_ns(), left = until_ns > now ? until_ns - now : 0, ticks;
	struct timespec ts = {(time_t)(left / NSEC_PER_SEC), (long)(left % NSEC_PER_SEC)};

	if (ppoll(p, ARRAY_SIZE(p), &ts, NULL) <= 0)
		return;
	if (p[0].revents)
		read_ready(r);
	if (p[3].revents && read(r->timer_fd, &ticks, sizeof(ticks)) == (ssize_t)sizeof(ticks))
		sample_memory(r);
	process_check(&r->agent);
	process_check(&r->workload);
	process_check(&r->backend);
}

bool step_in_time(struct run *r)
{
	if (step_now_ns() < r->deadline_ns)
		return true;
	r->timed_out = true;
	return false;
}

/* The environment is fixed: nothing of the host's gets into a run. */
void step_env(const char **envp, const char *const *more, const char *pad)
{
	static const char *const base[] = {
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8"};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(base); i++)
		envp[n++] = base[i];
	for (size_t i = 0; more && more[i] && n < ENV_MAX - 2; i++)
		envp[n++] = more[i];
	if (pad)
		envp[n++] = pad;
	envp[n] = NULL;
}

static int start_agent(struct run *r)
{
	char bin[PATH_MAX], profile[PATH_MAX], summary[PATH_MAX], fd_text[16];
	const char *argv[JOB_ARGS_MAX + 8], *envp[ENV_MAX];
	int pipe_fds[2], err;
	size_t n = 0;

	(void)snprintf(bin, sizeof(bin), "%s/%s", r->place->bin_dir, r->step->agent);
	step_path(r, "profile.pb.gz", profile);
	step_path(r, "agent.json", summary);
	(void)snprintf(fd_text, sizeof(fd_text), "%d", READY_FD);
	argv[n++] = bin;
	for (size_t i = 0; r->step->agent_args[i]; i++)
		argv[n++] = r->step->agent_args[i];
	argv[n++] = "--ready-fd";
	argv[n++] = fd_text;
	argv[n++] = "--output";
	argv[n++] = profile;
	argv[n++] = "--summary";
	argv[n++] = summary;
	argv[n] = NULL;
	step_env(envp, r->step->agent_env, NULL);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	r->ready_fd = pipe_fds[0];
	err = step_start(r, &r->agent, argv, envp, "agent.log", pipe_fds[1]);
	(void)close(pipe_fds[1]);
	return err;
}

int step_start_workload(struct run *r)
{
	char bin[PATH_MAX], truth[PATH_MAX];
	const char *argv[JOB_ARGS_MAX + 4], *envp[ENV_MAX];
	char pad[PAD_MAX + 32] = "FLAMELAB_PAD=";
	size_t n = 0, prefix = strlen(pad);

	(void)snprintf(bin, sizeof(bin), "%s/workloads/%s", r->place->bin_dir, r->step->workload);
	step_path(r, "truth.json", truth);
	argv[n++] = bin;
	for (size_t i = 0; r->step->workload_args[i]; i++)
		argv[n++] = r->step->workload_args[i];
	argv[n++] = "--truth";
	argv[n++] = truth;
	argv[n] = NULL;
	if (r->step->workload_env_pad > PAD_MAX)
		return -EINVAL;
	memset(pad + prefix, 'x', r->step->workload_env_pad);
	step_env(envp, NULL, r->step->workload_env_pad > 0 ? pad : NULL);
	return step_start(r, &r->workload, argv, envp, "workload.log", -1);
}

/* "0", "\"signal 9\"" or "null" when it never ran. */
const char *step_exit_text(const struct process *p, char text[32])
{
	if (p->pid == 0)
		return "null";
	if (WIFSIGNALED(p->status))
		(void)snprintf(text, 32, "\"signal %d\"", WTERMSIG(p->status));
	else
		(void)snprintf(text, 32, "%d", WEXITSTATUS(p->status));
	return text;
}

static uint64_t usage_ns(const struct rusage *u)
{
	return ((uint64_t)u->ru_utime.tv_sec + (uint64_t)u->ru_stime.tv_sec) * NSEC_PER_SEC +
	       ((uint64_t)u->ru_utime.tv_usec + (uint64_t)u->ru_stime.tv_usec) * 1000;
}

static void write_series(const struct run *r, FILE *f)
{
	(void)fprintf(f, ",\n  \"memory_series_bytes\": [");
	for (size_t i = 0; i < r->memory_series_count; i++)
		(void)fprintf(f, "%s%llu", i ? ", " : "", (unsigned long long)r->memory_series[i]);
	(void)fprintf(f, "]");
}

static int write_meters(const struct run *r)
{
	char path[PATH_MAX], agent_exit[32], workload_exit[32];
	FILE *f;
	bool bad;

	step_path(r, "meters.json", path);
	f = fopen(path, "we");
	if (!f)
		return -errno;
#define NUMBER(name, value) fprintf(f, ",\n  \"%s\": %llu", name, (unsigned long long)(value))
	(void)fprintf(f, "{\n  \"schema\": \"flamelab-meters/1\"");
	(void)fprintf(f, ",\n  \"agent_exit\": %s", step_exit_text(&r->agent, agent_exit));
	(void)fprintf(f, ",\n  \"workload_exit\": %s", step_exit_text(&r->workload, workload_exit));
	(void)NUMBER("agent_cpu_start_ns", r->cpu_ready_ns);
	(void)NUMBER("agent_cpu_window_ns", r->cpu_window_ns - r->cpu_ready_ns);
	(void)NUMBER("agent_cpu_flush_ns", r->cpu_end_ns - r->cpu_window_ns);
	(void)NUMBER("window_wall_ns", r->window_end_ns - r->ready_ns);
	(void)NUMBER("workload_wall_ns", r->workload_end_ns - r->workload_start_ns);
	(void)NUMBER("workload_cpu_ns", usage_ns(&r->workload.usage));
	(void)NUMBER("memory_peak_bytes", r->memory_peak);
	(void)NUMBER("memory_samples", r->memory_samples);
	(void)NUMBER("oom_kills", group_oom_kills(&r->agent.group));
	(void)NUMBER("bpf_run_ns", r->bpf_after.ns - r->bpf_before.ns);
	(void)NUMBER("bpf_run_count", r->bpf_after.count - r->bpf_before.count);
	(void)NUMBER("sample_run_ns", r->bpf_after.sample_ns - r->bpf_before.sample_ns);
	(void)NUMBER("sample_run_count", r->bpf_after.sample_count - r->bpf_before.sample_count);
#undef NUMBER
	(void)fprintf(f, ",\n  \"cpu_source\": \"%s\"", group_cpu_source(&r->agent.group));
	(void)fprintf(f, ",\n  \"memory_source\": \"%s\"", group_memory_source(&r->agent.group));
	(void)fprintf(f, ",\n  \"memory_limited\": %s", r->agent.group.limited ? "true" : "false");
	if (r->step->memory_series)
		write_series(r, f);
	(void)fprintf(f, ",\n  \"timed_out\": %s\n}\n", r->timed_out ? "true" : "false");
	bad = ferror(f) != 0; /* one check for all of the writes above */
	return fclose(f) != 0 || bad ? -EIO : 0;
}

static void start_timer(struct run *r)
{
	struct itimerspec its = {{0, MEMORY_PERIOD_NS}, {0, MEMORY_PERIOD_NS}};

	r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (r->timer_fd >= 0)
		(void)timerfd_settime(r->timer_fd, 0, &its, NULL); /* valid by construction */
}

/* Until the workload's end, or until_ns. */
static void await_workload(struct run *r, uint64_t until_ns)
{
	while (r->workload.pidfd >= 0 && step_now_ns() < until_ns && step_in_time(r))
		step_poll(r, until_ns);
}

/* From the ready byte to the request to stop. */
static int run_window(struct run *r)
{
	uint64_t start;
	int err;

	r->ready_ns = step_now_ns();
	r->cpu_ready_ns = group_cpu_ns(&r->agent.group);
	start = r->ready_ns + r->step->start_offset_ns;
	while (step_now_ns() < start && step_in_time(r))
		step_poll(r, start);
	r->workload_start_ns = step_now_ns();
	err = step_start_workload(r);
	if (err == 0 && r->step->bpf_stats_after_ms > 0) {
		await_workload(
			r, r->workload_start_ns + r->step->bpf_stats_after_ms * NSEC_PER_MSEC);
		(void)bpf_run_enable(true); /* refused: counts stay 0, and that shows */
	}
	if (err == 0)
		await_workload(r, r->deadline_ns);
	r->workload_end_ns = step_now_ns();
	r->bpf_after = bpf_run_sum();
	r->cpu_window_ns = group_cpu_ns(&r->agent.group);
	r->window_end_ns = step_now_ns();
	return err;
}

void step_end(struct run *r, struct process *p)
{
	uint64_t until = step_now_ns() + 2 * NSEC_PER_SEC; /* SIGKILL takes effect far sooner */

	if (p->pidfd >= 0)
		(void)kill(p->pid, SIGKILL);
	while (p->pidfd >= 0 && step_now_ns() < until)
		step_poll(r, until);
	group_kill(&p->group);
}

/* What this kernel's verifier makes of the agent's programs; the kernel's name and the exit come last. */
static int run_verify(struct run *r)
{
	struct process *p = &r->backend; /* a recording has none */
	char bin[PATH_MAX], path[PATH_MAX], exit_text[32];
	const char *argv[] = {bin, "__verify", NULL}, *envp[ENV_MAX];
	struct utsname u;
	FILE *f;
	int err;

	(void)snprintf(bin, sizeof(bin), "%s/%s", r->place->bin_dir, r->step->agent);
	step_env(envp, NULL, NULL);
	err = uname(&u) < 0 ? -errno : step_start(r, p, argv, envp, "verifier.log", -1);
	while (err == 0 && p->pidfd >= 0 && step_in_time(r))
		step_poll(r, r->deadline_ns);
	if (err < 0)
		return err;
	step_path(r, "verifier.log", path);
	f = fopen(path, "ae");
	if (!f)
		return -errno;
	(void)fprintf(f, "kernel %s\nexit %s\n", u.release, step_exit_text(p, exit_text));
	return fclose(f) != 0 ? -EIO : 0;
}

static int run_record(struct run *r)
{
	int err = r->step->verify && r->step->agent ? run_verify(r) : 0;

	if (err == 0 && r->step->agent)
		err = start_agent(r);
	while (err == 0 && r->step->agent && !r->ready && r->agent.pidfd >= 0 && step_in_time(r))
		step_poll(r, r->deadline_ns);
	if (err < 0 || (r->step->agent && !r->ready))
		return err;
	err = run_window(r);
	if (r->agent.pidfd >= 0)
		(void)kill(r->agent.pid, SIGINT);
	while (err == 0 && r->agent.pidfd >= 0 && step_in_time(r))
		step_poll(r, r->deadline_ns);
	return err;
}

static int run_play(struct run *r)
{
	return strcmp(r->step->play, "power_cut") == 0 ? power_run(r) : fleet_run(r);
}

int step_run(const struct job_step *s, const struct step_place *place)
{
	struct run r = {.step = s, .place = place, .ready_fd = -1, .timer_fd = -1};
	int err = 0;

	r.agent.pidfd = r.workload.pidfd = r.backend.pidfd = -1;
	group_open(&r.agent.group, place->groups, "agent", s->memory_max);
	group_open(&r.workload.group, place->groups, "workload", 0);
	if (s->play)
		group_open(&r.backend.group, place->groups, "backend", 0);
	if (s->bpf_stats)
		(void)bpf_run_enable(true); /* refused: bpf_run_count stays 0, and that shows */
	r.bpf_before = bpf_run_sum();
	start_timer(&r);
	r.deadline_ns = step_now_ns() + s->timeout_ms * NSEC_PER_MSEC;
	err = s->play ? run_play(&r) : run_record(&r);
	r.cpu_end_ns = MAX(group_cpu_ns(&r.agent.group), r.cpu_window_ns);
	if (!r.agent.group.path[0] && r.agent.pid > 0) /* the process clock went with the process */
		r.cpu_end_ns = MAX(usage_ns(&r.agent.usage), r.cpu_window_ns);
	if (s->bpf_stats || s->bpf_stats_after_ms > 0)
		(void)bpf_run_enable(false);
	step_end(&r, &r.workload);
	step_end(&r, &r.agent);
	step_end(&r, &r.backend);
	if (err == 0)
		err = write_meters(&r);
	group_close(&r.agent.group);
	group_close(&r.workload.group);
	if (s->play)
		group_close(&r.backend.group);
	if (r.timer_fd >= 0)
		(void)close(r.timer_fd);
	if (r.ready_fd >= 0)
		(void)close(r.ready_fd);
	return err;
}
