/*
 * A job is what one run of lab-init does: steps in order, each with or without the agent, each with
 *one workload. flamelab writes it, lab-init reads it (in the VM as PID 1, in host mode as a plain
 *program).
 *
 * The text form, one directive a line, LF, arguments are the rest of the line:
 *
 *	flamelab-job 1
 *	step cpu_split.997.seed3		[a-z0-9._-]{1,80}, unique
 *	agent flame-agent			binary under the payload's bin/; absent: no agent
 *runs agent_arg --frequency			repeated; lab-init adds --ready-fd, --output,
 *--summary agent_env FLAME_FAULT=swap		repeated workload cpu_split
 *binary under the payload's workloads/ workload_arg --rounds			repeated; lab-init
 *adds --truth FILE
 *	workload_env_pad 1000			bytes of an extra environment variable (moves the
 *stack) start_offset_ns 1700000			sleep between the agent's ready byte and the
 *workload memory_max 104857600			memory.max of the agent's cgroup; 0: none bpf_stats
 *1				kernel.bpf_stats_enabled during the step timeout_ms 120000
 *guest time for the whole step end
 *
 * Per step lab-init writes into the result, under STEP/:
 *	profile.pb.gz  agent.json (the agent's --summary)  agent.log
 *	truth.json (the workload's)  workload.log
 *	meters.json    { "schema":"flamelab-meters/1", "agent_exit":0, "workload_exit":0, (or
 *"signal N" text) "agent_cpu_start_ns":, "agent_cpu_window_ns":, "agent_cpu_flush_ns": (cgroup
 *cpu.stat: until ready; ready to stop request; stop request to exit), "window_wall_ns":,
 *	                 "workload_wall_ns":, "workload_cpu_ns":, "memory_peak_bytes": (10 Hz
 *maximum of memory.stat anon+kernel+percpu+vmalloc — kernel includes percpu and vmalloc where the
 *kernel says so, never counted twice), "memory_samples":, "oom_kills":, "bpf_run_ns":,
 *"bpf_run_count":, "timed_out":false } and at the end of all "done" with the text "ok\n"; without
 *it the run counts as crashed.
 */
#ifndef LAB_JOB_H
#define LAB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { JOB_STEPS_MAX = 256, JOB_ARGS_MAX = 48 };

struct job_step {
	const char *name;
	const char *agent; /* NULL: no agent */
	const char *agent_args[JOB_ARGS_MAX];
	const char *agent_env[JOB_ARGS_MAX];
	const char *workload; /* required */
	const char *workload_args[JOB_ARGS_MAX];
	uint64_t workload_env_pad;
	uint64_t start_offset_ns;
	uint64_t memory_max;
	uint64_t timeout_ms;
	bool bpf_stats;
};

struct job {
	struct job_step *steps;
	size_t step_count;
};

/* 0, -EINVAL (a newline in an argument, a bad name, no workload), or buf's error. */
int job_write(const struct job *j, struct buf *out);

#endif
