/*
 * The agent's end of the symbolizer's helper process: start, ask, notice that it died or hangs,
 * start anew. The helper's own end is helper_main.c, the walls around it helper_confine.c.
 */
#ifndef AGENT_HELPER_H
#define AGENT_HELPER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/helper_answer.h"

struct helper;

struct helper_options {
	uint32_t memory_mb;  /* RLIMIT_AS; 0: 512 */
	uint32_t timeout_ms; /* of one request; 0: 5000 */
};

/* 0 or -errno. */
int helper_new(const struct helper_options *o, struct helper **ret);
void helper_free(struct helper *h); /* accepts NULL; ends the process */

/* Called with the index of the offset asked for; name is not NUL-terminated. */
typedef void helper_answer_fn(void *data, size_t index, const struct helper_answer *a);

/*
 * Asks for the names at the given file offsets (at most HELPER_BATCH_MAX) of the file open as fd;
 * file is the caller's number for it, never used for another. fn is called for each offset once,
 * unless the return is negative: then for some.
 * 0; -ENOEXEC refused, with one line in reason (HELPER_REASON_MAX); -EPIPE it died; -ETIMEDOUT;
 * -EBADMSG nonsense from it (it is killed then); or -errno of starting it anew.
 */
int helper_ask(struct helper *h, int fd, uint64_t file, const uint64_t *offsets, size_t count,
	helper_answer_fn *fn, void *data, char *reason);

pid_t helper_pid(const struct helper *h); /* 0 when none runs */
uint64_t helper_restarts(const struct helper *h);

/* The helper's end: the socket is descriptor 0. */
int helper_serve(int socket);
/* Gives up everything but reading descriptors it is handed. 0 or -errno. */
int helper_confine(uint32_t memory_mb);

#endif
