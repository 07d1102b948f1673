/*
 * The values of one profile and sample type as bytes: ascending stack ids of dict.db with their values.
 *
 *	 0  u32 magic and version, "FLB1"
 *	 4  u32 crc32c of all bytes from 8 on
 *	 8  u32 n, count of entries
 *	12  i64 total, saturating sum of the values
 *	20  n times: varint id - id before (the first: id + 0), never 0; varint zigzag(value)
 *
 * Integers are little endian. Ids start at 1, so a delta of 0 is always a fault.
 */
#ifndef BACKEND_BLOB_H
#define BACKEND_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

enum { BLOB_HEADER_SIZE = 20, BLOB_ENTRIES_MAX = 1 << 24 };

struct blob_entry {
	uint64_t id;
	int64_t value;
};

/* Appends. Entries are sorted by id, ids unique and above 0. 0, -EINVAL, -ENOBUFS, -ENOMEM. */
int blob_write(const struct blob_entry *entries, size_t count, struct buf *out, int64_t *ret_total);

struct blob_reader {
	struct cursor cursor;
	uint32_t left;
	uint64_t id;
	uint32_t n; /* of the header */
	int64_t total;
};

/* Checks header and crc of hostile bytes. 0 or -EBADMSG with a static *why (may be NULL). */
int blob_open(const void *data, size_t size, const char **why, struct blob_reader *ret);
/* 1 with the next entry, 0 at the end (nothing is left over), -EBADMSG. */
int blob_next(struct blob_reader *r, struct blob_entry *ret);

uint32_t blob_crc32c(const void *data, size_t size);

/* LEB128, as the cursor reads it. Up to 10 bytes; the count written. */
size_t blob_put_varint(uint8_t *at, uint64_t value);

#endif
