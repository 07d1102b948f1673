/*
 * Play power_cut: what a backend promised before the power went is there when it comes back. The writes of a
 * backend at work are recorded once, then cut after many of them (power_log.h says what a cut is); on each
 * of those disks the file system must mount, flame-backend verify find nothing, the backend start, know what it
 * had acknowledged, and take new pushes.
 *
 * It leaves power.json (lab/power.h) and power.log, a line for each cut.
 */
#ifndef LAB_GUEST_POWER_H
#define LAB_GUEST_POWER_H

#include "lab/guest/step_internal.h"

/* As fleet_run(). */
int power_run(struct run *r);

#endif
