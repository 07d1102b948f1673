/*
 * Gates on agent daemon and backend together. What the backend stored and answers is held against the
 * windows as the agent wrote them: a difference there is the way's fault, and shares that are wrong in
 * both are the agent's.
 */
#include <math.h>

#include "base/def.h"
#include "lab/judge.h"
#include "lab/stacks.h"

static bool judge_has_fleet(struct gate *g, const struct evidence *e)
{
	if (!e->has_fleet)
		gate_unmeasured(g, "%s", e->no_fleet);
	return e->has_fleet;
}

static bool judge_has_windows(struct gate *g, const struct evidence *e)
{
	if (!judge_has_fleet(g, e))
		return false;
	if (!e->has_windows)
		gate_unmeasured(g, "%s", e->no_windows);
	return e->has_windows;
}

void judge_fleet(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct fleet_result *f = &e[i].fleet;

		if (!judge_has_fleet(g, &e[i]))
			continue;
		gate_check_most(g, "", 0, f->error[0] != 0, 0, "%s, %.70s",
			f->error[0] ? f->error : "failures", e[i].step);
		gate_check_most(g, "", 0, strcmp(f->agent_exit, "0") != 0, 0,
			"exit of the agent is %s, %.70s", f->agent_exit, e[i].step);
		gate_check_most(g, "", 0, strcmp(f->backend_exit, "0") != 0, 0,
			"exit of the backend is %s, %.70s", f->backend_exit, e[i].step);
		gate_check_near(g, "", (double)f->commands, (double)f->commands_done, 0,
			"commands that ended well, %.70s", e[i].step);
	}
}

void judge_arrived(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct stacks_sum sum;
		struct stacks st;

		if (!judge_has_windows(g, &e[i]))
			continue;
		if (!e[i].has_profile || stacks_open(e[i].profile, 0, &st) < 0) {
			gate_unmeasured(g, "%s",
				e[i].has_profile ? "the backend's answer has no nanoseconds"
						 : e[i].no_profile);
			continue;
		}
		if (!(e[i].windows.weight_ns > 0)) {
			gate_unmeasured(g, "%s: the agent's windows are empty", e[i].step);
			continue;
		}
		sum = stacks_total(&st, e[i].windows.frequency_hz);
		gate_check_near(g, "ns", e[i].windows.weight_ns, sum.weight_ns, 0,
			"CPU in the backend's answer against the agent's windows, %.60s",
			e[i].step);
		if (st.has_count)
			gate_check_near(g, "", e[i].windows.samples, sum.count, 0,
				"samples in the backend's answer, %.60s", e[i].step);
	}
}

void judge_kept(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct fleet_result *f = &e[i].fleet;
		uint64_t again;

		if (!judge_has_windows(g, &e[i]))
			continue;
		if (f->error[0] || e[i].windows.profiles == 0) {
			gate_unmeasured(g, "%s: %s", e[i].step,
				f->error[0] ? f->error : "the agent made no profile");
			continue;
		}
		gate_check_near(g, "", (double)e[i].windows.profiles, (double)f->stored, 0,
			"profiles stored of those in %llu windows, %llu kills, %.50s",
			(unsigned long long)e[i].windows.windows, (unsigned long long)f->kills,
			e[i].step);
		gate_check_most(g, "", 0, (double)f->verify_faults, 0,
			"faults that flame-backend verify found, %.70s", e[i].step);
		if (f->refused > 0)
			gate_check_most(g, "", 0, (double)f->early, 0,
				"pushes before Retry-After was over, %llu refused, %.50s",
				(unsigned long long)f->refused, e[i].step);
		/* What was stored and not answered has come again, or the play proved nothing. */
		again = f->cut + f->resent;
		if (again > 0 && f->duplicates < again)
			gate_unmeasured(g, "%s: %llu pushes came again, %llu duplicates were seen",
				e[i].step, (unsigned long long)again,
				(unsigned long long)f->duplicates);
	}
}

/*
 * A file that has appeared is taken in by the daemon a moment later, and only then the limit holds:
 * one above it is seen now and then (agent/spool.h).
 */
void judge_spool(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct fleet_result *f = &e[i].fleet;

		if (!judge_has_windows(g, &e[i]))
			continue;
		if (f->spool_limit == 0 || f->windows_made <= f->spool_limit + 1) {
			gate_unmeasured(g, "%s: %llu windows, the limit was not reached", e[i].step,
				(unsigned long long)f->windows_made);
			continue;
		}
		gate_check_most(g, "", (double)f->spool_limit, (double)f->spool_max, 1,
			"windows in the spool of %llu made, %.60s",
			(unsigned long long)f->windows_made, e[i].step);
		gate_check_most(g, "", 0, (double)f->dropped_early, 0,
			"windows dropped while an older one stayed, %.60s", e[i].step);
		gate_check_near(g, "", (double)f->dropped, (double)f->dropped_told, 0,
			"dropped windows by the agent's own count, %.60s", e[i].step);
		gate_check_near(g, "", (double)e[i].windows.profiles, (double)f->stored, 0,
			"profiles stored of those in %llu windows not dropped, %.50s",
			(unsigned long long)e[i].windows.windows, e[i].step);
	}
}

bool judge_ingestion(struct gate *g, const struct evidence *e, unsigned int shift, double *ret)
{
	const struct fleet_result *f = &e->fleet;

	if (!judge_has_fleet(g, e))
		return false;
	if (f->error[0] || f->ingested < JUDGE_INGESTION_MIN || f->ingest_cpu_ns == 0) {
		gate_unmeasured(g, "%s: %s", e->step,
			f->error[0] ? f->error : "too few profiles were pushed");
		return false;
	}
	if (f->stored != f->ingested) /* else the figure is what the table should show */
		gate_check_near(g, "", (double)f->ingested, (double)f->stored, 0,
			"profiles stored of those pushed, %.60s", e->step);
	*ret = (double)f->ingest_cpu_ns / (double)(1U << shift) / (double)f->ingested;
	return true;
}

void judge_dormant(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct fleet_result *f = &e[i].fleet;
		double part;

		if (!judge_has_fleet(g, &e[i]))
			continue;
		if (f->dormant_ns == 0 || f->dormant_cpu_ns == 0 || f->dormant_memory == 0) {
			gate_unmeasured(g, "%s: the agent was not metered", e[i].step);
			continue;
		}
		part = (double)f->dormant_cpu_ns / (double)f->dormant_ns;
		gate_check_most(g, "%", 100 * JUDGE_OVERHEAD_MAX, 100 * part, 0,
			"CPU of the dormant agent, %.1f s, goal 0.1 %s, %.40s",
			(double)f->dormant_ns / 1e9, part <= 0.001 ? "met" : "MISSED", e[i].step);
		gate_check_most(g, "B", JUDGE_MEMORY_MAX, (double)f->dormant_memory, 0,
			"memory of the dormant agent, goal 20 MB %s, %.40s",
			f->dormant_memory <= 20e6 ? "met" : "MISSED", e[i].step);
	}
}

/* Of a list sorted in place; count is small. */
static double judge_median(uint64_t *v, size_t count)
{
	size_t middle = count / 2;

	for (size_t i = 1; i < count; i++)
		for (size_t k = i; k > 0 && v[k - 1] > v[k]; k--) {
			uint64_t t = v[k];

			v[k] = v[k - 1];
			v[k - 1] = t;
		}
	return (double)v[middle];
}

/* The median of the last quarter of the cycles against that of the second: the first fills caches. */
static void judge_cycles(struct gate *g, const struct evidence *e)
{
	const struct fleet_result *f = &e->fleet;
	size_t quarter = f->memory_count / 4;
	uint64_t early[FLEET_CYCLES_MAX], late[FLEET_CYCLES_MAX];

	if (f->memory_count == 0)
		return;
	if (quarter == 0) {
		gate_unmeasured(
			g, "%s: %zu start/stop commands are too few", e->step, f->memory_count);
		return;
	}
	memcpy(early, f->memory + quarter, quarter * sizeof(*early));
	memcpy(late, f->memory + f->memory_count - quarter, quarter * sizeof(*late));
	gate_check_most(g, "B", judge_median(early, quarter), judge_median(late, quarter),
		JUDGE_CYCLES_BYTES, "memory after %zu start/stop commands, %.60s", f->memory_count,
		e->step);
}

void judge_unloaded(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct fleet_result *f = &e[i].fleet;

		if (!judge_has_fleet(g, &e[i]))
			continue;
		gate_check_most(g, "", (double)f->bpf_before, (double)f->bpf_after, 0,
			"BPF objects in the kernel at the end, %.60s", e[i].step);
		if (f->dormant_ns > 0)
			gate_check_most(g, "", (double)f->bpf_before, (double)f->bpf_dormant_max, 0,
				"BPF objects while dormant, %.60s", e[i].step);
		judge_cycles(g, &e[i]);
		/* An eye that never saw one loaded would say that none is left. */
		if (f->commands > 0 && f->bpf_sampling_max <= f->bpf_before)
			gate_unmeasured(g, "%s: no BPF object was seen while sampling", e[i].step);
	}
}
