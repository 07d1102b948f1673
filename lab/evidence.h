/*
 * Everything one step left behind: what the workload says (truth.json), what the agent says
 * (agent.json, profile.pb.gz) and what lab-init metered (meters.json). Each part is there or has a
 * reason why not; a judge that needs a missing part says unmeasured with that reason.
 */
#ifndef LAB_EVIDENCE_H
#define LAB_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "lab/fleet.h"
#include "lab/json.h"
#include "lab/power.h"
#include "lab/truth.h"
#include "lab/verifier.h"
#include "prof/profile.h"

enum {
	EVIDENCE_REASON_MAX = 400,
	EVIDENCE_LEDGER_MAX = 16384,
	EVIDENCE_WINDOWS_MAX = 1024,
	EVIDENCE_LOSSES_MAX = 16,
	EVIDENCE_SERIES_MAX = 4096,
};

struct evidence_thread { /* a row of agent.json's ledger */
	uint32_t tid, tgid;
	const char *comm;
	int64_t cpu_ns, runnable_ns, blocked_ns, sampled_ns, sigma_ns;
	int64_t exec_ns; /* as cpu_ns, by the scheduler's clock, which schedstat shows */
	int64_t blocked_s_ns;
	uint64_t switches;
	int64_t time_min_ns; /* the smallest of the row's times, to find negative ones */
};

struct evidence_loss {
	const char *reason;
	uint64_t samples, weight_ns;
};

struct evidence_agent { /* agent.json, flame-record/1 */
	struct json doc;
	const char *event, *version, *profile_sha256;
	double frequency_real_hz, deviation_sigmas;
	uint64_t frequency_hz, cpus, window_ns, samples, weight_ns, sigma_ns, ledger_cpu_ns;
	uint64_t weight_idle_ns, weight_filtered_ns;
	uint64_t frames, unresolved, kernel_frames, kernel_unresolved, files_failed,
		helper_restarts;
	uint64_t cpu_start_ns, cpu_window_ns, cpu_flush_ns, rss_peak, bpf_memory, perf_rings;
	uint64_t bpf_run_ns, bpf_run_count;
	struct evidence_loss losses[EVIDENCE_LOSSES_MAX];
	size_t loss_count;
	struct evidence_thread *ledger;
	size_t ledger_count;
	uint64_t *window_memory; /* bytes at the end of each window of record --repeat */
	size_t window_count;
};

struct evidence_meters { /* meters.json, flamelab-meters/1 */
	struct json doc;
	char agent_exit[64], workload_exit[64]; /* "0", "3", "signal 9" */
	uint64_t agent_start_ns, agent_window_ns, agent_flush_ns;
	uint64_t window_wall_ns, workload_wall_ns, workload_cpu_ns;
	uint64_t memory_peak, memory_samples, oom_kills, bpf_run_ns, bpf_run_count;
	uint64_t sample_run_ns, sample_run_count; /* of the program that takes samples */
	bool timed_out;
	uint64_t
		*memory_series; /* bytes, 10 a second while the workload ran; none: not asked for */
	size_t memory_series_count;
};

struct evidence {
	char step[96];
	char dir[768];
	bool has_truth, has_agent, has_profile, has_meters;
	bool exact;                           /* recorded where time is counted in instructions */
	char profile_sha256[FILE_SHA256_HEX]; /* of profile.pb.gz, by the lab */
	char no_truth[EVIDENCE_REASON_MAX], no_agent[EVIDENCE_REASON_MAX],
		no_profile[EVIDENCE_REASON_MAX], no_meters[EVIDENCE_REASON_MAX];
	struct truth truth;
	struct evidence_agent agent;
	struct evidence_meters meters;
	struct profile *profile;

	/* Steps with agent daemon and backend: the profile is the backend's answer for one service. */
	bool is_fleet, has_fleet, has_windows;
	char no_fleet[EVIDENCE_REASON_MAX], no_windows[EVIDENCE_REASON_MAX];
	struct fleet_result fleet;
	struct fleet_windows windows; /* of the truth's workload */

	bool has_verifier; /* steps that load every program first */
	char no_verifier[EVIDENCE_REASON_MAX];
	struct verifier verifier;

	bool has_power; /* play power_cut */
	char no_power[EVIDENCE_REASON_MAX];
	struct power_result power;
};

/*
 * Reads dir/STEP/. Never fails: what cannot be read has its reason. why_none, if not NULL, is the
 * reason for everything (the VM crashed). with_agent false: agent and profile are not expected.
 */
void evidence_load(struct evidence *e, const char *dir, const char *step, bool with_agent,
	const char *why_none);
/* The same for a step with a play (job.h); service is the workload's. */
void evidence_load_fleet(struct evidence *e, const char *dir, const char *step, const char *service,
	const char *why_none);
void evidence_done(struct evidence *e);
/* The agent ran and ended badly by itself: a crash, an error, or silence until the deadline. */
bool evidence_agent_failed(const struct evidence *e);

/* For tests: one part from memory. 0 or -EBADMSG with doc.message. */
int evidence_agent_parse(struct evidence_agent *a, const char *file, const void *data, size_t size);
int evidence_meters_parse(
	struct evidence_meters *m, const char *file, const void *data, size_t size);
void evidence_agent_done(struct evidence_agent *a);
void evidence_meters_done(struct evidence_meters *m);

#endif
