/*
 * The embedded store: one data directory, sqlite3 + blobs (DESIGN.md section 5).
 *
 *	catalog.db		label sets and series (type + label set); the control part's tables
 *	dict.db			strings, frames, stacks; sequential ids
 *	data/YYYYMMDD-HH.db	a UTC hour: one row per profile and series, ts -> n, total, blob of (stack id,
 *				value) pairs; the window ids of those profiles
 *	data/roll-*.db		windows merged by 10 minutes, hour, day (store_roll.h)
 *
 * Invariants, checked by store_verify:
 *  1. A push is acknowledged only after its transaction is on disk (synchronous=FULL, group commit).
 *  2. The window id is stored in the transaction of the data it stands for; the same id with the same labels
 *     again is counted and answered as success without a second copy. Ids are kept 48 h. Empty ids are never
 *     deduplicated.
 *  3. Every stack id in a blob is in dict.db: the dictionary commits before the data file does.
 *  4. A blob's crc32c and count are right, its ids ascend, its total equals the row's total.
 *  5. One writer thread; readers have their own read-only connections and never block it.
 *  6. A query counts no time of a series twice: of two windows of one series and of different recordings
 *     that overlap, at most one counts (store_overlap.c). The recording is the label `recording` or the fact of
 *     that name, "" for the continuous one; it makes no series of its own. A window is filtered when it
 *     has the fact `filter`.
 * The writer's order for crash safety across files: dict.db and new series in the catalog, which mean nothing
 * until they are referred to, then data file together with its window id (each data file has its own table of
 * window ids, so 2 needs no two-file transaction).
 */
#ifndef BACKEND_STORE_H
#define BACKEND_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "prof/profile.h"
#include "prof/push.h"

struct store;

struct store_options {
	uint64_t retention_ns;       /* older data files are unlinked; 0: 7 days */
	uint64_t size_max_bytes;     /* oldest data files go first above it; 0: 50 GB */
	uint64_t free_min_bytes;     /* pushes get -ENOSPC below it; 0: 256 MB */
	uint64_t commit_interval_ms; /* group commit; 0: 100 */
	bool fault_ack_early;        /* seeded fault: acknowledge before the commit */
	bool fault_no_dedupe;        /* seeded fault */
};

/* Creates what is missing; migrates nothing silently: an unknown schema version is -EPROTO with *why. */
int store_open(
	const char *dir, const struct store_options *o, const char **why, struct store **ret);
void store_close(struct store *s); /* commits what is queued; accepts NULL */

struct store_push {
	const struct push_label
		*labels; /* sorted, at most PUSH_LABELS_MAX; with service_name, __name__; host */
	size_t label_count;
	const struct profile *profile;
	const char *window_id; /* "" : none */
	int64_t received_unix_ns;
};

enum store_outcome { STORE_STORED = 0, STORE_DUPLICATE = 1 };

/*
 * Hands count pushes to the writer and waits until they are committed, at most timeout_ms. A time
 * outside [received - 7 days, received + 10 min] is clamped to the received time and the profile's row keeps
 * what was sent. Thread-safe. 0 with outcomes[i] set; -ENOSPC (disk guard), -EBUSY (queue full), -ETIMEDOUT
 * (it may be stored yet: the window id tells), -ENOBUFS (more than 2^20 series), -EIO.
 */
int store_push(struct store *s, const struct store_push *pushes, size_t count, uint64_t timeout_ms,
	enum store_outcome *outcomes);

/*
 * Label matchers, as in Prometheus: {a="b", c!="d", e=~"re"}; RE2-like subset by regcomp(REG_EXTENDED).
 * __type__ and __unit__ are the sample type's, a label that is absent is "". Matchers of `recording` choose
 * windows: those not chosen are not counted and leave no others out.
 */
enum match_op { MATCH_EQ, MATCH_NE, MATCH_RE, MATCH_NRE };
struct matcher {
	char name[256];
	char value[2048];
	enum match_op op;
};
enum { MATCHERS_MAX = 32 };
/* Parses a selector, with or without braces. 0, -EINVAL with a static *why. */
int matcher_parse(
	const char *text, const char **why, struct matcher ret[MATCHERS_MAX], size_t *ret_count);

/* Matchers made ready for many label sets (matcher.c). They and their texts stay the caller's. */
struct match_set;
int match_set_new(const struct matcher *m, size_t count, struct match_set **ret); /* or -EINVAL */
void match_set_free(struct match_set *set);                                       /* accepts NULL */
/* A label that is not there is "". __type__ and __unit__ are the sample type's names. */
bool match_set_takes(const struct match_set *set, const struct push_label *labels, size_t count,
	const char *type, const char *unit);

struct store_range {
	int64_t start_ns, end_ns; /* unix time, half open */
};

/*
 * Merges every matching profile of one view into one profile. 0 (also when nothing matches); -EINVAL (empty
 * range), -E2BIG (the series have more than 8 sample types), -ENOBUFS (memory_max), -errno.
 */
int store_flamegraph(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *r, size_t memory_max, struct profile **ret);

/* The fact that says how many windows were left out because others cover their time. */
#define STORE_FACT_LEFT_OUT "store.overlapping_windows_left_out"

/*
 * Totals by step from start_ns on: calls back in time order, for steps that have profiles. Of several sample
 * types it is the last that counts, so the sum is the flame graph's profile_default_type total. -EINVAL: empty
 * range, step not above 0, more than 100,000 steps.
 */
typedef int store_point_fn(void *data, int64_t ts_ns, int64_t total, uint64_t profiles);
int store_timeline(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *r, int64_t step_ns, store_point_fn *fn, void *data,
	uint64_t *ret_left_out); /* may be NULL */

/* Label sets of the series that have data in the range. */
typedef int store_series_fn(void *data, const struct push_label *labels, size_t count,
	const char *type, const char *unit, int64_t first_ns, int64_t last_ns);
int store_series(struct store *s, const struct matcher *m, size_t m_count,
	const struct store_range *r, store_series_fn *fn, void *data);

struct store_stats {
	uint64_t pushed, duplicates, samples, commits, bytes, files, clamped, refused_full,
		refused_busy;
	uint64_t queue_depth, dict_stacks;
	uint64_t rollups_made, files_damaged; /* set aside since the start */
};
struct store_stats store_stats(struct store *s);

/* Reads everything, prints a line per fault into out. The count of faults, or -errno. */
int store_verify(const char *dir, struct buf *out, uint64_t *ret_profiles);

/* The catalog's path, for the control part, which keeps its own tables there (control.h). */
const char *store_catalog_path(const struct store *s);

#endif
