/*
 * What the files of the store share. Their parts:
 *
 *	store_index.c	catalog.db's label sets and series, all in memory
 *	store_seen.c	which window ids may have come in the last 48 h
 *	store_file.c	one data file: its tables, its name, its writer
 *	store_dir.c	the directory of data files: list, retention, free space
 *	store_facts.c	the facts of one profile, and of many merged
 *	store_put.c	one push into open transactions
 *	store_writer.c	the queue and the thread that empties it
 *	store_overlap.c	which windows would count a time twice
 *	store_rows.c	which rows of a data file count
 *	store_sums.c	blobs added up; store_about.c: what merged windows say
 *	store_roll*.c	roll-ups, and the thread that makes them (store_roll.h)
 *	store_merge.c	the flame graph
 *	store_query.c	what queries share; timeline, series
 *	store_verify.c	the check of everything
 */
#ifndef BACKEND_STORE_INTERNAL_H
#define BACKEND_STORE_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>

#include "backend/blob.h"
#include "backend/dict.h"
#include "backend/store.h"
#include "base/arena.h"

#define STORE_HOUR_NS ((int64_t)3600 * 1000000000)
#define STORE_SPAN_NS_MAX \
	STORE_HOUR_NS /* a window is taken for no longer, where overlaps are looked for */

enum {
	STORE_FILE_VERSION = 2,
	STORE_SEEN_HOURS = 48,
	STORE_PATH_MAX = 4096,
};

/*
 * The index. Series are never removed and their addresses stay, so what was found needs no lock. The writer
 * adds; what it added is on disk after store_index_commit.
 */
struct store_series {
	int64_t id;
	int64_t labels_id;
	const struct push_label *labels;
	size_t label_count;
	const char *type, *unit;
	unsigned int ordinal; /* of the sample type in its profile */
};
struct store_index;
int store_index_open(const char *path, const char **why, struct store_index **ret);
void store_index_close(struct store_index *x); /* accepts NULL */
int store_index_labels(
	struct store_index *x, const struct push_label *labels, size_t count, int64_t *ret_id);
int store_index_series(struct store_index *x, int64_t labels_id, const char *type, const char *unit,
	unsigned int ordinal, int64_t *ret_id);
int store_index_commit(struct store_index *x);
/* Those that match, by ascending id; the caller frees the array. */
int store_index_select(struct store_index *x, const struct matcher *m, size_t count,
	const struct store_series ***ret, size_t *ret_count);

bool store_series_find(
	const struct store_series **series, size_t count, int64_t id, size_t *ret_position);

/*
 * A filter of window ids by the hour they were received in. It may say "perhaps" wrongly, then the file is
 * asked; it never misses an id of the last 48 h. It holds 12 bytes an id.
 */
struct store_seen;
struct store_seen *store_seen_new(void);
void store_seen_free(struct store_seen *s);
uint64_t store_seen_hash(int64_t labels_id, const char *id);
int store_seen_add(struct store_seen *s, uint64_t hash, int64_t received_ns, int32_t file_hour);
/* Files that may hold it, other than but_hour: at most max of them into ret. The count. */
size_t store_seen_find(
	const struct store_seen *s, uint64_t hash, int32_t but_hour, int32_t *ret, size_t max);
void store_seen_expire(struct store_seen *s, int64_t now_ns);

/* One profile of a series as its row says. */
struct store_row {
	int64_t id;
	int64_t series;
	int64_t ts_ns;
	int64_t total;
	int64_t span_ns; /* only where rows are put */
	int64_t source;  /* of its file; 0: the continuous recording, unfiltered */
};
typedef int store_row_fn(void *data, const struct store_row *row);

/* A data file. The writer's are opened with their tables made; readers' are read-only. */
struct store_file;
int store_file_open(
	const char *dir, int32_t hour, bool create, const char **why, struct store_file **ret);
int store_file_open_read(const char *dir, int32_t hour, struct store_file **ret); /* -ENOENT */
void store_file_close(struct store_file *f);                                      /* accepts NULL */
void store_file_closep(struct store_file **f);
int32_t store_file_hour(const struct store_file *f);
sqlite3 *store_file_db(const struct store_file *f);

struct store_profile_row {
	int64_t received_ns;
	int64_t sent_ns; /* what the sender said */
	bool is_clamped;
	int64_t duration_ns, period;
	const char *period_type, *period_unit;
	const void *facts; /* store_facts.c */
	size_t facts_size;
};
/* What tells whether a file is the one it was: rows are only ever added, with ascending ids. */
struct store_file_state {
	int32_t hour;
	int64_t mark;        /* drawn when it was made; 0: no file */
	int64_t last_id;     /* of its rows */
	int64_t crossing_id; /* the last one that reaches into the next hour */
	bool needs_next;     /* which of its rows count depends on the next hour's file */
};
int store_file_read_state(struct store_file *f, struct store_file_state *ret);
const struct store_file_state *store_file_committed(const struct store_file *f);
bool store_file_is_whole(struct store_file *f); /* by sqlite's own check, which reads all of it */
int store_file_begin(struct store_file *f);     /* nothing if it is begun */
int store_file_commit(struct store_file *f);
void store_file_rollback(struct store_file *f);
/* 1 new, 0 it is there already. */
int store_file_put_window(
	struct store_file *f, int64_t labels_id, const char *id, int64_t received_ns);
int store_file_has_window(struct store_file *f, int64_t labels_id, const char *id);
int store_file_put_profile(
	struct store_file *f, const struct store_profile_row *p, int64_t *ret_id);
int store_file_put_source(
	struct store_file *f, const char *recording, bool is_filtered, int64_t *ret_id);
int store_file_put_values(struct store_file *f, const struct store_row *row, int64_t profile,
	size_t n, const void *blob, size_t size);
/* Rows of the series (sorted by id) in the range, in no order that means something. */
int store_file_scan(struct store_file *f, const struct store_series **series, size_t count,
	const struct store_range *r, store_row_fn *fn, void *data);

/* A window as far as overlaps go. rank: the recording's, the lowest goes before all others. */
struct store_window {
	int64_t series, id;
	int64_t ts_ns, end_ns;
	uint32_t rank;
	bool is_own; /* of the file that is looked at */
	bool is_left_out;
};
/* Marks those of one series, sorted by ts, that would count a time twice. 0 or -ENOMEM. */
int store_overlap_mark(struct store_window *w, size_t count);

/*
 * Which rows of a data file count for a query. Recordings rank: unfiltered before filtered, the continuous one
 * ("") before those on demand, then by id. Given matchers of the label `recording`, rows that they do not take
 * are not there at all, neither to be counted nor to leave others out.
 */
struct store_rows;
enum store_verdict { ROW_COUNTS, ROW_OVERLAPS, ROW_NOT_MEANT };
/* series: those asked about, by id; NULL: all. f is in its transaction; its neighbours are opened when needed. */
int store_rows_new(const char *dir, struct store_file *f, const struct store_series **series,
	size_t count, const struct matcher *recording, size_t matcher_count,
	struct store_rows **ret);
void store_rows_free(struct store_rows *x); /* accepts NULL */
void store_rows_freep(struct store_rows **x);
enum store_verdict store_rows_judge(const struct store_rows *x, const struct store_row *row);

/* The directory DIR/data. */
void store_dir_name(int32_t hour, char ret[16]); /* "20240131-23" */
bool store_dir_parse(const char *name, int32_t *ret_hour);
int store_dir_path(const char *dir, int32_t hour, char ret[STORE_PATH_MAX]);
/* Hours that have a file, ascending; the caller frees. */
int store_dir_list(const char *dir, int32_t **ret, size_t *ret_count);
uint64_t store_dir_bytes(const char *dir, int32_t hour); /* with its WAL */
int store_dir_unlink(const char *dir, int32_t hour);
/*
 * Moves a damaged file aside, as NAME.db.damaged (and -wal, -shm), and with it what was made of it. Nothing reads
 * such files; they stay until somebody takes them away. The bytes that are no longer served.
 */
int store_dir_set_aside(const char *dir, int32_t hour, uint64_t *ret_bytes);
bool store_dir_is_damaged(const char *name);    /* such a file's name */
void store_dir_unlink_orphans(const char *dir); /* logs of files that are gone */
int store_dir_sync(const char *path);
int store_dir_free_bytes(const char *dir, uint64_t *ret);
static inline int32_t store_hour(int64_t ts_ns)
{
	return (int32_t)(ts_ns / STORE_HOUR_NS - (ts_ns % STORE_HOUR_NS < 0));
}

/* Facts as text, "key=value\n"; names of labels that were left out become one more. 0, -errno. */
int store_facts_write(const struct profile *p, const char *labels_left_out,
	uint64_t negatives_dropped, struct buf *out);
/*
 * Merging: facts that count (lost.*, lost_ns, window_ns, ledger_cpu_ns, store.negatives_dropped) are added;
 * of the others the four smallest distinct values are kept, so the order does not matter.
 */
struct store_facts;
struct store_facts *store_facts_new(void);
void store_facts_free(struct store_facts *f);
int store_facts_add(struct store_facts *f, const void *text, size_t size);
int store_facts_set(const struct store_facts *f, struct profile *p);
/* As text that store_facts_add reads: adding it is adding all that was added here. */
int store_facts_text(const struct store_facts *f, struct buf *out);

enum store_job_state { JOB_QUEUED, JOB_TAKEN, JOB_WAITING, JOB_DONE };
struct store_job {
	struct store_job *next;
	const struct store_push *pushes; /* the caller's; only until JOB_WAITING */
	size_t count;
	enum store_outcome *outcomes; /* own */
	enum store_job_state state;
	bool is_abandoned; /* the caller left: the writer frees it */
	int result;
	pthread_cond_t done; /* state changed */
};

struct store {
	char dir[STORE_PATH_MAX];
	int lock_fd; /* held, so that no second program writes here */
	char dict_path[STORE_PATH_MAX];
	char catalog_path[STORE_PATH_MAX];
	struct store_options options;
	struct store_index *index;

	/* The writer's alone, after the open. */
	struct dict *dict;
	struct store_seen *seen;
	struct store_file **files; /* open ones, those of the batch are begun */
	size_t file_count, files_allocated;
	struct arena *scratch;
	struct buf blob, facts;

	pthread_t roller;
	bool has_roller;
	pthread_mutex_t roller_lock; /* one pass at a time; of what stands below */
	struct store_rolled *rolled;
	size_t rolled_count, rolled_allocated;

	pthread_t writer;
	bool has_writer;
	pthread_mutex_t lock; /* what stands below */
	pthread_cond_t wake;  /* the writer: a job or the end */
	struct store_job *first, **last;
	size_t queued; /* pushes */
	bool is_stopping;
	struct store_stats stats;
	pthread_cond_t roller_wake;      /* the roller: the end */
	struct store_file_state *states; /* of the data files, as they were last committed */
	size_t state_count, states_allocated;
};

/* The writer's work on one job; what it did is added to the batch. */
struct store_batch {
	size_t bytes;
	struct store_stats counts;
};
/* Whether the index takes what the job brings; so a full index fails this job and no other. */
int store_put_check(struct store *s, const struct store_job *job);
int store_put(struct store *s, struct store_batch *b, const struct store_push *p,
	enum store_outcome *outcome);
/* Sets the hour's file aside as damaged; the next push makes a fresh one. */
void store_put_quarantine(struct store *s, int32_t hour);
/* Closes open files from the oldest hour on until at most keep are left. */
void store_put_close(struct store *s, size_t keep);
void store_put_close_hour(struct store *s, int32_t hour); /* if it is open */

int store_writer_start(struct store *s);
void store_writer_stop(struct store *s);
/* Unlinks what is too old or too much. Also called at the open. */
void store_writer_retain(struct store *s, int64_t now_ns);

#endif
