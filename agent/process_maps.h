/*
 * What an image of a process has mapped: from /proc while it is there, from the kernel's events
 * (sideband.h) when it is gone or has called exec meanwhile. A child that was forked and never called exec
 * has what its parent had.
 */
#ifndef AGENT_PROCESS_MAPS_H
#define AGENT_PROCESS_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/maps.h"
#include "agent/sideband.h"

struct process_maps_ask {
	struct sideband *sideband; /* NULL: /proc only */
	uint32_t tgid;
	uint64_t start_ns; /* boot clock */
	uint64_t seen_ns;  /* CLOCK_MONOTONIC: when it had this image; 0: not known */
	bool is_over;      /* what is there now is known to be another */
};

/*
 * Into m, which is empty. ret_fd is a /proc/PID, the caller's to close, below which
 * procfs_open_mapped() opens the files; of a process that is gone, its parent's or our own, which see
 * the same files or others: the regions carry what tells (maps.h, told_ns). ret_is_past: it will
 * never have more than this. 0; -ESRCH: it is gone and nothing is known; or -errno.
 */
int process_maps_read(
	const struct process_maps_ask *a, struct maps *m, int *ret_fd, bool *ret_is_past);
/*
 * Is it worth to read again what was read at read_ns? True when more was mapped since, or the
 * process is gone. Far cheaper than reading.
 */
bool process_maps_is_outdated(const struct process_maps_ask *a, uint64_t read_ns);

#endif
