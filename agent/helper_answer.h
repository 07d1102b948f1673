/*
 * What the symbolizer and its helper processes say to each other, over SOCK_SEQPACKET. All integers
 * little endian. The helper has read hostile bytes, so the agent trusts nothing in an answer: it is
 * decoded through a cursor and every count is compared with the request.
 *
 * Request, one packet, with the descriptors of the file, then of those attached to it that flags
 * tells of, as SCM_RIGHTS:
 *	u32 magic "FSQ2"   u32 sequence   u64 file id   u32 count   u32 flags (helper_request_flags)
 *	count x u64: file offsets for the role "names", vaddrs for the role "lines"
 * Answer, one or more packets:
 *	u32 magic "FSA2"   u32 sequence   u32 status   u32 first   u32 count   u32 is_last
 *	u32 file flags (helper_file_flags)
 *	count x { u64 vaddr   u64 start   u64 size   u16 flags   u8 kind   u8 frame count
 *		frame count x { u16 name size   u16 file size   u32 line   u32 start line   name   file } }
 * Frames are innermost first, see names.h. Status is not 0 when the file is refused; the packet then
 * ends with the reason as text.
 */
#ifndef AGENT_HELPER_ANSWER_H
#define AGENT_HELPER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/names.h"
#include "base/buf.h"
#include "base/cursor.h"

enum {
	HELPER_REQUEST_MAGIC = 0x32515346,
	HELPER_ANSWER_MAGIC = 0x32415346,
	HELPER_BATCH_MAX = 1024, /* addresses of one request */
	HELPER_REQUEST_SIZE_MAX = 24 + 8 * HELPER_BATCH_MAX,
	HELPER_PACKET_SIZE_MAX = 64 * 1024,
	HELPER_ANSWER_SIZE_MAX = 48 * 1024, /* of one address */
	HELPER_REASON_MAX = 120,
};

enum helper_status { HELPER_OK, HELPER_REFUSED };

enum helper_request_flags {
	HELPER_WANT_LINES = 1, /* line of each address; otherwise of each function's start only */
	HELPER_WITH_DEBUG = 2, /* a separate debug file's descriptor comes, too */
	HELPER_WITH_ALT = 4,   /* the descriptor of the file that .gnu_debugaltlink names */
	HELPER_REQUEST_FLAGS_ALL = 7,
};

enum helper_file_flags {
	HELPER_FILE_HAS_DWARF = 1,
	HELPER_FILE_DEBUG_UNREADABLE = 2, /* there is DWARF, compressed in a way we cannot read */
	HELPER_FILE_IS_GO = 4,
	HELPER_FILE_GO_UNREADABLE =
		8, /* a Go program whose table is of no known version, or nonsense */
};

enum helper_flags {
	HELPER_HAS_VADDR = 1,
	HELPER_HAS_NAME = 2, /* at least one frame */
	HELPER_IS_LATE = 4,  /* there was no time left: ask again, later */
};

struct helper_request {
	uint32_t sequence;
	uint32_t count;
	uint32_t flags; /* enum helper_request_flags */
	uint64_t file;
	struct cursor addresses;
};

struct helper_frame { /* as struct names_frame; texts are not NUL-terminated, any bytes */
	const char *name, *file;
	uint32_t name_size, file_size;
	uint32_t line, start_line;
};

struct helper_answer {
	uint64_t vaddr;
	uint64_t start, size; /* of the real function */
	uint32_t flags;       /* enum helper_flags */
	enum names_kind kind;
	size_t frame_count;
	struct helper_frame frames[NAMES_FRAMES_MAX];
};

struct helper_packet {
	uint32_t sequence;
	uint32_t status;
	uint32_t first, count;
	bool is_last;
	uint32_t file_flags; /* enum helper_file_flags */
	struct cursor rest;
};

/* q->addresses is not used. 0; -EINVAL: too many, or unknown flags; or buf's error. */
int helper_request_put(struct buf *b, const struct helper_request *q, const uint64_t *addresses);
/* 0 or -EBADMSG; ret->addresses holds exactly ret->count u64. */
int helper_request_get(const void *data, size_t size, struct helper_request *ret);

/* n's frames and texts stay n's. vaddr is not set, flags are HELPER_HAS_NAME or 0. */
void helper_answer_from(struct helper_answer *a, const struct names *n);

/* The header is written with count 0; helper_answer_close() fills in what was not known then. */
int helper_answer_open(struct buf *b, uint32_t sequence, uint32_t status);
/* Bytes that put will write, at most HELPER_ANSWER_SIZE_MAX. */
size_t helper_answer_size(const struct helper_answer *a);
/* Frames beyond HELPER_ANSWER_SIZE_MAX are left out: those next to the real function. */
int helper_answer_put(struct buf *b, const struct helper_answer *a);
void helper_answer_close(
	struct buf *b, uint32_t first, uint32_t count, bool is_last, uint32_t file_flags);

/* 0 or -EBADMSG. */
int helper_answer_get(const void *data, size_t size, struct helper_packet *ret);
/* The next of the packet's answers: true, or false at the end or when the packet is malformed,
 * which helper_packet_error() tells apart. */
bool helper_answer_next(struct helper_packet *p, struct helper_answer *ret);
int helper_packet_error(const struct helper_packet *p);

#endif
