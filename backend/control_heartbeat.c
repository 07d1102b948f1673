/*
 * Heartbeats: what a host says about itself is kept (its last word only), its acknowledgements move
 * the states of its commands, and it is handed the commands that wait for it. Leases: a command that was
 * handed out and not acknowledged in two intervals is handed out again, with the same id; agents keep
 * the ids they know, so nothing runs twice.
 *
 * Whether a host is alive is a matter of the server's clock; the host's own is shown as skew.
 */
#include <errno.h>

#include "backend/control_internal.h"
#include "base/def.h"
#include "base/str.h"

enum {
	CAN_MAX = 64,
	ACKS_MAX = 1024,
};

static const int64_t TIME_MS_MAX = 1LL << 52; /* whole in a double */

static void beat_init(struct control_beat *b)
{
	struct buf *all[] = {&b->host, &b->instance, &b->boot_id, &b->version, &b->kernel, &b->arch,
		&b->state, &b->state_text};

	*b = (struct control_beat){.can = BUF_INIT(65536)};
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		*all[i] = BUF_INIT(4 * CONTROL_TEXT_MAX);
}

static int read_texts(const cJSON *o, struct control_beat *b, struct buf *why)
{
	const struct {
		const char *key;
		size_t max;
		struct buf *to;
	} texts[] = {
		{"host", CONTROL_NAME_MAX, &b->host},
		{"instance", CONTROL_ID_MAX, &b->instance},
		{"boot_id", CONTROL_ID_MAX, &b->boot_id},
		{"agent_version", CONTROL_ID_MAX, &b->version},
		{"kernel", CONTROL_NAME_MAX, &b->kernel},
		{"arch", CONTROL_ID_MAX, &b->arch},
		{"state", CONTROL_ID_MAX, &b->state},
		{"state_text", CONTROL_TEXT_MAX, &b->state_text},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		int r = control_json_text(o, texts[i].key, texts[i].max, why, texts[i].to);

		if (r)
			return r;
	}
	if (b->host.size == 0) {
		(void)buf_append_str(why, "'host' is missing");
		return -EINVAL;
	}
	if (!control_word(buf_str(&b->instance), CONTROL_ID_MAX)) {
		(void)buf_append_str(why, "'instance' must be letters, digits and '-'");
		return -EINVAL;
	}
	if (strcmp(buf_str(&b->state), "dormant") != 0 &&
		strcmp(buf_str(&b->state), "profiling") != 0 &&
		strcmp(buf_str(&b->state), "error") != 0) {
		(void)buf_append_str(why, "'state' must be dormant, profiling or error");
		return -EINVAL;
	}
	return 0;
}

static int read_numbers(const cJSON *o, struct control_beat *b, struct buf *why)
{
	const cJSON *own = cJSON_GetObjectItemCaseSensitive(o, "own");
	const cJSON *losses = cJSON_GetObjectItemCaseSensitive(o, "losses");
	const cJSON *spool = cJSON_GetObjectItemCaseSensitive(o, "spool");
	const struct {
		const cJSON *in;
		const char *key;
		int64_t *to;
	} numbers[] = {
		{own, "cpu_ns", &b->words.cpu_ns},
		{own, "rss_bytes", &b->words.rss},
		{own, "kernel_bytes", &b->words.kernel_bytes},
		{own, "uptime_ns", &b->words.uptime_ns},
		{losses, "samples", &b->words.lost},
		{losses, "windows_dropped", &b->words.dropped},
		{spool, "windows", &b->words.spool_windows},
		{spool, "bytes", &b->words.spool_bytes},
	};
	int64_t time_ms = 0;
	int r = control_json_int(o, "cpus", 0, 1 << 20, why, &b->cpus);

	if (!r)
		r = control_json_int(o, "time_unix_ms", -TIME_MS_MAX, TIME_MS_MAX, why, &time_ms);
	b->words.skew_ms = b->words.received_ms - time_ms;
	for (size_t i = 0; !r && i < ARRAY_SIZE(numbers); i++)
		r = control_json_int(
			numbers[i].in, numbers[i].key, 0, INT64_MAX / 2, why, numbers[i].to);
	return r;
}

/* {"view": "ok or why not"}, written anew so that only what we understand is kept. */
static int read_can(const cJSON *o, struct control_beat *b, struct buf *why)
{
	const cJSON *can = cJSON_GetObjectItemCaseSensitive(o, "can");
	_cleanup_(buf_done) struct buf text = BUF_INIT(4 * CONTROL_TEXT_MAX);
	size_t count = 0;

	(void)buf_append_char(&b->can, '{');
	for (const cJSON *v = can ? can->child : NULL; v; v = v->next) {
		if (!v->string || !control_word(v->string, CONTROL_ID_MAX) || !cJSON_IsString(v) ||
			count == CAN_MAX) {
			(void)buf_append_str(why, "'can' must name views with a text each");
			return -EINVAL;
		}
		buf_reset(&text);
		(void)str_append_utf8(
			&text, v->valuestring, strlen(v->valuestring), CONTROL_TEXT_MAX);
		(void)buf_printf(&b->can, "%s\"%s\":", count++ ? "," : "", v->string);
		(void)str_append_json(&b->can, buf_str(&text));
	}
	(void)buf_append_char(&b->can, '}');
	return buf_error(&b->can);
}

static int ack_one(
	struct control *c, const cJSON *ack, const char *instance, int64_t now_ms, struct buf *why)
{
	static const char *const states[] = {"running", "done", "failed", "cancelled"};
	_cleanup_(buf_done) struct buf id = BUF_INIT(4 * CONTROL_ID_MAX);
	_cleanup_(buf_done) struct buf state = BUF_INIT(4 * CONTROL_ID_MAX);
	_cleanup_(buf_done) struct buf text = BUF_INIT(4 * CONTROL_TEXT_MAX);
	bool known = false;
	int r = control_json_text(ack, "id", CONTROL_ID_MAX, why, &id);

	if (!r)
		r = control_json_text(ack, "state", CONTROL_ID_MAX, why, &state);
	if (!r)
		r = control_json_text(ack, "text", CONTROL_TEXT_MAX, why, &text);
	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		known = known || strcmp(states[i], buf_str(&state)) == 0;
	if (!r && !known) {
		(void)buf_append_str(
			why, "an ack's state must be running, done, failed or cancelled");
		r = -EINVAL;
	}
	if (r)
		return r;
	/* What is over stays over, except that what we gave up on may still report. */
	return control_run(c,
		"UPDATE ctl_commands SET state = ?3, text = ?4, updated_ms = ?5,"
		" run_until_ms = CASE WHEN ?3 = 'running' THEN (SELECT CASE WHEN q.duration_s > 0"
		"  THEN ?5 + q.duration_s * 1000 + 300000 ELSE 0 END FROM ctl_requests q"
		"  WHERE q.id = request) ELSE run_until_ms END"
		" WHERE id = ?1 AND instance = ?2 AND state NOT IN ('done', 'failed', 'cancelled')"
		" AND (state <> ?3 OR text <> ?4)",
		"tttti", buf_str(&id), instance, buf_str(&state), buf_str(&text), now_ms);
}

static int acks(
	struct control *c, const cJSON *o, const char *instance, int64_t now_ms, struct buf *why)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "acks");
	size_t count = 0;

	if (list && !cJSON_IsArray(list)) {
		(void)buf_append_str(why, "'acks' must be a list");
		return -EINVAL;
	}
	for (const cJSON *ack = list ? list->child : NULL; ack; ack = ack->next) {
		int r;

		if (++count > ACKS_MAX) {
			(void)buf_append_str(why, "too many acks");
			return -EINVAL;
		}
		r = ack_one(c, ack, instance, now_ms, why);
		if (r)
			return r;
	}
	return 0;
}

static void command_write(sqlite3_stmt *stmt, bool first, struct buf *out)
{
	(void)buf_printf(out,
		"%s{\"id\":\"%s\",\"kind\":\"%s\",\"target\":\"%s\",\"view\":", first ? "" : ",",
		control_column(stmt, 0), control_column(stmt, 1), control_column(stmt, 2));
	(void)str_append_json(out, control_column(stmt, 3));
	(void)buf_printf(out, ",\"frequency_hz\":%lld,\"duration_s\":%lld",
		(long long)sqlite3_column_int64(stmt, 4), (long long)sqlite3_column_int64(stmt, 5));
	control_filters_write(stmt, 7, out);
	(void)buf_printf(
		out, ",\"deadline_unix_ms\":%lld}", (long long)sqlite3_column_int64(stmt, 6));
}

/* A change can come too late. */
static int fail_late_changes(struct control *c, const char *instance, int64_t now_ms)
{
	return control_run(c,
		"UPDATE ctl_commands SET state = 'failed', text = 'the recording ended first',"
		" updated_ms = ?2 WHERE instance = ?1 AND state = 'pending' AND kind = 'change'"
		" AND NOT EXISTS (SELECT 1 FROM ctl_commands t WHERE t.id = ctl_commands.target"
		"  AND t.state IN ('sent', 'running'))",
		"ti", instance, now_ms);
}

/*
 * Hands out what waits for the instance. Stops go first: they end what may be in the way. A change
 * waits until its recording is known to run.
 */
static int commands_lease(struct control *c, const char *instance, int64_t now_ms, struct buf *out)
{
	char ids[CONTROL_COMMANDS_PER_BEAT_MAX][CONTROL_ID_MAX + 1];
	size_t count = 0;
	int r = 0;
	sqlite3_stmt *stmt = control_query(c, &r,
		"SELECT c.id, c.kind, c.target, q.view, q.frequency_hz, q.duration_s, "
		"c.deadline_ms, " CONTROL_FILTER_COLUMNS " FROM ctl_commands c JOIN ctl_requests q "
		"ON q.id = "
		"c.request"
		" WHERE c.instance = ?1 AND (c.state = 'pending' OR (c.state = 'sent' AND "
		"c.lease_ms < ?2))"
		" AND (c.kind = 'stop' OR NOT q.cancelled)"
		" AND (c.kind <> 'change' OR EXISTS (SELECT 1 FROM ctl_commands t"
		"  WHERE t.id = c.target AND t.state = 'running'))"
		" ORDER BY c.kind DESC, c.updated_ms, c.id LIMIT 16",
		"ti", instance, now_ms);

	while (count < CONTROL_COMMANDS_PER_BEAT_MAX && control_row(c, stmt, &r)) {
		command_write(stmt, count == 0, out);
		(void)snprintf(
			ids[count++], sizeof(ids[0]), "%s", control_column(stmt, 0)); /* fits */
	}
	control_reset(&stmt);
	for (size_t i = 0; !r && i < count; i++)
		r = control_run(c,
			"UPDATE ctl_commands SET state = 'sent', lease_ms = ?2, updated_ms = ?3 "
			"WHERE id = ?1",
			"tii", ids[i], now_ms + 2000LL * c->interval_s, now_ms);
	return r;
}

static void reply_begin(const struct control *c, int64_t now_ms, struct buf *out)
{
	(void)buf_printf(out,
		"{\"schema\":\"flame-heartbeat-reply/1\",\"time_unix_ms\":%lld,\"interval_s\":%u,"
		"\"wanted_version\":",
		(long long)now_ms, c->interval_s);
	(void)str_append_json(out, c->wanted_version);
	(void)buf_append_str(out, ",\"commands\":[");
}

/* A beat that brings acknowledgements or may be given commands: on disk before it is answered. */
static int beat_store(struct control *c, const cJSON *o, const struct control_beat *b,
	struct buf *out, struct buf *why)
{
	const char *instance = buf_str(&b->instance);
	int64_t now_ms = b->words.received_ms;
	int64_t hosts = c->host_count;
	int r = control_begin(c);

	if (!r)
		r = control_beats_put(c, b);
	if (!r)
		r = acks(c, o, instance, now_ms, why);
	if (!r)
		r = control_expire(c, instance, now_ms);
	if (!r)
		r = fail_late_changes(c, instance, now_ms);
	reply_begin(c, now_ms, out);
	if (!r)
		r = commands_lease(c, instance, now_ms, out);
	(void)buf_append_str(out, "]}\n");
	if (!r)
		r = buf_error(out);
	r = control_end(c, r);
	if (r)
		c->host_count = hosts;
	else
		control_beats_done(c, b);
	return r;
}

static int beat_answer(
	struct control *c, const cJSON *o, struct control_beat *b, struct buf *out, struct buf *why)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "acks");

	if ((list && (!cJSON_IsArray(list) || list->child)) || !control_beats_is_quiet(c, b))
		return beat_store(c, o, b, out, why);
	reply_begin(c, b->words.received_ms, out);
	(void)buf_append_str(out, "]}\n");
	return buf_error(out) ? buf_error(out) : control_beats_add(c, b);
}

int control_heartbeat(struct control *c, const void *json, size_t size, int64_t now_unix_ns,
	struct buf *out, struct buf *why)
{
	_cleanup_(control_json_freep) cJSON *o = control_json_parse(json, size, why);
	const cJSON *schema = cJSON_GetObjectItemCaseSensitive(o, "schema");
	struct control_beat b;
	int r;

	if (!o)
		return -EINVAL;
	if (!cJSON_IsString(schema) || strcmp(schema->valuestring, "flame-heartbeat/1") != 0) {
		(void)buf_append_str(why, "'schema' must be flame-heartbeat/1");
		return -EINVAL;
	}
	beat_init(&b);
	b.words.received_ms = now_unix_ns / 1000000;
	r = read_texts(o, &b, why);
	if (!r)
		r = read_numbers(o, &b, why);
	if (!r)
		r = read_can(o, &b, why);
	if (!r) {
		pthread_mutex_lock(&c->lock);
		r = beat_answer(c, o, &b, out, why);
		pthread_mutex_unlock(&c->lock);
	}
	control_beat_done(&b);
	return r;
}

static void host_write(
	struct control *c, sqlite3_stmt *s, bool first, int64_t now_ms, struct buf *out)
{
	static const char *const texts[] = {"host", "instance", "boot_id", "agent_version",
		"kernel", "arch", "state", "state_text"};
	struct control_words w = {
		.cpu_ns = sqlite3_column_int64(s, 10),
		.rss = sqlite3_column_int64(s, 11),
		.kernel_bytes = sqlite3_column_int64(s, 12),
		.uptime_ns = sqlite3_column_int64(s, 13),
		.lost = sqlite3_column_int64(s, 14),
		.dropped = sqlite3_column_int64(s, 15),
		.spool_windows = sqlite3_column_int64(s, 16),
		.spool_bytes = sqlite3_column_int64(s, 17),
		.skew_ms = sqlite3_column_int64(s, 18),
		.received_ms = sqlite3_column_int64(s, 19),
	};

	control_beats_words(c, control_column(s, 1), &w);
	(void)buf_append_str(out, first ? "{" : ",\n{");
	for (int i = 0; i < (int)ARRAY_SIZE(texts); i++) {
		(void)buf_printf(out, "\"%s\":", texts[i]);
		(void)str_append_json(out, control_column(s, i));
		(void)buf_append_char(out, ',');
	}
	(void)buf_printf(out,
		"\"can\":%s,\"cpus\":%lld,\"own\":{\"cpu_ns\":%lld,\"rss_bytes\":%lld,\"kernel_"
		"bytes\":%lld,"
		"\"uptime_ns\":%lld},\"losses\":{\"samples\":%lld,\"windows_dropped\":%lld},"
		"\"spool\":{\"windows\":%lld,\"bytes\":%lld},\"skew_ms\":%lld,"
		"\"last_heartbeat_unix_ms\":%lld,\"age_ms\":%lld,\"alive\":%s,\"services\":",
		control_column(s, 8), (long long)sqlite3_column_int64(s, 9), (long long)w.cpu_ns,
		(long long)w.rss, (long long)w.kernel_bytes, (long long)w.uptime_ns,
		(long long)w.lost, (long long)w.dropped, (long long)w.spool_windows,
		(long long)w.spool_bytes, (long long)w.skew_ms, (long long)w.received_ms,
		(long long)(now_ms - w.received_ms),
		now_ms - w.received_ms <= 3000LL * c->interval_s ? "true" : "false");
	(void)buf_append_str(out, control_column(s, 20));
	(void)buf_append_str(out, ",\"wanted_version\":");
	(void)str_append_json(out, c->wanted_version);
	(void)buf_append_char(out, '}');
}

int control_hosts(struct control *c, int64_t now_unix_ns, const char *after, unsigned int limit,
	struct buf *out)
{
	int64_t now_ms = now_unix_ns / 1000000;
	bool first = true;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	r = control_beats_write(c);
	if (!r) {
		_cleanup_(control_reset) sqlite3_stmt *stmt = control_query(c, &r,
			"SELECT host, instance, boot_id, agent_version, kernel, arch, state, "
			"state_text, can, cpus,"
			" cpu_ns, rss_bytes, kernel_bytes, uptime_ns, lost_samples, "
			"windows_dropped,"
			" spool_windows, spool_bytes, skew_ms, last_ms,"
			" (SELECT json_group_array(service) FROM (SELECT service FROM "
			"ctl_host_services s"
			"  WHERE s.host = h.host ORDER BY service LIMIT 200))"
			" FROM ctl_hosts h WHERE ?1 = '' OR (host, instance) >"
			" (SELECT host, instance FROM ctl_hosts WHERE instance = ?1)"
			" ORDER BY host, instance LIMIT ?2",
			"ti", after, limit ? (int64_t)limit : INT64_C(-1));

		(void)buf_append_char(out, '[');
		while (control_row(c, stmt, &r)) {
			host_write(c, stmt, first, now_ms, out);
			first = false;
		}
		(void)buf_append_str(out, "]\n");
	}
	pthread_mutex_unlock(&c->lock);
	return r ? r : buf_error(out);
}
