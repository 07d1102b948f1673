/*
 * What a recording says about itself: as JSON (schema flame-record/1, for programs), as text (for
 * people) and as facts in the profile. All numbers of one window in one struct, filled by record.c.
 *
 * JSON beyond what its names say: integers unless noted; "ledger" has the threads that ran or were
 * switched in the window, sorted by tid; cpu_ns is by our own stamps, exec_ns the scheduler's
 * account of the same time (bpf/collect.bpf.c says how they differ); sampled_ns are the weights of
 * the samples that hit the thread; "windows" has one entry for each window of --repeat.
 */
#ifndef AGENT_SUMMARY_H
#define AGENT_SUMMARY_H

#include "agent/assemble.h"
#include "agent/collect.h"
#include "agent/symbolize.h"
#include "base/buf.h"
#include "base/file.h"

struct summary_window {
	uint64_t anon_bytes; /* after the window, everything freed */
	uint64_t heap_bytes;
	uint64_t cpu_ns; /* the agent's in that window */
};

struct summary {
	const char *version;
	const char *fault; /* "" */
	uint64_t frequency_hz;
	uint64_t jitter_seed;
	struct collect_totals totals;
	struct assemble_totals profile;
	struct symbolizer_stats symbols;
	const struct collect_thread *threads;
	size_t thread_count;
	const struct collect_cpu *cpus;
	size_t cpu_count;
	uint64_t own_cpu_start_ns, own_cpu_window_ns, own_cpu_flush_ns, own_rss_peak_bytes;
	uint64_t own_rings_bytes; /* of perf events */
	struct summary_window *windows;
	size_t window_count;
	char profile_sha256[FILE_SHA256_HEX];
	/* Computed by summary_judge. */
	uint64_t ledger_cpu_ns, ledger_exec_ns;
	double frequency_real_hz, sigma_ns, deviation_sigmas;
};

/* Fills the computed part from the rest. */
void summary_judge(struct summary *s);
/* Sampling error of thread i. */
double summary_thread_sigma_ns(const struct summary *s, size_t i);
/* Sets the flame.* facts. 0 or -errno of the profile. */
int summary_facts(const struct summary *s, struct profile *p);

int summary_json(const struct summary *s, struct buf *out); /* 0, -ENOMEM or buf's error */
int summary_text(const struct summary *s, struct buf *out); /* 0 or buf's error */

/* The name of a loss in JSON and facts, e.g. "ring_full". */
const char *summary_loss_name(enum sample_loss loss);

#endif
