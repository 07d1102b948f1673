/*
 * What the backend answers over HTTP: the route table and the handlers behind it. Handlers run on several
 * threads at once; the store and the control part lock for themselves.
 *
 *	api_routes.c	the table, and who may pass
 *	api_params.c	times, ranges, selectors from a query string
 *	api_push.c	push.v1
 *	api_graph.c	flame graphs: JSON, SVG, folded, pprof
 *	api_series.c	services, series, timeline
 *	api_control.c	heartbeats, hosts, requests
 *	api_page.c	the page and its files
 *	metrics.c	/metrics
 *
 * Queries: query={service_name="shop"} (or service=shop), view=process_cpu, from and until in any form that
 * api_time reads; the last hour when they are left out.
 */
#ifndef BACKEND_API_H
#define BACKEND_API_H

#include <semaphore.h>
#include <stdatomic.h>

#include "backend/control.h"
#include "backend/http.h"
#include "backend/store.h"

struct api {
	struct store *store;
	struct control *control;
	/* For /metrics; set when requests may be under way already. */
	const struct http_server *_Atomic server;
	const char *version;
	/* Set when the server started with tokens or beyond loopback; revoking the last one opens nothing. */
	bool tokens_required;
	int64_t started_unix_ns;

	_Atomic size_t memory_bytes; /* reserved by pushes under way */
	sem_t query_slots;           /* one a query that runs; the rest waits a while */
	_Atomic unsigned int queries_waiting;
	_Atomic uint64_t push_profiles, push_bytes, push_refused, heartbeats, queries,
		queries_refused;
};

enum {
	API_MEMORY_MAX_BYTES = 1 << 30,       /* of all pushes under way */
	API_PROFILE_MEMORY_BYTES = 128 << 20, /* of one pushed profile, decoded */
	API_QUERY_MEMORY_BYTES = 256 << 20,   /* of one answer's profile */
	API_PUSH_BODY_MAX_BYTES = 32 << 20,
	API_QUERIES_RUNNING_MAX = 3,
	API_QUERIES_WAITING_MAX = 8,
	API_ANSWER_MAX_BYTES = 128 << 20,
};

extern const struct http_route api_routes[];
extern const size_t api_route_count;
bool api_authorize(void *app, const char *token, enum http_scope scope);

/* Fields are the caller's to set, the rest is made here. 0 or -errno. */
int api_init(struct api *a);
void api_done(struct api *a);

/* Takes bytes of the memory that all pushes share; false: there is not so much now. */
bool api_reserve(struct api *a, size_t bytes);
void api_release(struct api *a, size_t bytes);
int64_t api_now_unix_ns(void);
/* The answer for an -errno of the store or the control part; why: its reason or NULL. */
void api_fail(struct http_response *r, int error, const char *what, const char *why);

/*
 * "now", "now-1h", "now+5m", and unix time in s, ms or ns, told apart by their size (11, 14 digits). 0 or
 * -EINVAL. A time that does not fit is clamped.
 */
int api_time(const char *text, int64_t now_ns, int64_t *ret_ns);

struct api_query {
	struct matcher matchers[MATCHERS_MAX];
	size_t matcher_count;
	struct store_range range;
};
/*
 * The selector and the range that texts of a query string mean, each NULL when absent. 0 or -EINVAL with a
 * static *why.
 */
int api_query_parse(const char *query, const char *service, const char *view, const char *from,
	const char *until, int64_t now_ns, const char **why, struct api_query *ret);
/* The same from a request; false after it has filled r. */
bool api_query_read(struct http_request *q, struct http_response *r, struct api_query *ret);

http_handler api_push, api_flamegraph, api_services, api_series, api_timeline, api_heartbeat,
	api_hosts, api_request_create, api_request_list, api_request_get, api_request_cancel,
	api_page, api_page_script, api_page_style, api_health, api_metrics;

/* Prometheus' text format. */
int metrics_write(struct api *a, struct buf *out);

/* For SVG served by itself: the drawing's own script and style, by hash. "" when it could not be made. */
const char *api_page_svg_policy(void);

#endif
