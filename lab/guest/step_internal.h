/* What the ways to run a step share: record (step.c) and the fleet plays (fleet.c). */
#ifndef LAB_GUEST_STEP_INTERNAL_H
#define LAB_GUEST_STEP_INTERNAL_H

#include <limits.h>
#include <sys/resource.h>

#include "lab/guest/bpf_run.h"
#include "lab/guest/step.h"

enum { ENV_MAX = JOB_ARGS_MAX + 8, MEMORY_SERIES_MAX = 4096 };

struct process {
	struct group group;
	pid_t pid; /* 0: not started */
	int pidfd; /* -1 when none runs */
	int status;
	int exec_error;
	struct rusage usage;
};

struct run {
	const struct job_step *step;
	const struct step_place *place;
	struct process agent;
	struct process workload;
	struct process backend; /* fleet plays only */
	int ready_fd;
	bool ready_seen; /* a byte came, or the agent's end */
	int timer_fd;
	bool ready;
	bool timed_out;
	uint64_t deadline_ns;
	uint64_t ready_ns, window_end_ns, workload_start_ns, workload_end_ns;
	uint64_t cpu_ready_ns, cpu_window_ns, cpu_end_ns;
	uint64_t memory_peak, memory_samples;
	uint64_t
		memory_series[MEMORY_SERIES_MAX]; /* while the workload ran, if that is asked for */
	size_t memory_series_count;
	struct bpf_run bpf_before, bpf_after;
};

uint64_t step_now_ns(void);
/* The path of a file in the step's directory. */
void step_path(const struct run *r, const char *file, char path[PATH_MAX]);
/* The fixed environment, and more (NULL-terminated, or NULL), and pad (NULL: none). */
void step_env(const char **envp, const char *const *more, const char *pad);
/* Starts argv in p's group, its output in the file log. 0 or -errno. */
int step_start(struct run *r, struct process *p, const char **argv, const char **envp,
	const char *log, int ready_fd);
int step_start_workload(struct run *r);
/* Waits for the next thing to happen, until_ns at most, and takes note of it. */
void step_poll(struct run *r, uint64_t until_ns);
bool step_in_time(struct run *r); /* false: the step's time is over, which is noted */
/* Kills what is left of it, waits for that. */
void step_end(struct run *r, struct process *p);
/* "0", "\"signal 9\"" or "null" when it never ran. */
const char *step_exit_text(const struct process *p, char text[32]);

#endif
