/*
 * Stands between agent and backend and answers pushes as it is told: a process of its own, so that a play
 * can go on meanwhile. Everything that is no push is passed on.
 */
#ifndef LAB_GUEST_PROXY_H
#define LAB_GUEST_PROXY_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum proxy_mode {
	PROXY_PASS,
	PROXY_500,
	PROXY_429, /* with Retry-After: PROXY_RETRY_AFTER_S */
	PROXY_CUT, /* passed on; when the backend has answered 200, the agent gets the start of that */
};

enum { PROXY_RETRY_AFTER_S = 3 };

/* Shared with the process: mode is ours, the rest is its. */
struct proxy_shared {
	_Atomic uint32_t mode;
	_Atomic uint64_t passed, refused_500, refused_429, cut; /* pushes */
	_Atomic uint64_t early; /* pushes that came before Retry-After was over */
};

struct proxy {
	pid_t pid; /* 0: none runs */
	struct proxy_shared *shared;
};

/* Listens on port of loopback when it returns. 0 or -errno. */
int proxy_start(struct proxy *p, unsigned int port, unsigned int backend_port);
void proxy_end(struct proxy *p); /* usable when it never started */

#endif
