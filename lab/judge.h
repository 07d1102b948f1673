/*
 * Verdicts. Every judge fills one gate from the evidence of some steps; none knows where the
 * evidence came from, so all of them are tested on synthetic recordings.
 *
 * Tolerance of a share (lab/README.md derives it): a sample falls into a function with share p or
 * does not, weights vary with the jittered period, so sigma = sqrt(sum w^2 p (1-p)) / sum w, which
 * for periods uniform in +-25 % is sqrt(p (1-p) (1 + 1/48) / n). Gates allow JUDGE_Z of it and
 * JUDGE_SYSTEMATIC for what truth and samples count differently (clock reads around a chunk of
 * work, the last microseconds of a thread).
 */
#ifndef LAB_JUDGE_H
#define LAB_JUDGE_H

#include "lab/evidence.h"
#include "lab/gate.h"
#include "lab/scenario.h"
#include "lab/stacks.h"

#define JUDGE_Z           4.0
#define JUDGE_SYSTEMATIC  0.0015 /* share */
#define JUDGE_JITTER_CV2  (1.0 / 48.0)
#define JUDGE_PATH_MAX    0.01 /* share of a function's stacks that prologues may cut */
#define JUDGE_SYMBOLS_MAX 0.001
#define JUDGE_CHAIN_MAX   0.005 /* share of stacks that may be less than whole */
#define JUDGE_UNNAMED_MAX 0.005 /* share of frames that may have no name */
#define JUDGE_LEDGER_PART 0.001
#define JUDGE_LEDGER_NS   50000.0 /* between reading schedstat and the last switch-out */
#define JUDGE_EXIT_NS \
	5000000.0 /* after the last reading: writing the truth, unmapping the process */
#define JUDGE_SWITCH_NS      5000.0 /* a switch, which cpu_ns has and the scheduler's clock has not */
#define JUDGE_EXIT_WAIT_NS   20000000.0 /* run queue after the last reading: others' time slices */
#define JUDGE_EXIT_SWITCHES  16
#define JUDGE_TAIL_PERIODS   2.5  /* last sample to end: a redraw starts the period, +25 %, anew */
#define JUDGE_CONSERVED_PART 0.01 /* exits that a busy host stretches */
#define JUDGE_OVERHEAD_MAX   0.01
#define JUDGE_MEMORY_MAX     100e6
#define JUDGE_UNWIND_PART    0.015
#define JUDGE_UNWIND_MIN     2000 /* samples of a step */
#define JUDGE_RATE_DRAW      8.0  /* samples from one draw of the rate to the next */
#define JUDGE_RATE_PART      0.01 /* idle between the agent's start, the workload's and both ends */
#define JUDGE_INGESTION_PART 0.03
#define JUDGE_INGESTION_MIN  500 /* profiles */
#define JUDGE_COST_PART      0.02
#define JUDGE_COST_FLUSH     0.5      /* which files samples hit is chance */
#define JUDGE_CYCLES_BYTES   65536.0  /* kernel memory of a process comes and goes in pages */
#define JUDGE_VERIFIER_MAX   500000.0 /* half of what a kernel allows */
#define JUDGE_CROWD_MAX      60e6     /* bytes */
#define JUDGE_CROWD_MIN      500      /* processes that were sampled */
#define JUDGE_FLAT_BYTES     6000.0   /* a second, at 100 files and processes a second */
#define JUDGE_FLAT_SECONDS   60
#define JUDGE_FLAT_WINDOW_S  5     /* of play churn */
#define JUDGE_LEAK_BYTES     256.0 /* per window; the seeded leak is 1024 */

/* Half-width of the interval for a share p of n samples. */
double judge_share_tolerance(double p, double n);

void judge_share(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
void judge_share_pooled(
	struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
void judge_path(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
/* judge_chain.c: callers in order up to the thread's first function, none cut, no strangers */
void judge_chain(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
/* A function that the program may have: the truth's, the scenario's foreign ones, a library's code in it. */
bool judge_is_known(const struct scenario *s, const struct truth *t, const char *name);
/* A file that does not have the names of all of its functions, as the scenario says. */
bool judge_is_stripped(const struct scenario *s, const char *module);
/* The callers of truth, side by side, inlined ones not necessarily. */
struct stacks_chain judge_truth_chain(const struct truth_function *f);
/* Truth's CPU of a function is so much that it cannot be in no sample by chance. */
bool judge_expects_samples(const struct evidence *e, const struct stacks *st, const char *name);
/* judge_names.c: inlined callers in order, no stranger anywhere, next to nothing without a name */
void judge_names(struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
/*
 * Opens the profile of the workload's process, or of all its programs if the scenario's workload is a family; or says
 * why the gate is unmeasured. s may be NULL.
 */
bool judge_open(
	struct gate *g, const struct scenario *s, const struct evidence *e, struct stacks *ret);
void judge_forbidden(
	struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
void judge_symbols(struct gate *g, const struct evidence *e, size_t count);
void judge_ledger(struct gate *g, const struct evidence *e, size_t count);
void judge_sum(struct gate *g, const struct evidence *e, size_t count);
void judge_losses(struct gate *g, const struct evidence *e, size_t count);
/* For machines whose clocks are not exact: the scheduler's own figures, as bounds. */
void judge_conserved(struct gate *g, const struct evidence *e, size_t count);
void judge_negative(struct gate *g, const struct evidence *e, size_t count);

/* Agent daemon and backend (judge_fleet.c). */
void judge_fleet(struct gate *g, const struct evidence *e, size_t count);
void judge_arrived(struct gate *g, const struct evidence *e, size_t count);
void judge_kept(struct gate *g, const struct evidence *e, size_t count);
void judge_spool(struct gate *g, const struct evidence *e, size_t count);
/* Guest instructions per profile, for a baseline. False, with the gate unmeasured: they are not known. */
bool judge_ingestion(struct gate *g, const struct evidence *e, unsigned int shift, double *ret);
void judge_dormant(struct gate *g, const struct evidence *e, size_t count);
void judge_unloaded(struct gate *g, const struct evidence *e, size_t count);
/* judge_verifier.c; the second puts all figures into the text of a gate that passed. */
void judge_verifier(struct gate *g, const struct evidence *e, size_t count);
void judge_verifier_text(struct gate *g, const struct evidence *e);
/* judge_power.c */
void judge_power_cut(struct gate *g, const struct evidence *e, size_t count);

/* bare: without agent; with: with it; limited: with it under memory.max and bpf_stats. */
struct judge_overhead {
	double start_cpu_s, agent, bpf, slowdown, sum; /* shares of the CPU */
	bool known;
};
void judge_overhead(struct gate *g, const struct evidence *bare, const struct evidence *with,
	const struct evidence *limited, struct judge_overhead *ret);
/* with took as many samples as its window has at this rate; its workload never sleeps. One CPU. */
void judge_rate(struct gate *g, double hz, const struct evidence *with);
void judge_memory(struct gate *g, const struct evidence *with, const struct evidence *limited);
void judge_memory_crowd(struct gate *g, const struct evidence *e, size_t count);
void judge_memory_flat(struct gate *g, const struct evidence *e, size_t count);
void judge_leak(struct gate *g, const struct evidence *e, size_t count);
void judge_cost_same(struct gate *g, const struct evidence *e, const struct evidence *plain);
/* e holds count steps of the first run, then the same steps of each further run. */
void judge_same_twice(struct gate *g, const struct evidence *e, size_t count, size_t runs);
/*
 * Guest instructions that a sample costs the kernel once the tables are there: the mean of each step, all steps
 * together. False, with the gate unmeasured: they are not known.
 */
bool judge_unwind_cost(
	struct gate *g, const struct evidence *e, size_t count, unsigned int shift, double *ret);
void judge_unwind_cost_same(struct gate *g, const struct evidence *e, const struct evidence *plain);
/* What A/B holds: all of the agent's CPU, start-up too, ns. False: not measured. */
bool judge_cost_ns(const struct evidence *e, double *ret);

/*
 * The per-profile gates of a scenario that are marked in want, with checks over all the evidence,
 * decided and appended to l.
 */
void judge_recording(struct gate_list *l, const struct scenario *s, const char *variant,
	const struct evidence *e, size_t count, const bool want[GATE_KIND_COUNT]);
/* One gate: no run raised an alarm. */
void judge_perturb(
	struct gate *g, const struct scenario *s, const struct evidence *e, size_t count);
/* One gate per fault, e[i] belongs to s->faults[i]. */
void judge_selftest(
	struct gate_list *l, const struct scenario *s, const struct evidence *e, size_t count);

#endif
