/*
 * What the files of the HTTP server share:
 *	http.c		start, stop, the listening socket, TLS files
 *	http_serve.c	one request: admission, body, answer
 *	http_conns.c	connections and their deadlines
 *	http_jobs.c	the threads that run handlers
 *	http_message.c	what a handler reads and writes
 *
 * A request goes BODY -> QUEUED -> DONE; one that is refused before its handler goes straight to DONE
 * and what is left of its body is read and thrown away. libmicrohttpd's thread owns it in BODY and DONE.
 * In QUEUED its connection is suspended and a handler's thread owns it.
 */
#ifndef BACKEND_HTTP_INTERNAL_H
#define BACKEND_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <zlib.h>

#include "backend/http.h"

enum {
	HTTP_MEMORY_BYTES = 64 << 10, /* per connection: headers and one piece of body */
	HTTP_ARENA_BYTES = 1 << 20,
	HTTP_QUEUE_MAX = 1024,
	HTTP_DISCARD_MAX_BYTES = 64 << 20, /* of a refused body; the connection ends above */
	HTTP_RATE_MIN_BPS = 16 << 10,      /* slower peers run into their deadline */
	HTTP_STOP_S = 5,
	HTTP_TOKEN_MAX = 256,
};

/* One connection, from accept to close. Owned by http_conns.c, under conns_lock. */
struct http_conn {
	struct http_conn *prev, *next;
	int fd;
	bool idle;            /* no request under way */
	uint64_t since_ns;    /* of this state */
	uint64_t deadline_ns; /* 0: none, a handler runs */
};

enum http_state { HTTP_BODY, HTTP_QUEUED, HTTP_DONE };

struct http_request {
	struct http_server *server;
	struct MHD_Connection *connection;
	struct http_conn *conn;
	const struct http_route *route; /* NULL: refused */
	const char *tail;
	struct arena *arena;
	enum http_state state;
	struct http_response response;
	const char *allow; /* methods, for 405 */
	struct buf body;
	size_t charged; /* of the body, in server->bodies_bytes */
	uint64_t received_bytes;
	uint64_t start_ns;
	z_stream inflate;
	bool gzip, gzip_end;
	struct http_request *next; /* in the queue */
};

struct http_server {
	struct http_options options;
	const struct http_route *routes;
	size_t route_count;
	struct MHD_Daemon *daemon;
	int listen_fd;
	uint16_t port;
	uint64_t idle_timeout_ns;
	size_t bodies_max_bytes;
	_Atomic size_t bodies_bytes;

	pthread_mutex_t conns_lock;
	pthread_cond_t conns_changed;
	struct http_conn *conns;
	size_t conn_count;
	size_t conns_max;
	bool conns_quit;
	pthread_t conns_thread;
	bool conns_running;

	pthread_mutex_t jobs_lock;
	pthread_cond_t jobs_changed; /* something to do, or quit */
	pthread_cond_t requests_over;
	struct http_request *queue_head, **queue_tail;
	size_t queue_count;
	size_t active; /* requests that are not over */
	bool draining, jobs_quit;
	pthread_t *handlers;
	size_t handler_count;

	_Atomic uint64_t requests, errors_4xx, errors_5xx, bytes_in, bytes_out, refused_busy,
		closed_slow, evicted_idle;
};

/* http_serve.c: libmicrohttpd's callbacks. */
enum MHD_Result http_serve(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size,
	void **ctx);
void http_serve_over(void *cls, struct MHD_Connection *connection, void **ctx,
	enum MHD_RequestTerminationCode code);
/* The row for method and path: NULL with *ret_allow NULL for 404, with the methods for 405. */
const struct http_route *http_route_find(const struct http_route *routes, size_t count,
	const char *method, const char *path, struct arena *a, const char **ret_allow,
	const char **ret_tail);

/* http_conns.c */
int http_conns_start(struct http_server *s);
void http_conns_stop(struct http_server *s);
void http_conns_notify(void *cls, struct MHD_Connection *connection, void **ctx,
	enum MHD_ConnectionNotificationCode code);
/* The connection waits for a request, or for bytes of one until deadline_ns (0: for as long as it takes). */
void http_conn_idle(struct http_server *s, struct http_conn *c);
void http_conn_busy(struct http_server *s, struct http_conn *c, uint64_t deadline_ns);

/* http_jobs.c */
int http_jobs_start(struct http_server *s, size_t handlers);
void http_jobs_stop(struct http_server *s); /* runs what is queued, then joins */
/* Suspends the connection and queues q. -EBUSY (full), -ESHUTDOWN. */
int http_jobs_put(struct http_server *s, struct http_request *q);
void http_jobs_begin(struct http_server *s); /* counts requests for http_jobs_wait */
void http_jobs_end(struct http_server *s);
void http_jobs_wait(struct http_server *s, unsigned int timeout_s); /* until none is under way */

#endif
