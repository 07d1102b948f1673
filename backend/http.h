/*
 * The HTTP server: libmicrohttpd (epoll + thread pool), a route table, bodies streamed with a cap,
 * Content-Encoding gzip inflated with a cap, bearer tokens by scope, deadlines for slow and idle peers.
 * Handlers run on threads of their own, so that one that waits for the disk holds up no other peer.
 * Everything from a peer is hostile. Every error answer is JSON {"code":"...","message":"one line"} in
 * the shape of the Connect protocol, which push.v1's clients understand.
 */
#ifndef BACKEND_HTTP_H
#define BACKEND_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"

enum http_scope {
	SCOPE_NONE, /* answers without a token: the page's static shell, /healthz */
	SCOPE_INGEST,
	SCOPE_READ,
	SCOPE_CONTROL,
	SCOPE_ADMIN, /* implies all others */
	SCOPE_COUNT
};

struct http_request;

struct http_response {
	int status;
	const char *content_type; /* static text */
	struct buf body;          /* the server frees it */
	const char *disposition;  /* file name for downloads, or NULL */
	int retry_after_s;        /* 0: no header */
	const char *policy;       /* Content-Security-Policy; NULL: nothing may load or run */
};

typedef void http_handler(void *app, struct http_request *q, struct http_response *r);

struct http_route {
	const char *method;
	const char *
		path; /* exact, or with one trailing "*" segment: "/api/v1/requests/ *" without the space */
	enum http_scope
		scope; /* there is no default: a route without a scope does not compile a table row */
	size_t body_max; /* after inflation; 0: no body allowed */
	http_handler *handler;
};

struct http_options {
	const char *listen;   /* "127.0.0.1:4040", "[::1]:4040", "0.0.0.0:4040" */
	const char *tls_cert; /* PEM paths or NULL */
	const char *tls_key;
	/* Client certificates of this CA are required; one is enough for SCOPE_INGEST. Or NULL. */
	const char *tls_client_ca;
	unsigned int threads;         /* 0: one per CPU */
	unsigned int idle_timeout_s;  /* 0: 30 */
	unsigned int connections_max; /* 0: 4096 */
	unsigned int handlers;        /* threads that run handlers; 0: 32 */
	size_t bodies_max_bytes;      /* of all requests under way together; 0: 512 MiB */
	/*
	 * Whether the token may do this; NULL token: none was sent. Called on server threads, which it
	 * must not hold up. What is let in without a token must have a loopback Host, so that no web
	 * site can reach it through a name of its own (DNS rebinding).
	 */
	bool (*authorize)(void *app, const char *token, enum http_scope scope);
	void *app;
};

struct http_server;

/* -EINVAL with *why (bad address, TLS files), -EADDRINUSE, -errno. */
int http_start(const struct http_options *o, const struct http_route *routes, size_t count,
	struct buf *why, struct http_server **ret);
void http_stop(struct http_server *s); /* finishes requests under way; accepts NULL */
uint16_t http_port(const struct http_server *s);

const void *http_body(const struct http_request *q, size_t *size);
const char *http_query(const struct http_request *q, const char *name); /* decoded, NULL: absent */
/* The first parameter of the query that is none of names (ending in NULL) or comes twice; NULL: all is well. */
const char *http_query_stray(const struct http_request *q, const char *const *names);
const char *http_header(const struct http_request *q, const char *name); /* NULL: absent */
const char *http_tail(const struct http_request *q); /* what "*" matched, "" if nothing */
struct arena *http_arena(struct http_request *q);    /* lives as long as the request */

/* Fills r with the error shape; status gives the Connect code. */
void http_error(struct http_response *r, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

struct http_stats {
	uint64_t requests, errors_4xx, errors_5xx, bytes_in, bytes_out, connections;
	uint64_t refused_busy, closed_slow, evicted_idle; /* drops, by reason */
};
struct http_stats http_stats(const struct http_server *s);

#endif
