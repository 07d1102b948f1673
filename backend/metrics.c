/* GET /metrics: what the server, the store and the control part count, in Prometheus' text format 0.0.4. */
#include "backend/api.h"
#include "base/def.h"

enum { METRICS_MAX_BYTES = 64 << 10 };

static void line(
	struct buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
	(void)buf_printf(out, "# HELP flame_%s %s\n# TYPE flame_%s %s\nflame_%s %llu\n", name, help,
		name, type, name, (unsigned long long)value);
}

static void http_lines(const struct http_stats *h, struct buf *out)
{
	line(out, "http_requests_total", "counter", "Requests answered.", h->requests);
	line(out, "http_errors_4xx_total", "counter", "Answers that blame the peer.",
		h->errors_4xx);
	line(out, "http_errors_5xx_total", "counter", "Answers that blame us.", h->errors_5xx);
	line(out, "http_received_bytes_total", "counter", "Bytes of bodies received.", h->bytes_in);
	line(out, "http_sent_bytes_total", "counter", "Bytes of bodies sent.", h->bytes_out);
	line(out, "http_connections", "gauge", "Open connections.", h->connections);
	line(out, "http_refused_busy_total", "counter", "Requests refused for lack of room.",
		h->refused_busy);
	line(out, "http_closed_slow_total", "counter", "Connections closed at their deadline.",
		h->closed_slow);
	line(out, "http_evicted_idle_total", "counter", "Idle connections closed to make room.",
		h->evicted_idle);
}

static void store_lines(const struct store_stats *s, struct buf *out)
{
	line(out, "store_profiles_total", "counter", "Profiles stored.", s->pushed);
	line(out, "store_duplicates_total", "counter", "Profiles that were there already.",
		s->duplicates);
	line(out, "store_samples_total", "counter", "Samples stored.", s->samples);
	line(out, "store_commits_total", "counter", "Group commits.", s->commits);
	line(out, "store_bytes", "gauge", "Bytes of all data files.", s->bytes);
	line(out, "store_files", "gauge", "Data files.", s->files);
	line(out, "store_files_damaged_total", "counter",
		"Damaged data files set aside, whose profiles are no longer served.",
		s->files_damaged);
	line(out, "store_rollups_total", "counter", "Roll-up files made.", s->rollups_made);
	line(out, "store_clamped_total", "counter",
		"Profiles whose time was moved to the received one.", s->clamped);
	line(out, "store_refused_full_total", "counter", "Pushes refused by the disk guard.",
		s->refused_full);
	line(out, "store_refused_busy_total", "counter", "Pushes refused by a full queue.",
		s->refused_busy);
	line(out, "store_queue_depth", "gauge", "Pushes that wait for the writer.", s->queue_depth);
	line(out, "store_stacks", "gauge", "Stacks in the dictionary.", s->dict_stacks);
}

int metrics_write(struct api *a, struct buf *out)
{
	struct store_stats s = store_stats(a->store);
	const struct http_server *server = a->server;
	struct http_stats h = {0};

	if (server)
		h = http_stats(server);
	http_lines(&h, out);
	store_lines(&s, out);
	line(out, "push_profiles_total", "counter", "Profiles acknowledged.", a->push_profiles);
	line(out, "push_bytes_total", "counter", "Bytes of acknowledged pushes.", a->push_bytes);
	line(out, "push_refused_total", "counter", "Pushes refused, for any reason.",
		a->push_refused);
	line(out, "push_memory_bytes", "gauge", "Memory reserved by pushes under way.",
		a->memory_bytes);
	line(out, "heartbeats_total", "counter", "Heartbeats received.", a->heartbeats);
	line(out, "queries_total", "counter", "Flame graphs made.", a->queries);
	line(out, "queries_refused_total", "counter", "Flame graphs refused as too many.",
		a->queries_refused);
	line(out, "start_time_unix_seconds", "gauge", "When this process started.",
		(uint64_t)(a->started_unix_ns / (int64_t)NSEC_PER_SEC));
	return buf_error(out);
}

void api_metrics(void *app, struct http_request *q, struct http_response *r)
{
	(void)q;
	r->body = BUF_INIT(METRICS_MAX_BYTES);
	(void)metrics_write(app, &r->body); /* the server checks the buffer */
	r->status = 200;
	r->content_type = "text/plain; version=0.0.4; charset=utf-8";
}
