/* What the agent's two ends of the helper share: helper.c (names) and helper_cfi_ask.c (tables). */
#ifndef AGENT_HELPER_INTERNAL_H
#define AGENT_HELPER_INTERNAL_H

#include "agent/helper.h"
#include "base/buf.h"
#include "base/child.h"

struct helper {
	struct helper_options options;
	struct child child;
	int socket; /* -1 when none runs */
	uint32_t sequence;
	uint64_t restarts;
	uint64_t start_failed_ns;
	struct buf request;
	struct buf body; /* of an answer in several packets */
	uint8_t packet[HELPER_PACKET_SIZE_MAX];
};

enum { HELPER_FDS_MAX = 3 }; /* of one request */

/* Sends h->request with the descriptors, starting another helper if none is there. Sets when to give
 * up. */
int helper_begin(struct helper *h, const int *fds, size_t fd_count, uint64_t *ret_deadline_ns);
/* Size of the packet in h->packet; -EPIPE, -ETIMEDOUT, -errno. */
ssize_t helper_receive(struct helper *h, uint64_t deadline_ns);
void helper_stop(struct helper *h); /* the next request starts another */
/* The packet's rest as one line of printable text. */
void helper_take_reason(const struct helper_packet *p, char reason[HELPER_REASON_MAX]);

#endif
