/* Gates on totals: the exact ledger against schedstat, stacks against the ledger. See judge.h. */
#include <math.h>

#include "base/def.h"
#include "lab/judge.h"
#include "lab/stacks.h"

static const struct evidence_thread *judge_ledger_row(
	const struct evidence_agent *a, uint32_t tgid, uint32_t tid)
{
	for (size_t i = 0; i < a->ledger_count; i++)
		if (a->ledger[i].tid == tid && a->ledger[i].tgid == tgid)
			return &a->ledger[i];
	return NULL;
}

static double judge_ledger_cpu(const struct evidence_agent *a, uint32_t tgid)
{
	double sum = 0;

	for (size_t i = 0; i < a->ledger_count; i++)
		if (a->ledger[i].tgid == tgid)
			sum += (double)a->ledger[i].cpu_ns;
	return sum;
}

static bool judge_has(struct gate *g, const struct evidence *e, bool truth)
{
	if (truth && !e->has_truth) {
		gate_unmeasured(g, "%s", e->no_truth);
		return false;
	}
	if (!e->has_agent) {
		gate_unmeasured(g, "%s", e->no_agent);
		return false;
	}
	return true;
}

/* The worker whose ledger is furthest above its own account, by tid; 0: none is above. */
static uint32_t judge_ledger_last(const struct evidence *e)
{
	uint32_t last = 0;
	int64_t most = 0;

	for (size_t i = 0; i < e->truth.thread_count; i++) {
		const struct truth_thread *t = &e->truth.threads[i];
		const struct evidence_thread *row =
			judge_ledger_row(&e->agent, e->truth.pid, t->tid);

		if (!row || t->tid == e->truth.pid || row->cpu_ns - (int64_t)t->cpu_ns <= most)
			continue;
		most = row->cpu_ns - (int64_t)t->cpu_ns;
		last = t->tid;
	}
	return last;
}

/*
 * A thread reads its account as its last act, so what follows is in the ledger only. For the main
 * thread that is writing the truth; for the one that is last to let go of the memory, whichever it
 * is, the unmapping of the process. Both may be above, never below; all others must agree. That no
 * time is invented under this cover, the comparison of the whole process shows.
 */
static void judge_ledger_thread(
	struct gate *g, const struct evidence *e, const struct truth_thread *t, bool may_be_above)
{
	const struct evidence_thread *row = judge_ledger_row(&e->agent, e->truth.pid, t->tid);
	double cpu = (double)t->cpu_ns;
	double slack = fmax(JUDGE_LEDGER_PART * cpu, JUDGE_LEDGER_NS);

	/* A missing row is a thread that the ledger lost, not one that was not looked at. */
	if (!row) {
		gate_check_near(g, "ns", cpu, 0, 0, "%s has no row, %s", t->name, e->step);
		return;
	}
	if (may_be_above)
		gate_check_near(g, "ns", cpu + JUDGE_EXIT_NS / 2, (double)row->cpu_ns,
			JUDGE_EXIT_NS / 2 + slack, "%s with its exit, %s", t->name, e->step);
	else
		gate_check_near(
			g, "ns", cpu, (double)row->cpu_ns, slack, "%s, %s", t->name, e->step);
}

void judge_ledger(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t last;
		double total;

		if (!judge_has(g, &e[i], true))
			continue;
		last = judge_ledger_last(&e[i]);
		if (e[i].truth.thread_count == 0)
			gate_unmeasured(g, "%s: truth has no threads", e[i].step);
		for (size_t k = 0; k < e[i].truth.thread_count; k++) {
			const struct truth_thread *t = &e[i].truth.threads[k];

			judge_ledger_thread(
				g, &e[i], t, t->tid == last || t->tid == e[i].truth.pid);
		}
		/* The whole process, exit included, as the kernel's cgroup account saw it. */
		if (!e[i].has_meters || e[i].meters.workload_cpu_ns == 0) {
			gate_unmeasured(g, "%s",
				e[i].has_meters ? "workload's cgroup was not metered"
						: e[i].no_meters);
			continue;
		}
		total = (double)e[i].meters.workload_cpu_ns;
		gate_check_near(g, "ns", total, judge_ledger_cpu(&e[i].agent, e[i].truth.pid),
			fmax(JUDGE_LEDGER_PART * total, 10 * JUDGE_LEDGER_NS),
			"whole process against its cgroup, %s", e[i].step);
	}
}

/* The workload's own stacks against its own ledger rows, by a bound of our own. */
static void judge_sum_process(struct gate *g, const struct evidence *e)
{
	struct stacks_sum sum;
	struct stacks st;
	double cpu, sigma;

	if (!e->has_profile || stacks_open(e->profile, e->truth.pid, &st) < 0) {
		gate_unmeasured(g, "%s", e->has_profile ? "no nanoseconds" : e->no_profile);
		return;
	}
	sum = stacks_total(&st, e->agent.frequency_real_hz);
	cpu = judge_ledger_cpu(&e->agent, e->truth.pid);
	/* At most what independent samples would scatter; a periodic sampler scatters less. */
	sigma = cpu / sqrt(fmax(cpu / (double)NSEC_PER_SEC * e->agent.frequency_real_hz, 1));
	gate_check_near(g, "ns", cpu, sum.weight_ns, JUDGE_Z * sigma,
		"workload's stacks against its ledger, %s", e->step);
}

void judge_sum(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct evidence_agent *a = &e[i].agent;
		double mean;

		if (!judge_has(g, &e[i], true))
			continue;
		gate_check_near(g, "ns", (double)a->ledger_cpu_ns, (double)a->weight_ns,
			JUDGE_Z * (double)a->sigma_ns, "all stacks against the ledger, %s",
			e[i].step);
		/* The agent names its own sigma; one beyond plain counting error is no excuse. */
		mean = (double)a->weight_ns / fmax((double)a->samples, 1);
		gate_check_most(g, "ns", 2 * mean * (sqrt((double)a->samples) + 2),
			(double)a->sigma_ns, 0, "sigma that the agent states, %s", e[i].step);
		judge_sum_process(g, &e[i]);
	}
}

void judge_losses(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!judge_has(g, &e[i], false))
			continue;
		if (e[i].agent.loss_count == 0)
			gate_unmeasured(g, "%s: agent reports no losses at all", e[i].step);
		for (size_t k = 0; k < e[i].agent.loss_count; k++)
			gate_check_most(g, "", 0, (double)e[i].agent.losses[k].samples, 0,
				"samples lost: %s, %s", e[i].agent.losses[k].reason, e[i].step);
	}
}

void judge_conserved(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double window = (double)e[i].agent.window_ns, sum = 0, total;

		if (!judge_has(g, &e[i], true))
			continue;
		for (size_t k = 0; k < e[i].truth.thread_count; k++) {
			const struct truth_thread *t = &e[i].truth.threads[k];
			const struct evidence_thread *row =
				judge_ledger_row(&e[i].agent, e[i].truth.pid, t->tid);
			double cpu = (double)t->cpu_ns;

			/* The thread read its account before its end, so the ledger has more. */
			gate_check_most(g, "ns", 0, cpu - (row ? (double)row->exec_ns : 0),
				JUDGE_LEDGER_PART * cpu + JUDGE_LEDGER_NS,
				"CPU that the ledger lost, %s, %s", t->name, e[i].step);
			if (!row)
				continue;
			sum += (double)row->exec_ns;
			gate_check_most(g, "ns", window,
				(double)(row->cpu_ns + row->runnable_ns + row->blocked_ns),
				JUDGE_LEDGER_PART * window + JUDGE_LEDGER_NS,
				"life within the window, %s, %s", t->name, e[i].step);
		}
		if (!e[i].has_meters || e[i].meters.workload_cpu_ns == 0) {
			gate_unmeasured(g, "%s",
				e[i].has_meters ? "workload was not metered" : e[i].no_meters);
			continue;
		}
		total = (double)e[i].meters.workload_cpu_ns;
		gate_check_most(g, "ns", total, sum,
			JUDGE_CONSERVED_PART * total + 10 * JUDGE_LEDGER_NS,
			"CPU of the process against its account, %s", e[i].step);
	}
}

void judge_negative(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct evidence_agent *a = &e[i].agent;
		double least = 0, most = 0, sum = 0;
		double window = (double)a->window_ns;

		if (!judge_has(g, &e[i], false))
			continue;
		if (a->ledger_count == 0) {
			gate_unmeasured(g, "%s: ledger is empty", e[i].step);
			continue;
		}
		for (size_t k = 0; k < a->ledger_count; k++) {
			least = fmin(least, (double)a->ledger[k].time_min_ns);
			most = fmax(most, (double)a->ledger[k].cpu_ns);
			sum += (double)a->ledger[k].cpu_ns;
		}
		gate_check_most(g, "ns", 0, least < 0 ? -least : 0, 0,
			"smallest time below zero, %s", e[i].step);
		gate_check_most(g, "ns", window, most, JUDGE_LEDGER_PART * window + JUDGE_LEDGER_NS,
			"CPU of one thread within the window, %s", e[i].step);
		gate_check_most(g, "ns", window * (double)a->cpus, sum,
			JUDGE_LEDGER_PART * window + JUDGE_LEDGER_NS,
			"CPU of all threads within the window, %s", e[i].step);
	}
}
