/* Which services and series have data, and how much over time. */
#include <errno.h>

#include "backend/api.h"
#include "base/arena.h"
#include "base/def.h"
#include "base/str.h"

enum { SERIES_ARENA_BYTES = 64 << 20, POINTS_MAX = 5000, POINTS_DEFAULT = 120 };

struct service_view {
	const char *service, *view, *type, *unit;
	int64_t first_ns, last_ns;
};

struct service_list {
	struct arena *arena;
	struct service_view *views;
	size_t count, allocated;
};

static const char *label_value(const struct push_label *labels, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(labels[i].name, name) == 0)
			return labels[i].value;
	return "";
}

static int service_add(void *data, const struct push_label *labels, size_t count, const char *type,
	const char *unit, int64_t first_ns, int64_t last_ns)
{
	struct service_list *l = data;
	struct service_view *v;

	if (l->count == l->allocated) {
		size_t allocated = l->allocated ? 2 * l->allocated : 64;
		struct service_view *views = arena_alloc(l->arena, allocated * sizeof(*views));

		if (!views)
			return -ENOBUFS;
		if (l->count)
			memcpy(views, l->views, l->count * sizeof(*views));
		l->views = views;
		l->allocated = allocated;
	}
	v = &l->views[l->count];
	v->service = arena_strdup(l->arena, label_value(labels, count, "service_name"));
	v->view = arena_strdup(l->arena, label_value(labels, count, "__name__"));
	v->type = arena_strdup(l->arena, type ? type : "");
	v->unit = arena_strdup(l->arena, unit ? unit : "");
	v->first_ns = first_ns;
	v->last_ns = last_ns;
	if (!v->service || !v->view || !v->type || !v->unit)
		return -ENOBUFS;
	l->count++;
	return 0;
}

static int by_service_and_view(const void *a, const void *b)
{
	const struct service_view *x = a, *y = b;
	int r = strcmp(x->service, y->service);

	if (!r)
		r = strcmp(x->view, y->view);
	if (!r)
		r = strcmp(x->type, y->type);
	return r ? r : strcmp(x->unit, y->unit);
}

/* Sorted rows of many hosts become one line a service, one entry a view and type. */
static void services_write(struct service_list *l, struct buf *out)
{
	const struct service_view *last = NULL;

	(void)buf_append_str(out, "[");
	for (size_t i = 0; i < l->count;) {
		struct service_view v = l->views[i];

		for (; i < l->count && by_service_and_view(&v, &l->views[i]) == 0; i++) {
			v.first_ns = MIN(v.first_ns, l->views[i].first_ns);
			v.last_ns = MAX(v.last_ns, l->views[i].last_ns);
		}
		if (!last || strcmp(last->service, v.service) != 0) {
			(void)buf_append_str(out, last ? "]},\n{\"service\":" : "{\"service\":");
			(void)str_append_json(out, v.service);
			(void)buf_append_str(out, ",\"views\":[{\"view\":");
		} else {
			(void)buf_append_str(out, ",{\"view\":");
		}
		(void)str_append_json(out, v.view);
		(void)buf_append_str(out, ",\"type\":");
		(void)str_append_json(out, v.type);
		(void)buf_append_str(out, ",\"unit\":");
		(void)str_append_json(out, v.unit);
		(void)buf_printf(out, ",\"first_unix_ms\":%lld,\"last_unix_ms\":%lld}",
			(long long)(v.first_ns / 1000000), (long long)(v.last_ns / 1000000));
		last = &l->views[i - 1];
	}
	(void)buf_append_str(out, last ? "]}]\n" : "]\n");
}

void api_services(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct api_query *query = arena_alloc(http_arena(q), sizeof(*query));
	_cleanup_(arena_freep) struct arena *arena = arena_new(SERIES_ARENA_BYTES);
	struct service_list l = {.arena = arena};
	int e;

	if (!query || !arena) {
		api_fail(r, -ENOMEM, "services", NULL);
		return;
	}
	if (!api_query_read(q, r, query))
		return;
	e = store_series(
		a->store, query->matchers, query->matcher_count, &query->range, service_add, &l);
	if (e) {
		api_fail(r, e, "services", NULL);
		return;
	}
	if (l.count)
		qsort(l.views, l.count, sizeof(*l.views), by_service_and_view);
	r->body = BUF_INIT(API_ANSWER_MAX_BYTES);
	services_write(&l, &r->body);
	r->status = 200;
	r->content_type = "application/json";
}

static int series_write(void *data, const struct push_label *labels, size_t count, const char *type,
	const char *unit, int64_t first_ns, int64_t last_ns)
{
	struct buf *out = data;

	(void)buf_append_str(out, out->size > 1 ? ",\n{\"labels\":{" : "{\"labels\":{");
	for (size_t i = 0; i < count; i++) {
		if (i)
			(void)buf_append_char(out, ',');
		(void)str_append_json(out, labels[i].name);
		(void)buf_append_char(out, ':');
		(void)str_append_json(out, labels[i].value);
	}
	(void)buf_append_str(out, "},\"type\":");
	(void)str_append_json(out, type ? type : "");
	(void)buf_append_str(out, ",\"unit\":");
	(void)str_append_json(out, unit ? unit : "");
	return buf_printf(out, ",\"first_unix_ms\":%lld,\"last_unix_ms\":%lld}",
		(long long)(first_ns / 1000000), (long long)(last_ns / 1000000));
}

void api_series(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct api_query *query = arena_alloc(http_arena(q), sizeof(*query));
	int e;

	if (!query) {
		api_fail(r, -ENOMEM, "series", NULL);
		return;
	}
	if (!api_query_read(q, r, query))
		return;
	r->body = BUF_INIT(API_ANSWER_MAX_BYTES);
	(void)buf_append_char(&r->body, '[');
	e = store_series(a->store, query->matchers, query->matcher_count, &query->range,
		series_write, &r->body);
	(void)buf_append_str(&r->body, "]\n");
	r->status = 200;
	r->content_type = "application/json";
	if (e)
		api_fail(r, e, "series", NULL);
}

static int point_write(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	struct buf *out = data;

	return buf_printf(out, "%s[%lld,%lld,%llu]", out->data[out->size - 1] == '[' ? "" : ",",
		(long long)(ts_ns / 1000000), (long long)total, (unsigned long long)profiles);
}

/* {"step_ms":N,"points":[[unix ms, total, profiles],...],"overlapping_windows_left_out":N} */
void api_timeline(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct api_query *query = arena_alloc(http_arena(q), sizeof(*query));
	const char *step_text = http_query(q, "step");
	uint64_t step_ns = 0, left_out = 0;
	int64_t length_ns;
	int e;

	if (!query) {
		api_fail(r, -ENOMEM, "timeline", NULL);
		return;
	}
	if (!api_query_read(q, r, query))
		return;
	length_ns = query->range.end_ns - query->range.start_ns;
	if (!step_text) /* whole seconds */
		step_ns = ((uint64_t)length_ns / POINTS_DEFAULT / NSEC_PER_SEC + 1) * NSEC_PER_SEC;
	else if (str_to_duration_ns(step_text, &step_ns) != 0 || step_ns < NSEC_PER_MSEC ||
		 step_ns > INT64_MAX / 2 || (uint64_t)length_ns / step_ns > POINTS_MAX) {
		http_error(r, 400, "'step' must be a time like 10s that gives at most %d points",
			POINTS_MAX);
		return;
	}
	r->body = BUF_INIT(API_ANSWER_MAX_BYTES);
	(void)buf_printf(&r->body, "{\"step_ms\":%llu,\"points\":[",
		(unsigned long long)(step_ns / NSEC_PER_MSEC));
	e = store_timeline(a->store, query->matchers, query->matcher_count, &query->range,
		(int64_t)step_ns, point_write, &r->body, &left_out);
	(void)buf_printf(&r->body, "],\"overlapping_windows_left_out\":%llu}\n",
		(unsigned long long)left_out);
	r->status = 200;
	r->content_type = "application/json";
	if (e)
		api_fail(r, e, "timeline", NULL);
}
