/* Heartbeats, hosts, profiling requests: JSON in, JSON out, by the control part. */
#include <errno.h>
#include <strings.h>

#include "backend/api.h"
#include "base/def.h"
#include "base/str.h"

enum { WHY_MAX = 1024, HOSTS_LIMIT_MAX = 100000 };

/* Browsers send other types without asking first; this one they may not, from other sites. */
static bool is_json(const struct http_request *q, struct http_response *r)
{
	const char *type = http_header(q, "Content-Type");

	if (type && strncasecmp(type, "application/json", 16) == 0)
		return true;
	http_error(r, 415, "Content-Type must be application/json");
	return false;
}

static void answer(struct http_response *r, int error, const char *what, struct buf *why)
{
	r->status = 200;
	r->content_type = "application/json";
	if (error)
		api_fail(r, error, what, buf_str(why));
	buf_done(why);
}

void api_heartbeat(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct buf why = BUF_INIT(WHY_MAX);
	size_t size;
	const void *body = http_body(q, &size);

	if (!is_json(q, r))
		return;
	r->body = BUF_INIT(8 << 20);
	a->heartbeats++;
	answer(r, control_heartbeat(a->control, body, size, api_now_unix_ns(), &r->body, &why),
		"heartbeat", &why);
}

void api_hosts(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct buf why = BUF_INIT(WHY_MAX);
	const char *after = http_query(q, "after");
	const char *limit_text = http_query(q, "limit");
	uint64_t limit = 0;

	if (limit_text && str_to_u64(limit_text, 1, HOSTS_LIMIT_MAX, &limit) != 0) {
		http_error(r, 400, "'limit' must be a number up to %d", HOSTS_LIMIT_MAX);
		return;
	}
	r->body = BUF_INIT(API_ANSWER_MAX_BYTES);
	answer(r,
		control_hosts(a->control, api_now_unix_ns(), after ? after : "",
			(unsigned int)limit, &r->body),
		"hosts", &why);
}

void api_request_create(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct buf why = BUF_INIT(WHY_MAX);
	size_t size;
	const void *body = http_body(q, &size);

	if (!is_json(q, r))
		return;
	r->body = BUF_INIT(16 << 20);
	answer(r, control_request_create(a->control, body, size, api_now_unix_ns(), &r->body, &why),
		"request", &why);
}

void api_request_list(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct buf why = BUF_INIT(WHY_MAX);

	(void)q;
	r->body = BUF_INIT(16 << 20);
	answer(r, control_request_list(a->control, api_now_unix_ns(), &r->body), "requests", &why);
}

typedef int request_by_id_fn(
	struct control *c, const char *id, int64_t now_unix_ns, struct buf *out);

static void request_by_id(
	struct api *a, struct http_request *q, request_by_id_fn *fn, struct http_response *r)
{
	struct buf why = BUF_INIT(WHY_MAX);

	r->body = BUF_INIT(16 << 20);
	(void)buf_append_str(&why, "no such request");
	answer(r, fn(a->control, http_tail(q), api_now_unix_ns(), &r->body), "request", &why);
}

void api_request_get(void *app, struct http_request *q, struct http_response *r)
{
	request_by_id(app, q, control_request_get, r);
}

void api_request_cancel(void *app, struct http_request *q, struct http_response *r)
{
	request_by_id(app, q, control_request_cancel, r);
}

void api_health(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;

	(void)q;
	r->status = 200;
	r->content_type = "application/json";
	r->body = BUF_INIT(WHY_MAX);
	(void)buf_append_str(&r->body, "{\"status\":\"ok\",\"version\":");
	(void)str_append_json(&r->body, a->version);
	(void)buf_append_str(&r->body, "}\n");
}
