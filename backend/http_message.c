/* What a handler reads from its request and writes into its answer. See http.h. */
#include "backend/http.h"

#include <stdarg.h>

#include "backend/http_internal.h"
#include "base/def.h"
#include "base/str.h"

enum { MESSAGE_MAX = 512 };

/* Connect's codes for HTTP status (connectrpc.com/docs/protocol, "Error Codes"). */
static const struct {
	int status;
	const char *code;
} codes[] = {
	{400, "invalid_argument"},
	{401, "unauthenticated"},
	{403, "permission_denied"},
	{404, "not_found"},
	{405, "unimplemented"},
	{409, "already_exists"},
	{413, "resource_exhausted"},
	{415, "unimplemented"},
	{422, "out_of_range"},
	{429, "resource_exhausted"},
	{500, "internal"},
	{501, "unimplemented"},
	{503, "unavailable"},
	{504, "deadline_exceeded"},
	{507, "resource_exhausted"},
};

void http_error(struct http_response *r, int status, const char *fmt, ...)
{
	char text[MESSAGE_MAX];
	const char *code = "unknown";
	_cleanup_(buf_done) struct buf line = BUF_INIT(4 * MESSAGE_MAX);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut when too long */
	va_end(ap);
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (codes[i].status == status)
			code = codes[i].code;
	(void)str_append_utf8(
		&line, text, strlen(text), MESSAGE_MAX); /* fits: 3 bytes for each at most */
	buf_done(&r->body);
	r->body = BUF_INIT(16 * MESSAGE_MAX);
	r->status = status;
	r->content_type = "application/json";
	r->disposition = NULL;
	(void)buf_printf(&r->body, "{\"code\":\"%s\",\"message\":", code);
	(void)str_append_json(&r->body, buf_str(&line));
	(void)buf_append_str(&r->body, "}\n"); /* an answer without memory is an empty one */
}

const void *http_body(const struct http_request *q, size_t *size)
{
	*size = q->body.size;
	return buf_str(&q->body);
}

const char *http_query(const struct http_request *q, const char *name)
{
	const char *v = NULL;
	size_t size = 0;

	if (MHD_lookup_connection_value_n(
		    q->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name), &v, &size) != MHD_YES)
		return NULL;
	return v ? v : "";
}

struct stray_search {
	const char *const *names;
	uint64_t seen; /* a bit a name */
	const char *stray;
};

static enum MHD_Result stray_look(
	void *ctx, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct stray_search *s = ctx;
	size_t i = 0;

	(void)kind; /* the query's only */
	(void)value;
	while (s->names[i] && strcmp(s->names[i], key) != 0)
		i++;
	if (s->names[i] && (s->seen >> i & 1) == 0) {
		s->seen |= UINT64_C(1) << i;
		return MHD_YES;
	}
	s->stray = key;
	return MHD_NO;
}

const char *http_query_stray(const struct http_request *q, const char *const *names)
{
	struct stray_search s = {.names = names};

	(void)MHD_get_connection_values(q->connection, MHD_GET_ARGUMENT_KIND, stray_look, &s);
	return s.stray;
}

const char *http_header(const struct http_request *q, const char *name)
{
	return MHD_lookup_connection_value(q->connection, MHD_HEADER_KIND, name);
}

const char *http_tail(const struct http_request *q)
{
	return q->tail ? q->tail : "";
}

struct arena *http_arena(struct http_request *q)
{
	return q->arena;
}
