/*
 * The result device (/dev/pmem1 in the guest, a file of the host's): what guest PID 1 writes and
 * lab/vm_result.c reads. Includes nothing of lib/, because PID 1 is libc only. Little endian.
 *
 *	0	8	magic "FLRESULT"
 *	8	4	version, 1
 *	12	4	state: enum result_state. The host seeds RESULT_CRASHED; only a guest that
 *came to its end writes another one, so a dead guest never reads as a good one. 16	8 end:
 *offset of the first byte after the last whole record, 64 when none 24	4	number of records 28
 *4	crc32 of bytes 0..27 32	32	zero 64		records, each at a multiple of 8: 0	4
 *magic 0x454c4946 ("FILE") 4	4	size of the name, 1..RESULT_NAME_MAX 8	8	size of the
 *data 16	4	crc32 of the data 20	4	crc32 of bytes 0..19 and the name 24
 *name (STEP/FILE or FILE, [A-Za-z0-9._-], no NUL), data, zeros to 8
 *
 * The header is rewritten after each step's records, so that a guest that dies later still leaves
 * the steps that ended.
 */
#ifndef LAB_GUEST_RESULT_H
#define LAB_GUEST_RESULT_H

#include <stddef.h>
#include <stdint.h>

#define RESULT_MAGIC        "FLRESULT"
#define RESULT_RECORD_MAGIC 0x454c4946u

enum {
	RESULT_VERSION = 1,
	RESULT_HEADER_SIZE = 64,
	RESULT_RECORD_SIZE = 24,
	RESULT_NAME_MAX = 160,
	RESULT_FILES_MAX = 4096,
	RESULT_ALIGN = 8,
};

enum result_state {
	RESULT_CRASHED = 1, /* as seeded */
	RESULT_DONE = 2,
	RESULT_FULL = 3, /* a record did not fit; those before it are whole */
};

struct result_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t state;
	uint64_t end;
	uint32_t records;
	uint32_t crc;
	uint8_t zero[32];
};
_Static_assert(sizeof(struct result_header) == RESULT_HEADER_SIZE, "result header");

struct result_record {
	uint32_t magic;
	uint32_t name_size;
	uint64_t data_size;
	uint32_t data_crc;
	uint32_t crc;
};
_Static_assert(sizeof(struct result_record) == RESULT_RECORD_SIZE, "result record");

/* CRC-32 (IEEE 802.3, as zlib's crc32); start with crc 0 and pass the last value on. */
static inline uint32_t result_crc32(uint32_t crc, const void *data, size_t size)
{
	static const uint32_t nibbles[16] = {
		0x00000000,
		0x1db71064,
		0x3b6e20c8,
		0x26d930ac,
		0x76dc4190,
		0x6b6b51f4,
		0x4db26158,
		0x5005713c,
		0xedb88320,
		0xf00f9344,
		0xd6d6a3e8,
		0xcb61b38c,
		0x9b64c2b0,
		0x86d3d2d4,
		0xa00ae278,
		0xbdbdf21c,
	};
	const uint8_t *p = data;

	crc = ~crc;
	for (size_t i = 0; i < size; i++) {
		crc = (crc >> 4) ^ nibbles[(crc ^ p[i]) & 15];
		crc = (crc >> 4) ^ nibbles[(crc ^ (p[i] >> 4)) & 15];
	}
	return ~crc;
}

#endif
