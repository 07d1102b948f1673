/*
 * POST /push.v1.PusherService/Push: all of a request is stored or none of it. The answer waits for the
 * commit, so what was acknowledged is on disk, and a sender that saw no answer sends the same ids again. The
 * message is protobuf or, as the Connect protocol has it, JSON (push_json.h).
 *
 * Memory: what a profile may take once decoded is reserved before, twenty times its size on the wire first,
 * which real ones stay under, and the most that one may have when that is not enough. Bombs are refused
 * there; together requests never have more than API_MEMORY_MAX_BYTES.
 */
#include <errno.h>
#include <strings.h>

#include "backend/api.h"
#include "backend/push_json.h"
#include "base/arena.h"
#include "base/def.h"
#include "prof/pprof.h"

enum {
	PUSH_ARENA_BYTES = 64 << 20,
	PUSH_PROFILE_BASE_BYTES = 64 << 10,
	PUSH_PROFILE_FACTOR = 20,
	PUSH_TIMEOUT_MS = 20000,
};

struct push {
	struct api *api;
	struct push_request request;
	struct store_push *items;
	struct profile **profiles;
	enum store_outcome *outcomes;
	size_t count;
	size_t reserved;
	struct buf message; /* of a JSON body, as protobuf */
	const char *why;
};

static void push_done(struct push *p)
{
	for (size_t i = 0; i < p->count; i++)
		profile_free(p->profiles[i]);
	buf_done(&p->message);
	api_release(p->api, p->reserved);
}

static int reserve(struct push *p, size_t bytes)
{
	if (!api_reserve(p->api, bytes)) {
		p->why = "too much is under way";
		return -EBUSY;
	}
	p->reserved += bytes;
	return 0;
}

static int read_profile(struct push *p, const struct push_sample *s, struct profile **ret)
{
	size_t first = PUSH_PROFILE_BASE_BYTES + PUSH_PROFILE_FACTOR * s->profile_size;
	int r;

	if (first > API_PROFILE_MEMORY_BYTES)
		first = API_PROFILE_MEMORY_BYTES;
	r = reserve(p, first);
	if (!r)
		r = pprof_read(s->profile, s->profile_size, first, &p->why, ret);
	if ((r != -EFBIG && r != -ENOBUFS) || first == API_PROFILE_MEMORY_BYTES)
		return r == -ENOBUFS ? -EFBIG : r;
	r = reserve(p, API_PROFILE_MEMORY_BYTES - first);
	if (!r)
		r = pprof_read(s->profile, s->profile_size, API_PROFILE_MEMORY_BYTES, &p->why, ret);
	return r == -ENOBUFS ? -EFBIG : r;
}

static int read_series(struct push *p, const struct push_series *s, int64_t now_ns)
{
	const char *service = push_label(s, "service_name");
	const char *view = push_label(s, "__name__");

	if (!service || !*service || !view || !*view) {
		p->why = "a series needs the labels service_name and __name__";
		return -EBADMSG;
	}
	for (size_t i = 0; i < s->sample_count; i++) {
		int r = read_profile(p, &s->samples[i], &p->profiles[p->count]);

		if (r)
			return r;
		p->items[p->count] = (struct store_push){.labels = s->labels,
			.label_count = s->label_count,
			.profile = p->profiles[p->count],
			.window_id = s->samples[i].id ? s->samples[i].id : "",
			.received_unix_ns = now_ns};
		p->count++;
	}
	return 0;
}

static int read_all(struct push *p, const void *body, size_t size, struct arena *a)
{
	int64_t now_ns = api_now_unix_ns();
	size_t samples = 0;
	int r = push_read(body, size, a, &p->why, &p->request);

	if (r)
		return r;
	for (size_t i = 0; i < p->request.series_count; i++)
		samples += p->request.series[i].sample_count;
	p->items = arena_alloc(a, (samples + 1) * sizeof(*p->items));
	p->profiles = arena_alloc(a, (samples + 1) * sizeof(struct profile *));
	p->outcomes = arena_alloc(a, (samples + 1) * sizeof(*p->outcomes));
	if (!p->items || !p->profiles || !p->outcomes)
		return -ENOMEM;
	for (size_t i = 0; !r && i < p->request.series_count; i++)
		r = read_series(p, &p->request.series[i], now_ns);
	return r;
}

/* Which host runs what, for profiling requests by service. It is known again with the next push. */
static void note_services(struct push *p)
{
	for (size_t i = 0; i < p->request.series_count; i++) {
		const struct push_series *s = &p->request.series[i];
		const char *host = push_label(s, "host");

		if (host && *host)
			(void)control_host_seen_service(p->api->control, host,
				push_label(s, "service_name"), api_now_unix_ns());
	}
}

enum codec { CODEC_NONE, CODEC_PROTO, CODEC_JSON };

static enum codec codec_of(const struct http_request *q)
{
	static const struct {
		const char *type;
		enum codec codec;
	} types[] = {{"application/proto", CODEC_PROTO}, {"application/x-protobuf", CODEC_PROTO},
		{"application/json", CODEC_JSON}};
	const char *type = http_header(q, "Content-Type");
	size_t size = type ? strcspn(type, "; ") : 0;

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (size == strlen(types[i].type) && strncasecmp(type, types[i].type, size) == 0)
			return types[i].codec;
	}
	return CODEC_NONE;
}

/* What cJSON and the message take beside the body is reserved with it. */
static int read_json(struct push *p, const void *body, size_t size, struct arena *a)
{
	int r = reserve(p, 2 * size);

	if (r == 0)
		r = push_json_read(body, size, &p->why, &p->message);
	if (r == 0)
		r = read_all(p, buf_str(&p->message), p->message.size, a);
	return r == -ENOBUFS ? -EFBIG : r;
}

void api_push(void *app, struct http_request *q, struct http_response *r)
{
	struct push p = {.api = app, .message = BUF_INIT(API_PUSH_BODY_MAX_BYTES)};
	_cleanup_(arena_freep) struct arena *a = arena_new(PUSH_ARENA_BYTES);
	enum codec codec = codec_of(q);
	size_t size;
	const void *body = http_body(q, &size);
	int e = -ENOMEM;

	if (codec == CODEC_NONE) {
		http_error(r, 415, "Content-Type must be application/proto or application/json");
		return;
	}
	if (a)
		e = codec == CODEC_JSON ? read_json(&p, body, size, a)
					: read_all(&p, body, size, a);
	if (!e && p.count > 0)
		e = store_push(p.api->store, p.items, p.count, PUSH_TIMEOUT_MS, p.outcomes);
	if (e) {
		p.api->push_refused++;
		api_fail(r, e, "push", p.why);
	} else {
		note_services(&p);
		p.api->push_profiles += p.count;
		p.api->push_bytes += size;
		r->status = 200;
		r->content_type = "application/proto";
		if (codec == CODEC_JSON) {
			r->content_type = "application/json";
			r->body = BUF_INIT(16);
			(void)buf_append_str(&r->body, "{}");
		}
	}
	push_done(&p);
}
