/*
 * Counts and stacks to a profile: every counted key becomes one sample with two values,
 * samples/count and cpu/nanoseconds, its frames named by the symbolizer, its labels pid, comm (the
 * process's name), thread (the thread's) and, when asked, tid; cgroup, container and service when
 * they are known. A stack that did not reach its
 * thread's first frame has a marker as outermost frame that says why. Samples whose stack was lost
 * are there, too, one for each reason, with a marker as their only frame: what a profile lacks is to
 * be seen in it, and it sums up to what was taken.
 */
#ifndef AGENT_ASSEMBLE_H
#define AGENT_ASSEMBLE_H

#include <stdbool.h>

#include "agent/collect.h"
#include "agent/kernel_names.h"
#include "agent/processes.h"
#include "agent/stacks.h"
#include "agent/symbolize.h"
#include "prof/profile.h"

struct assemble_totals {
	uint64_t samples, weight_ns; /* what is in the profile */
	uint64_t stacks_missing;     /* keys counted whose stack we could not keep */
	uint64_t kernel_frames;      /* named by the kernel; the symbolizer counts the others */
};

struct assemble_input {
	const struct stacks *records;
	const struct collect_stack *counted;
	size_t count;
	struct symbolizer *symbolizer;
	struct kernel_names *kernel_names; /* NULL: the symbolizer names kernel frames, too */
	const struct processes *processes; /* NULL: nothing is known */
	const struct sample_count *losses; /* SAMPLE_LOSS_COUNT of them; NULL: none */
	bool with_tid;
};

/* p is empty. The totals are of this call. 0 or -errno of the profile. */
int assemble_profile(
	struct profile *p, const struct assemble_input *in, struct assemble_totals *ret);

/* The only frame of samples lost for this reason, NULL when the reason leaves stacks whole. */
const char *assemble_lost_marker(enum sample_loss loss);
/* The marker of an incomplete stack, NULL for a complete one. */
const char *assemble_marker(uint32_t end, uint32_t flags);

#endif
