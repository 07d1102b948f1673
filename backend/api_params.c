/* Times, ranges and selectors from a query string. See api.h. */
#include <errno.h>

#include "backend/api.h"
#include "base/def.h"
#include "base/str.h"

static const int64_t HOUR_NS = 3600 * (int64_t)NSEC_PER_SEC;
static const int64_t RANGE_MAX_NS = 366 * 24 * HOUR_NS;

static int64_t times_clamped(int64_t value, int64_t factor)
{
	int64_t r;

	if (__builtin_mul_overflow(value, factor, &r))
		return value < 0 ? INT64_MIN : INT64_MAX;
	return r;
}

int api_time(const char *text, int64_t now_ns, int64_t *ret_ns)
{
	uint64_t ago_ns;
	int64_t number;

	if (strcmp(text, "now") == 0) {
		*ret_ns = now_ns;
		return 0;
	}
	if (str_has_prefix(text, "now-") || str_has_prefix(text, "now+") ||
		str_has_prefix(text, "now ")) { /* an undecoded "+" */
		if (str_to_duration_ns(text + 4, &ago_ns) != 0 || ago_ns > INT64_MAX / 4)
			return -EINVAL;
		*ret_ns = text[3] == '-' ? now_ns - (int64_t)ago_ns : now_ns + (int64_t)ago_ns;
		return 0;
	}
	if (str_to_i64(text, 0, INT64_MAX, &number) != 0)
		return -EINVAL;
	if (number < 100000000000) /* up to 11 digits: until the year 5138 in seconds */
		number = times_clamped(number, 1000000000);
	else if (number < 100000000000000)
		number = times_clamped(number, 1000000);
	*ret_ns = number;
	return 0;
}

static int matcher_add(struct api_query *q, const char *name, const char *value, const char **why)
{
	struct matcher *m = &q->matchers[q->matcher_count];

	if (q->matcher_count == MATCHERS_MAX || strlen(value) >= sizeof(m->value)) {
		*why = "the selector is too long";
		return -EINVAL;
	}
	(void)snprintf(m->name, sizeof(m->name), "%s", name);    /* our own names fit */
	(void)snprintf(m->value, sizeof(m->value), "%s", value); /* checked above */
	m->op = MATCH_EQ;
	q->matcher_count++;
	return 0;
}

int api_query_parse(const char *query, const char *service, const char *view, const char *from,
	const char *until, int64_t now_ns, const char **why, struct api_query *ret)
{
	int64_t length_ns;

	ret->matcher_count = 0;
	ret->range = (struct store_range){.start_ns = now_ns - HOUR_NS, .end_ns = now_ns};
	if (query && *query && matcher_parse(query, why, ret->matchers, &ret->matcher_count) != 0)
		return -EINVAL;
	if (service && *service && matcher_add(ret, "service_name", service, why) != 0)
		return -EINVAL;
	if (view && *view && matcher_add(ret, "__name__", view, why) != 0)
		return -EINVAL;
	*why = "'from' and 'until' are unix times or like now-1h";
	if (until && *until && api_time(until, now_ns, &ret->range.end_ns) != 0)
		return -EINVAL;
	if (from && *from) {
		if (api_time(from, now_ns, &ret->range.start_ns) != 0)
			return -EINVAL;
	} else {
		ret->range.start_ns = ret->range.end_ns - HOUR_NS;
	}
	if (ret->range.start_ns >= ret->range.end_ns) {
		*why = "'from' must be before 'until'";
		return -EINVAL;
	}
	if (__builtin_sub_overflow(ret->range.end_ns, ret->range.start_ns, &length_ns) ||
		length_ns > RANGE_MAX_NS) {
		*why = "the range is longer than a year";
		return -EINVAL;
	}
	return 0;
}

bool api_query_read(struct http_request *q, struct http_response *r, struct api_query *ret)
{
	static const char *const names[] = {"query", "service", "view", "from", "until", "format",
		"comm", "title", "step", NULL};
	const char *stray = http_query_stray(q, names);
	const char *why = "";

	/* Left out, a misspelt matcher would answer for everything. */
	if (stray) {
		http_error(r, 400, "there is no parameter '%s', or it comes twice", stray);
		return false;
	}
	if (api_query_parse(http_query(q, "query"), http_query(q, "service"), http_query(q, "view"),
		    http_query(q, "from"), http_query(q, "until"), api_now_unix_ns(), &why,
		    ret) == 0)
		return true;
	http_error(r, 400, "%s", why);
	return false;
}

int64_t api_now_unix_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t); /* cannot fail */
	return t.tv_sec * (int64_t)NSEC_PER_SEC + t.tv_nsec;
}

bool api_reserve(struct api *a, size_t bytes)
{
	if (atomic_fetch_add(&a->memory_bytes, bytes) + bytes <= API_MEMORY_MAX_BYTES)
		return true;
	api_release(a, bytes);
	return false;
}

void api_release(struct api *a, size_t bytes)
{
	atomic_fetch_sub(&a->memory_bytes, bytes);
}

void api_fail(struct http_response *r, int error, const char *what, const char *why)
{
	static const struct {
		int error, status, retry_after_s;
	} table[] = {
		{-EINVAL, 400, 0},
		{-EBADMSG, 400, 0},
		{-ENOENT, 404, 0},
		{-EFBIG, 413, 0},
		{-ENOBUFS, 422, 0},
		{-EBUSY, 429, 1},
		{-EAGAIN, 429, 1},
		{-ENOMEM, 503, 5},
		{-ETIMEDOUT, 503, 5},
		{-ENOSPC, 507, 60},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].error == error) {
			http_error(r, table[i].status, "%s: %s", what,
				why && *why ? why : strerror(-error));
			r->retry_after_s = table[i].retry_after_s;
			return;
		}
	http_error(r, 500, "%s: %s", what, strerror(-error));
}
