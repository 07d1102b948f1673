/*
 * What happened to processes, as the kernel records it: fork, exec, and each mapping of code. One perf
 * event a CPU that counts nothing (PERF_COUNT_SW_DUMMY) writes into a small ring that is overwritten for
 * ever. User space reads it when a process is met for the first time: is it still the image that was
 * sampled? If it is gone, or has become another program, the events say what it had mapped.
 *
 * A process is told by tgid and time: which of all that had this number, and which of its images, is
 * decided by the forks and execs before that time. Times are CLOCK_MONOTONIC.
 */
#ifndef AGENT_SIDEBAND_H
#define AGENT_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/maps.h"
#include "agent/sideband_ring.h"

struct sideband;

enum {
	SIDEBAND_RING_SIZE = 128 << 10, /* of one CPU: some 150 short programs */
	SIDEBAND_RINGS_SIZE = 4 << 20, /* of all; on many CPUs each has less, not below the least */
};

/* How the image began that a process had at some time. */
struct sideband_origin {
	uint64_t since_ns; /* of its last exec, or its fork if there was none since */
	uint64_t fork_ns;  /* 0: not known */
	uint32_t parent;   /* who forked it; 0: not known */
	bool is_forked;    /* no exec since: it has what the parent had at fork_ns */
};

/* Records from here on, of all processes. 0 or -errno. */
int sideband_new(struct sideband **ret);
/* Over rings that stay the caller's: for tests. 0 or -ENOMEM. */
int sideband_new_over(const struct sideband_ring *rings, size_t count, struct sideband **ret);
void sideband_free(struct sideband *s); /* accepts NULL */
void sideband_freep(struct sideband **s);
/* What the rings take in the kernel. NULL: 0. */
uint64_t sideband_bytes(const struct sideband *s);

/*
 * The image that tgid had at when_ns. since_ns: nothing of it is older. 0, or -ENODATA when the rings do
 * not say, -ENOMEM.
 */
int sideband_origin(struct sideband *s, uint32_t tgid, uint64_t since_ns, uint64_t when_ns,
	struct sideband_origin *ret);
/*
 * Adds to m what the image that began at since_ns mapped, over what m has. What it mapped after when_ns
 * only fills what was free then. 0 or -ENOMEM.
 */
int sideband_maps(
	struct sideband *s, uint32_t tgid, uint64_t since_ns, uint64_t when_ns, struct maps *m);

/*
 * Is an open file the one that r was told of? By what the kernel tells when we map it: device and inode of stat
 * are others on overlay file systems and btrfs. Nothing of it is read.
 */
bool sideband_is_file(struct sideband *s, int fd, const struct maps_region *r);

enum sideband_news {
	SIDEBAND_NONE,
	SIDEBAND_MAPPED,    /* more code is mapped */
	SIDEBAND_REPLACED,  /* another image, or another process of this number */
	SIDEBAND_FORGOTTEN, /* the rings do not reach back so far, and what they have says nothing */
};
enum sideband_news sideband_since(struct sideband *s, uint32_t tgid, uint64_t since_ns);

#endif
