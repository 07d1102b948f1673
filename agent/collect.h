/*
 * The collector: loads the kernel programs, samples from start to stop, and hands out what they
 * counted. Everything it creates in the kernel (programs, maps, perf events) lives from
 * collector_new to collector_free and not longer.
 *
 *	collector_new -> collector_start -> (collector_tick, collector_drain)* -> collector_stop
 *	-> collector_stacks, collector_ledger, collector_totals -> collector_free
 */
#ifndef AGENT_COLLECT_H
#define AGENT_COLLECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/sample.h"
#include "agent/filter.h"
#include "agent/helper.h"
#include "agent/tables.h"
#include "base/buf.h"

struct collector;

/* Called once for each new stack while the ring is drained; size was checked. 0 or -errno. */
typedef int collect_stack_fn(const struct stack_record *r, void *data);

struct collect_options {
	uint64_t frequency_hz;
	uint64_t jitter_seed;
	/* Read by collector_new only; NULL, NULL: everything. */
	const struct filter *filter;
	const struct filter_resolved *resolved;
	bool key_tids; /* count stacks of each thread apart */
	uint32_t stacks_max;
	uint32_t ledger_max;
	bool unwind_fp; /* frame pointers only, no tables */
	uint32_t unwind_table_mb;
	const char *tables_file;   /* keeps what was used, for the next recording; NULL: none */
	struct helper *helper;     /* stays the caller's; NULL with unwind_fp */
	struct sideband *sideband; /* stays the caller's; NULL: none */
	collect_stack_fn *on_stack;
	void *data;
};

struct collect_cpu {
	uint32_t cpu;
	uint64_t samples; /* all, whatever they hit */
	uint64_t gap_max_ns;
};

struct collect_totals {
	uint64_t window_ns;
	uint64_t start_ns; /* CLOCK_MONOTONIC */
	uint64_t cpus;
	uint64_t period_max_ns; /* the longest that is drawn */
	struct sample_count taken, idle, filtered;
	struct sample_count losses[SAMPLE_LOSS_COUNT];
	uint64_t taken_sq;
	uint64_t ends[SAMPLE_END_COUNT];
	uint64_t tail_us; /* busy time after the last sample, sum over CPUs */
	uint64_t tail_sq; /* sum over CPUs of (busy time after the last sample)^2 in us^2 */
	uint64_t idle_withheld_ns;
	uint64_t switches, ledger_lost;
	uint64_t switches_missed;
	uint64_t run_misses;  /* runs that the kernel skipped as recursive */
	uint64_t records_bad; /* ring records that made no sense */
	uint64_t bpf_memory_bytes, bpf_run_ns, bpf_run_count; /* memory: tables included */
	bool has_tables;                                      /* what follows means something */
	uint64_t deferred;                                    /* samples that waited for a table, */
	uint64_t deferred_no_slot;                            /* and that could not wait */
	struct tables_stats tables;
};

struct collect_stack {
	struct stack_key key;
	struct stack_value value;
};

struct collect_thread {
	struct ledger_key key;
	struct ledger_value value;
};

/*
 * Loads and attaches; without tables, which is logged, when the kernel refuses those. 0 or -errno; why (may be NULL) then gets what libbpf and the verifier said,
 * in one line.
 */
int collector_new(const struct collect_options *o, struct buf *why, struct collector **ret);
void collector_free(struct collector *c);
void collector_freep(struct collector **c);

/* Opens the window on all CPUs. 0 or -errno. */
int collector_start(struct collector *c);
/* Readable when stacks of an unseen process are in the ring. */
int collector_fd(const struct collector *c);
int collector_drain(struct collector *c); /* 0 or on_stack's error */
/* To be called every collector_tick_ns: redraws periods. 0 or -errno. */
int collector_tick(struct collector *c);
uint64_t collector_tick_ns(const struct collector *c);
/* Samples so far on all CPUs, for progress. */
uint64_t collector_samples(const struct collector *c);
/* Closes the window, detaches, drains. 0 or -errno. */
int collector_stop(struct collector *c);

/*
 * After stop. Arrays are the caller's to free. Entries are sorted by key. Threads that were on a
 * CPU at the end have their time until then; waits not yet split are split as far as known.
 */
int collector_stacks(const struct collector *c, struct collect_stack **ret, size_t *ret_count);
int collector_ledger(const struct collector *c, struct collect_thread **ret, size_t *ret_count);
void collector_totals(const struct collector *c, struct collect_totals *ret);
/*
 * Names kernel addresses as the kernel's own "%pS" prints them. texts has count rows of
 * NAME_BATCH_TEXT bytes, always terminated; a text that filled its row may be cut. count is at most
 * NAME_BATCH_MAX. Works from new to free. 0, -EINVAL or -errno.
 */
int collector_kernel_names(struct collector *c, const uint64_t *addresses, size_t count,
	char (*texts)[NAME_BATCH_TEXT]);
/* The sampled CPUs; the array is the caller's to free. 0 or -errno. */
int collector_cpus(const struct collector *c, struct collect_cpu **ret, size_t *ret_count);
/* Weight taken on one CPU (seeded fault double_cpu). */
uint64_t collector_cpu_weight(const struct collector *c, size_t cpu);

#endif
