/* Which hosts a profiling request means: by name, by the services they pushed, by matchers. */
#include <errno.h>

#include "backend/control_internal.h"
#include "backend/store.h" /* match_set: selectors mean the same here as in queries */
#include "base/arena.h"
#include "base/def.h"

enum { NAMES_MAX = 1000, NAME_BYTES_MAX = 2048 };
static const int64_t ALIVE_MS = 600000;

struct selection {
	const cJSON *hosts, *services;
	struct match_set *match; /* NULL: none */
};

/* The columns of the query in hosts_select, as matchers name them: sorted, as labels are. */
static const char *const columns[] = {
	"agent_version", "arch", "host", "instance", "kernel", "state"};
enum { COLUMN_HOST = 2, COLUMN_INSTANCE = 3, COLUMN_KERNEL = 4, COLUMN_LAST_MS = 6 };

static int names_check(const cJSON *list, const char *key, struct buf *why)
{
	int count = list ? cJSON_GetArraySize(list) : 0;

	if (list && (!cJSON_IsArray(list) || count > NAMES_MAX)) {
		(void)buf_printf(why, "'%s' must be a list of at most %d names", key, NAMES_MAX);
		return -EINVAL;
	}
	for (const cJSON *v = list ? list->child : NULL; v; v = v->next)
		if (!cJSON_IsString(v) || strlen(v->valuestring) > NAME_BYTES_MAX) {
			(void)buf_printf(why, "'%s' must hold names", key);
			return -EINVAL;
		}
	return 0;
}

static bool matcher_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		if (strcmp(columns[i], name) == 0)
			return true;
	return strcmp(name, "service_name") == 0;
}

static int match_read(struct selection *s, const char *text, struct arena *a, struct buf *why)
{
	struct matcher *m = arena_alloc(a, MATCHERS_MAX * sizeof(*m)); /* the set refers to it */
	const char *reason = NULL;
	size_t count = 0;

	if (!m)
		return -ENOMEM;
	if (matcher_parse(text, &reason, m, &count) != 0) {
		(void)buf_printf(why, "'match': %s", reason ? reason : "not a selector");
		return -EINVAL;
	}
	for (size_t i = 0; i < count; i++)
		if (!matcher_known(m[i].name)) {
			(void)buf_append_str(why, "'match' knows host, instance, arch, kernel, "
						  "agent_version, state and service_name");
			return -EINVAL;
		}
	if (match_set_new(m, count, &s->match) != 0) {
		(void)buf_append_str(why, "'match' holds a wrong regular expression");
		return -EINVAL;
	}
	return 0;
}

static int selection_read(const cJSON *o, struct selection *s, struct arena *a, struct buf *why)
{
	const cJSON *match = cJSON_GetObjectItemCaseSensitive(o, "match");
	int r;

	s->hosts = cJSON_GetObjectItemCaseSensitive(o, "hosts");
	s->services = cJSON_GetObjectItemCaseSensitive(o, "services");
	r = names_check(s->hosts, "hosts", why);
	if (!r)
		r = names_check(s->services, "services", why);
	if (!r && match && !cJSON_IsString(match)) {
		(void)buf_append_str(why, "'match' must be text");
		r = -EINVAL;
	}
	if (!r && match)
		r = match_read(s, match->valuestring, a, why);
	if (!r && !match && !(s->hosts && s->hosts->child) &&
		!(s->services && s->services->child)) {
		(void)buf_append_str(
			why, "one of 'services', 'hosts' and 'match' must name something");
		r = -EINVAL;
	}
	return r;
}

static bool names_have(const cJSON *list, const char *name)
{
	for (const cJSON *v = list ? list->child : NULL; v; v = v->next)
		if (strcmp(v->valuestring, name) == 0)
			return true;
	return false;
}

/* Whether the host is meant when it is taken to run this service ("": none). */
static bool host_meant(const struct selection *s, sqlite3_stmt *row, const char *service)
{
	struct push_label labels[ARRAY_SIZE(columns) + 1];
	size_t count = 0;

	if (*service && names_have(s->services, service))
		return true;
	if (!s->match)
		return false;
	for (int i = 0; i < (int)ARRAY_SIZE(columns); i++) {
		labels[count].name = columns[i];
		labels[count++].value = control_column(row, i);
		if (i == COLUMN_KERNEL) {
			labels[count].name = "service_name";
			labels[count++].value = service;
		}
	}
	return match_set_takes(s->match, labels, count, "", "");
}

static int row_matches(
	struct control *c, const struct selection *s, sqlite3_stmt *row, int64_t now_ms, bool *ret)
{
	const char *host = control_column(row, COLUMN_HOST);
	struct control_words w = {.received_ms = sqlite3_column_int64(row, COLUMN_LAST_MS)};
	int r = 0;

	control_beats_words(c, control_column(row, COLUMN_INSTANCE), &w);
	*ret = names_have(s->hosts, host) ||
	       names_have(s->hosts, control_column(row, COLUMN_INSTANCE));
	if (*ret || now_ms - w.received_ms > ALIVE_MS)
		return 0;
	{
		_cleanup_(control_reset) sqlite3_stmt *service = control_query(c, &r,
			"SELECT service FROM ctl_host_services WHERE host = ?1"
			" UNION ALL SELECT '' WHERE NOT EXISTS"
			" (SELECT 1 FROM ctl_host_services WHERE host = ?1)",
			"t", host);

		while (!*ret && control_row(c, service, &r))
			*ret = host_meant(s, row, control_column(service, 0));
	}
	return r;
}

static int hosts_select(struct control *c, const struct selection *s, int64_t now_ms,
	size_t max_hosts, struct control_target *targets, size_t *ret_count, struct buf *why)
{
	size_t count = 0;
	int r = 0;
	_cleanup_(control_reset) sqlite3_stmt *row = control_query(c, &r,
		"SELECT agent_version, arch, host, instance, kernel, state, last_ms FROM ctl_hosts"
		" ORDER BY host, instance",
		"");

	while (control_row(c, row, &r)) {
		bool hit = false;

		r = row_matches(c, s, row, now_ms, &hit);
		if (r)
			return r;
		if (hit && count < max_hosts) {
			(void)snprintf(targets[count].instance, sizeof(targets[0].instance), "%s",
				control_column(row,
					COLUMN_INSTANCE)); /* both were checked when they came in */
			(void)snprintf(targets[count].host, sizeof(targets[0].host), "%s",
				control_column(row, COLUMN_HOST));
		}
		count += hit;
	}
	if (r)
		return r;
	if (count > max_hosts) {
		(void)buf_printf(why, "%zu hosts match, max_hosts is %zu", count, max_hosts);
		return -EINVAL;
	}
	if (count == 0) {
		(void)buf_append_str(why, "no host matches; /api/v1/hosts has those whose agents "
					  "were heard of");
		return -ENOENT;
	}
	*ret_count = count;
	return 0;
}

int control_match(struct control *c, const cJSON *o, int64_t now_ms, size_t max_hosts,
	struct arena *a, struct buf *why, struct control_target **ret, size_t *ret_count)
{
	struct control_target *targets = arena_alloc(a, max_hosts * sizeof(*targets));
	struct selection s = {0};
	int r;

	if (!targets)
		return -ENOMEM;
	r = selection_read(o, &s, a, why);
	if (!r)
		r = hosts_select(c, &s, now_ms, max_hosts, targets, ret_count, why);
	match_set_free(s.match);
	if (!r)
		*ret = targets;
	return r;
}
