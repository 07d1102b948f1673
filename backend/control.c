/* The control part's database: schema, statements, transactions. See control.h, control_internal.h. */
#include "backend/control.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <stdarg.h>

#include "backend/control_internal.h"
#include "base/def.h"

enum {
	BUSY_TIMEOUT_MS = 10000, /* the store's commits to the same file wait for the disk */
	SEEN_MAX = 1 << 20,
	INTERVAL_S = 30,
	SCHEMA_VERSION = 1,
};

static const char SCHEMA[] =
	"CREATE TABLE IF NOT EXISTS ctl_meta(version INTEGER NOT NULL);"
	"INSERT INTO ctl_meta SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM ctl_meta);"
	"CREATE TABLE IF NOT EXISTS ctl_tokens(name TEXT PRIMARY KEY, scope INTEGER NOT NULL,"
	" sha256 TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL);"
	"CREATE TABLE IF NOT EXISTS ctl_hosts(instance TEXT PRIMARY KEY, host TEXT NOT NULL,"
	" boot_id TEXT, agent_version TEXT, kernel TEXT, arch TEXT, cpus INTEGER, state TEXT,"
	" state_text TEXT, can TEXT, cpu_ns INTEGER, rss_bytes INTEGER, kernel_bytes INTEGER,"
	" uptime_ns INTEGER, lost_samples INTEGER, windows_dropped INTEGER, spool_windows INTEGER,"
	" spool_bytes INTEGER, skew_ms INTEGER, last_ms INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX IF NOT EXISTS ctl_hosts_host ON ctl_hosts(host);"
	"CREATE TABLE IF NOT EXISTS ctl_host_services(host TEXT, service TEXT, last_ms INTEGER,"
	" PRIMARY KEY(host, service)) WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS ctl_requests(id TEXT PRIMARY KEY, created_ms INTEGER NOT NULL,"
	" deadline_ms INTEGER NOT NULL, view TEXT, frequency_hz INTEGER, duration_s INTEGER,"
	" pids TEXT, comms TEXT, cgroups TEXT, cancelled INTEGER NOT NULL DEFAULT 0);"
	"CREATE INDEX IF NOT EXISTS ctl_requests_created ON ctl_requests(created_ms);"
	"CREATE TABLE IF NOT EXISTS ctl_commands(id TEXT PRIMARY KEY, request TEXT NOT NULL,"
	" instance TEXT NOT NULL, host TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL,"
	" state TEXT NOT NULL, text TEXT NOT NULL, lease_ms INTEGER NOT NULL,"
	" deadline_ms INTEGER NOT NULL, run_until_ms INTEGER NOT NULL, updated_ms INTEGER NOT "
	"NULL);"
	"CREATE INDEX IF NOT EXISTS ctl_commands_instance ON ctl_commands(instance, state);"
	"CREATE INDEX IF NOT EXISTS ctl_commands_request ON ctl_commands(request);"
	"CREATE INDEX IF NOT EXISTS ctl_commands_open ON ctl_commands(instance)"
	" WHERE state IN ('pending', 'sent');";

int control_error(struct control *c, int rc)
{
	(void)c;
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

static sqlite3_stmt *statement(struct control *c, const char *sql, int *ret_error)
{
	struct control_statement *s = c->statements;
	int rc;

	while (s < c->statements + CONTROL_STATEMENTS_MAX && s->sql && s->sql != sql)
		s++;
	if (s == c->statements + CONTROL_STATEMENTS_MAX) {
		*ret_error = -ENOBUFS;
		return NULL;
	}
	if (!s->sql) {
		rc = sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->stmt, NULL);
		if (rc != SQLITE_OK) {
			*ret_error = control_error(c, rc);
			return NULL;
		}
		s->sql = sql;
	}
	return s->stmt;
}

static sqlite3_stmt *query_list(
	struct control *c, int *ret_error, const char *sql, const char *types, va_list ap)
{
	sqlite3_stmt *stmt = statement(c, sql, ret_error);

	for (int i = 0; stmt && types[i]; i++) {
		int rc = types[i] == 't' ? sqlite3_bind_text(stmt, i + 1, va_arg(ap, const char *),
						   -1, SQLITE_TRANSIENT)
					 : sqlite3_bind_int64(stmt, i + 1, va_arg(ap, int64_t));

		if (rc != SQLITE_OK) {
			*ret_error = control_error(c, rc);
			control_reset(&stmt);
			return NULL;
		}
	}
	return stmt;
}

sqlite3_stmt *control_query(
	struct control *c, int *ret_error, const char *sql, const char *types, ...)
{
	sqlite3_stmt *stmt;
	va_list ap;

	va_start(ap, types);
	stmt = query_list(c, ret_error, sql, types, ap);
	va_end(ap);
	return stmt;
}

void control_reset(sqlite3_stmt **stmt)
{
	if (!*stmt)
		return;
	(void)sqlite3_reset(*stmt); /* repeats the error that the step already gave */
	(void)sqlite3_clear_bindings(*stmt);
}

bool control_row(struct control *c, sqlite3_stmt *stmt, int *error)
{
	int rc = stmt ? sqlite3_step(stmt) : SQLITE_DONE;

	if (rc == SQLITE_ROW)
		return true;
	if (rc != SQLITE_DONE)
		*error = control_error(c, rc);
	return false;
}

int control_run(struct control *c, const char *sql, const char *types, ...)
{
	int r = 0;
	va_list ap;
	sqlite3_stmt *stmt;

	va_start(ap, types);
	stmt = query_list(c, &r, sql, types, ap);
	va_end(ap);
	while (control_row(c, stmt, &r))
		;
	control_reset(&stmt);
	return r;
}

const char *control_column(sqlite3_stmt *stmt, int i)
{
	const unsigned char *s = sqlite3_column_text(stmt, i);

	return s ? (const char *)s : "";
}

int control_begin(struct control *c)
{
	return control_run(c, "BEGIN IMMEDIATE", "");
}

int control_end(struct control *c, int r)
{
	if (r == 0)
		r = control_run(c, "COMMIT", "");
	if (r != 0 && !sqlite3_get_autocommit(c->db))
		(void)control_run(c, "ROLLBACK", ""); /* r says more */
	return r;
}

int control_random_hex(size_t bytes, char *out)
{
	unsigned char raw[32];

	if (bytes > sizeof(raw) || gnutls_rnd(GNUTLS_RND_KEY, raw, bytes) != 0)
		return -EIO;
	for (size_t i = 0; i < bytes; i++)
		(void)snprintf(out + 2 * i, 3, "%02x", raw[i]); /* exactly 2 digits */
	return 0;
}

int control_expire(struct control *c, const char *instance, int64_t now_ms)
{
	static const char one[] =
		"UPDATE ctl_commands SET state = 'expired', updated_ms = ?2,"
		" text = CASE state WHEN 'running' THEN 'no completion was reported'"
		" ELSE 'not started before its deadline' END"
		" WHERE instance = ?1 AND ((state IN ('pending', 'sent') AND deadline_ms < ?2)"
		" OR (state = 'running' AND run_until_ms > 0 AND run_until_ms < ?2))";
	static const char all[] =
		"UPDATE ctl_commands SET state = 'expired', updated_ms = ?2,"
		" text = CASE state WHEN 'running' THEN 'no completion was reported'"
		" ELSE 'not started before its deadline' END"
		" WHERE ?1 = '' AND ((state IN ('pending', 'sent') AND deadline_ms < ?2)"
		" OR (state = 'running' AND run_until_ms > 0 AND run_until_ms < ?2))";

	return instance ? control_run(c, one, "ti", instance, now_ms)
			: control_run(c, all, "ti", "", now_ms);
}

void control_sync(struct control *c, bool full)
{
	/* It fails inside a transaction only. */
	(void)sqlite3_exec(c->db,
		full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", NULL, NULL,
		NULL);
}

/* A database of an earlier version lacks columns of filters. */
static int add_columns(struct control *c)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < CONTROL_FILTERS; i++) {
		const char *key = control_filters[i].key;
		char text[128];

		if (sqlite3_table_column_metadata(c->db, NULL, "ctl_requests", key, NULL, NULL,
			    NULL, NULL, NULL) == SQLITE_OK)
			continue;
		(void)snprintf(text, sizeof(text),
			"ALTER TABLE ctl_requests ADD COLUMN %s TEXT NOT NULL DEFAULT '[]'", key);
		rc = sqlite3_exec(c->db, text, NULL, NULL, NULL);
	}
	return rc;
}

static int open_database(struct control *c)
{
	int error = 0;
	int64_t version = 0;
	sqlite3_stmt *stmt;
	int rc = sqlite3_open_v2(c->path, &c->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
			SQLITE_OPEN_PRIVATECACHE,
		NULL);

	if (rc != SQLITE_OK)
		return control_error(c, rc);
	(void)sqlite3_busy_timeout(c->db, BUSY_TIMEOUT_MS); /* only fails without a handle */
	rc = sqlite3_exec(c->db,
		"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;"
		"BEGIN IMMEDIATE",
		NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(c->db, SCHEMA, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = add_columns(c);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(c->db, "COMMIT; PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return control_error(c, rc);
	stmt = control_query(c, &error,
		"SELECT (SELECT version FROM ctl_meta), (SELECT count(*) FROM ctl_hosts)", "");
	if (control_row(c, stmt, &error)) {
		version = sqlite3_column_int64(stmt, 0);
		c->host_count = sqlite3_column_int64(stmt, 1);
	}
	control_reset(&stmt);
	return error ? error : version == SCHEMA_VERSION ? 0 : -EPROTO;
}

int control_open(const char *catalog_path, struct control **ret)
{
	struct control *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (!c)
		return -ENOMEM;
	(void)pthread_mutex_init(&c->lock, NULL); /* glibc's cannot fail with NULL */
	(void)pthread_mutex_init(&c->token_lock, NULL);
	c->interval_s = INTERVAL_S;
	c->wanted_version = "";
	c->path = strdup(catalog_path);
	c->seen = map_new(SEEN_MAX);
	if (c->path && c->seen)
		r = open_database(c);
	if (!r)
		r = control_beats_init(c);
	if (r) {
		control_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

void control_close(struct control *c)
{
	if (!c)
		return;
	control_beats_free(c);
	for (size_t i = 0; i < CONTROL_STATEMENTS_MAX; i++)
		(void)sqlite3_finalize(c->statements[i].stmt); /* repeats an old error */
	(void)sqlite3_close(c->db);                            /* nothing is left open */
	map_free(c->seen);
	(void)pthread_mutex_destroy(&c->lock);
	(void)pthread_mutex_destroy(&c->token_lock);
	free(c->tokens);
	free(c->path);
	free(c);
}

void control_set_interval(struct control *c, unsigned int heartbeat_interval_s)
{
	c->interval_s = heartbeat_interval_s;
}

void control_set_wanted_version(struct control *c, const char *version)
{
	c->wanted_version = version;
}

int control_host_seen_service(
	struct control *c, const char *host, const char *service, int64_t now_unix_ns)
{
	enum { AGAIN_MS = 600000, KEY_MAX = 4096 };
	int64_t now_ms = now_unix_ns / 1000000;
	char key[KEY_MAX];
	int size = snprintf(key, sizeof(key), "%s%c%s", host, 0, service);
	uint64_t *last_ms;
	int r = 0;

	if (size < 0 || (size_t)size >= sizeof(key))
		return -ENAMETOOLONG;
	pthread_mutex_lock(&c->lock);
	if (map_count(c->seen) >= SEEN_MAX) {
		struct map *fresh = map_new(SEEN_MAX);

		if (fresh) {
			map_free(c->seen);
			c->seen = fresh;
		}
	}
	last_ms = map_put(c->seen, key, (size_t)size, NULL);
	if (!last_ms || (int64_t)*last_ms + AGAIN_MS < now_ms || (int64_t)*last_ms > now_ms) {
		r = control_run(c,
			"INSERT INTO ctl_host_services VALUES(?1, ?2, ?3)"
			" ON CONFLICT(host, service) DO UPDATE SET last_ms = excluded.last_ms",
			"tti", host, service, now_ms);
		if (r == 0 && last_ms)
			*last_ms = (uint64_t)now_ms;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}
