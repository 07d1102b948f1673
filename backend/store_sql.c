/*
 * sqlite3 the way the store wants it. A database is made in one transaction that also sets its version, so a
 * crash leaves an empty one or a whole one. Readers set query_only on top of the read-only open, and wait 10 s
 * for the moments in which WAL takes its lock alone: recovery, and the last close of a file.
 */
#include "backend/store_sql.h"

#include <errno.h>
#include <stdbool.h>

#include "base/def.h"

enum { BUSY_TIMEOUT_MS = 10000 };

int store_sql_error(int code)
{
	switch (code & 0xff) {
	case SQLITE_OK:
	case SQLITE_DONE:
	case SQLITE_ROW:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_CANTOPEN:
		return -ENOENT;
	default:
		return -EIO;
	}
}

int store_sql_exec(sqlite3 *db, const char *text)
{
	return store_sql_error(sqlite3_exec(db, text, NULL, NULL, NULL));
}

int store_sql_prepare(sqlite3 *db, const char *text, sqlite3_stmt **ret)
{
	return store_sql_error(
		sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL));
}

void store_sql_finalizep(sqlite3_stmt **s)
{
	(void)sqlite3_finalize(*s); /* repeats the error of the last step, which was told */
}

int store_sql_run(sqlite3_stmt *s)
{
	(void)sqlite3_step(s); /* reset gives the error once more */
	return store_sql_error(sqlite3_reset(s));
}

int store_sql_step(sqlite3_stmt *s)
{
	int code = sqlite3_step(s);

	return code == SQLITE_ROW ? 1 : store_sql_error(code);
}

int store_sql_number(sqlite3 *db, const char *text, int64_t *ret)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *s = NULL;
	int r = store_sql_prepare(db, text, &s);

	if (r < 0)
		return r;
	r = store_sql_step(s);
	if (r < 0)
		return r;
	*ret = r ? sqlite3_column_int64(s, 0) : 0;
	return 0;
}

/* Makes the tables of an empty database, or checks the version of one that is not. */
static int check_schema(sqlite3 *db, const struct store_sql_options *o, const char **why)
{
	int64_t version = 0, tables = 0;
	char text[64];
	int r = store_sql_number(db, "PRAGMA user_version", &version);

	if (r == 0)
		r = store_sql_number(db, "SELECT count(*) FROM sqlite_master", &tables);
	if (r < 0)
		return r;
	if (version == o->version)
		return 0;
	if (!o->schema && version == 0 && tables == 0)
		return -ENOENT;
	if (version != 0 || tables != 0 || !o->schema) {
		if (why)
			*why = "a database has an unknown schema version";
		return -EPROTO;
	}
	(void)snprintf(text, sizeof(text), "PRAGMA user_version=%d", o->version); /* fits */
	r = store_sql_exec(db, "BEGIN IMMEDIATE");
	if (r < 0)
		return r;
	r = store_sql_exec(db, o->schema);
	if (r == 0)
		r = store_sql_exec(db, text);
	if (r == 0)
		r = store_sql_exec(db, "COMMIT");
	if (r < 0)
		(void)store_sql_exec(db, "ROLLBACK"); /* r says what is wrong */
	return r;
}

int store_sql_open(
	const char *path, const struct store_sql_options *o, const char **why, sqlite3 **ret)
{
	int flags = o->schema ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
	sqlite3 *db = NULL;
	char text[64];
	int r;

	flags |= SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
	r = store_sql_error(sqlite3_open_v2(path, &db, flags, NULL));
	if (r == 0) {
		(void)sqlite3_extended_result_codes(db, 1);
		(void)sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
		(void)snprintf(text, sizeof(text), "PRAGMA cache_size=-%d",
			o->cache_kib ? o->cache_kib : 2048); /* fits */
		r = store_sql_exec(db, text);
	}
	if (r == 0)
		r = store_sql_exec(
			db, o->schema ? "PRAGMA page_size=8192" : "PRAGMA query_only=ON");
	if (r == 0 && o->schema && !o->is_plain)
		r = store_sql_exec(db, "PRAGMA journal_mode=WAL");
	if (r == 0)
		r = store_sql_exec(db, "PRAGMA synchronous=FULL;"
				       "PRAGMA trusted_schema=OFF;"
				       "PRAGMA cell_size_check=ON");
	if (r == 0 && o->version >= 0)
		r = check_schema(db, o, why);
	if (r < 0) {
		store_sql_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

void store_sql_close(sqlite3 *db)
{
	(void)sqlite3_close_v2(db); /* the files are whole whatever it says */
}

void store_sql_closep(sqlite3 **db)
{
	store_sql_close(*db);
}
