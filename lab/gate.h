/*
 * Gates: expectations that can fail the build. A gate belongs to a scenario and is decided by
 * checks, each one number against another with a tolerance that is printed. No data is no verdict:
 * such a gate is unmeasured, with its reason, and only the committed list (policy.h) excuses that.
 */
#ifndef LAB_GATE_H
#define LAB_GATE_H

#include <stdbool.h>
#include <stddef.h>

enum gate_kind {
	GATE_SHARE,        /* each named function's share against truth, per seed */
	GATE_SHARE_POOLED, /* the same over all seeds together, so with a smaller tolerance */
	GATE_PATH,         /* the callers above each named function, in order */
	GATE_CHAIN,        /* whole stacks, from the function that worked up to main */
	GATE_FORBIDDEN,    /* frames that must not be in this view */
	GATE_LEDGER,       /* CPU per thread against the kernel's schedstat */
	GATE_SUM,          /* the stacks' weights sum to the ledger within their sampling error */
	GATE_LOSSES,       /* nothing was dropped */
	GATE_SYMBOLS,      /* the workload's own frames have names */
	GATE_OVERHEAD,     /* agent CPU + BPF time + slowdown of the workload */
	GATE_MEMORY,       /* peak below 100 MB, and alive under memory.max=100M */
	GATE_UNWIND_COST,  /* the kernel program's instructions per sample */
	GATE_SAME_TWICE,   /* the same job in another VM gave the same figures */
	GATE_PERTURB,      /* no false alarm under other seeds, offsets, environments */
	GATE_LEAK,         /* memory does not grow from window to window */
	GATE_AGENT_COST_SAME, /* agent CPU equals that of a plain agent in the same VM */
	GATE_CONSERVED,       /* the ledger neither loses nor invents time, on any machine */
	GATE_NEGATIVE,        /* no time is negative or larger than the window allows */
	GATE_SELFTEST,        /* a seeded fault turned the right gates red */
	GATE_OVERHEAD_REAL,   /* overhead on real hardware, interleaved A/B */
	GATE_FLEET,           /* request, command, window, upload came round without a failure */
	GATE_ARRIVED,         /* the backend answers what the agent sent, to the nanosecond */
	GATE_KEPT,            /* nothing acknowledged is lost, nothing is counted twice */
	GATE_SPOOL,           /* within its limit; what is dropped is the oldest, and counted */
	GATE_INGESTION,       /* the backend's instructions per pushed profile */
	GATE_DORMANT,         /* CPU and memory of an agent that waits on a busy host */
	GATE_UNLOADED,        /* kernel objects, and memory over many commands, are back */
	GATE_POWER_CUT,       /* what was acknowledged survives the power, wherever it goes */
	GATE_VERIFIER,        /* instructions that the kernel's verifier went through */
	GATE_MEMORY_CROWD,    /* memory while hundreds of processes run and are sampled */
	GATE_NAMES,           /* inlined callers in order, no stranger, next to nothing unnamed */
	GATE_MEMORY_FLAT,     /* no slope while programs and libraries come and go */
	GATE_KIND_COUNT
};
const char *gate_kind_name(enum gate_kind k);
/* One sentence for --help and the report: what it means when this gate is red. */
const char *gate_kind_meaning(enum gate_kind k);
bool gate_kind_parse(const char *name, enum gate_kind *ret);

/* required: must be measured and pass. platform: may be unmeasured where the list says so. */
enum gate_need { GATE_ABSENT, GATE_REQUIRED, GATE_PLATFORM };

enum gate_status { GATE_PASS, GATE_FAIL, GATE_UNMEASURED, GATE_EXCUSED, GATE_STATUS_COUNT };
const char *gate_status_name(enum gate_status s);

enum { GATE_TEXT_MAX = 240, GATE_WHAT_MAX = 120 };

struct gate_check {
	char what[GATE_WHAT_MAX];
	char unit[8]; /* "%", "ns", "B", "" */
	double expected, measured, tolerance;
	bool at_most; /* measured <= expected + tolerance instead of |difference| <= tolerance */
	bool pass;
};

struct gate {
	enum gate_kind kind;
	enum gate_need need;
	enum gate_status status;
	char scenario[64];
	char variant[48];         /* fault or case within the scenario, "" for none */
	char text[GATE_TEXT_MAX]; /* the worst check, or why it is unmeasured or excused */
	struct gate_check *checks;
	size_t check_count, check_allocated;
	bool no_memory;
};

struct gate_list {
	struct gate *items;
	size_t count, allocated;
	bool no_memory;
};

/* NULL without memory; the list then says no_memory. Valid until the next gate_add. */
struct gate *gate_add(struct gate_list *l, enum gate_kind kind, const char *scenario,
	const char *variant, enum gate_need need);
void gate_list_done(struct gate_list *l); /* usable as cleanup attribute */

/* |measured - expected| <= tolerance. A value that is not finite fails. */
void gate_check_near(struct gate *g, const char *unit, double expected, double measured,
	double tolerance, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* measured <= limit + tolerance. */
void gate_check_most(struct gate *g, const char *unit, double limit, double measured,
	double tolerance, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
void gate_unmeasured(struct gate *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * Sets status and text from the checks: fail if one failed, unmeasured if there is none or data
 * was missing for some, else pass.
 */
void gate_decide(struct gate *g);
/* The check nearest to or furthest beyond its tolerance; NULL: none. */
const struct gate_check *gate_worst(const struct gate *g);

#endif
