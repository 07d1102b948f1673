/*
 * Roll-ups: the windows of a series merged by 10 minutes, an hour, a day, so that a flame graph of a day reads
 * one row where there were 1,440. They are made of closed hours and hold nothing that is not in the data files.
 *
 *	data/roll-YYYYMMDD-HH.db	10 minutes and 1 hour, made of the hour's data file
 *	data/roll-YYYYMMDD.db		1 day, made of the hours' roll-ups
 *
 *	roll(id, step, series, ts, n, total, windows, left_out, first, last, period, period_type, period_unit,
 *	     facts, data)	in the order of (step, series, ts); ts is the start of the step, data a blob (blob.h)
 *	source(version)		of what it was made
 *
 * Which windows count is decided when the roll-up is made (store_overlap.c). A version stands for the state of
 * everything that this depends on: the hour's data file, what reaches into the hour from the one before, and the
 * one after if windows of this one go on in it. A roll-up of another version than the present one is not read,
 * so a late window is in the next answer, whether or not the roll-up was made anew; nothing needs to be
 * undone in order, and none of it matters to a crash.
 */
#ifndef BACKEND_STORE_ROLL_H
#define BACKEND_STORE_ROLL_H

#include "backend/store_query_internal.h"

#define STORE_ROLL_SHORT_NS ((int64_t)600 * 1000000000)
#define STORE_ROLL_DAY_NS   (24 * STORE_HOUR_NS)

/* An hour by its number, or the day of that number. */
struct store_roll_id {
	bool is_day;
	int32_t number;
};
static inline int32_t store_roll_day(int32_t hour)
{
	return hour / 24 - (hour % 24 < 0);
}

struct store_roll_row {
	int64_t step_ns, series, ts_ns;
	int64_t n, total;
	struct store_window_about about;
	const void *data;
	size_t size;
};
typedef int store_roll_fn(void *data, const struct store_roll_row *row);

/* Of the states of an hour's file and its neighbours'; never 0. Zeroed states stand for files that are not. */
uint64_t store_roll_version(const struct store_file_state *before,
	const struct store_file_state *own, const struct store_file_state *after);
/* Of a day by its hours' versions, 0 for those without a file. */
uint64_t store_roll_day_version(const uint64_t versions[24]);

/*
 * Makes the rows, in their order. -EUCLEAN or -EBADMSG when the data is damaged: such an hour has no roll-up and
 * is read as it is. -ESTALE: a roll-up of an hour that the day needs is absent or of another version.
 */
int store_roll_make(const char *dir, struct store_roll_id id, const uint64_t versions[24],
	store_roll_fn *fn, void *data);
/* The same into its file, whole or not at all. */
int store_roll_write(const char *dir, struct store_roll_id id, const uint64_t versions[24]);

/* -ENOENT, or -ESTALE when it is of another version; 0 as version takes any. */
int store_roll_open(const char *dir, struct store_roll_id id, uint64_t version, sqlite3 **ret);
int store_roll_read_version(sqlite3 *db, uint64_t *ret);
/* A query for rows of one series, by ts, or of all, in their order; then its rows with ts in the range. */
int store_roll_query_all(sqlite3 *db, sqlite3_stmt **ret);
int store_roll_step(sqlite3_stmt *s, struct store_roll_row *ret); /* 1 with a row, 0 at the end */
int store_roll_query(sqlite3 *db, bool by_series, sqlite3_stmt **ret);
int store_roll_rows(sqlite3_stmt *s, int64_t step_ns, int64_t series, const struct store_range *r,
	store_roll_fn *fn, void *data);

/* Files: paths, a sweep of those whose data is gone, bytes that an hour's take. */
int store_roll_path(const char *dir, struct store_roll_id id, char ret[STORE_PATH_MAX]);
typedef int store_roll_file_fn(void *data, struct store_roll_id id);
int store_roll_each(const char *dir, store_roll_file_fn *fn, void *data);
void store_roll_unlink(const char *dir, struct store_roll_id id);
void store_roll_unlink_unfinished(const char *dir); /* before anything is made */
void store_roll_sweep(const char *dir, const int32_t *hours, size_t count);
uint64_t store_roll_bytes(const char *dir, int32_t hour); /* a day's count with its last hour */

/*
 * Makes every roll-up of the present version anew and compares. fault is told what differs, of which file. What
 * changes meanwhile, beside a backend, is left to the next time.
 */
typedef void store_roll_fault_fn(void *data, const char *file, const char *text);
int store_roll_verify(const char *dir, store_roll_fault_fn *fault, void *data);

/* store_roller.c: the thread that makes them, and which versions are present. */
int store_roller_start(struct store *s);
void store_roller_stop(struct store *s);
/* One pass over what is closed at now; -ESHUTDOWN when the store ends. at_once: what changed just now, too. */
int store_roller_pass(struct store *s, int64_t now_ns, bool at_once);
/* The present version of what a roll-up would be made of; 0: there is nothing. versions: of the hours, for a day. */
uint64_t store_roller_version(struct store *s, struct store_roll_id id, uint64_t versions[24]);
void store_roller_note(struct store *s, const struct store_file_state *state);
void store_roller_forget(struct store *s, int32_t hour);

#endif
