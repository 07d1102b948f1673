/*
 * What a step with agent daemon and backend left (job.h, "play"): fleet.json, and the windows that the
 * agent handed over, as it wrote them to its spool.
 *
 * fleet.json:
 *	{ "schema":"flamelab-fleet/1", "play":"loop", "error":"what failed first, or empty",
 *	  "agent_exit":0, "backend_exit":0,		a number, "signal N" or null
 *	  "bpf_before":0, "bpf_dormant_max":0, "bpf_sampling_max":0, "bpf_after":0,
 *							BPF programs + maps + links in the kernel
 *	  "dormant_ns":0, "dormant_cpu_ns":0, "dormant_memory_bytes":0,	of the agent's cgroup, memory at most
 *	  "commands":0, "commands_done":0, "backend_kills":0, "windows_resent":0,
 *	  "spool_windows_max":0, "stored_profiles":0, "verify_faults":0,	by flame-backend verify, at the end
 *	  "duplicates":0,				by /metrics, since the last start
 *	  "spool_limit":0, "windows_made":0, "windows_dropped":0, "windows_dropped_early":0,
 *							windows; the last: while an older one stayed
 *	  "windows_dropped_told":0,			by the agent's heartbeat
 *	  "pushes_refused":0, "pushes_cut":0, "pushes_early":0,	by the proxy; early: before Retry-After
 *	  "ingested_profiles":0, "ingest_cpu_ns":0,	CPU of the backend for them
 *	  "memory_bytes":[0] }				of the agent's cgroup after each command of play cycles
 *
 * windows.spool: agent/spool.h's files one after another; each is a push.v1 request with a series per
 * service. Those are missing that the agent dropped for want of room.
 */
#ifndef LAB_FLEET_H
#define LAB_FLEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/json.h"

enum { FLEET_CYCLES_MAX = 256 };

struct fleet_result {
	struct json doc;
	const char *error;
	char agent_exit[64], backend_exit[64];
	uint64_t bpf_before, bpf_dormant_max, bpf_sampling_max, bpf_after;
	uint64_t dormant_ns, dormant_cpu_ns, dormant_memory;
	uint64_t commands, commands_done, kills, resent, spool_max, stored, verify_faults,
		duplicates;
	uint64_t spool_limit, windows_made, dropped, dropped_early, dropped_told;
	uint64_t refused, cut, early, ingested, ingest_cpu_ns;
	uint64_t memory[FLEET_CYCLES_MAX];
	size_t memory_count;
};

/* 0 or -EBADMSG with doc.message. */
int fleet_parse(struct fleet_result *f, const char *file, const void *data, size_t size);
void fleet_done(struct fleet_result *f);

struct fleet_windows {
	uint64_t windows;  /* spool files */
	uint64_t profiles; /* series with a profile, of all services */
	/* Of one service. */
	double weight_ns, samples;
	double frequency_hz; /* that the agent says it sampled with; 0: it does not say */
};

/* 0; -EBADMSG or -errno with a static *why. */
int fleet_windows_read(const void *data, size_t size, const char *service, const char **why,
	struct fleet_windows *ret);

#endif
