/*
 * The ledger in user space: closes the entries of a window and computes what the sampled stacks are
 * judged by. Pure functions over numbers, no kernel involved.
 *
 * SAMPLING ERROR. Each CPU is sampled at times that do not depend on what it runs, and a sample
 * carries the time w since the CPU's last one. For a class of time with share q (busy time, or one
 * thread's), sample i adds w_i with chance q, so its variance is w_i^2 q (1 - q). Summed over the
 * samples that hit the class, whose number carries the factor q already:
 *
 *	sigma^2 = (1 - q) * sum over hits of w^2  +  edge
 *	edge = q * (1 - q) * sum over CPUs of tail^2  +  (q * sum over CPUs of tail)^2
 *
 * tail is the time from a CPU's last sample to the window's end, which no sample has (the first
 * sample's weight counts from the start of the window, so there is no such gap). It always lacks,
 * on all CPUs alike: the second part of edge is that bias, which grows with the number of CPUs where
 * chance grows with its root. When a class was
 * hit less often than its share leads to expect, the expected sum q * window * period * CPUs takes
 * the place of the observed one, so that a thread missed by chance has an error, too.
 */
#ifndef AGENT_LEDGER_H
#define AGENT_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/sample.h"

struct ledger_window {
	uint64_t window_ns;
	uint64_t cpus;
	uint64_t period_ns; /* mean */
	uint64_t tail_us;   /* sum over CPUs */
	uint64_t tail_sq;   /* us^2, sum over CPUs */
};

/*
 * Brings v to the end of the window start_ns..stop_ns (CLOCK_MONOTONIC, as its own stamps): a thread
 * on a CPU has the time since its switch-in, one off it has waited on; a dead one has nothing more.
 * run_delay_ns is the thread's run-queue wait as read after stop_ns, used to split the wait before a
 * stint that still runs; 0: unknown, all of that wait counts as blocked.
 */
void ledger_close(
	struct ledger_value *v, uint64_t start_ns, uint64_t stop_ns, uint64_t run_delay_ns);

/*
 * Before ledger_close: a thread whose last switch-out nobody saw ran for what the scheduler says it
 * has run since, exec_ns being its whole run time as read after stop_ns. Others are left alone.
 */
void ledger_catch_up(struct ledger_value *v, uint64_t start_ns, uint64_t stop_ns, uint64_t exec_ns);

/* True if v ran or was switched in the window; others only slept through it. */
int ledger_was_active(const struct ledger_value *v);

/* Sampling error in ns of a class of time of class_ns, hit with sum of squared weights hits_sq. */
double ledger_sigma_ns(const struct ledger_window *w, uint64_t class_ns, uint64_t hits_sq_us2);

/* (sampled - truth) / sigma; 0 when both are equal, whatever sigma. */
double ledger_deviation(uint64_t sampled_ns, uint64_t truth_ns, double sigma_ns);

#endif
