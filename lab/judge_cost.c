/* Gates on what the agent costs: CPU, BPF time, slowdown, memory, leaks, repeatability. */
#include <math.h>

#include "base/def.h"
#include "lab/judge.h"
#include "lab/stacks.h"

static bool judge_metered(struct gate *g, const struct evidence *e)
{
	if (!e->has_meters) {
		gate_unmeasured(g, "%s", e->no_meters);
		return false;
	}
	if (e->meters.timed_out) {
		gate_unmeasured(g, "%s: step timed out", e->step);
		return false;
	}
	return true;
}

bool judge_cost_ns(const struct evidence *e, double *ret)
{
	if (!e->has_meters || e->meters.timed_out)
		return false;
	*ret = (double)(e->meters.agent_start_ns + e->meters.agent_window_ns +
			e->meters.agent_flush_ns);
	return *ret > 0;
}

void judge_overhead(struct gate *g, const struct evidence *bare, const struct evidence *with,
	const struct evidence *limited, struct judge_overhead *ret)
{
	struct judge_overhead o = {0};
	double agent, wall, plain;

	*ret = o;
	if (!judge_metered(g, bare) || !judge_metered(g, with) || !judge_metered(g, limited))
		return;
	wall = (double)with->meters.window_wall_ns;
	plain = (double)bare->meters.workload_cpu_ns;
	agent = (double)(with->meters.agent_window_ns + with->meters.agent_flush_ns);
	if (agent <= 0 || wall <= 0 || plain <= 0 || limited->meters.window_wall_ns == 0) {
		gate_unmeasured(g, "%s: agent, window or workload was not metered", with->step);
		return;
	}
	if (limited->meters.bpf_run_count == 0) {
		gate_unmeasured(g, "%s: kernel counted no BPF runs", limited->step);
		return;
	}
	o.start_cpu_s = (double)with->meters.agent_start_ns / (double)NSEC_PER_SEC;
	o.agent = agent / wall;
	o.bpf = (double)limited->meters.bpf_run_ns / (double)limited->meters.window_wall_ns;
	o.slowdown = ((double)with->meters.workload_cpu_ns - plain) / plain;
	/* A faster workload is no credit. BPF time is part of the slowdown, too: counted twice. */
	o.sum = o.agent + o.bpf + fmax(o.slowdown, 0);
	o.known = true;
	*ret = o;
	gate_check_most(g, "%", 100 * JUDGE_OVERHEAD_MAX, 100 * o.sum, 0,
		"agent %.3f + BPF %.3f + slowdown %.3f (start-up %.3f s apart)", 100 * o.agent,
		100 * o.bpf, 100 * o.slowdown, o.start_cpu_s);
}

/*
 * The rate is redrawn every JUDGE_RATE_DRAW samples, uniformly within +-25 %: a draw moves the rate by a
 * sigma of 0.25 / sqrt(3), and the mean of n / JUDGE_RATE_DRAW draws by that over their root.
 */
void judge_rate(struct gate *g, double hz, const struct evidence *with)
{
	double expected = hz * (double)with->meters.window_wall_ns / (double)NSEC_PER_SEC, sigma;
	struct stacks st;

	if (!judge_metered(g, with))
		return;
	if (!with->has_profile || stacks_open(with->profile, 0, &st) < 0 || !st.has_count ||
		!(expected > 0)) {
		gate_unmeasured(g, "%s",
			with->has_profile ? "the profile counts no samples" : with->no_profile);
		return;
	}
	sigma = 0.25 / sqrt(3) * sqrt(JUDGE_RATE_DRAW / expected);
	gate_check_near(g, "", expected, stacks_total(&st, hz).count,
		(JUDGE_Z * sigma + JUDGE_RATE_PART) * expected,
		"samples of a busy CPU at %.0f Hz, %.60s", hz, with->step);
}

void judge_memory(struct gate *g, const struct evidence *with, const struct evidence *limited)
{
	const struct evidence *const both[] = {with, limited};

	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		if (!judge_metered(g, both[i]))
			continue;
		if (!both[i]->has_agent) {
			gate_unmeasured(g, "%s", both[i]->no_agent);
			continue;
		}
		/* A maximum over a handful of readings would miss the peak. */
		if (both[i]->meters.memory_samples < 10 || both[i]->meters.memory_peak == 0) {
			gate_unmeasured(g, "%s: memory was sampled %llu times", both[i]->step,
				(unsigned long long)both[i]->meters.memory_samples);
			continue;
		}
		gate_check_most(g, "B", JUDGE_MEMORY_MAX,
			(double)(both[i]->meters.memory_peak + both[i]->agent.perf_rings), 0,
			"peak with perf rings, %s", both[i]->step);
	}
	if (limited->has_meters) {
		gate_check_most(g, "", 0, (double)limited->meters.oom_kills, 0,
			"killed by memory.max, %s", limited->step);
		gate_check_most(g, "", 0, strcmp(limited->meters.agent_exit, "0") != 0, 0,
			"agent exit under memory.max is %s", limited->meters.agent_exit);
	}
}

/* A sample's mean cost, ns. */
static bool judge_sample_ns(struct gate *g, const struct evidence *e, double *ret)
{
	const struct evidence_meters *m = &e->meters;

	if (!judge_metered(g, e))
		return false;
	/* Fewer are no mean: now and then one brings a stack that is new, or waits for a table. */
	if (m->sample_run_count < JUDGE_UNWIND_MIN || m->sample_run_ns == 0) {
		gate_unmeasured(g, "%s: the kernel timed %llu samples, %d are needed", e->step,
			(unsigned long long)m->sample_run_count, JUDGE_UNWIND_MIN);
		return false;
	}
	*ret = (double)m->sample_run_ns / (double)m->sample_run_count;
	return true;
}

bool judge_unwind_cost(
	struct gate *g, const struct evidence *e, size_t count, unsigned int shift, double *ret)
{
	double sum = 0, one;

	for (size_t i = 0; i < count; i++) {
		if (!judge_sample_ns(g, &e[i], &one))
			return false;
		sum += one / (double)(1U << shift); /* QEMU's icount: 2^shift ns an instruction */
	}
	*ret = sum;
	return count > 0;
}

void judge_unwind_cost_same(struct gate *g, const struct evidence *e, const struct evidence *plain)
{
	double cost, plain_cost;

	if (judge_sample_ns(g, e, &cost) && judge_sample_ns(g, plain, &plain_cost))
		gate_check_most(g, "ns", plain_cost, cost, JUDGE_UNWIND_PART * plain_cost,
			"a sample's cost against %s", plain->step);
}

static int judge_compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Median of all pairwise slopes (Theil 1950, Sen 1968): single jumps do not tilt it. */
static bool judge_slope(const uint64_t *v, size_t n, double *ret)
{
	double *slopes = n < 2 ? NULL : calloc(n * n, sizeof(*slopes));
	size_t count = 0;

	if (!slopes)
		return false;
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++)
			slopes[count++] = ((double)v[k] - (double)v[i]) / (double)(k - i);
	qsort(slopes, count, sizeof(*slopes), judge_compare_double);
	*ret = slopes[count / 2];
	free(slopes);
	return true;
}

/* Processes of the ledger with a sample; its rows are threads, those of one process not side by side. */
static size_t judge_sampled_processes(const struct evidence_agent *a)
{
	size_t count = 0;

	for (size_t i = 0; i < a->ledger_count; i++) {
		bool seen = a->ledger[i].sampled_ns <= 0;

		for (size_t k = 0; k < i && !seen; k++)
			seen = a->ledger[k].tgid == a->ledger[i].tgid &&
			       a->ledger[k].sampled_ns > 0;
		count += !seen;
	}
	return count;
}

void judge_memory_crowd(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct evidence_meters *m = &e[i].meters;
		size_t processes;

		if (!judge_metered(g, &e[i]))
			continue;
		if (!e[i].has_agent || !e[i].has_truth) {
			gate_unmeasured(g, "%s", e[i].has_agent ? e[i].no_truth : e[i].no_agent);
			continue;
		}
		processes = judge_sampled_processes(&e[i].agent);
		if (processes < JUDGE_CROWD_MIN || m->memory_samples < 10 || m->memory_peak == 0) {
			gate_unmeasured(g,
				"%s: %zu processes were sampled of %d, memory %llu times",
				e[i].step, processes, JUDGE_CROWD_MIN,
				(unsigned long long)m->memory_samples);
			continue;
		}
		gate_check_most(g, "B", JUDGE_CROWD_MAX,
			(double)(m->memory_peak + e[i].agent.perf_rings), 0,
			"peak with perf rings, %zu processes sampled, %.50s", processes, e[i].step);
	}
}

/* Memory rises within each window and falls at its end; what stays is in the lowest reading of each. */
void judge_memory_flat(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct evidence_meters *m = &e[i].meters;
		size_t n = JUDGE_FLAT_SECONDS * 10, window = JUDGE_FLAT_WINDOW_S * 10;
		uint64_t low[JUDGE_FLAT_SECONDS / JUDGE_FLAT_WINDOW_S], last;
		double slope;

		if (!judge_metered(g, &e[i]))
			continue;
		/* The last minute; what comes before it fills caches. */
		if (m->memory_series_count < n + n / 4) {
			gate_unmeasured(g, "%s: memory was read %zu times, a slope needs %zu",
				e[i].step, m->memory_series_count, n + n / 4);
			continue;
		}
		for (size_t k = 0; k < n; k++) {
			uint64_t v = m->memory_series[m->memory_series_count - n + k];
			size_t at = k / window;

			low[at] = k % window ? MIN(low[at], v) : v;
		}
		last = low[ARRAY_SIZE(low) - 1];
		if (!judge_slope(low, ARRAY_SIZE(low), &slope)) {
			gate_unmeasured(g, "out of memory while judging");
			continue;
		}
		gate_check_most(g, "B", JUDGE_FLAT_BYTES, slope / (double)JUDGE_FLAT_WINDOW_S, 0,
			"growth a second, of %.1f MB, %.60s", (double)last / 1e6, e[i].step);
	}
}

void judge_leak(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t n = e[i].agent.window_count, skip = n / 4;
		double slope;

		if (!e[i].has_agent) {
			gate_unmeasured(g, "%s", e[i].no_agent);
			continue;
		}
		/* The first windows fill caches. */
		if (n < 8 || !judge_slope(e[i].agent.window_memory + skip, n - skip, &slope)) {
			gate_unmeasured(g, "%s: %zu windows, a slope needs 8", e[i].step, n);
			continue;
		}
		gate_check_most(
			g, "B", JUDGE_LEAK_BYTES, slope, 0, "growth per window, %s", e[i].step);
	}
}

void judge_cost_same(struct gate *g, const struct evidence *e, const struct evidence *plain)
{
	double cost, plain_cost, flush, plain_flush;

	if (!judge_metered(g, e) || !judge_metered(g, plain))
		return;
	if (!judge_cost_ns(e, &cost) || !judge_cost_ns(plain, &plain_cost)) {
		gate_unmeasured(g, "%s: agent CPU was not metered", e->step);
		return;
	}
	/*
	 * The flush reads the symbols of every file that a sample hit, and whether one of a few hits
	 * a large library is chance: between two equal agents it differed by 8 ms of 26.
	 */
	flush = (double)e->meters.agent_flush_ns;
	plain_flush = (double)plain->meters.agent_flush_ns;
	gate_check_near(g, "ns", plain_cost - plain_flush, cost - flush,
		JUDGE_COST_PART * (plain_cost - plain_flush), "agent CPU before the flush, %s",
		plain->step);
	gate_check_near(g, "ns", plain_flush, flush, JUDGE_COST_FLUSH * plain_flush,
		"agent CPU of the flush against %s", plain->step);
}

static void judge_same_step(struct gate *g, const struct evidence *a, const struct evidence *b)
{
	const struct {
		const char *name;
		uint64_t a, b;
	} figures[] = {
		{"agent CPU in window", a->meters.agent_window_ns, b->meters.agent_window_ns},
		{"agent CPU in flush", a->meters.agent_flush_ns, b->meters.agent_flush_ns},
		{"window", a->meters.window_wall_ns, b->meters.window_wall_ns},
		{"workload CPU", a->meters.workload_cpu_ns, b->meters.workload_cpu_ns},
		{"memory peak", a->meters.memory_peak, b->meters.memory_peak},
		{"truth CPU", a->truth.cpu_ns, b->truth.cpu_ns},
		{"backend CPU for pushes", a->fleet.ingest_cpu_ns, b->fleet.ingest_cpu_ns},
	};

	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		gate_check_near(g, "", (double)figures[i].a, (double)figures[i].b, 0, "%s, %s",
			figures[i].name, a->step);
	if (a->has_agent && b->has_agent)
		gate_check_near(g, "", 0,
			strcmp(a->agent.profile_sha256, b->agent.profile_sha256) != 0, 0,
			"profile hash %.12s, again %.12s, %s", a->agent.profile_sha256,
			b->agent.profile_sha256, a->step);
	/* And by the lab's own reading of the file. */
	if (a->has_profile && b->has_profile)
		gate_check_near(g, "", 0, strcmp(a->profile_sha256, b->profile_sha256) != 0, 0,
			"profile.pb.gz %.12s, again %.12s, %s", a->profile_sha256,
			b->profile_sha256, a->step);
}

void judge_same_twice(struct gate *g, const struct evidence *e, size_t count, size_t runs)
{
	for (size_t r = 1; r < runs; r++)
		for (size_t i = 0; i < count; i++) {
			const struct evidence *a = &e[i], *b = &e[r * count + i];

			if (!judge_metered(g, a) || !judge_metered(g, b))
				continue;
			if (!a->has_truth || !b->has_truth) {
				gate_unmeasured(g, "%s", a->has_truth ? b->no_truth : a->no_truth);
				continue;
			}
			judge_same_step(g, a, b);
		}
}
