/*
 * What the symbolizer and its helper process say to each other, over SOCK_SEQPACKET. All integers
 * little endian. The helper has read hostile bytes, so the agent trusts nothing in an answer: it is
 * decoded through a cursor and every count is compared with the request.
 *
 * Request, one packet, with the file's descriptor as SCM_RIGHTS:
 *	u32 magic "FSQ1"   u32 sequence   u64 file id   u32 count   u32 0
 *	count x u64 file offset
 * Answer, one or more packets:
 *	u32 magic "FSA1"   u32 sequence   u32 status   u32 first   u32 count   u32 is_last
 *	count x { u64 vaddr   u64 start   u64 size   u16 flags   u16 name size   name }
 * status is not 0 when the file is refused; the packet then ends with the reason as text.
 */
#ifndef AGENT_HELPER_ANSWER_H
#define AGENT_HELPER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

enum {
	HELPER_REQUEST_MAGIC = 0x31515346,
	HELPER_ANSWER_MAGIC = 0x31415346,
	HELPER_BATCH_MAX = 1024, /* offsets of one request */
	HELPER_REQUEST_SIZE_MAX = 24 + 8 * HELPER_BATCH_MAX,
	HELPER_PACKET_SIZE_MAX = 64 * 1024,
	HELPER_NAME_MAX = 2048 + 8, /* PROFILE_NAME_MAX and "@plt" */
	HELPER_REASON_MAX = 120,
};

enum helper_status { HELPER_OK, HELPER_REFUSED };

enum helper_flags { HELPER_HAS_VADDR = 1, HELPER_HAS_NAME = 2 };

struct helper_request {
	uint32_t sequence;
	uint32_t count;
	uint64_t file;
	struct cursor offsets;
};

struct helper_answer {
	uint64_t vaddr;
	uint64_t start, size; /* of the symbol */
	uint32_t flags;       /* enum helper_flags */
	uint32_t name_size;
	const char *name; /* not NUL-terminated, any bytes */
};

struct helper_packet {
	uint32_t sequence;
	uint32_t status;
	uint32_t first, count;
	bool is_last;
	struct cursor rest;
};

int helper_request_put(
	struct buf *b, uint32_t sequence, uint64_t file, const uint64_t *offsets, size_t count);
/* 0 or -EBADMSG; ret->offsets holds exactly ret->count u64. */
int helper_request_get(const void *data, size_t size, struct helper_request *ret);

/* The header is written with count 0; helper_answer_close() fills first, count and is_last in. */
int helper_answer_open(struct buf *b, uint32_t sequence, uint32_t status);
int helper_answer_put(struct buf *b, const struct helper_answer *a);
void helper_answer_close(struct buf *b, uint32_t first, uint32_t count, bool is_last);

/* 0 or -EBADMSG. */
int helper_answer_get(const void *data, size_t size, struct helper_packet *ret);
/* The next of the packet's answers: true, or false at the end or when the packet is malformed,
 * which helper_packet_error() tells apart. */
bool helper_answer_next(struct helper_packet *p, struct helper_answer *ret);
int helper_packet_error(const struct helper_packet *p);

#endif
