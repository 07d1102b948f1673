/*
 * The seam for seeded faults, chosen at link time: flame-agent links fault_none.c, where every
 * answer is the constant "no fault"; flame-agent-faulty links fault_seeded.c, which reads
 *FLAME_FAULT from the environment and exists only so that the lab can prove that its gates see such
 *faults.
 *
 *	FLAME_FAULT  what it does                                           further variables
 *	drop10       every 10th sample of one function is not reported      FLAME_FAULT_FUNCTION
 *	swap         two functions' names are exchanged                     ..._FUNCTION,
 *..._FUNCTION2 keep_pc      return addresses are named as they stand, not pc-1 double_cpu   the
 *weights of one CPU count twice                     FLAME_FAULT_CPU (0) leak         1 KiB a window
 *is allocated and never freed slow         the agent needs 5 % more CPU time for all it does
 *	sample_slow	each sample costs the kernel program some hundred instructions more
 *	spool_unbounded	the daemon's spool keeps all windows, whatever its limits
 *
 * A function is named as it stands in the profile, without a parameter list. All are applied in
 * user space: the kernel side is the shipped one, where sample_slow only sets a constant that is 0 else. A stack's count was aggregated over CPUs, so
 * double_cpu gives every stack that CPU's share of the total weight once more.
 */
#ifndef AGENT_FAULT_H
#define AGENT_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prof/profile.h"

/* The active fault's name, "" for none; -EINVAL for one that does not exist. */
int fault_init(const char **ret_name);

bool fault_keep_pc(void);
bool fault_double_cpu(size_t *ret_cpu);
/* Exchanges names in a stack of frame ids of p. 0 or the profile's error. */
int fault_swap(struct profile *p, uint32_t *frames, uint32_t count);
/* Takes dropped samples, and their share of the weight, off a stack's count. */
void fault_drop(const struct profile *p, const uint32_t *frames, uint32_t count, uint64_t *samples,
	uint64_t *weight_ns);
void fault_leak(void); /* at the end of a window */
void fault_slow(void); /* after each piece of work */
/* Turns of an empty loop in the kernel program, for each sample. */
uint32_t fault_sample_turns(void);
/* The daemon never calls fault_init(); this asks the environment by itself. */
bool fault_spool_unbounded(void);

#endif
