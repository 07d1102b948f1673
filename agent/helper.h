/*
 * The agent's end of the symbolizer's helper processes: start, ask, notice that one died or hangs,
 * start anew. The helper's own end is helper_main.c, the walls around it helper_confine.c.
 *
 * Two roles of one program: "names" reads ELF symbols, Go's tables and unwind tables; "lines" reads
 * DWARF. They are apart because DWARF is large and libdw maps it: what it costs or breaks is the
 * inlined functions and lines, never a name.
 */
#ifndef AGENT_HELPER_H
#define AGENT_HELPER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/helper_answer.h"

struct helper;

enum helper_role { HELPER_NAMES, HELPER_LINES };

struct helper_options {
	enum helper_role role;
	uint32_t memory_mb;  /* 0: 512 of RLIMIT_AS for names, 64 of RLIMIT_DATA for lines */
	uint32_t timeout_ms; /* of one request; 0: 5000 */
};

/* A file to ask about. Descriptors are -1 where there is none. */
struct helper_file {
	uint64_t id; /* the caller's number for it and what is attached, never used for another */
	int fd;
	int debug_fd; /* separate debug file that belongs to it */
	int alt_fd;   /* what .gnu_debugaltlink names (dwz) */
};

/* 0 or -errno. */
int helper_new(const struct helper_options *o, struct helper **ret);
void helper_free(struct helper *h); /* accepts NULL; ends the process */

/* Called with the index of the address asked for; a is valid during the call. */
typedef void helper_answer_fn(void *data, size_t index, const struct helper_answer *a);

/*
 * Asks for the names at the given file offsets (of vaddrs in the role lines; at most
 * HELPER_BATCH_MAX, in any order) of the file. flags: HELPER_WANT_LINES or 0. fn is called for each
 * address once, unless the return is negative: then for some.
 * 0 and *ret_flags (enum helper_file_flags); -ENOEXEC refused, with one line in reason
 * (HELPER_REASON_MAX) and *ret_flags; -EPIPE it died; -ETIMEDOUT; -EBADMSG nonsense from it (it is
 * killed then); or -errno of starting it anew.
 */
int helper_ask(struct helper *h, const struct helper_file *f, uint32_t flags,
	const uint64_t *addresses, size_t count, helper_answer_fn *fn, void *data, char *reason,
	uint32_t *ret_flags);

pid_t helper_pid(const struct helper *h);         /* 0 when none runs; accepts NULL */
uint64_t helper_restarts(const struct helper *h); /* accepts NULL */

/* The helper's end: the socket is descriptor 0. */
int helper_serve(int socket, enum helper_role role);
/* Gives up everything but reading descriptors it is handed. 0 or -errno. */
int helper_confine(enum helper_role role, uint32_t memory_mb);

#endif
