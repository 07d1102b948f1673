/* See synthetic.h. */
#include "synthetic.h"

#include <criterion/criterion.h>

#include "base/buf.h"
#include "base/def.h"

void synthetic_scenario(struct scenario *s)
{
	static const char text[] =
		"{\"why\":\"made up for a unit test\",\"kind\":\"accuracy\",\"suites\":[\"full\"],"
		"\"mode\":\"exact\",\"workload\":{\"program\":\"work\"},"
		"\"agent\":{\"frequency_hz\":997,\"jitter_seeds\":[1]},\"step_timeout_s\":60,"
		"\"cost_s\":1,\"expect\":[{\"function\":\"heavy\",\"callers\":[\"main\"]},"
		"{\"function\":\"light\",\"callers\":[\"main\"]}],"
		"\"forbid\":[{\"frame\":\"waiter\",\"share_max\":0.01}],"
		"\"gates\":{\"share\":\"required\"}}";

	cr_assert_eq(scenario_parse(s, "x/made_up.json", text, sizeof(text) - 1), 0, "%s",
		s->doc.message);
}

static uint32_t synthetic_frame(struct profile *p, const char *name)
{
	struct frame f = {.name = (uint32_t)profile_str(p, name),
		.module = (uint32_t)profile_str(p, "/lab/work")};

	return (uint32_t)profile_frame(p, &f);
}

static void synthetic_stack(
	struct profile *p, const char *leaf, const char *caller, uint64_t samples)
{
	struct label pid = {.key = (uint32_t)profile_str(p, "pid"), .num = 100};
	int64_t values[2] = {(int64_t)samples, (int64_t)(samples * NSEC_PER_MSEC)};
	uint32_t frames[2] = {synthetic_frame(p, leaf)};
	uint32_t n = 1;

	if (caller)
		frames[n++] = synthetic_frame(p, caller);
	if (samples)
		cr_assert_eq(profile_add(p, frames, n, &pid, 1, values), 0);
}

void synthetic_add(struct evidence *e, const char *function, uint64_t samples)
{
	synthetic_stack(e->profile, function, "main", samples);
}

void synthetic_add_below(
	struct evidence *e, const char *leaf, const char *function, uint64_t samples)
{
	struct profile *p = e->profile;
	struct label pid = {.key = (uint32_t)profile_str(p, "pid"), .num = 100};
	int64_t values[2] = {(int64_t)samples, (int64_t)(samples * NSEC_PER_MSEC)};
	uint32_t frames[3] = {
		synthetic_frame(p, leaf), synthetic_frame(p, function), synthetic_frame(p, "main")};

	cr_assert_eq(profile_add(p, frames, 3, &pid, 1, values), 0);
}

static void synthetic_truth(struct evidence *e, uint64_t heavy_ns, uint64_t light_ns)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	unsigned long long heavy = heavy_ns, light = light_ns;

	cr_assert_eq(
		buf_printf(&b,
			"{\"schema\":\"flame-truth/"
			"1\",\"workload\":\"work\",\"argv\":[],\"pid\":100,"
			"\"seed\":1,\"checksum\":\"ab\",\"wall_ns\":%llu,\"cpu_ns\":%llu,"
			"\"functions\":[{\"name\":\"heavy\",\"callers\":[\"main\"],\"cpu_ns\":%llu,"
			"\"wall_ns\":1,\"count\":1,\"wait_ns\":{}},{\"name\":\"light\",\"callers\":"
			"["
			"\"main\"],\"cpu_ns\":%llu,\"wall_ns\":1,\"count\":1,\"wait_ns\":{}}],"
			"\"threads\":[{\"tid\":101,\"name\":\"w\",\"cpu_ns\":%llu,\"run_delay_ns\":"
			"0,"
			"\"slices\":1}],\"wait_ns\":{}}",
			heavy + light, heavy + light, heavy, light, heavy + light),
		0);
	cr_assert_eq(truth_parse(&e->truth, "truth.json", b.data, b.size), 0, "%s",
		e->truth.doc.message);
	e->has_truth = true;
}

static void synthetic_agent(struct evidence *e, uint64_t cpu_ns, uint64_t samples)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8192);
	unsigned long long cpu = cpu_ns, n = samples;
	unsigned long long window = MAX(cpu, n * 1000000) + 10000000;

	cr_assert_eq(
		buf_printf(&b,
			"{\"schema\":\"flame-record/1\",\"version\":\"t\",\"event\":\"cpu-clock\","
			"\"frequency_hz\":997,\"frequency_real_hz\":1000.0,\"deviation_sigmas\":0,"
			"\"profile_sha256\":"
			"\"0000000000000000000000000000000000000000000000000000000000000000\","
			"\"cpus\":1,\"window_ns\":%llu,\"samples\":%llu,\"weight_ns\":%llu,"
			"\"weight_idle_ns\":%llu,\"weight_filtered_ns\":0,"
			"\"sigma_ns\":2000000,\"ledger_cpu_ns\":%llu,"
			"\"losses\":{\"ring_full\":{\"samples\":0,\"weight_ns\":0}},"
			"\"symbols\":{\"frames\":1,\"unresolved\":0,\"kernel_frames\":0,"
			"\"kernel_unresolved\":0,\"files_failed\":0,\"helper_restarts\":0},"
			"\"own\":{\"cpu_start_ns\":1,\"cpu_window_ns\":1,\"cpu_flush_ns\":1,"
			"\"rss_peak_bytes\":1,\"bpf_memory_bytes\":1,\"perf_ring_bytes\":1000000,"
			"\"bpf_run_ns\":0,\"bpf_run_count\":0},"
			"\"ledger\":[{\"tid\":101,\"tgid\":100,\"comm\":\"w\",\"cpu_ns\":%llu,"
			"\"exec_ns\":%llu,\"switches_voluntary\":1,\"switches_involuntary\":0,"
			"\"runnable_ns\":0,\"blocked_s_ns\":0,\"blocked_d_ns\":0,\"blocked_other_"
			"ns\":0,"
			"\"sampled_ns\":0,\"sigma_ns\":0}]}",
			window, n, n * 1000000, window - 500000 - n * 1000000, cpu, cpu, cpu),
		0);
	cr_assert_eq(evidence_agent_parse(&e->agent, "agent.json", b.data, b.size), 0, "%s",
		e->agent.doc.message);
	e->has_agent = true;
}

void synthetic_run(struct evidence *e, uint64_t heavy_ns, uint64_t light_ns, uint64_t heavy_samples,
	uint64_t light_samples, const char *caller)
{
	*e = (struct evidence){.step = "made_up.s1"};
	synthetic_truth(e, heavy_ns, light_ns);
	synthetic_agent(e, heavy_ns + light_ns, heavy_samples + light_samples);
	cr_assert_eq(profile_new(1 << 20, &e->profile), 0);
	cr_assert_geq(profile_sample_type(e->profile, "samples", "count"), 0);
	cr_assert_geq(profile_sample_type(e->profile, "cpu", "nanoseconds"), 0);
	synthetic_stack(e->profile, "heavy", caller, heavy_samples);
	synthetic_stack(e->profile, "light", caller, light_samples);
	e->has_profile = true;
	e->has_meters = true;
	(void)snprintf(e->meters.agent_exit, sizeof(e->meters.agent_exit), "0");
	(void)snprintf(e->meters.workload_exit, sizeof(e->meters.workload_exit), "0");
	e->meters.workload_cpu_ns = heavy_ns + light_ns;
}

uint64_t synthetic_binomial(struct rng *r, uint64_t n, double p)
{
	uint64_t hits = 0;

	for (uint64_t i = 0; i < n; i++)
		hits += (double)(rng_u64(r) >> 11) * 0x1p-53 < p;
	return hits;
}
