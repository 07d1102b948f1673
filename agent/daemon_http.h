/*
 * The daemon's HTTP client: POST requests over libcurl's multi interface, driven by the loop, so
 * that no thread waits for a peer. HTTP/1.1 with keep-alive; TLS is always verified; proxies come
 * from the environment (http_proxy, HTTPS_PROXY, NO_PROXY); redirects are not followed.
 */
#ifndef AGENT_DAEMON_HTTP_H
#define AGENT_DAEMON_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/loop.h"

struct daemon_http;

/* One request at a time in each. */
enum daemon_http_slot { DAEMON_HTTP_HEARTBEAT, DAEMON_HTTP_PUSH, DAEMON_HTTP_SLOTS };

enum { DAEMON_HTTP_REPLY_MAX = 1 << 20 };

struct daemon_http_options {
	const char *url;        /* without path: https://host:port */
	const char *token;      /* "": none */
	const char *ca_file;    /* "": the system's */
	const char *cert_file;  /* of the client; "": none */
	const char *key_file;   /* "": in cert_file */
	const char *user_agent; /* NULL: none */
};

struct daemon_http_reply {
	int error;  /* 0: there is a status; else -ETIMEDOUT, -EBADE (TLS), -EFBIG or -EIO */
	int status; /* HTTP status */
	const char
		*text; /* why it failed in one line, as libcurl or the peer's first line says it */
	uint64_t retry_after_ns; /* 0: the peer did not say */
	const char *body;        /* NUL-terminated */
	size_t size;
};

typedef void daemon_http_fn(const struct daemon_http_reply *r, void *data);

/* The strings of o are kept, not copied. 0 or -errno with one line in why. */
int daemon_http_new(struct loop *l, const struct daemon_http_options *o, struct buf *why,
	struct daemon_http **ret);
void daemon_http_free(struct daemon_http *h); /* accepts NULL; calls nobody back */

struct daemon_http_request {
	const char *path;
	const char *content_type;
	const void *body; /* must live until fn is called */
	size_t size;
	uint64_t timeout_ms; /* connecting included */
	daemon_http_fn *fn;  /* may post again */
	void *data;
};

/* 0; -EBUSY while the slot's last one runs; -errno: fn is not called. */
int daemon_http_post(
	struct daemon_http *h, enum daemon_http_slot slot, const struct daemon_http_request *q);
bool daemon_http_is_busy(const struct daemon_http *h, enum daemon_http_slot slot);
/* Ends the slot's request without calling back. */
void daemon_http_cancel(struct daemon_http *h, enum daemon_http_slot slot);

#endif
