/*
 * One HTTP request: admission by route, token, headers; the body, streamed with caps; the answer.
 *
 * What is refused at admission costs no memory: the rest of its body is read and dropped, so that the
 * peer sees our answer instead of a reset, unless it waits for "100 Continue" or announces very much; then
 * the answer goes out at once and the connection ends.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <strings.h>

#include "backend/http_internal.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/str.h"

enum { INFLATE_PIECE_BYTES = 64 << 10, METHODS_MAX = 64 };

static const char POLICY_NOTHING[] = "default-src 'none'; frame-ancestors 'none'";

__attribute__((format(printf, 3, 4))) static void refuse(
	struct http_request *q, int status, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut when too long */
	va_end(ap);
	http_error(&q->response, status, "%s", text);
	q->state = HTTP_DONE;
	q->server->bodies_bytes -= q->charged;
	q->charged = 0;
	buf_done(&q->body);
	q->body = BUF_INIT(0);
}

static bool path_matches(const char *pattern, const char *path, const char **ret_tail)
{
	size_t size = strlen(pattern);

	if (size == 0 || pattern[size - 1] != '*')
		return strcmp(pattern, path) == 0;
	if (strncmp(pattern, path, size - 1) != 0 || path[size - 1] == '\0' ||
		strchr(path + size - 1, '/'))
		return false;
	*ret_tail = path + size - 1;
	return true;
}

const struct http_route *http_route_find(const struct http_route *routes, size_t count,
	const char *method, const char *path, struct arena *a, const char **ret_allow,
	const char **ret_tail)
{
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
	char methods[METHODS_MAX] = "";
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		const char *tail = "";

		if (!path_matches(routes[i].path, path, &tail))
			continue;
		if (strcmp(routes[i].method, wanted) == 0) {
			*ret_tail = tail;
			return &routes[i];
		}
		used += (size_t)snprintf(methods + used, sizeof(methods) - used, "%s%s%s",
			used ? ", " : "", routes[i].method,
			strcmp(routes[i].method, "GET") == 0 ? ", HEAD" : "");
		if (used >= sizeof(methods))
			break;
	}
	*ret_allow = used ? arena_strdup(a, methods) : NULL;
	return NULL;
}

/* The token of "Authorization: Bearer TOKEN", or NULL. */
static const char *bearer(const struct http_request *q)
{
	const char *h = http_header(q, MHD_HTTP_HEADER_AUTHORIZATION);

	if (!h || strncasecmp(h, "Bearer ", 7) != 0)
		return NULL;
	h += 7;
	h += strspn(h, " ");
	return *h && strlen(h) <= HTTP_TOKEN_MAX ? h : NULL;
}

/* "localhost", "127.0.0.1:4040", "[::1]:4040": what no name server can point elsewhere. */
static bool host_is_loopback(const char *host)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

	for (size_t i = 0; host && i < ARRAY_SIZE(names); i++) {
		size_t size = strlen(names[i]);

		if (strncasecmp(host, names[i], size) == 0 &&
			(host[size] == '\0' || host[size] == ':'))
			return true;
	}
	return false;
}

static bool client_certificate_good(const struct http_request *q)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(q->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	static char client[] = GNUTLS_KP_TLS_WWW_CLIENT;
	/* One that says what it is for must say this; a server's own is no client's. */
	gnutls_typed_vdata_st purpose = {
		.type = GNUTLS_DT_KEY_PURPOSE_OID, .data = (unsigned char *)client};
	unsigned int status = 0;

	return info && info->tls_session &&
	       gnutls_certificate_verify_peers(info->tls_session, &purpose, 1, &status) == 0 &&
	       status == 0;
}

static bool admit_peer(struct http_request *q)
{
	const struct http_options *o = &q->server->options;
	const char *site = http_header(q, "Sec-Fetch-Site");
	const char *token = bearer(q);
	bool by_certificate = o->tls_client_ca && !token && q->route->scope == SCOPE_INGEST;

	if (q->route->scope == SCOPE_NONE)
		return true;
	if (o->tls_client_ca && !client_certificate_good(q)) {
		refuse(q, 403, "a client certificate of the configured CA is needed");
		return false;
	}
	/* Browsers say who asks; no other site has business here. */
	if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0) {
		refuse(q, 403, "requests of other sites are not answered");
		return false;
	}
	if (by_certificate)
		return true;
	if (!o->authorize(o->app, token, q->route->scope)) {
		if (!token || !o->authorize(o->app, token, SCOPE_NONE))
			refuse(q, 401, "a valid token is needed: Authorization: Bearer TOKEN");
		else
			refuse(q, 403, "the token's scope does not cover this");
		return false;
	}
	if (!token && !host_is_loopback(http_header(q, MHD_HTTP_HEADER_HOST))) {
		refuse(q, 403, "without tokens only loopback names are answered");
		return false;
	}
	return true;
}

static void admit_body(struct http_request *q)
{
	const char *encoding = http_header(q, MHD_HTTP_HEADER_CONTENT_ENCODING);
	const char *length = http_header(q, MHD_HTTP_HEADER_CONTENT_LENGTH);
	uint64_t size = 0;

	if (encoding && *encoding && strcasecmp(encoding, "identity") != 0) {
		if (strcasecmp(encoding, "gzip") != 0) {
			refuse(q, 415, "Content-Encoding may be gzip or identity");
			return;
		}
		if (inflateInit2(&q->inflate, 15 + 16) != Z_OK) { /* 16: gzip's header */
			refuse(q, 503, "out of memory");
			return;
		}
		q->gzip = true;
	}
	if (length && str_to_u64(length, 0, UINT64_MAX, &size) != 0)
		refuse(q, 400, "Content-Length is not a number");
	else if (size > q->route->body_max)
		refuse(q, 413, "the body may have at most %zu bytes", q->route->body_max);
	else
		q->body = BUF_INIT(q->route->body_max);
}

static void admit(struct http_request *q, const char *method, const char *path)
{
	struct http_server *s = q->server;
	const char *tail = "";

	q->route = http_route_find(
		s->routes, s->route_count, method, path, q->arena, &q->allow, &tail);
	if (!q->route && q->allow)
		refuse(q, 405, "this path answers to %s", q->allow);
	else if (!q->route)
		refuse(q, 404, "no such path");
	if (!q->route || !admit_peer(q))
		return;
	q->tail = arena_strdup(q->arena, tail);
	admit_body(q);
}

/* Whether to answer now and end the connection rather than read on. */
static bool refuse_at_once(const struct http_request *q)
{
	const char *length = http_header(q, MHD_HTTP_HEADER_CONTENT_LENGTH);
	uint64_t size = 0;

	if (q->state != HTTP_DONE)
		return false;
	if (http_header(q, MHD_HTTP_HEADER_EXPECT))
		return true;
	return length && str_to_u64(length, 0, HTTP_DISCARD_MAX_BYTES, &size) != 0;
}

static void charge(struct http_request *q)
{
	struct http_server *s = q->server;
	size_t more = q->body.allocated - q->charged;

	s->bodies_bytes += more;
	q->charged += more;
	if (s->bodies_bytes > s->bodies_max_bytes) {
		s->refused_busy++;
		refuse(q, 503, "too many bodies are under way");
		q->response.retry_after_s = 2;
	}
}

static void store(struct http_request *q, const void *data, size_t size)
{
	int r = buf_append(&q->body, data, size);

	if (r == -ENOBUFS)
		refuse(q, 413, "the body may have at most %zu bytes", q->route->body_max);
	else if (r)
		refuse(q, 503, "out of memory");
	else if (q->body.allocated > q->charged)
		charge(q);
}

static void store_inflated(struct http_request *q, const void *data, size_t size)
{
	static _Thread_local unsigned char piece[INFLATE_PIECE_BYTES];
	z_stream *z = &q->inflate;
	int r;

	z->next_in = (z_const Bytef *)data;
	z->avail_in = (uInt)size; /* at most the connection's memory */
	do {
		if (q->gzip_end && inflateReset(z) != Z_OK) /* a further member */
			break;
		q->gzip_end = false;
		z->next_out = piece;
		z->avail_out = sizeof(piece);
		r = inflate(z, Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR) {
			refuse(q, 400, "the gzip data is damaged");
			return;
		}
		q->gzip_end = r == Z_STREAM_END;
		store(q, piece, sizeof(piece) - z->avail_out);
	} while (q->state == HTTP_BODY && (z->avail_in > 0 || z->avail_out == 0) &&
		 r != Z_BUF_ERROR);
}

static enum MHD_Result take(struct http_request *q, const void *data, size_t size)
{
	struct http_server *s = q->server;

	q->received_bytes += size;
	s->bytes_in += size;
	http_conn_busy(s, q->conn,
		q->start_ns + s->idle_timeout_ns +
			q->received_bytes * NSEC_PER_SEC / HTTP_RATE_MIN_BPS);
	if (q->state != HTTP_BODY)
		return q->received_bytes > HTTP_DISCARD_MAX_BYTES ? MHD_NO : MHD_YES;
	if (q->gzip)
		store_inflated(q, data, size);
	else
		store(q, data, size);
	return MHD_YES;
}

static int header(struct MHD_Response *m, const char *name, const char *value)
{
	return value && MHD_add_response_header(m, name, value) != MHD_YES ? -ENOMEM : 0;
}

static struct MHD_Response *response_make(struct http_request *q)
{
	struct http_response *r = &q->response;
	bool empty = !r->body.data;
	struct MHD_Response *m =
		MHD_create_response_from_buffer(r->body.size, empty ? (void *)"" : r->body.data,
			empty ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
	char text[320];
	int e = 0;

	if (!m)
		return NULL;
	r->body = BUF_INIT(0); /* m frees the memory */
	e |= header(m, MHD_HTTP_HEADER_CONTENT_TYPE, r->content_type);
	e |= header(m, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	e |= header(m, "X-Content-Type-Options", "nosniff");
	e |= header(m, "Referrer-Policy", "no-referrer");
	e |= header(m, "Content-Security-Policy", r->policy ? r->policy : POLICY_NOTHING);
	if (r->status == 405)
		e |= header(m, MHD_HTTP_HEADER_ALLOW, q->allow);
	if (r->status == 401)
		e |= header(m, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (r->retry_after_s > 0) {
		(void)snprintf(text, sizeof(text), "%d", r->retry_after_s);
		e |= header(m, MHD_HTTP_HEADER_RETRY_AFTER, text);
	}
	if (r->disposition) {
		(void)snprintf(text, sizeof(text), "attachment; filename=\"%s\"", r->disposition);
		e |= header(m, MHD_HTTP_HEADER_CONTENT_DISPOSITION, text);
	}
	if (e == 0)
		return m;
	MHD_destroy_response(m);
	return NULL;
}

static enum MHD_Result reply(struct http_request *q, const char *path)
{
	struct http_server *s = q->server;
	int status = q->response.status;
	size_t size;
	struct MHD_Response *m;
	enum MHD_Result r;

	if (status == 0 || buf_error(&q->response.body)) {
		http_error(&q->response, status ? 503 : 500,
			status ? "the answer does not fit" : "no answer was made");
		status = q->response.status;
	}
	size = q->response.body.size;
	m = response_make(q);
	if (!m)
		return MHD_NO;
	s->requests++;
	s->bytes_out += size;
	if (status >= 400 && status < 500)
		s->errors_4xx++;
	if (status >= 500) {
		s->errors_5xx++;
		log_warn("http", "answer", 0, "status=%d path=%.200s", status, path);
	}
	http_conn_busy(s, q->conn,
		loop_now_ns() + s->idle_timeout_ns + size * NSEC_PER_SEC / HTTP_RATE_MIN_BPS);
	r = MHD_queue_response(q->connection, (unsigned int)status, m);
	MHD_destroy_response(m);
	return r;
}

static struct http_request *request_new(struct http_server *s, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct arena *a = arena_new(HTTP_ARENA_BYTES);
	struct http_request *q = a ? arena_alloc(a, sizeof(*q)) : NULL;

	if (!q || !info || !info->socket_context) {
		arena_free(a);
		return NULL;
	}
	q->server = s;
	q->connection = connection;
	q->conn = info->socket_context;
	q->arena = a;
	q->start_ns = loop_now_ns();
	http_conn_busy(s, q->conn, q->start_ns + s->idle_timeout_ns);
	http_jobs_begin(s);
	return q;
}

enum MHD_Result http_serve(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size,
	void **ctx)
{
	struct http_server *s = cls;
	struct http_request *q = *ctx;
	int r;

	(void)version; /* libmicrohttpd speaks 1.0 and 1.1 */
	if (!q) {
		*ctx = q = request_new(s, connection);
		if (!q)
			return MHD_NO;
		admit(q, method, url);
		return refuse_at_once(q) ? reply(q, url) : MHD_YES;
	}
	if (*upload_size > 0) {
		enum MHD_Result taken = take(q, upload, *upload_size);

		*upload_size = 0;
		return taken;
	}
	if (q->state == HTTP_QUEUED)
		return MHD_YES; /* not resumed yet */
	if (q->state == HTTP_BODY && q->gzip && !q->gzip_end && q->received_bytes > 0)
		refuse(q, 400, "the gzip data is cut short");
	if (q->state == HTTP_BODY) {
		http_conn_busy(s, q->conn, 0);
		r = http_jobs_put(s, q);
		if (r == 0)
			return MHD_YES;
		s->refused_busy++;
		refuse(q, 503,
			r == -ESHUTDOWN ? "the server is shutting down" : "too many requests");
		q->response.retry_after_s = 2;
	}
	return reply(q, url);
}

void http_serve_over(void *cls, struct MHD_Connection *connection, void **ctx,
	enum MHD_RequestTerminationCode code)
{
	struct http_server *s = cls;
	struct http_request *q = *ctx;

	(void)connection;
	if (!q)
		return;
	*ctx = NULL;
	if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		http_conn_idle(s, q->conn);
	s->bodies_bytes -= q->charged;
	buf_done(&q->body);
	buf_done(&q->response.body);
	if (q->gzip)
		(void)inflateEnd(&q->inflate); /* frees in any state */
	arena_free(q->arena);                  /* and q */
	http_jobs_end(s);
}
