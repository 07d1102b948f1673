/*
 * A scenario: a workload with its arguments, the agent's settings, what must come out, and which
 * gates decide. One JSON file each in lab/scenarios/; lab/README.md shows the fields. A wrong file
 * is refused with file, field and reason, because a gate that is misspelled would not gate.
 */
#ifndef LAB_SCENARIO_H
#define LAB_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/gate.h"
#include "lab/json.h"
#include "lab/vm.h"

enum {
	SCENARIO_ARGS_MAX = 32,
	SCENARIO_SEEDS_MAX = 32,
	SCENARIO_EXPECT_MAX = 16,
	SCENARIO_CALLERS_MAX = 8,
	SCENARIO_FAULTS_MAX = 24,
	SCENARIO_FAULT_ENV_MAX = 8,
	SCENARIO_COUNT_MAX = 128,
	SCENARIO_PROGRAMS_MAX = 24,
	SCENARIO_NAMES_MAX = 64,
	SCENARIO_RUNS_MAX = 256,
};

/* What is run and compared; each kind makes its own steps (plan.c) and has its own judge. */
enum scenario_kind {
	SCENARIO_ACCURACY, /* one step per jitter seed, profile against truth */
	SCENARIO_OVERHEAD, /* without agent, with it, with it under memory.max and bpf_stats */
	SCENARIO_PERTURB,  /* many steps that differ in seed, offset, environment: no false alarm */
	SCENARIO_SELFTEST, /* agents with seeded faults: the named gates turn red, others stay green */
	SCENARIO_INVARIANTS, /* what must hold on any machine, no shares */
	SCENARIO_FLEET,  /* agent daemon and backend: a play of lab/guest/fleet_play.c per seed */
	SCENARIO_MATRIX, /* many programs, one step each, the first jitter seed */
	SCENARIO_KIND_COUNT
};
const char *scenario_kind_name(enum scenario_kind k);
const char *scenario_mode_name(enum vm_mode m);
bool scenario_mode_parse(const char *text, enum vm_mode *ret);

struct scenario_args {
	const char *item[SCENARIO_ARGS_MAX];
	size_t count;
};

struct scenario_expect {
	bool leaf; /* burns its CPU itself: no frames below it */
	const char *name;
	const char *callers[SCENARIO_CALLERS_MAX]; /* direct caller first; 0: any */
	size_t caller_count;
	const char
		*container; /* label of all its samples, "" for none; NULL: nothing is expected */
};

struct scenario_forbid {
	const char *frame;
	double share_max; /* 0..1; the sampling tolerance is added */
};

struct scenario_names {
	const char *item[SCENARIO_NAMES_MAX];
	size_t count;
};

struct scenario_program {
	const char *program;
	struct scenario_args args;
};

struct scenario_fault {
	const char *name;
	const char *workload; /* program and arguments of this step; NULL: the scenario's */
	struct scenario_args workload_args;
	struct scenario_args agent_args;         /* instead of the scenario's when given */
	const char *env[SCENARIO_FAULT_ENV_MAX]; /* of the agent; with a play, of the backend */
	size_t env_count;
	const char *agent_env[SCENARIO_FAULT_ENV_MAX]; /* with a play: of the agent */
	size_t agent_env_count;
	const char *play;    /* instead of the scenario's; NULL: that */
	double truth_points; /* the lab falsifies the truth it reads by so much */
	uint64_t boot;       /* which of the scenario's VMs runs it */
	const char *use;     /* judges that case's recording instead of making one */
	const char *compare; /* name of the fault-free case whose cost this one is held against */
	bool red[GATE_KIND_COUNT], green[GATE_KIND_COUNT];
};

struct scenario {
	struct json doc;
	const char *name, *why;
	enum scenario_kind kind;
	bool smoke; /* every scenario is in suite full */
	enum vm_mode mode;
	enum vm_arch arch;
	bool next_kernel; /* not the image's kernel but that of Debian's next release */
	unsigned int shift, cpus, memory_mb;
	const char *workload;
	struct scenario_args workload_args, agent_args;
	struct scenario_args beside; /* other programs that it starts */
	bool family;                 /* programs of the workload's name count as the workload */
	struct scenario_names
		foreign; /* prefixes of functions of the program that the truth need not know */
	struct scenario_names
		stripped; /* beginnings of files that do not have the names of all of their functions */
	uint64_t frequency_hz;
	uint64_t seeds[SCENARIO_SEEDS_MAX];
	size_t seed_count;
	const char *play;               /* with agent daemon and backend; NULL: a recording */
	uint64_t runs_smoke, runs_full; /* perturb: steps; fleet: start/stop commands */
	uint64_t boots;                 /* perturb, selftest: VMs the steps are dealt to */
	uint64_t repeat;                /* the whole job again in another VM, must be identical */
	uint64_t step_timeout_s;        /* guest time */
	double cost_s;                  /* busy guest seconds, all boots together */
	struct scenario_expect expect[SCENARIO_EXPECT_MAX];
	size_t expect_count;
	struct scenario_forbid forbid[SCENARIO_EXPECT_MAX];
	size_t forbid_count;
	struct scenario_program programs[SCENARIO_PROGRAMS_MAX]; /* matrix */
	size_t program_count;
	struct scenario_fault *faults;
	size_t fault_count;
	enum gate_need need[GATE_KIND_COUNT];
};

/* 0; -EBADMSG or -errno with s->doc.message. Give s to scenario_done() in any case. */
int scenario_load(struct scenario *s, const char *path);
int scenario_parse(struct scenario *s, const char *file, const void *data, size_t size);
void scenario_done(struct scenario *s);
/* Index of the fault of that name, fault_count when there is none. */
size_t scenario_fault_find(const struct scenario *s, const char *name);

struct scenario_list {
	struct scenario *items; /* by name */
	size_t count;
	char message[JSON_MESSAGE_MAX];
};
/* All *.json of dir. 0; -EBADMSG or -errno with l->message. */
int scenario_list_load(struct scenario_list *l, const char *dir);
void scenario_list_done(struct scenario_list *l); /* usable as cleanup attribute */
/* NULL: none of that name. */
struct scenario *scenario_find(struct scenario_list *l, const char *name);

#endif
