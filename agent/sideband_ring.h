/*
 * One CPU's ring of the kernel's records about processes (perf_event_open(2), "MMAP layout"), written
 * backwards and overwritten for ever: the newest record is where data_head points, older ones follow it.
 * Each ends with the time (sample_id_all, PERF_SAMPLE_TIME).
 *
 *	MMAP2	u32 pid tid, u64 start size offset, u32 major minor, u64 inode generation, u32 prot flags, path
 *	COMM	u32 pid tid, name; PERF_RECORD_MISC_COMM_EXEC: it is an exec
 *	FORK	u32 pid parent tid parent_tid, u64 time
 *
 * The kernel goes on writing while we read. What was copied counts only if the head, read again, says
 * that its place was not reached; SIDEBAND_MARGIN is for a record that is being written and that
 * the head does not show yet.
 */
#ifndef AGENT_SIDEBAND_RING_H
#define AGENT_SIDEBAND_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SIDEBAND_RECORD_MAX = 4096 + 256, /* PATH_MAX and the numbers */
	SIDEBAND_MARGIN = 8192,
	SIDEBAND_RING_MIN = 4 * SIDEBAND_MARGIN,
};

enum sideband_kind {
	SIDEBAND_OTHER, /* of no interest, or it makes no sense */
	SIDEBAND_FORK,  /* a process, no thread */
	SIDEBAND_EXEC,
	SIDEBAND_MAP, /* something executable was mapped */
};

struct sideband_event {
	enum sideband_kind kind;
	uint32_t tgid;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t order;   /* among those of one time; the log sets it */
	uint32_t parent;  /* FORK */
	/* MAP: */
	uint32_t dev_major, dev_minor;
	uint64_t start, end, offset, inode, generation;
	const char *path; /* in the record; path_size bytes without NUL */
	size_t path_size;
};

struct sideband_ring {
	const uint8_t *data;
	uint64_t size;        /* a power of two, at least SIDEBAND_RING_MIN */
	const uint64_t *head; /* data_head: 0, then going down */
};

/* A look at a ring: where its head was. Records are named by their distance behind it, in bytes. */
struct sideband_look {
	struct sideband_ring ring;
	uint64_t head;
	_Alignas(8) uint8_t record[SIDEBAND_RECORD_MAX];
};

/* What a record says; SIDEBAND_OTHER unless all of it is there and makes sense. */
void sideband_parse(const void *record, size_t size, struct sideband_event *ret);

void sideband_look_init(struct sideband_look *l, const struct sideband_ring *ring);
/* The size of the record at that distance; 0: there is none, or not any more. */
size_t sideband_look_size(struct sideband_look *l, uint64_t at);
/* Reads the record. False: it is not there any more. ret->path lies in l until the next call. */
bool sideband_look_read(struct sideband_look *l, uint64_t at, struct sideband_event *ret);

#endif
