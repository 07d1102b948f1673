/* Runs one step of a job and leaves its files in a directory. */
#ifndef LAB_GUEST_STEP_H
#define LAB_GUEST_STEP_H

#include "lab/guest/group.h"
#include "lab/job.h"

struct step_place {
	const struct group_root *groups;
	const char *bin_dir; /* the agents, and workloads/ */
	const char *out_dir; /* of this step; exists */
};

/*
 * 0 when the step was run, whatever its programs did: meters.json says that. -errno when it could
 * not even be tried (no memory, no process).
 */
int step_run(const struct job_step *s, const struct step_place *place);

#endif
