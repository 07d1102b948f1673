/*
 * Which build a file is, and whether a debug file belongs to it, asked of the helper process (role
 * names, see helper.h), which reads the bytes. All integers little endian; what comes back has been
 * through a process that read hostile bytes, so every size and name is checked.
 *
 * Request, one packet, with the descriptor of the file (HELPER_IDENTITY_READ) or of the candidate
 * (HELPER_IDENTITY_MATCH) as SCM_RIGHTS:
 *	u32 magic "FIQ1"   u32 sequence   u32 kind   u32 has debuglink   u32 its CRC
 *	u32 size of build ID, which is GNU's   build ID
 * Answer, one packet:
 *	u32 magic "FIA1"   u32 sequence   u32 status
 *	status 0:	u32 kind of build ID   u32 flags   u32 CRC   4 x u16 size
 *			build ID   debuglink   alternate build ID   altlink
 *	else:		the reason as text
 */
#ifndef AGENT_HELPER_IDENTITY_H
#define AGENT_HELPER_IDENTITY_H

#include "agent/elf_identity.h"
#include "agent/helper.h"

enum {
	HELPER_IDENTITY_REQUEST_MAGIC = 0x31514946,
	HELPER_IDENTITY_ANSWER_MAGIC = 0x31414946,
	HELPER_IDENTITY_REQUEST_SIZE_MAX = 24 + ELF_IDENTITY_BUILD_ID_MAX,
	HELPER_IDENTITY_ANSWER_SIZE_MAX = 32 + 2 * ELF_IDENTITY_BUILD_ID_MAX +
					  ELF_IDENTITY_DEBUGLINK_SIZE + ELF_IDENTITY_ALTLINK_SIZE,
};

enum helper_identity_kind { HELPER_IDENTITY_READ, HELPER_IDENTITY_MATCH };

struct helper_identity_request {
	uint32_t sequence;
	enum helper_identity_kind kind;
	struct elf_identity of; /* what elf_identity_match() looks at */
};

/* --- encoding and decoding; 0 or -EBADMSG, puts buf's error --- */
bool helper_identity_is_request(const void *data, size_t size);
int helper_identity_request_put(struct buf *b, const struct helper_identity_request *q);
int helper_identity_request_get(const void *data, size_t size, struct helper_identity_request *ret);
int helper_identity_answer_put(struct buf *b, uint32_t sequence, const struct elf_identity *id);
int helper_identity_refusal_put(struct buf *b, uint32_t sequence, const char *why);
/* -EKEYREJECTED: refused, with reason (HELPER_REASON_MAX). */
int helper_identity_answer_get(
	const void *data, size_t size, uint32_t sequence, char *reason, struct elf_identity *ret);

/* --- the agent's end --- */
/* 0; -EKEYREJECTED: no file we read, with the reason (HELPER_REASON_MAX); or as helper_ask(). */
int helper_identify(struct helper *h, int fd, char *reason, struct elf_identity *ret);
/*
 * Whether the file open as fd is the debug file of `of`, by elf_identity_match(); *ret is then its
 * own identity. Errors as above; -EKEYREJECTED also when it belongs to another build.
 */
int helper_identity_match(struct helper *h, const struct elf_identity *of, int fd, char *reason,
	struct elf_identity *ret);

/* --- the helper's end --- */
/* Answers over socket. 0 or -errno, which ends the helper. */
int helper_identity_serve(int socket, const void *data, size_t size, int fd);

#endif
