/*
 * Sends the spool to the backend, oldest first, one at a time: the next one goes when the last has
 * been acknowledged. A window leaves the spool only when the backend has it or has refused it for
 * what it is; everything else is tried again, later and later.
 */
#ifndef AGENT_UPLOAD_H
#define AGENT_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/daemon_http.h"
#include "agent/spool.h"
#include "base/loop.h"
#include "base/rng.h"

#define UPLOAD_PATH "/push.v1.PusherService/Push"

enum upload_verdict {
	UPLOAD_DELIVERED, /* 2xx, or 409: it has it already */
	UPLOAD_RETRY,     /* not the window's fault */
	UPLOAD_REFUSED,   /* the window will never be taken */
};

struct upload_stats {
	uint64_t delivered, refused, retries;
	char last_error[512]; /* "" after a success */
};

struct upload;

/* All are the caller's and outlive it. 0 or -ENOMEM. */
int upload_new(struct loop *l, struct daemon_http *http, struct spool *spool, struct rng *rng,
	struct upload **ret);
void upload_free(struct upload *u); /* accepts NULL */
/* There is something new. Waits out a back-off that runs. */
void upload_kick(struct upload *u);
/*
 * The agent is about to end: tries at once, whatever the back-off, until the first failure. done is
 * called when the spool is empty or that failure has come.
 */
void upload_flush(struct upload *u, uint64_t timeout_ms, void (*done)(void *data), void *data);
const struct upload_stats *upload_stats(const struct upload *u);

/* --- policy, pure */

/* status 0: no answer came. */
enum upload_verdict upload_judge(int status);
/*
 * The wait after that many failures in a row (1...): 1 s doubled up to 5 min, of which half is
 * drawn; or what the peer asked for, up to an hour, and a little more so that not all come at once.
 */
uint64_t upload_backoff_ns(uint64_t failures, uint64_t retry_after_ns, struct rng *r);

#endif
