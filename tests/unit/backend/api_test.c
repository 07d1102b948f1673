/* The route table: every row refuses who has no token or the wrong one. Times and selectors of queries. */
#include <criterion/criterion.h>
#include <errno.h>

#include "backend/api.h"
#include "backend/http_internal.h"
#include "base/arena.h"
#include "base/def.h"

static const int64_t NOW_NS = 1700000000LL * 1000000000;
static const int64_t HOUR_NS = 3600LL * 1000000000;

TestSuite(api, .timeout = 60);

static char dir[] = "/tmp/api-test-XXXXXX";
static char path[64];
static struct api a;
static struct buf tokens[SCOPE_COUNT];

static void setup(void)
{
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/catalog.db", dir);
	cr_assert_eq(control_open(path, &a.control), 0);
}

static void teardown(void)
{
	static const char *const suffixes[] = {"", "-wal", "-shm"};

	control_close(a.control);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		char file[96];

		(void)snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
		(void)unlink(file); /* may not be there */
	}
	(void)rmdir(dir);
	for (size_t i = 0; i < SCOPE_COUNT; i++)
		buf_done(&tokens[i]);
}

TestSuite(api_auth, .init = setup, .fini = teardown, .timeout = 60);

static void make_tokens(void)
{
	for (enum http_scope s = SCOPE_INGEST; s < SCOPE_COUNT; s++) {
		tokens[s] = BUF_INIT(100);
		cr_assert_eq(
			control_token_create(a.control, s, control_scope_name(s), &tokens[s]), 0);
	}
}

Test(api_auth, every_route_refuses_without_and_with_a_wrong_token)
{
	make_tokens();
	for (size_t i = 0; i < api_route_count; i++) {
		const struct http_route *r = &api_routes[i];

		if (r->scope == SCOPE_NONE)
			continue;
		cr_assert_not(api_authorize(&a, NULL, r->scope), "%s %s", r->method, r->path);
		cr_assert_not(api_authorize(&a, "", r->scope), "%s %s", r->method, r->path);
		cr_assert_not(api_authorize(&a, "guess", r->scope), "%s %s", r->method, r->path);
		for (enum http_scope s = SCOPE_INGEST; s < SCOPE_COUNT; s++)
			cr_assert_eq(api_authorize(&a, tokens[s].data, r->scope),
				s == r->scope || s == SCOPE_ADMIN, "%s %s with %s", r->method,
				r->path, control_scope_name(s));
	}
}

Test(api_auth, only_the_page_and_health_need_no_token)
{
	static const char *const open[] = {"/healthz", "/", "/page.js", "/page.css"};
	size_t found = 0;

	for (size_t i = 0; i < api_route_count; i++) {
		bool is_open = false;

		for (size_t k = 0; k < ARRAY_SIZE(open); k++)
			is_open = is_open || strcmp(api_routes[i].path, open[k]) == 0;
		cr_assert_eq(api_routes[i].scope == SCOPE_NONE, is_open, "%s", api_routes[i].path);
		found += is_open;
		cr_assert_not_null(api_routes[i].handler);
	}
	cr_assert_eq(found, ARRAY_SIZE(open));
}

Test(api_auth, what_changes_something_is_not_reached_by_a_read_token)
{
	for (size_t i = 0; i < api_route_count; i++)
		if (strcmp(api_routes[i].method, "GET") != 0)
			cr_assert(api_routes[i].scope == SCOPE_INGEST ||
					  api_routes[i].scope == SCOPE_CONTROL,
				"%s %s", api_routes[i].method, api_routes[i].path);
}

Test(api_auth, revoking_the_last_token_opens_nothing)
{
	cr_assert(api_authorize(&a, NULL, SCOPE_READ), "no tokens, on loopback");
	make_tokens();
	a.tokens_required = true; /* as at the start with tokens */
	for (enum http_scope s = SCOPE_INGEST; s < SCOPE_COUNT; s++)
		cr_assert_eq(control_token_revoke(a.control, control_scope_name(s)), 0);
	cr_assert_not(api_authorize(&a, NULL, SCOPE_READ));
	a.tokens_required = false;
}

Test(api, paths_find_their_row_and_no_other)
{
	static const struct {
		const char *method, *path, *row, *tail;
	} cases[] = {
		{"GET", "/api/v1/flamegraph", "/api/v1/flamegraph", ""},
		{"HEAD", "/api/v1/flamegraph.svg", "/api/v1/flamegraph.*", "svg"},
		{"GET", "/api/v1/flamegraph.pb.gz", "/api/v1/flamegraph.*", "pb.gz"},
		{"DELETE", "/api/v1/requests/abc", "/api/v1/requests/*", "abc"},
		{"GET", "/api/v1/requests/a/b", NULL, ""},
		{"GET", "/api/v1/requests/", NULL, ""},
		{"GET", "/API/v1/hosts", NULL, ""},
		{"GET", "//", NULL, ""},
	};
	struct arena *arena = arena_new(1 << 20);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *allow = NULL;
		const char *tail = "";
		const struct http_route *r = http_route_find(api_routes, api_route_count,
			cases[i].method, cases[i].path, arena, &allow, &tail);

		if (cases[i].row) {
			cr_assert_not_null(r, "%s", cases[i].path);
			cr_assert_str_eq(r->path, cases[i].row);
			cr_assert_str_eq(tail, cases[i].tail);
		} else {
			cr_assert_null(r, "%s", cases[i].path);
			cr_assert_null(allow, "%s", cases[i].path);
		}
	}
	arena_free(arena);
}

Test(api, times_are_read_in_every_form)
{
	static const struct {
		const char *text;
		int64_t ns;
	} cases[] = {
		{"now", 1700000000000000000}, {"now-1h", 1700000000000000000 - 3600000000000},
		{"now+5m", 1700000000000000000 + 300000000000},
		{"now 5m", 1700000000000000000 + 300000000000}, {"1600000000", 1600000000000000000},
		{"1600000000123", 1600000000123000000},
		{"1600000000123456789", 1600000000123456789}, {"0", 0},
		{"99999999999", INT64_MAX}, /* year 5138: clamped */
	};
	static const char *const wrong[] = {"", "yesterday", "now-", "now-x", "now*1h", "-5", "1.5",
		"0x10", "99999999999999999999"};
	int64_t ns = 0;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_assert_eq(api_time(cases[i].text, NOW_NS, &ns), 0, "%s", cases[i].text);
		cr_assert_eq(ns, cases[i].ns, "%s: %lld", cases[i].text, (long long)ns);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		cr_assert_eq(api_time(wrong[i], NOW_NS, &ns), -EINVAL, "%s", wrong[i]);
}

Test(api, a_query_takes_the_last_hour_and_refuses_backward_ranges)
{
	struct api_query *q = calloc(1, sizeof(*q));
	const char *why = NULL;

	cr_assert_eq(api_query_parse("{a=\"b\"}", "shop", "cpu", NULL, NULL, NOW_NS, &why, q), 0);
	cr_assert_eq(q->matcher_count, 3);
	cr_assert_str_eq(q->matchers[1].name, "service_name");
	cr_assert_str_eq(q->matchers[1].value, "shop");
	cr_assert_str_eq(q->matchers[2].name, "__name__");
	cr_assert_eq(q->range.start_ns, NOW_NS - HOUR_NS);
	cr_assert_eq(q->range.end_ns, NOW_NS);
	cr_assert_eq(api_query_parse(NULL, NULL, NULL, NULL, "now-2h", NOW_NS, &why, q), 0);
	cr_assert_eq(q->range.start_ns, NOW_NS - 3 * HOUR_NS, "an hour before until");
	cr_assert_eq(api_query_parse(NULL, NULL, NULL, "now", "now-1h", NOW_NS, &why, q), -EINVAL);
	cr_assert_eq(api_query_parse(NULL, NULL, NULL, "5", "5", NOW_NS, &why, q), -EINVAL);
	cr_assert_eq(api_query_parse(NULL, NULL, NULL, "0", "9223372036854775807", NOW_NS, &why, q),
		-EINVAL);
	cr_assert_eq(api_query_parse("{a", NULL, NULL, NULL, NULL, NOW_NS, &why, q), -EINVAL);
	free(q);
}

Test(api, too_many_matchers_are_refused)
{
	struct api_query *q = calloc(1, sizeof(*q));
	const char *why = NULL;
	struct buf text = BUF_INIT(10000);

	for (int i = 0; i < MATCHERS_MAX; i++)
		(void)buf_printf(&text, "%sa%d=\"b\"", i ? "," : "{", i);
	(void)buf_append_char(&text, '}');
	cr_assert_eq(api_query_parse(text.data, NULL, NULL, NULL, NULL, NOW_NS, &why, q), 0);
	cr_assert_eq(api_query_parse(text.data, "x", NULL, NULL, NULL, NOW_NS, &why, q), -EINVAL);
	buf_done(&text);
	free(q);
}

Test(api, reserved_memory_has_a_limit_and_comes_back)
{
	struct api m = {0};

	cr_assert(api_reserve(&m, API_MEMORY_MAX_BYTES));
	cr_assert_not(api_reserve(&m, 1));
	api_release(&m, API_MEMORY_MAX_BYTES);
	cr_assert(api_reserve(&m, 1));
	cr_assert_eq(m.memory_bytes, 1);
}

Test(api, errors_become_the_status_that_tells_senders_what_to_do)
{
	static const struct {
		int error, status, retry_after_s;
	} cases[] = {{-EBADMSG, 400, 0}, {-EFBIG, 413, 0}, {-ENOSPC, 507, 60}, {-EBUSY, 429, 1},
		{-ENOENT, 404, 0}, {-EIO, 500, 0}, {-ETIMEDOUT, 503, 5}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_response r = {0};

		api_fail(&r, cases[i].error, "x", NULL);
		cr_assert_eq(r.status, cases[i].status);
		cr_assert_eq(r.retry_after_s, cases[i].retry_after_s);
		buf_done(&r.body);
	}
}
