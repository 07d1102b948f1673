/* A step whose agent is the daemon, with a backend beside it: the plays of lab/job.h. */
#ifndef LAB_GUEST_FLEET_H
#define LAB_GUEST_FLEET_H

#include "lab/guest/step_internal.h"

/*
 * 0 when the play was tried, whatever came of it: fleet.json says that. -errno when it could not
 * even be tried. Ends agent and backend.
 */
int fleet_run(struct run *r);

#endif
