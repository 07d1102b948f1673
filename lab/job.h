/*
 * A job is what one run of lab-init does: steps in order, each with or without the agent, each with
 * one workload. flamelab writes it, lab-init reads it (in the VM as PID 1, in host mode as a plain
 * program).
 *
 * The text form: one directive a line, its argument is the rest of the line, nothing is quoted.
 *
 *	flamelab-job 1
 *	step cpu_split.997.seed3	[a-z0-9._-]{1,80}, unique
 *	agent flame-agent		program in the payload; absent: the step runs no agent
 *	agent_arg record		repeated, in order; lab-init adds --ready-fd, --output
 *					and --summary behind them
 *	agent_env FLAME_FAULT=swap	repeated
 *	workload cpu_split		program in the payload's workloads/
 *	workload_arg --rounds		repeated, in order; lab-init adds --truth FILE
 *	workload_env_pad 1000		bytes of one more environment variable, at most 100000:
 *					moves the stack
 *	start_offset_ns 1700000		from the agent's ready byte to the workload's start
 *	memory_max 104857600		of the agent's cgroup; 0: none
 *	bpf_stats 1			kernel.bpf_stats_enabled during the step
 *	bpf_stats_after_ms 1000		or only from so long after the workload's start
 *	verify 1			before the recording: `AGENT __verify` into verifier.log
 *	memory_series 1			meters.json has memory_series_bytes
 *	timeout_ms 120000		guest time for the whole step
 *	play loop			agent daemon and backend instead of a recording: loop,
 *					dormant, churn, cycles, faults, answers, spool or ingest
 *					(lab/guest/fleet_play.c), or power_cut (lab/guest/power.h)
 *	backend flame-backend		program in the payload, with a play
 *	backend_env FLAME_FAULT=ack_early	repeated
 *	frequency_hz 997		of what a play asks for
 *	jitter_seed 11			of the daemon
 *	play_count 10			start/stop commands of play cycles, cuts of power_cut
 *	end
 *
 * Per step lab-init writes into the result, under STEP/:
 *	profile.pb.gz  agent.json (the agent's --summary)  agent.log
 *	truth.json (the workload's)  workload.log
 *	meters.json, with "schema": "flamelab-meters/1" and
 *		agent_exit, workload_exit	a number, "signal N", or null when it never ran
 *		agent_cpu_start_ns		the agent's CPU time until its ready byte,
 *		agent_cpu_window_ns		from there to the request to stop,
 *		agent_cpu_flush_ns		and from there to its exit
 *		cpu_source			"cgroup" (cpu.stat) or "process" (no cgroup2 here)
 *		window_wall_ns, workload_wall_ns, workload_cpu_ns
 *		memory_peak_bytes		10 Hz maximum of memory.stat anon + kernel; where
 *						the kernel has no "kernel", of its parts
 *		memory_samples, memory_source	"cgroup" or "rss_anon" (no memory controller here)
 *		memory_limited			whether memory_max took effect
 *		oom_kills, bpf_run_ns, bpf_run_count
 *		sample_run_ns, sample_run_count	of these, the program that takes samples
 *		timed_out			the step's timeout ended it
 *		memory_series_bytes		with memory_series: an array of 10 readings a second while
 *						the workload ran, without slab that can be taken back
 *	verifier.log	with verify; see lab/verifier.h
 * and with a play
 *	profile.pb.gz	the backend's answer for the workload's service
 *	windows.spool	the agent's own: every spool file it made and did not drop (agent/spool.h),
 *			one after another
 *	fleet.json	"schema": "flamelab-fleet/1"; see lab/fleet.h
 *	backend.log  verify.log (of flame-backend verify, after its end)
 *	power.json	instead of the first three, from play power_cut; see lab/power.h
 *	power.log	of it, for people
 * and after the last step "done" with the text "ok\n"; without it the run counts as crashed.
 */
#ifndef LAB_JOB_H
#define LAB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { JOB_STEPS_MAX = 256, JOB_ARGS_MAX = 48, JOB_BESIDE_MAX = 16 };

struct job_step {
	const char *name;
	const char *agent; /* NULL: no agent */
	const char *agent_args[JOB_ARGS_MAX];
	const char *agent_env[JOB_ARGS_MAX];
	const char *workload; /* required */
	const char *workload_args[JOB_ARGS_MAX];
	const char *beside[JOB_BESIDE_MAX]; /* other programs in workloads/; not in the text form */
	uint64_t workload_env_pad;
	uint64_t start_offset_ns;
	uint64_t memory_max;
	uint64_t timeout_ms;
	uint64_t bpf_stats_after_ms; /* 0: not so */
	bool bpf_stats, verify, memory_series;
	const char *play; /* NULL: a recording */
	const char *backend;
	const char *backend_env[JOB_ARGS_MAX];
	uint64_t frequency_hz, jitter_seed, play_count;
};

struct job {
	struct job_step *steps;
	size_t step_count;
};

/* 0, -EINVAL (a newline in an argument, a bad name, no workload), or buf's error. */
int job_write(const struct job *j, struct buf *out);

#endif
