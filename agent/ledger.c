/* See ledger.h for the meaning and the formulas. */
#include "agent/ledger.h"

#include <math.h>

#include "base/def.h"

/* Task states, include/linux/sched.h; the kernel side sorts time by the same bits. */
enum {
	STATE_INTERRUPTIBLE = 0x1,
	STATE_UNINTERRUPTIBLE = 0x2,
	STATE_DEAD = 0x80,
	STATE_NOLOAD = 0x400,
};

static void add_blocked(struct ledger_value *v, uint64_t ns)
{
	if (v->state & STATE_NOLOAD)
		v->blocked_other_ns += ns;
	else if (v->state & STATE_INTERRUPTIBLE)
		v->blocked_s_ns += ns;
	else if (v->state & STATE_UNINTERRUPTIBLE)
		v->blocked_d_ns += ns;
	else
		v->blocked_other_ns += ns;
}

void ledger_close(
	struct ledger_value *v, uint64_t start_ns, uint64_t stop_ns, uint64_t run_delay_ns)
{
	uint64_t since_ns = MAX(v->since_ns, start_ns);
	uint64_t ns = stop_ns > since_ns ? stop_ns - since_ns : 0;

	if (v->state & LEDGER_ON_CPU) {
		uint64_t wait = run_delay_ns > v->run_delay_ns ? run_delay_ns - v->run_delay_ns : 0;

		wait = MIN(wait, v->off_pending_ns);
		v->cpu_ns += ns;
		v->exec_ns += ns;
		v->runnable_ns += wait;
		add_blocked(v, v->off_pending_ns - wait);
		v->off_pending_ns = 0;
	} else if (v->state == 0) {
		v->runnable_ns += ns;
	} else if (!(v->state & STATE_DEAD)) {
		add_blocked(v, ns);
	}
	v->since_ns = stop_ns;
}

void ledger_catch_up(struct ledger_value *v, uint64_t start_ns, uint64_t stop_ns, uint64_t exec_ns)
{
	uint64_t since_ns = MAX(v->since_ns, start_ns);
	uint64_t ran_ns;

	if (v->state != LEDGER_STATE_UNKNOWN || exec_ns <= v->exec_last_ns || since_ns >= stop_ns)
		return;
	ran_ns = MIN(exec_ns - v->exec_last_ns, stop_ns - since_ns);
	v->cpu_ns += ran_ns;
	v->exec_ns += ran_ns;
	v->exec_last_ns = exec_ns;
	v->since_ns = since_ns + ran_ns;
}

int ledger_was_active(const struct ledger_value *v)
{
	return v->cpu_ns != 0 || v->switches_voluntary + v->switches_involuntary != 0 ||
	       (v->state & LEDGER_ON_CPU) != 0;
}

double ledger_sigma_ns(const struct ledger_window *w, uint64_t class_ns, uint64_t hits_sq_us2)
{
	double all_ns = (double)w->window_ns * (double)w->cpus;
	double q = all_ns > 0 ? MIN((double)class_ns / all_ns, 1.0) : 0;
	double hits = (double)hits_sq_us2 * 1e6;
	double expected = (double)class_ns * (double)w->period_ns;
	double bias = q * (double)w->tail_us * 1e3;
	double edge = q * (1 - q) * (double)w->tail_sq * 1e6 + bias * bias;

	return sqrt((1 - q) * MAX(hits, expected) + edge);
}

double ledger_deviation(uint64_t sampled_ns, uint64_t truth_ns, double sigma_ns)
{
	double d = (double)sampled_ns - (double)truth_ns;

	if (d == 0)
		return 0;
	return sigma_ns > 0 ? d / sigma_ns : (d > 0 ? INFINITY : -INFINITY);
}
