/*
 * From a scenario to what the VMs do: a scenario becomes steps, steps are dealt to boots, a boot is
 * one job for vm_run(). Step names are SCENARIO.VARIANT.
 */
#ifndef LAB_PLAN_H
#define LAB_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "lab/job.h"
#include "lab/scenario.h"
#include "lab/vm.h"

struct plan_step {
	const char *name;
	size_t boot; /* index in the plan's boots of the first run */
	bool with_agent;
	const char *service; /* of a step with a play: the workload's; NULL: a recording */
};

struct plan_boot {
	const char *dir_name; /* below the output directory: SCENARIO.0, SCENARIO.0.again1 */
	struct job job;
};

/* One scenario, unfolded. Everything lives in the arena. */
struct plan {
	const struct scenario *scenario;
	enum vm_mode mode;
	const char *skipped;     /* why it cannot run in this mode; NULL: it can */
	struct plan_step *steps; /* in the order in which they are judged */
	size_t step_count;
	struct plan_boot *boots; /* boots of the first run, then of each repetition */
	size_t boot_count;
	size_t runs; /* repetitions, 1 or more */
};

struct plan_options {
	bool has_mode;
	enum vm_mode mode; /* instead of the scenario's */
	bool full;         /* suite full: the longer variants */
	uint64_t repeat;   /* at least so many runs; 0: as the scenario says */
	uint64_t runs;     /* perturb: so many steps; 0: as the scenario says */
};

/* 0, -ENOMEM, or -E2BIG when a boot would have more steps than a job may. */
int plan_make(
	struct arena *a, const struct scenario *s, const struct plan_options *o, struct plan *ret);

#endif
