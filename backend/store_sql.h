/*
 * The store's use of sqlite3: how a database is opened, what its errors mean, prepared statements in tables.
 *
 * All databases but plain ones are WAL with 8 KiB pages and synchronous=FULL. A connection belongs to one thread.
 */
#ifndef BACKEND_STORE_SQL_H
#define BACKEND_STORE_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0, -ENOSPC (full), -ENOMEM, -EBUSY, -EUCLEAN (damaged), -ENOENT (cannot be opened), -EIO. */
int store_sql_error(int code);

struct store_sql_options {
	const char *schema; /* statements that make an empty database; NULL: opened read-only */
	int version;        /* user_version that it gets and must have; -1: somebody else's */
	int cache_kib;
	bool is_plain; /* with a rollback journal: for files that are written once and then renamed */
};

/* -EPROTO with *why (static) when the version is another one. -ENOENT when read-only and absent. */
int store_sql_open(
	const char *path, const struct store_sql_options *o, const char **why, sqlite3 **ret);
void store_sql_close(sqlite3 *db); /* accepts NULL */
void store_sql_closep(sqlite3 **db);

int store_sql_exec(sqlite3 *db, const char *text);
int store_sql_prepare(sqlite3 *db, const char *text, sqlite3_stmt **ret);
void store_sql_finalizep(sqlite3_stmt **s);
/* Runs a statement that gives no row, and resets it. 0 or an error. */
int store_sql_run(sqlite3_stmt *s);
/* 1 with a row, 0 at the end, an error; the caller resets. */
int store_sql_step(sqlite3_stmt *s);
/* The one number that text gives; 0 for NULL. */
int store_sql_number(sqlite3 *db, const char *text, int64_t *ret);

#endif
