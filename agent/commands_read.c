/*
 * A heartbeat's answer. The backend may be anybody who got hold of it, so every number has its
 * bounds, every text its length, and nothing here becomes a path or an argument of a shell.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>

#include "agent/cgroup.h"
#include "agent/commands.h"
#include "agent/events.h"
#include "base/def.h"
#include "base/str.h"

#define TIME_UNIX_MS_MAX 1e15
#define PID_MAX_VALUE    4194304.0
#define INTERVAL_MIN_S   1.0
#define INTERVAL_MAX_S   3600.0

/* A number in min..max, def when absent. False: something else stands there. */
static bool number(const cJSON *o, const char *key, double min, double max, double def, double *ret)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!v || cJSON_IsNull(v)) {
		*ret = def;
		return true;
	}
	if (!cJSON_IsNumber(v) || !(v->valuedouble >= min) || !(v->valuedouble <= max))
		return false;
	*ret = floor(v->valuedouble);
	return true;
}

/* A copy of a text of at most size_max bytes, "" when absent, NULL when it is something else. */
static const char *text(const cJSON *o, const char *key, size_t size_max, struct arena *a)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!v || cJSON_IsNull(v))
		return "";
	if (!cJSON_IsString(v) || strlen(v->valuestring) > size_max)
		return NULL;
	return arena_strdup(a, v->valuestring);
}

static bool is_id(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= COMMAND_ID_MAX &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") == n;
}

static const char *read_pids(
	const cJSON *o, const char *key, struct arena *a, struct filter_list *ret)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key);
	const cJSON *v;
	uint64_t *pids;

	if (!list || cJSON_IsNull(list))
		return NULL;
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > COMMANDS_FILTER_MAX)
		return "pids must be a list of at most 64 numbers";
	pids = arena_alloc(a, COMMANDS_FILTER_MAX * sizeof(*pids));
	if (!pids)
		return "no memory";
	cJSON_ArrayForEach(v, list)
	{
		if (!cJSON_IsNumber(v) || !(v->valuedouble >= 1) || v->valuedouble > PID_MAX_VALUE)
			return "a pid must be a number in 1..4194304";
		pids[ret->pid_count++] = (uint64_t)v->valuedouble;
	}
	ret->pids = pids;
	return NULL;
}

static const char *read_texts(const cJSON *o, const struct filter_texts_name *name, struct arena *a,
	struct filter_texts *ret)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, name->key);
	const cJSON *v;
	const char **texts;
	size_t n = 0;

	if (!list || cJSON_IsNull(list))
		return NULL;
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > COMMANDS_FILTER_MAX)
		return "comms, users, cgroups and containers must be lists of at most 64 texts";
	texts = arena_alloc(a, COMMANDS_FILTER_MAX * sizeof(*texts));
	if (!texts)
		return "no memory";
	cJSON_ArrayForEach(v, list)
	{
		if (!cJSON_IsString(v) || !*v->valuestring ||
			strlen(v->valuestring) > name->size_max)
			return "comms, users, cgroups and containers must hold texts, of 15, 255, "
			       "4095 and 64 bytes at most";
		texts[n] = arena_strdup(a, v->valuestring);
		if (!texts[n])
			return "no memory";
		n++;
	}
	*ret = (struct filter_texts){.at = texts, .count = n};
	return NULL;
}

static const char *read_filter(const cJSON *o, struct arena *a, struct filter *ret)
{
	const char *problem = NULL;

	for (size_t s = 0; !problem && s < FILTER_SIDES; s++) {
		problem = read_pids(o, filter_pids_keys[s], a, &ret->sides[s]);
		for (size_t k = 0; !problem && k < FILTER_TEXTS; k++)
			problem = read_texts(
				o, &filter_texts_names[s][k], a, &ret->sides[s].texts[k]);
	}
	return problem;
}

static const char *read_start(const cJSON *o, struct arena *a, struct command *c)
{
	double hz, duration_s;

	c->view = text(o, "view", 64, a);
	if (!c->view)
		return "view must be a short text";
	if (!*c->view)
		c->view = "cpu";
	if (strcmp(c->view, "cpu") != 0)
		return "this agent records the view cpu only";
	if (!number(o, "frequency_hz", 0, EVENTS_FREQUENCY_MAX_HZ, 0, &hz))
		return "frequency_hz must be a number in 1..10000, or 0 for the agent's own";
	if (!number(o, "duration_s", 0, COMMANDS_DURATION_MAX_S, 0, &duration_s))
		return "duration_s must be a number in 1..604800, or 0 for continuous";
	c->frequency_hz = (uint64_t)hz;
	c->duration_ns = (uint64_t)duration_s * NSEC_PER_SEC;
	return read_filter(o, a, &c->filter);
}

static const char *read_rest(const cJSON *o, struct arena *a, struct command *c)
{
	const char *kind = text(o, "kind", 16, a);
	double deadline;

	if (!number(o, "deadline_unix_ms", 0, TIME_UNIX_MS_MAX, 0, &deadline))
		return "deadline_unix_ms must be a time";
	c->deadline_unix_ms = (int64_t)deadline;
	if (kind && strcmp(kind, "start") == 0)
		return read_start(o, a, c);
	if (kind && strcmp(kind, "change") == 0)
		c->kind = COMMAND_CHANGE;
	else if (kind && strcmp(kind, "stop") == 0)
		c->kind = COMMAND_STOP;
	else
		return "kind must be start, stop or change";
	c->target = text(o, "target", COMMAND_ID_MAX, a);
	if (!c->target || !is_id(c->target)) {
		c->target = "";
		return "stop and change need a target";
	}
	return c->kind == COMMAND_CHANGE ? read_start(o, a, c) : NULL;
}

/* False: it cannot even be named. */
static bool read_command(const cJSON *o, struct arena *a, struct command *ret)
{
	*ret = (struct command){.target = "", .view = "cpu"};
	ret->id = text(o, "id", COMMAND_ID_MAX, a);
	if (!cJSON_IsObject(o) || !ret->id || !is_id(ret->id))
		return false;
	ret->problem = read_rest(o, a, ret);
	return true;
}

static int read_commands(
	const cJSON *root, struct arena *a, const char **why, struct commands_reply *ret)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "commands");
	const cJSON *o;

	if (!list || cJSON_IsNull(list))
		return 0;
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > COMMANDS_PER_REPLY_MAX) {
		*why = "commands must be a list of at most 64";
		return -EBADMSG;
	}
	ret->commands = arena_alloc(a, COMMANDS_PER_REPLY_MAX * sizeof(*ret->commands));
	if (!ret->commands)
		return -ENOMEM;
	cJSON_ArrayForEach(o, list)
	{
		if (read_command(o, a, &ret->commands[ret->count]))
			ret->count++;
		else
			ret->refused++;
	}
	return 0;
}

static int read_reply(
	const cJSON *root, struct arena *a, const char **why, struct commands_reply *ret)
{
	const cJSON *schema = cJSON_GetObjectItemCaseSensitive(root, "schema");
	double time_ms, interval_s;

	*why = "it is not a flame-heartbeat-reply/1";
	if (!cJSON_IsObject(root) || !cJSON_IsString(schema) ||
		strcmp(schema->valuestring, "flame-heartbeat-reply/1") != 0)
		return -EBADMSG;
	*why = "time_unix_ms, interval_s or wanted_version is out of bounds";
	if (!number(root, "time_unix_ms", 0, TIME_UNIX_MS_MAX, 0, &time_ms) ||
		!number(root, "interval_s", INTERVAL_MIN_S, INTERVAL_MAX_S, 0, &interval_s))
		return -EBADMSG;
	ret->wanted_version = text(root, "wanted_version", 128, a);
	if (!ret->wanted_version)
		return -EBADMSG;
	ret->time_unix_ms = (int64_t)time_ms;
	ret->interval_ns = (uint64_t)interval_s * NSEC_PER_SEC;
	return read_commands(root, a, why, ret);
}

int commands_read_reply(const void *json, size_t size, struct arena *a, const char **why,
	struct commands_reply *ret)
{
	struct commands_reply reply = {0};
	cJSON *root = NULL;
	int r;

	*why = "it is no JSON";
	if (size <= COMMANDS_REPLY_BYTES_MAX)
		root = cJSON_ParseWithLength(json, size);
	r = root ? read_reply(root, a, why, &reply) : -EBADMSG;
	cJSON_Delete(root);
	if (r == 0)
		*ret = reply;
	return r;
}

int commands_read_one(
	const void *json, size_t size, struct arena *a, const char **why, struct command *ret)
{
	cJSON *root = cJSON_ParseWithLength(json, size);
	struct command c;
	int r = root && read_command(root, a, &c) ? 0 : -EBADMSG;

	cJSON_Delete(root);
	*why = "it is no command";
	if (r == 0)
		*ret = c;
	return r;
}

static const char *const kind_names[] = {
	[COMMAND_START] = "start", [COMMAND_STOP] = "stop", [COMMAND_CHANGE] = "change"};

static void write_filter(const struct filter_list *l, size_t side, struct buf *out)
{
	(void)buf_printf(out, ",\"%s\":[", filter_pids_keys[side]);
	for (size_t i = 0; i < l->pid_count; i++)
		(void)buf_printf(out, "%s%llu", i > 0 ? "," : "", (unsigned long long)l->pids[i]);
	for (size_t k = 0; k < FILTER_TEXTS; k++) {
		(void)buf_printf(out, "],\"%s\":[", filter_texts_names[side][k].key);
		for (size_t i = 0; i < l->texts[k].count; i++) {
			(void)buf_append_str(out, i > 0 ? "," : "");
			(void)str_append_json(out, l->texts[k].at[i]);
		}
	}
	(void)buf_append_str(out, "]");
}

int commands_write_one(const struct command *c, struct buf *out)
{
	(void)buf_append_str(out, "{\"id\":");
	(void)str_append_json(out, c->id);
	(void)buf_printf(out, ",\"kind\":\"%s\"", kind_names[c->kind]);
	(void)buf_append_str(out, ",\"target\":");
	(void)str_append_json(out, c->target);
	(void)buf_append_str(out, ",\"view\":");
	(void)str_append_json(out, c->view);
	(void)buf_printf(out,
		",\"frequency_hz\":%llu,\"duration_s\":%llu,\"deadline_unix_ms\":%lld",
		(unsigned long long)c->frequency_hz,
		(unsigned long long)(c->duration_ns / NSEC_PER_SEC),
		(long long)c->deadline_unix_ms);
	for (size_t s = 0; s < FILTER_SIDES; s++)
		write_filter(&c->filter.sides[s], s, out);
	(void)buf_append_str(out, "}");
	return buf_error(out);
}
