/*
 * What the keeper of unwind tables (tables.h) asks the helper process, over the socket of
 * helper_answer.h. All integers little endian. The helper has read hostile bytes: the agent decodes
 * through a cursor and checks everything that a table's shape promises.
 *
 * Request, one packet, with the file's descriptor as SCM_RIGHTS:
 *	u32 magic "FCQ1"   u32 sequence   u64 file id   u32 kind   u32 chunk count   u64 first chunk
 * Answer to HELPER_CFI_SEGMENTS, one packet; answer to HELPER_CFI_CHUNKS, packets for each chunk in
 * order:
 *	u32 magic "FCA1"   u32 sequence   u32 status   u32 is_last (of this chunk)   u64 chunk
 *	then bytes of a body; the packets of one chunk joined are its body
 * Body of segments: those of the file's PT_LOADs that have bytes in the file
 *	u32 count   count x { u64 file offset   u64 vaddr   u64 size in the file   u64 is executable }
 * Body of a chunk
 *	u32 row count   u32 rule count
 *	rule count x { u8 cfa   u8 reg   u8 fp   u8 ra   i32 cfa_offset   i16 fp_offset   i16 ra_offset
 *		i32 aux }
 *	row count x { u16 offset   u16 rule }
 * With any status but HELPER_CFI_OK the body is empty.
 *
 * The promises: offsets ascend and the first is 0, rules and enums are in range, 1 or more rows and
 * rules, no byte is left over.
 */
#ifndef AGENT_HELPER_CFI_H
#define AGENT_HELPER_CFI_H

#include "agent/cfi.h"
#include "agent/helper.h"
#include "base/buf.h"
#include "base/cursor.h"

enum {
	HELPER_CFI_REQUEST_MAGIC = 0x31514346,
	HELPER_CFI_ANSWER_MAGIC = 0x31414346,
	HELPER_CFI_REQUEST_SIZE = 32,
	HELPER_CFI_HEAD_SIZE = 24,
	HELPER_CFI_CHUNKS_MAX = 64, /* of one request */
	HELPER_CFI_SEGMENTS_MAX = 64,
	HELPER_CFI_BODY_MAX = 8 + 16 * TABLE_RULES_MAX + 4 * TABLE_ROWS_MAX,
	HELPER_CFI_FILES_MAX = 16,          /* that the helper keeps open */
	HELPER_CFI_MEMORY_MAX = 64u << 20u, /* of their indexes, beyond the one in use */
};

enum helper_cfi_kind { HELPER_CFI_SEGMENTS, HELPER_CFI_CHUNKS };

enum helper_cfi_status {
	HELPER_CFI_OK,
	HELPER_CFI_NONE,        /* nothing is said about this chunk */
	HELPER_CFI_NONE_AT_ALL, /* nor about any other */
	HELPER_CFI_NO_ELF,      /* something else than an ELF file */
	HELPER_CFI_BROKEN,      /* makes no sense, or is unreadable */
	HELPER_CFI_TOO_BIG,     /* beyond a limit of cfi.h */
	HELPER_CFI_STATUS_COUNT
};

struct helper_cfi_request {
	uint32_t sequence;
	uint32_t kind; /* enum helper_cfi_kind */
	uint32_t chunk_count;
	uint64_t file;
	uint64_t first_chunk;
};

struct helper_cfi_segment {
	uint64_t offset, vaddr, size;
	uint64_t is_code; /* 0 or 1 */
};

struct helper_cfi_segments {
	size_t count;
	struct helper_cfi_segment segments[HELPER_CFI_SEGMENTS_MAX];
};

struct helper_cfi_packet {
	uint32_t sequence;
	uint32_t status; /* enum helper_cfi_status */
	bool is_last;
	uint64_t chunk;
	struct cursor rest;
};

/* --- encoding and decoding; 0 or -EBADMSG, puts buf's error --- */
bool helper_cfi_is_request(const void *data, size_t size);
int helper_cfi_request_put(struct buf *b, const struct helper_cfi_request *q);
int helper_cfi_request_get(const void *data, size_t size, struct helper_cfi_request *ret);
int helper_cfi_head_put(
	struct buf *b, uint32_t sequence, uint32_t status, bool is_last, uint64_t chunk);
int helper_cfi_packet_get(const void *data, size_t size, struct helper_cfi_packet *ret);
int helper_cfi_segments_put(struct buf *b, const struct helper_cfi_segments *s);
int helper_cfi_segments_get(struct cursor *c, struct helper_cfi_segments *ret);
int helper_cfi_chunk_put(struct buf *b, const struct cfi_chunk *chunk);
int helper_cfi_chunk_get(struct cursor *c, struct cfi_chunk *ret);

/* --- the agent's end --- */
/*
 * Called once for each chunk asked for, in order. chunk is NULL unless status is HELPER_CFI_OK, and
 * valid during the call.
 */
typedef void helper_cfi_fn(
	void *data, uint64_t index, enum helper_cfi_status status, const struct cfi_chunk *chunk);

/*
 * Asks for chunks first to first + count - 1 (at most HELPER_CFI_CHUNKS_MAX) of the file open as fd;
 * file as in helper_ask(). scratch is overwritten.
 * 0; or as helper_ask() of a helper that failed, and fn was called for some.
 */
int helper_cfi_ask(struct helper *h, int fd, uint64_t file, uint64_t first, size_t count,
	struct cfi_chunk *scratch, helper_cfi_fn *fn, void *data);
/* Likewise for the segments, one executable at least; *ret is set when *ret_status is HELPER_CFI_OK. */
int helper_cfi_ask_segments(struct helper *h, int fd, uint64_t file,
	enum helper_cfi_status *ret_status, struct helper_cfi_segments *ret);

/* --- the helper's end --- */
struct helper_cfi_server;

int helper_cfi_server_new(int socket, struct helper_cfi_server **ret); /* 0 or -ENOMEM */
void helper_cfi_server_free(struct helper_cfi_server *s);              /* accepts NULL */
/* Answers a request; takes *fd over if it keeps it. 0 or -errno, which ends the helper. */
int helper_cfi_serve(struct helper_cfi_server *s, const void *data, size_t size, int *fd);

#endif
