/*
 * Windows on their way to the backend, on disk, so that neither a restart nor a backend that is down
 * loses them. One file is one request of push.v1, named by its place in the queue:
 *
 *	NNNNNNNNNNNNNNNNNNNN.push	20 digits, oldest first
 *	offset	size
 *	0	8	"FLSPOOL1"
 *	8	8	u64 size of the rest
 *	16	8	u64 XXH3-64 of the rest
 *	24		the request's bytes
 *
 * Integers are little endian. Files appear whole (written beside, synced, renamed). The spool has a
 * limit in bytes and in windows; what is above it goes, oldest first, and is counted. A file that has
 * appeared and is not yet taken in comes on top, one for each recording that is just ending.
 */
#ifndef AGENT_SPOOL_H
#define AGENT_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	SPOOL_HEADER_SIZE = 24,
	SPOOL_WINDOW_BYTES_MAX = 64 << 20,
	SPOOL_PATH_MAX = 4096,
};

struct spool;

struct spool_limits {
	uint64_t bytes_max;
	uint64_t windows_max;
};

struct spool_stats {
	uint64_t windows, bytes; /* waiting */
	uint64_t dropped;        /* for want of room, since the start */
	uint64_t damaged;        /* unreadable or with a wrong checksum */
};

/* Makes the directory, takes in what an earlier run left, removes half-written files. 0 or -errno. */
int spool_open(const char *dir, const struct spool_limits *limits, struct spool **ret);
void spool_free(struct spool *s); /* accepts NULL; the files stay */

/* The next place in the queue and the path where its file is to appear. 0 or -ENAMETOOLONG. */
int spool_reserve(struct spool *s, char ret_path[SPOOL_PATH_MAX], uint64_t *ret_place);
/* The file of that place has appeared. 0; -ENOENT: it has not. Then the limits apply. */
int spool_take_in(struct spool *s, uint64_t place);
/*
 * Writes a spool file; on a full disk older ones beside it go, which are counted at the next taking in. 0 or
 * -errno. Needs no struct spool: another process does it.
 */
int spool_write(const char *path, const void *data, size_t size);
/* The payload of a spool file's bytes. 0 or -EBADMSG. */
int spool_decode(const void *file, size_t size, const void **ret, size_t *ret_size);

/* The oldest. False: empty. */
bool spool_first(const struct spool *s, uint64_t *ret_place);
/*
 * Its payload; the limits leave it alone until spool_release() or spool_remove(). 0; -EBADMSG: damaged;
 * -errno. For these the caller goes on with spool_remove(damaged).
 */
int spool_read(struct spool *s, uint64_t place, struct buf *ret);
/* It is not under way any more: a window that waits for its next try is the oldest as before. */
void spool_release(struct spool *s);
void spool_remove(struct spool *s, uint64_t place, bool is_damaged);

struct spool_stats spool_stats(const struct spool *s);

#endif
