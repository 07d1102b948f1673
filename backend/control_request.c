/*
 * Profiling requests: made once, become one command per host, are shown with the state of each, are
 * cancelled. The caller may choose the id, so that asking again after a lost answer makes no second one.
 */
#include <errno.h>

#include "backend/control_internal.h"
#include "base/arena.h"
#include "base/def.h"
#include "base/str.h"

enum {
	FREQUENCY_HZ_MAX = 1000,
	DURATION_S_MAX = 7 * 86400,
	DEADLINE_S_MAX = 7 * 86400,
	HOSTS_MAX = 10000,
	HOSTS_DEFAULT = 100,
	REQUEST_ARENA_BYTES = 16 << 20,
	LIST_TEXT_MAX = 1 << 20,
	NAME_MAX_BYTES = 1024, /* of the longest, a cgroup's */
	CANCEL_DEADLINE_MS = 3600000,
};
static const int64_t KEEP_MS = 30 * 86400000LL;

struct request {
	struct buf id, change, view;
	struct buf filters[CONTROL_FILTERS]; /* JSON lists */
	int64_t frequency_hz, duration_s, deadline_s, max_hosts;
	bool dry_run;
};

#define FILTER(key, size_max)                                                         \
	{                                                                             \
#key, size_max, "UPDATE ctl_requests SET " #key " = ?2 WHERE id = ?1" \
	}
const struct control_filter control_filters[CONTROL_FILTERS] = {
	FILTER(pids, 0),
	FILTER(comms, 15), /* the kernel keeps no more of a process's name */
	FILTER(cgroups, NAME_MAX_BYTES),
	FILTER(containers, CONTROL_ID_MAX),
	FILTER(users, 255),
	FILTER(exclude_pids, 0),
	FILTER(exclude_comms, 15),
	FILTER(exclude_cgroups, NAME_MAX_BYTES),
	FILTER(exclude_containers, CONTROL_ID_MAX),
	FILTER(exclude_users, 255),
};

void control_filters_write(sqlite3_stmt *stmt, int first, struct buf *out)
{
	for (int i = 0; i < CONTROL_FILTERS; i++)
		(void)buf_printf(
			out, ",\"%s\":%s", control_filters[i].key, control_column(stmt, first + i));
}

static void request_done(struct request *q)
{
	buf_done(&q->id);
	buf_done(&q->change);
	buf_done(&q->view);
	for (size_t i = 0; i < CONTROL_FILTERS; i++)
		buf_done(&q->filters[i]);
}

/* A list of names of at most max bytes, or of numbers (max 0), written anew as JSON. */
static int list_read(const cJSON *o, const char *key, size_t max, struct buf *why, struct buf *out)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key);
	_cleanup_(buf_done) struct buf text = BUF_INIT(4 * NAME_MAX_BYTES);
	size_t count = 0;
	bool good = !list || cJSON_IsArray(list);

	(void)buf_append_char(out, '[');
	for (const cJSON *v = good && list ? list->child : NULL; v && good; v = v->next) {
		if (count++)
			(void)buf_append_char(out, ',');
		if (count > CONTROL_LIST_MAX) {
			good = false;
		} else if (max == 0) {
			good = cJSON_IsNumber(v) && v->valuedouble >= 1 &&
			       v->valuedouble <= 1 << 30 &&
			       v->valuedouble == (double)(long long)v->valuedouble;
			(void)buf_printf(out, "%lld", good ? (long long)v->valuedouble : 0);
		} else {
			good = cJSON_IsString(v) && v->valuestring[0] &&
			       strlen(v->valuestring) <= max;
			buf_reset(&text);
			if (good)
				(void)str_append_utf8(
					&text, v->valuestring, strlen(v->valuestring), 4 * max);
			(void)str_append_json(out, buf_str(&text));
		}
	}
	(void)buf_append_char(out, ']');
	if (good)
		return buf_error(out);
	if (max == 0)
		(void)buf_printf(why, "'%s' must be a list of at most %d process ids", key,
			CONTROL_LIST_MAX);
	else
		(void)buf_printf(why, "'%s' must be a list of at most %d names of 1..%zu bytes",
			key, CONTROL_LIST_MAX, max);
	return -EINVAL;
}

static void request_init(struct request *q)
{
	*q = (struct request){.id = BUF_INIT(4 * CONTROL_ID_MAX),
		.change = BUF_INIT(4 * CONTROL_ID_MAX),
		.view = BUF_INIT(4 * CONTROL_ID_MAX),
		.frequency_hz = 99,
		.duration_s = 60,
		.deadline_s = 600,
		.max_hosts = HOSTS_DEFAULT};
	for (size_t i = 0; i < CONTROL_FILTERS; i++)
		buf_init(&q->filters[i], LIST_TEXT_MAX);
}

static int lists_read(const cJSON *o, struct request *q, struct buf *why)
{
	int r = 0;

	for (size_t i = 0; !r && i < CONTROL_FILTERS; i++)
		/* A change keeps what it does not mention: that stays empty here. */
		if (q->change.size == 0 || cJSON_HasObjectItem(o, control_filters[i].key))
			r = list_read(o, control_filters[i].key, control_filters[i].size_max, why,
				&q->filters[i]);
	return r;
}

static int ids_read(const cJSON *o, struct request *q, struct buf *why)
{
	int r = control_json_text(o, "id", CONTROL_ID_MAX, why, &q->id);

	if (!r)
		r = control_json_text(o, "change", CONTROL_ID_MAX, why, &q->change);
	if (!r)
		r = control_json_text(o, "view", CONTROL_ID_MAX, why, &q->view);
	if (!r && q->change.size > 0 && (q->id.size > 0 || q->view.size > 0)) {
		(void)buf_append_str(why, "a change has no 'id' and no 'view' of its own");
		return -EINVAL;
	}
	if (!r && q->view.size == 0)
		r = buf_append_str(&q->view, "cpu");
	if (!r && (!control_word(buf_str(&q->view), CONTROL_ID_MAX) ||
			  (q->id.size && !control_word(buf_str(&q->id), CONTROL_ID_MAX)))) {
		(void)buf_append_str(why, "'id' and 'view' are made of letters, digits and -_.:");
		r = -EINVAL;
	}
	return r;
}

/* What is misspelt would else be asked for without: a filter's name wrong, and all is recorded. */
static int keys_check(const cJSON *o, struct buf *why)
{
	static const char *const known[] = {"id", "change", "view", "services", "hosts", "match",
		"frequency_hz", "duration_s", "deadline_s", "max_hosts", "dry_run"};

	for (const cJSON *v = o->child; v; v = v->next) {
		bool is_known = false;

		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			is_known |= strcmp(v->string, known[i]) == 0;
		for (size_t i = 0; i < CONTROL_FILTERS; i++)
			is_known |= strcmp(v->string, control_filters[i].key) == 0;
		if (is_known)
			continue;
		(void)buf_printf(why, "a request knows no '%.64s'", v->string);
		return -EINVAL;
	}
	return 0;
}

static int request_read(const cJSON *o, struct request *q, struct buf *why)
{
	int r = keys_check(o, why);

	if (!r)
		r = ids_read(o, q, why);
	if (!r && q->change.size > 0)
		q->frequency_hz = q->duration_s = -1; /* as it is */
	if (!r)
		r = control_json_int(o, "frequency_hz", 1, FREQUENCY_HZ_MAX, why, &q->frequency_hz);
	if (!r)
		r = control_json_int(o, "duration_s", 0, DURATION_S_MAX, why, &q->duration_s);
	if (!r)
		r = control_json_int(o, "deadline_s", 1, DEADLINE_S_MAX, why, &q->deadline_s);
	if (!r)
		r = control_json_int(o, "max_hosts", 1, HOSTS_MAX, why, &q->max_hosts);
	if (!r)
		r = control_json_bool(o, "dry_run", why, &q->dry_run);
	return r ? r : lists_read(o, q, why);
}

static void head_write(struct buf *out, const char *id, const char *state, bool dry_run,
	int64_t created_ms, int64_t deadline_ms, const char *view, int64_t hz, int64_t duration_s)
{
	(void)buf_printf(out,
		"{\"id\":\"%s\",\"state\":\"%s\",\"dry_run\":%s,\"created_unix_ms\":%lld,"
		"\"deadline_unix_ms\":%lld,\"view\":",
		id, state, dry_run ? "true" : "false", (long long)created_ms,
		(long long)deadline_ms);
	(void)str_append_json(out, view);
	(void)buf_printf(out, ",\"frequency_hz\":%lld,\"duration_s\":%lld", (long long)hz,
		(long long)duration_s);
}

/* The request's state from its start commands: what is furthest from the end decides. */
#define REQUEST_STATE                                                                              \
	" CASE WHEN q.cancelled THEN 'cancelled'"                                                  \
	" WHEN sum(c.state = 'running') THEN 'running' WHEN sum(c.state = 'sent') THEN 'sent'"     \
	" WHEN sum(c.state = 'pending') THEN 'pending' WHEN sum(c.state = 'failed') THEN 'failed'" \
	" WHEN sum(c.state = 'expired') THEN 'expired'"                                            \
	" WHEN sum(c.state = 'cancelled') THEN 'cancelled' ELSE 'done' END "

/* With the lock. -ENOENT. */
static int request_show(struct control *c, const char *id, struct buf *out)
{
	int r = 0;
	bool first = true;
	_cleanup_(control_reset) sqlite3_stmt *head = control_query(c, &r,
		"SELECT q.id," REQUEST_STATE
		", q.created_ms, q.deadline_ms, q.view, q.frequency_hz, q.duration_s,"
		" " CONTROL_FILTER_COLUMNS " FROM ctl_requests q JOIN ctl_commands c ON "
		"c.request = q.id AND c.kind = 'start'"
		" WHERE q.id = ?1 GROUP BY q.id",
		"t", id);
	sqlite3_stmt *row;

	if (!control_row(c, head, &r))
		return r ? r : -ENOENT;
	head_write(out, control_column(head, 0), control_column(head, 1), false,
		sqlite3_column_int64(head, 2), sqlite3_column_int64(head, 3),
		control_column(head, 4), sqlite3_column_int64(head, 5),
		sqlite3_column_int64(head, 6));
	control_filters_write(head, 7, out);
	(void)buf_append_str(out, ",\"commands\":[");
	row = control_query(c, &r,
		"SELECT id, kind, instance, state, updated_ms, host, text FROM ctl_commands"
		" WHERE request = ?1 ORDER BY host, instance, kind <> 'start', kind, updated_ms, "
		"id",
		"t", id);
	for (; control_row(c, row, &r); first = false) {
		(void)buf_printf(out,
			"%s{\"id\":\"%s\",\"kind\":\"%s\",\"instance\":\"%s\",\"state\":\"%s\","
			"\"updated_unix_ms\":%lld,\"host\":",
			first ? "" : ",", control_column(row, 0), control_column(row, 1),
			control_column(row, 2), control_column(row, 3),
			(long long)sqlite3_column_int64(row, 4));
		(void)str_append_json(out, control_column(row, 5));
		(void)buf_append_str(out, ",\"text\":");
		(void)str_append_json(out, control_column(row, 6));
		(void)buf_append_char(out, '}');
	}
	control_reset(&row);
	(void)buf_append_str(out, "]}\n");
	return r ? r : buf_error(out);
}

static int dry_run_show(const struct request *q, const struct control_target *t, size_t count,
	int64_t now_ms, struct buf *out)
{
	head_write(out, "", "dry_run", true, now_ms, now_ms + q->deadline_s * 1000,
		buf_str(&q->view), q->frequency_hz, q->duration_s);
	(void)buf_append_str(out, ",\"commands\":[");
	for (size_t i = 0; i < count; i++) {
		(void)buf_printf(
			out, "%s{\"instance\":\"%s\",\"host\":", i ? "," : "", t[i].instance);
		(void)str_append_json(out, t[i].host);
		(void)buf_append_char(out, '}');
	}
	return buf_append_str(out, "]}\n");
}

static int command_add(struct control *c, const char *request, const struct control_target *t,
	const char *kind, const char *target, int64_t deadline_ms, int64_t now_ms)
{
	char id[33];
	int r = control_random_hex(16, id);

	if (r)
		return r;
	return control_run(c,
		"INSERT INTO ctl_commands VALUES(?1, ?2, ?3, ?4, ?5, ?6, 'pending', '', 0, ?7, 0, "
		"?8)",
		"ttttttii", id, request, t->instance, t->host, kind, target, deadline_ms, now_ms);
}

/* Sets what q has; what is empty text stays. */
static int filters_store(struct control *c, const char *id, const struct request *q)
{
	int r = 0;

	for (size_t i = 0; !r && i < CONTROL_FILTERS; i++)
		if (q->filters[i].size > 0)
			r = control_run(
				c, control_filters[i].set, "tt", id, buf_str(&q->filters[i]));
	return r;
}

static int request_store(struct control *c, struct request *q, const struct control_target *t,
	size_t count, int64_t now_ms)
{
	char id[33];
	int64_t deadline_ms = now_ms + q->deadline_s * 1000;
	int r = 0;

	if (q->id.size == 0) {
		r = control_random_hex(16, id);
		if (!r)
			r = buf_append_str(&q->id, id);
	}
	if (r)
		return r;
	/* Somebody was told that it is asked for, so this commit reaches the disk. */
	control_sync(c, true);
	r = control_begin(c);
	if (!r)
		r = control_run(c,
			"DELETE FROM ctl_commands WHERE request IN (SELECT id FROM ctl_requests"
			" WHERE created_ms < ?1)",
			"i", now_ms - KEEP_MS);
	if (!r)
		r = control_run(
			c, "DELETE FROM ctl_requests WHERE created_ms < ?1", "i", now_ms - KEEP_MS);
	if (!r)
		r = control_run(c,
			"INSERT INTO ctl_requests(id, created_ms, deadline_ms, view, frequency_hz,"
			" duration_s) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
			"tiitii", buf_str(&q->id), now_ms, deadline_ms, buf_str(&q->view),
			q->frequency_hz, q->duration_s);
	if (!r)
		r = filters_store(c, buf_str(&q->id), q);
	for (size_t i = 0; !r && i < count; i++)
		r = command_add(c, buf_str(&q->id), &t[i], "start", "", deadline_ms, now_ms);
	r = control_end(c, r);
	control_sync(c, false);
	return r;
}

/* With the lock. */
static int request_make(struct control *c, const cJSON *o, struct request *q, int64_t now_ms,
	struct buf *out, struct buf *why)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(REQUEST_ARENA_BYTES);
	struct control_target *targets = NULL;
	size_t count = 0;
	int r;

	if (!a)
		return -ENOMEM;
	if (q->id.size > 0) {
		r = request_show(c, buf_str(&q->id), out);
		if (r != -ENOENT)
			return r; /* asked for before */
	}
	r = control_beats_write(c);
	if (!r)
		r = control_match(c, o, now_ms, (size_t)q->max_hosts, a, why, &targets, &count);
	if (r)
		return r;
	if (q->dry_run)
		return dry_run_show(q, targets, count, now_ms, out);
	r = request_store(c, q, targets, count, now_ms);
	return r ? r : request_show(c, buf_str(&q->id), out);
}

/* Sets what q has and keeps the rest. */
static int change_row(struct control *c, const struct request *q)
{
	int r = control_run(c,
		"UPDATE ctl_requests SET"
		" frequency_hz = CASE WHEN ?2 < 0 THEN frequency_hz ELSE ?2 END,"
		" duration_s = CASE WHEN ?3 < 0 THEN duration_s ELSE ?3 END WHERE id = ?1",
		"tii", buf_str(&q->change), q->frequency_hz, q->duration_s);

	return r ? r : filters_store(c, buf_str(&q->change), q);
}

/*
 * Starts that were not handed out go out as the request is now. What an agent has or may have begun
 * gets a change command, unless one waits already: what it says is read when it is handed out.
 */
static int change_commands(struct control *c, const char *id, int64_t deadline_ms, int64_t now_ms)
{
	int r = control_run(c,
		"INSERT INTO ctl_commands SELECT lower(hex(randomblob(16))), request, instance, "
		"host, 'change', id, 'pending', '', 0, ?2, 0, ?3 FROM ctl_commands c"
		" WHERE request = ?1 AND kind = 'start' AND state IN ('sent', 'running')"
		" AND NOT EXISTS (SELECT 1 FROM ctl_commands x WHERE x.target = c.id"
		"  AND x.kind = 'change' AND x.request = c.request AND x.state = 'pending')",
		"tii", id, deadline_ms, now_ms);

	/* The end that we wait for moves, too. */
	if (!r)
		r = control_run(c,
			"UPDATE ctl_commands SET run_until_ms = (SELECT CASE WHEN q.duration_s > 0"
			" THEN max(run_until_ms, ?2 + q.duration_s * 1000 + 300000) ELSE 0 END"
			" FROM ctl_requests q WHERE q.id = request)"
			" WHERE request = ?1 AND kind = 'start' AND state = 'running'",
			"ti", id, now_ms);
	return r;
}

/* -ENOENT; -EINVAL when nothing of it is left to change. */
static int change_check(struct control *c, const char *id, struct buf *why)
{
	int r = 0;
	_cleanup_(control_reset) sqlite3_stmt *stmt = control_query(c, &r,
		"SELECT q.cancelled, (SELECT count(*) FROM ctl_commands WHERE request = q.id"
		" AND kind = 'start' AND state IN ('pending', 'sent', 'running'))"
		" FROM ctl_requests q WHERE q.id = ?1",
		"t", id);

	if (!control_row(c, stmt, &r)) {
		if (!r)
			(void)buf_append_str(why, "'change' names no request");
		return r ? r : -ENOENT;
	}
	if (sqlite3_column_int64(stmt, 0) == 0 && sqlite3_column_int64(stmt, 1) > 0)
		return 0;
	(void)buf_append_str(why, "the request is over: nothing of it is left to change");
	return -EINVAL;
}

/* With the lock. */
static int request_change(struct control *c, const struct request *q, int64_t now_ms,
	struct buf *out, struct buf *why)
{
	const char *id = buf_str(&q->change);
	int r = control_expire(c, NULL, now_ms);

	if (!r)
		r = change_check(c, id, why);
	if (r || q->dry_run)
		return r ? r : request_show(c, id, out);
	control_sync(c, true); /* somebody waits for it */
	r = control_begin(c);
	if (!r)
		r = change_row(c, q);
	if (!r)
		r = change_commands(c, id, now_ms + q->deadline_s * 1000, now_ms);
	r = control_end(c, r);
	control_sync(c, false);
	return r ? r : request_show(c, id, out);
}

int control_request_create(struct control *c, const void *json, size_t size, int64_t now_unix_ns,
	struct buf *out, struct buf *why)
{
	_cleanup_(control_json_freep) cJSON *o = control_json_parse(json, size, why);
	int64_t now_ms = now_unix_ns / 1000000;
	struct request q;
	int r;

	if (!o)
		return -EINVAL;
	request_init(&q);
	r = request_read(o, &q, why);
	if (!r) {
		pthread_mutex_lock(&c->lock);
		r = q.change.size > 0 ? request_change(c, &q, now_ms, out, why)
				      : request_make(c, o, &q, now_ms, out, why);
		pthread_mutex_unlock(&c->lock);
	}
	request_done(&q);
	return r;
}

int control_request_get(struct control *c, const char *id, int64_t now_unix_ns, struct buf *out)
{
	int r;

	pthread_mutex_lock(&c->lock);
	r = control_expire(c, NULL, now_unix_ns / 1000000);
	if (!r)
		r = request_show(c, id, out);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int control_request_list(struct control *c, int64_t now_unix_ns, struct buf *out)
{
	bool first = true;
	int r;

	pthread_mutex_lock(&c->lock);
	r = control_expire(c, NULL, now_unix_ns / 1000000);
	{
		_cleanup_(control_reset) sqlite3_stmt *row = control_query(c, &r,
			"SELECT q.id," REQUEST_STATE ", q.created_ms, q.deadline_ms, q.view, "
			"q.frequency_hz, q.duration_s, count(*),"
			" sum(c.state = 'done'), sum(c.state = 'failed')"
			" FROM ctl_requests q JOIN ctl_commands c ON c.request = q.id AND c.kind = "
			"'start'"
			" GROUP BY q.id ORDER BY q.created_ms DESC, q.id LIMIT 200",
			"");

		(void)buf_append_str(out, "{\"requests\":[");
		for (; control_row(c, row, &r); first = false) {
			(void)buf_append_str(out, first ? "" : ",\n");
			head_write(out, control_column(row, 0), control_column(row, 1), false,
				sqlite3_column_int64(row, 2), sqlite3_column_int64(row, 3),
				control_column(row, 4), sqlite3_column_int64(row, 5),
				sqlite3_column_int64(row, 6));
			(void)buf_printf(out, ",\"hosts\":%lld,\"done\":%lld,\"failed\":%lld}",
				(long long)sqlite3_column_int64(row, 7),
				(long long)sqlite3_column_int64(row, 8),
				(long long)sqlite3_column_int64(row, 9));
		}
		(void)buf_append_str(out, "]}\n");
	}
	pthread_mutex_unlock(&c->lock);
	return r ? r : buf_error(out);
}

/* What was never handed out ends here; what an agent may have begun gets a stop command. */
static int request_stop(struct control *c, const char *id, int64_t now_ms)
{
	static const char text[] = "cancelled before it was sent";
	int r = control_begin(c);

	if (!r)
		r = control_run(c,
			"UPDATE ctl_requests SET cancelled = 1 WHERE id = ?1 AND EXISTS (SELECT 1 "
			"FROM"
			" ctl_commands WHERE request = ?1 AND state IN ('pending', 'sent', "
			"'running'))",
			"t", id);
	if (!r)
		r = control_run(c,
			"UPDATE ctl_commands SET state = 'cancelled', text = ?2, updated_ms = ?3"
			" WHERE request = ?1 AND state = 'pending' AND kind = 'start'",
			"tti", id, text, now_ms);
	if (!r)
		r = control_run(c,
			"INSERT INTO ctl_commands SELECT lower(hex(randomblob(16))), request, "
			"instance, host,"
			" 'stop', id, 'pending', '', 0, ?2, 0, ?3 FROM ctl_commands c"
			" WHERE request = ?1 AND kind = 'start' AND state IN ('sent', 'running')"
			" AND NOT EXISTS (SELECT 1 FROM ctl_commands s WHERE s.target = c.id"
			"  AND s.kind = 'stop' AND s.request = c.request)",
			"tii", id, now_ms + CANCEL_DEADLINE_MS, now_ms);
	return control_end(c, r);
}

int control_request_cancel(struct control *c, const char *id, int64_t now_unix_ns, struct buf *out)
{
	int64_t now_ms = now_unix_ns / 1000000;
	_cleanup_(buf_done) struct buf before = BUF_INIT(out->size_max);
	int r;

	pthread_mutex_lock(&c->lock);
	r = control_expire(c, NULL, now_ms);
	if (!r)
		r = request_show(c, id, &before); /* whether it is there */
	control_sync(c, true);
	if (!r)
		r = request_stop(c, id, now_ms);
	control_sync(c, false);
	if (!r)
		r = request_show(c, id, out);
	pthread_mutex_unlock(&c->lock);
	return r;
}
