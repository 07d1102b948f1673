/*
 * Flame graphs of what matches, merged: GET /api/v1/flamegraph (JSON), .svg, .folded, .pb.gz.
 *
 * JSON, flat so that a hundred thousand frames parse quickly:
 *	{ "type":"cpu", "unit":"nanoseconds", "total":N, "total_text":"N", "start_unix_ms":, "end_unix_ms":,
 *	  "overlapping_windows_left_out":N, "facts":{"KEY":"VALUE"}, "names":["", "main", ...], "kinds":["native", "kernel", ...],
 *	  "fields":["level","offset","total","self","name","module","kind"], "nodes":[0,0,N,0,1,0,0, ...] }
 * nodes holds one value a field, node after node, depth first, siblings by name; the first is the root. name
 * and module are indexes into names, kind into kinds. offset is where the frame starts, in the unit. Sums of
 * nanoseconds over a fleet pass 2^53, where JavaScript's numbers end; total_text is exact.
 */
#include <errno.h>
#include <time.h>

#include "backend/api.h"
#include "base/arena.h"
#include "base/def.h"
#include "base/str.h"
#include "prof/folded.h"
#include "prof/pprof.h"
#include "prof/svg.h"
#include "prof/tree.h"

enum { QUERY_WAIT_S = 10, UTC_MAX = 32 };

enum format { FORMAT_JSON, FORMAT_SVG, FORMAT_FOLDED, FORMAT_PPROF, FORMAT_COUNT };
static const struct {
	const char *name, *content_type, *file;
} formats[FORMAT_COUNT] = {
	[FORMAT_JSON] = {"json", "application/json", NULL},
	[FORMAT_SVG] = {"svg", "image/svg+xml", NULL},
	[FORMAT_FOLDED] = {"folded", "text/plain; charset=utf-8", NULL},
	[FORMAT_PPROF] = {"pb.gz", "application/octet-stream", "profile.pb.gz"},
};

struct json_names {
	uint32_t *index; /* by string id; 0: not written yet */
	uint32_t count;
};

/* The name's index in "names", which it is appended to when it is new. */
static uint32_t name_index(
	struct json_names *n, const struct profile *p, uint32_t string, struct buf *out)
{
	if (string == 0)
		return 0;
	if (!n->index[string]) {
		(void)buf_append_char(out, ',');
		(void)str_append_json(out, profile_text(p, string));
		n->index[string] = n->count++;
	}
	return n->index[string];
}

/* The node after i, depth first; 0 at the end. */
static uint32_t tree_next(const struct tree *t, uint32_t i)
{
	const struct tree_node *n = tree_at(t, i);

	if (n->first_child)
		return n->first_child;
	for (; i != 0; i = n->parent, n = tree_at(t, i))
		if (n->next_sibling)
			return n->next_sibling;
	return 0;
}

static void names_write(
	const struct profile *p, const struct tree *t, struct json_names *n, struct buf *out)
{
	uint32_t i = 0;

	n->count = 2;
	(void)buf_append_str(out, ",\"names\":[\"\",\"all\"");
	while ((i = tree_next(t, i)) != 0) {
		(void)name_index(n, p, tree_at(t, i)->name, out);
		(void)name_index(n, p, tree_at(t, i)->module, out);
	}
	(void)buf_append_str(out, "],\"kinds\":[");
	for (int k = 0; k < FRAME_KIND_COUNT; k++)
		(void)buf_printf(
			out, "%s\"%s\"", k ? "," : "", frame_kind_name((enum frame_kind)k));
	(void)buf_append_char(out, ']');
}

static void nodes_write(
	const struct tree *t, const struct json_names *n, int64_t *offsets, struct buf *out)
{
	uint32_t i = 0;

	(void)buf_append_str(out, ",\"fields\":[\"level\",\"offset\",\"total\",\"self\",\"name\","
				  "\"module\",\"kind\"],\"nodes\":[");
	do {
		const struct tree_node *node = tree_at(t, i);
		int64_t offset = offsets[i];

		for (uint32_t c = node->first_child; c; c = tree_at(t, c)->next_sibling) {
			offsets[c] = offset;
			if (__builtin_add_overflow(offset, tree_at(t, c)->total, &offset))
				offset = INT64_MAX;
		}
		(void)buf_printf(out, "%s%u,%lld,%lld,%lld,%u,%u,%u", i ? "," : "", node->depth,
			(long long)offsets[i], (long long)node->total, (long long)node->self,
			i ? n->index[node->name] : 1, n->index[node->module], node->kind);
		i = tree_next(t, i);
	} while (i != 0);
	(void)buf_append_str(out, "]}\n");
}

static void head_write(const struct profile *p, size_t type, const struct store_range *range,
	int64_t total, struct buf *out)
{
	struct sample_type st = profile_type_at(p, type);
	const char *key;
	const char *value = profile_fact(p, STORE_FACT_LEFT_OUT);

	(void)buf_append_str(out, "{\"type\":");
	(void)str_append_json(out, profile_text(p, st.type));
	(void)buf_append_str(out, ",\"unit\":");
	(void)str_append_json(out, profile_text(p, st.unit));
	(void)buf_printf(out,
		",\"total\":%lld,\"total_text\":\"%lld\",\"start_unix_ms\":%lld,\"end_unix_ms\":%"
		"lld,"
		"\"overlapping_windows_left_out\":%s,\"facts\":{",
		(long long)total, (long long)total, (long long)(range->start_ns / 1000000),
		(long long)(range->end_ns / 1000000), value ? value : "0");
	for (size_t i = 0; profile_fact_at(p, i, &key, &value); i++) {
		(void)buf_append_str(out, i ? "," : "");
		(void)str_append_json(out, key);
		(void)buf_append_char(out, ':');
		(void)str_append_json(out, value);
	}
	(void)buf_append_char(out, '}');
}

static int json_write(const struct profile *p, size_t type, bool with_comm,
	const struct store_range *range, struct buf *out)
{
	_cleanup_(tree_freep) struct tree *t = NULL;
	_cleanup_(arena_freep) struct arena *a = arena_new(API_QUERY_MEMORY_BYTES);
	struct json_names names = {0};
	int64_t *offsets;
	int r = tree_build(p, type, with_comm, &t);

	if (r || !a)
		return r ? r : -ENOMEM;
	names.index = arena_alloc(a, (profile_string_count(p) + 1) * sizeof(*names.index));
	offsets = arena_alloc(a, tree_count(t) * sizeof(*offsets));
	if (!names.index || !offsets)
		return -ENOBUFS;
	head_write(p, type, range, tree_at(t, 0)->total, out);
	names_write(p, t, &names, out);
	nodes_write(t, &names, offsets, out);
	return buf_error(out);
}

/* "2026-12-01 02:22:07" in UTC. */
static void utc_write(int64_t unix_ns, char ret[static UTC_MAX])
{
	time_t t = (time_t)(unix_ns / (int64_t)NSEC_PER_SEC);
	struct tm tm;

	(void)gmtime_r(&t, &tm); /* years of 64-bit nanoseconds always fit */
	(void)strftime(ret, UTC_MAX, "%Y-%m-%d %H:%M:%S", &tm); /* fits */
}

static int svg_make(const struct profile *p, size_t type, bool with_comm, const char *title,
	const struct store_range *range, struct buf *out)
{
	char subtitle[256];
	char human[STR_HUMAN_MAX], until[UTC_MAX];
	const char *left_out = profile_fact(p, STORE_FACT_LEFT_OUT);
	struct svg_options o = {
		.type = type, .title = title, .subtitle = subtitle, .with_comm = with_comm};

	utc_write(range->end_ns, until);
	(void)snprintf(subtitle, sizeof(subtitle), "%s until %s UTC%s%s%s",
		str_human_ns((uint64_t)(range->end_ns - range->start_ns), human), until,
		left_out ? ", " : "", left_out ? left_out : "",
		left_out ? " windows left out because others cover their time" : "");
	return svg_write(p, &o, out);
}

static int graph_write(const struct profile *p, enum format f, bool with_comm, const char *title,
	const struct store_range *range, struct buf *out)
{
	size_t type = profile_default_type(p);
	struct folded_options folded = {.type = type, .with_comm = with_comm};

	if (profile_type_count(p) == 0 && f == FORMAT_JSON) {
		(void)buf_append_str(out,
			"{\"type\":\"\",\"unit\":\"\",\"total\":0,\"total_text\":\"0\","
			"\"overlapping_windows_left_out\":0,\"facts\":{},\"names\":[\"\",\"all\"],"
			"\"kinds\":[],\"fields\":"
			"[\"level\",\"offset\",\"total\",\"self\",\"name\",\"module\","
			"\"kind\"],\"nodes\":[0,0,0,0,1,0,0]}\n");
		return buf_error(out);
	}
	if (profile_type_count(p) == 0 && f == FORMAT_FOLDED)
		return 0;
	switch (f) {
	case FORMAT_SVG:
		return svg_make(p, type, with_comm, title, range, out);
	case FORMAT_FOLDED:
		return folded_write(p, &folded, out);
	case FORMAT_PPROF:
		return pprof_write(p, out);
	default:
		return json_write(p, type, with_comm, range, out);
	}
}

/* By the path's suffix, which is http_tail's, or format=. */
static bool format_read(const struct http_request *q, struct http_response *r, enum format *ret)
{
	const char *name = http_tail(q);

	if (!*name)
		name = http_query(q, "format");
	if (!name || !*name)
		name = "json";
	for (size_t i = 0; i < FORMAT_COUNT; i++)
		if (strcmp(formats[i].name, name) == 0) {
			*ret = (enum format)i;
			return true;
		}
	http_error(r, 400, "the format must be json, svg, folded or pb.gz");
	return false;
}

static bool query_slot_take(struct api *a)
{
	struct timespec until;
	int r;

	if (sem_trywait(&a->query_slots) == 0)
		return true;
	if (atomic_fetch_add(&a->queries_waiting, 1) >= API_QUERIES_WAITING_MAX) {
		a->queries_waiting--;
		return false;
	}
	(void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail */
	until.tv_sec += QUERY_WAIT_S;
	do
		r = sem_timedwait(&a->query_slots, &until);
	while (r < 0 && errno == EINTR);
	a->queries_waiting--;
	return r == 0;
}

void api_flamegraph(void *app, struct http_request *q, struct http_response *r)
{
	struct api *a = app;
	struct api_query *query = arena_alloc(http_arena(q), sizeof(*query));
	const char *comm = http_query(q, "comm");
	const char *title = http_query(q, "title");
	enum format f;
	_cleanup_(profile_freep) struct profile *p = NULL;
	int e;

	if (!query) {
		api_fail(r, -ENOMEM, "flame graph", NULL);
		return;
	}
	if (!format_read(q, r, &f) || !api_query_read(q, r, query))
		return;
	if (!query_slot_take(a)) {
		a->queries_refused++;
		api_fail(r, -EAGAIN, "flame graph", "too many queries are under way");
		return;
	}
	a->queries++;
	e = store_flamegraph(a->store, query->matchers, query->matcher_count, &query->range,
		API_QUERY_MEMORY_BYTES, &p);
	r->body = BUF_INIT(API_ANSWER_MAX_BYTES);
	if (!e)
		e = graph_write(
			p, f, comm && strcmp(comm, "1") == 0, title, &query->range, &r->body);
	(void)sem_post(&a->query_slots); /* below its maximum */
	if (e) {
		api_fail(r, e, "flame graph",
			e == -ENOBUFS
				? "more than fits in memory matches; narrow the range or the query"
				: NULL);
		return;
	}
	r->status = 200;
	r->content_type = formats[f].content_type;
	r->disposition = formats[f].file;
	if (f == FORMAT_SVG)
		r->policy = api_page_svg_policy();
}
