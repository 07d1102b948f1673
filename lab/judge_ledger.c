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

/* Of one process, by our own stamps: what its stacks must sum to. */
static double judge_ledger_cpu(const struct evidence_agent *a, uint32_t tgid)
{
	double sum = 0;

	for (size_t i = 0; i < a->ledger_count; i++)
		if (a->ledger[i].tgid == tgid)
			sum += (double)a->ledger[i].cpu_ns;
	return sum;
}

/* The same by the scheduler's clock: what schedstat and cgroup must show. */
static double judge_ledger_exec(const struct evidence_agent *a, uint32_t tgid)
{
	double sum = 0;

	for (size_t i = 0; i < a->ledger_count; i++)
		if (a->ledger[i].tgid == tgid)
			sum += (double)a->ledger[i].exec_ns;
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

		if (!row || t->tid == e->truth.pid || row->exec_ns - (int64_t)t->cpu_ns <= most)
			continue;
		most = row->exec_ns - (int64_t)t->cpu_ns;
		last = t->tid;
	}
	return last;
}

/*
 * The rest of a thread's schedstat, time in the run queue and number of stints, and our own stamps
 * against the scheduler's clock: a switch costs some 3 us that only our stamps have. After a
 * thread's last reading it can only become more: an exiting thread waits for others' time slices and, since
 * the agent goes first, for all that the agent has to do then, at most what it used in the window.
 */
static void judge_ledger_switches(struct gate *g, const struct evidence *e,
	const struct truth_thread *t, const struct evidence_thread *row)
{
	double delay = (double)t->run_delay_ns, slices = (double)t->slices;
	double slack = JUDGE_LEDGER_PART * delay + JUDGE_SWITCH_NS * slices + JUDGE_LEDGER_NS;

	gate_check_most(g, "ns", slack, delay - (double)row->runnable_ns, 0,
		"run queue time that the ledger lost, %s, %s", t->name, e->step);
	gate_check_most(g, "ns", slack + JUDGE_EXIT_WAIT_NS + (double)e->agent.cpu_window_ns,
		(double)row->runnable_ns - delay, 0, "run queue time that it invented, %s, %s",
		t->name, e->step);
	gate_check_most(g, "", 0, slices - (double)row->switches, 0,
		"stints that the ledger lost, %s, %s", t->name, e->step);
	gate_check_most(g, "", JUDGE_EXIT_SWITCHES, (double)row->switches - slices, 0,
		"stints that it invented, %s, %s", t->name, e->step);
	gate_check_near(g, "ns", (double)row->exec_ns, (double)row->cpu_ns,
		JUDGE_SWITCH_NS * (double)row->switches + JUDGE_LEDGER_NS,
		"own clock against the scheduler's, %s, %s", t->name, e->step);
}

/*
 * A thread reads its account as its last act, so what follows is in the ledger only. For the main
 * thread that is writing the truth; for the one that is last to let go of the memory, whichever it
 * is, the unmapping of the process. Both may be above, never below, and so may one that another thread read, as Go's
 * runtime has them; all others must agree. That no
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
		gate_check_near(g, "ns", cpu + JUDGE_EXIT_NS / 2, (double)row->exec_ns,
			JUDGE_EXIT_NS / 2 + slack, "%s with its exit, %s", t->name, e->step);
	else
		gate_check_near(
			g, "ns", cpu, (double)row->exec_ns, slack, "%s, %s", t->name, e->step);
	if (e->exact)
		judge_ledger_switches(g, e, t, row);
}

/*
 * What the workload says it waited for is sleep, but for the time between being woken and running.
 * Threads other than the main one, which also waits for them, unless it is the only one.
 */
static void judge_ledger_blocked(struct gate *g, const struct evidence *e)
{
	double asleep = 0, runnable = 0, waited = (double)e->truth.wait_ns;
	double slack = JUDGE_LEDGER_PART * waited + JUDGE_LEDGER_NS * (double)e->truth.thread_count;

	if (!e->exact || e->truth.wait_ns == 0)
		return;
	for (size_t i = 0; i < e->agent.ledger_count; i++) {
		const struct evidence_thread *row = &e->agent.ledger[i];

		if (row->tgid != e->truth.pid ||
			(row->tid == e->truth.pid && e->truth.thread_count > 1))
			continue;
		asleep += (double)row->blocked_s_ns;
		runnable += (double)row->runnable_ns;
	}
	gate_check_most(g, "ns", runnable + slack, waited - asleep, 0,
		"sleep that the ledger lost, %s", e->step);
	gate_check_most(g, "ns", slack, asleep - waited, 0, "sleep that it invented, %s", e->step);
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

			judge_ledger_thread(g, &e[i], t,
				t->is_alive || t->tid == last || t->tid == e[i].truth.pid);
		}
		judge_ledger_blocked(g, &e[i]);
		/* The whole process, exit included, as the kernel's cgroup account saw it. */
		if (!e[i].has_meters || e[i].meters.workload_cpu_ns == 0) {
			gate_unmeasured(g, "%s",
				e[i].has_meters ? "workload's cgroup was not metered"
						: e[i].no_meters);
			continue;
		}
		total = (double)e[i].meters.workload_cpu_ns;
		gate_check_near(g, "ns", total, judge_ledger_exec(&e[i].agent, e[i].truth.pid),
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

/* The profile has what the agent says it has, to the nanosecond. */
static void judge_sum_profile(struct gate *g, const struct evidence *e)
{
	struct stacks_sum sum;
	struct stacks st;

	if (!e->has_profile || stacks_open(e->profile, 0, &st) < 0)
		return; /* judge_sum_process says so */
	sum = stacks_total(&st, e->agent.frequency_real_hz);
	gate_check_near(g, "ns", (double)e->agent.weight_ns, sum.weight_ns, 0,
		"profile against the agent's own figure, %s", e->step);
	if (st.has_count)
		gate_check_near(g, "", (double)e->agent.samples, sum.count, 0,
			"samples against the agent's own figure, %s", e->step);
}

/*
 * Every nanosecond of every CPU is some sample's weight, but for the time from the last sample to the
 * window's end. The weight has the losses in it: each is a stack "[lost: ...]", or the next sample has it. Sharper than any sigma, so a sample that vanishes is seen.
 */
static void judge_sum_window(struct gate *g, const struct evidence *e)
{
	const struct evidence_agent *a = &e->agent;
	double room = JUDGE_TAIL_PERIODS * (double)NSEC_PER_SEC / fmax((double)a->frequency_hz, 1) *
		      (double)a->cpus;
	double left = (double)a->window_ns * (double)a->cpus;

	if (!e->exact)
		return;
	left -= (double)a->weight_ns + (double)a->weight_idle_ns + (double)a->weight_filtered_ns;
	gate_check_most(g, "ns", room, left, 0, "time that no sample has, %s", e->step);
	gate_check_most(g, "ns", 0, -left, 0, "time that samples have twice, %s", e->step);
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
		judge_sum_profile(g, &e[i]);
		judge_sum_window(g, &e[i]);
	}
}

void judge_losses(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		/* An agent that dies loses all of them; that is its fault, not missing data. */
		if (evidence_agent_failed(&e[i]))
			gate_check_most(g, "", 0, 1, 0, "agent ended with %s, see agent.log, %s",
				e[i].meters.agent_exit, e[i].step);
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
