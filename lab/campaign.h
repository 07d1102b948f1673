/*
 * One run of the lab: scenarios are planned, their boots run, the evidence loaded and judged. What
 * it leaves in memory is what every report is written from; what it leaves on disk (build/lab/runs)
 * is enough to judge again without running (`flamelab report`).
 */
#ifndef LAB_CAMPAIGN_H
#define LAB_CAMPAIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "lab/boots.h"
#include "lab/evidence.h"
#include "lab/judge.h"
#include "lab/plan.h"
#include "lab/policy.h"

struct campaign_place {
	char source[512];    /* the tree: lab/scenarios, vm-images */
	char bin[512];       /* build/ */
	char bin_arm64[520]; /* build/arm64/ */
	char out[512];       /* build/lab */
};

struct campaign_options {
	struct plan_options plan;
	bool keep, quiet;
	unsigned int at_once;
};

/* What one scenario came to. */
struct campaign_item {
	struct plan plan;
	struct boots_item *boots;  /* plan.boot_count of them */
	struct evidence *evidence; /* plan.runs * plan.step_count, run by run */
	struct gate_list gates;
	struct judge_overhead overhead;
	double cost; /* what a baseline holds: instructions: of the kernel a sample, of the backend a profile */
	bool has_cost;
	size_t infrastructure; /* boots that failed */
};

struct campaign {
	struct arena *arena;
	struct campaign_place place;
	struct campaign_options options;
	struct policy *policy;
	struct image_info image[VM_ARCH_COUNT];
	bool has_image[VM_ARCH_COUNT]; /* those that a scenario needed */
	struct image_info
		image_next;    /* its kernel is that of Debian's next release; dir "": not needed */
	char agent_sha256[65]; /* "" when the binary is missing */
	char started[32], today[11];
	struct campaign_item *items;
	size_t count;
	struct policy_counts counts;
	int lock_fd;     /* of the output directory while running, else -1 */
	char error[640]; /* why a call below failed */
};

/* Where the tree is: beside the program's own build directory. 0 or -errno. */
int campaign_place_find(struct campaign_place *ret);

int campaign_init(
	struct campaign *c, const struct campaign_place *place, const struct campaign_options *o);
void campaign_done(struct campaign *c);
/* Plans the scenarios, in this order. 0 or -errno with c->error. */
int campaign_plan(struct campaign *c, struct scenario *const *scenarios, size_t count);
/* Finds the image when a VM is needed, and runs all boots. */
int campaign_run(struct campaign *c);
/* Instead of running: takes what an earlier run left in c->place.out. */
int campaign_reload(struct campaign *c);
/* Loads evidence, judges, excuses, counts. */
int campaign_judge(struct campaign *c);

#endif
