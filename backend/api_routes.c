/* Every path that answers, and what a token must cover to reach it. See api.h. */
#include <errno.h>

#include "backend/api.h"
#include "base/def.h"

enum { HEARTBEAT_MAX_BYTES = 256 << 10, REQUEST_MAX_BYTES = 256 << 10 };

const struct http_route api_routes[] = {
	{"POST", "/push.v1.PusherService/Push", SCOPE_INGEST, API_PUSH_BODY_MAX_BYTES, api_push},
	{"POST", "/api/v1/heartbeat", SCOPE_INGEST, HEARTBEAT_MAX_BYTES, api_heartbeat},
	{"POST", "/api/v1/requests", SCOPE_CONTROL, REQUEST_MAX_BYTES, api_request_create},
	{"GET", "/api/v1/requests", SCOPE_READ, 0, api_request_list},
	{"GET", "/api/v1/requests/*", SCOPE_READ, 0, api_request_get},
	{"DELETE", "/api/v1/requests/*", SCOPE_CONTROL, 0, api_request_cancel},
	{"GET", "/api/v1/services", SCOPE_READ, 0, api_services},
	{"GET", "/api/v1/hosts", SCOPE_READ, 0, api_hosts},
	{"GET", "/api/v1/series", SCOPE_READ, 0, api_series},
	{"GET", "/api/v1/timeline", SCOPE_READ, 0, api_timeline},
	{"GET", "/api/v1/flamegraph", SCOPE_READ, 0, api_flamegraph},
	{"GET", "/api/v1/flamegraph.*", SCOPE_READ, 0, api_flamegraph},
	{"GET", "/metrics", SCOPE_READ, 0, api_metrics},
	{"GET", "/healthz", SCOPE_NONE, 0, api_health},
	{"GET", "/", SCOPE_NONE, 0, api_page},
	{"GET", "/page.js", SCOPE_NONE, 0, api_page_script},
	{"GET", "/page.css", SCOPE_NONE, 0, api_page_style},
};
const size_t api_route_count = ARRAY_SIZE(api_routes);

bool api_authorize(void *app, const char *token, enum http_scope scope)
{
	struct api *a = app;

	if (!token)
		return !a->tokens_required && !control_has_tokens(a->control);
	/* A wrong token is refused even where none is needed: its sender believes that it counts. */
	return control_token_allows(a->control, token, scope);
}

int api_init(struct api *a)
{
	return sem_init(&a->query_slots, 0, API_QUERIES_RUNNING_MAX) < 0 ? -errno : 0;
}

void api_done(struct api *a)
{
	(void)sem_destroy(&a->query_slots); /* nobody waits any more */
}
