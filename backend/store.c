/*
 * Opening and closing the store: paths, the directory's lock, defaults, and the window ids of the last 48 h.
 */
#include "backend/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/file.h"

#define RETENTION_NS_DEFAULT    ((uint64_t)7 * 24 * 3600 * NSEC_PER_SEC)
#define SIZE_MAX_BYTES_DEFAULT  ((uint64_t)50 << 30)
#define FREE_MIN_BYTES_DEFAULT  ((uint64_t)256 << 20)
#define COMMIT_INTERVAL_DEFAULT 100
#define SCRATCH_BYTES_MAX       ((size_t)1 << 30)
#define BLOB_BYTES_MAX          ((size_t)512 << 20)
#define FACTS_BYTES_MAX         ((size_t)16 << 20)

static void set_options(struct store *s, const struct store_options *o)
{
	if (o)
		s->options = *o;
	if (!s->options.retention_ns)
		s->options.retention_ns = RETENTION_NS_DEFAULT;
	if (!s->options.size_max_bytes)
		s->options.size_max_bytes = SIZE_MAX_BYTES_DEFAULT;
	if (!s->options.free_min_bytes)
		s->options.free_min_bytes = FREE_MIN_BYTES_DEFAULT;
	if (!s->options.commit_interval_ms)
		s->options.commit_interval_ms = COMMIT_INTERVAL_DEFAULT;
	s->options.retention_ns = MIN(s->options.retention_ns, (uint64_t)INT64_MAX / 2);
}

static int set_paths(struct store *s, const char *dir)
{
	char path[STORE_PATH_MAX];

	/* Room for the names that come behind it. */
	if (strlen(dir) > sizeof(s->dir) - 64)
		return -ENAMETOOLONG;
	(void)snprintf(s->dir, sizeof(s->dir), "%s", dir);
	(void)snprintf(
		s->dict_path, sizeof(s->dict_path), "%.*s/dict.db", STORE_PATH_MAX - 64, dir);
	(void)snprintf(s->catalog_path, sizeof(s->catalog_path), "%.*s/catalog.db",
		STORE_PATH_MAX - 64, dir);
	(void)snprintf(path, sizeof(path), "%.*s/data", STORE_PATH_MAX - 64, dir);
	return file_mkdir_parents(path);
}

/* Names that are on disk only after the directories that hold them were synced. */
static int sync_dirs(const char *dir)
{
	char path[STORE_PATH_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%.*s/data", STORE_PATH_MAX - 64, dir);
	r = store_dir_sync(path);
	if (r == 0)
		r = store_dir_sync(dir);
	(void)snprintf(path, sizeof(path), "%.*s/..", STORE_PATH_MAX - 64, dir);
	return r == 0 ? store_dir_sync(path) : r;
}

static int lock_dir(struct store *s, const char **why)
{
	char path[STORE_PATH_MAX];

	(void)snprintf(path, sizeof(path), "%.*s/lock", STORE_PATH_MAX - 64, s->dir);
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->lock_fd < 0)
		return -errno;
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		*why = "another process has this data directory open";
		return -EBUSY;
	}
	return 0;
}

static int load_windows(struct store *s, const struct store_file *f, int64_t since_ns)
{
	_cleanup_(store_sql_finalizep) sqlite3_stmt *q = NULL;
	int r = store_sql_prepare(store_file_db(f),
		"SELECT labels, id, received FROM window WHERE received >= ?", &q);

	if (r < 0)
		return r;
	(void)sqlite3_bind_int64(q, 1, since_ns);
	while ((r = store_sql_step(q)) > 0) {
		const char *id = (const char *)sqlite3_column_text(q, 1);

		if (id)
			r = store_seen_add(s->seen, store_seen_hash(sqlite3_column_int64(q, 0), id),
				sqlite3_column_int64(q, 2), store_file_hour(f));
		if (r < 0)
			break;
	}
	return r;
}

/* Opens each file as the writer does, which also brings what a crash left in its WAL into it. */
static int load_files(struct store *s, const char **why)
{
	struct timespec now;
	int32_t *hours = NULL;
	size_t count = 0;
	int64_t since_ns;
	int r = store_dir_list(s->dir, &hours, &count);

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail with this clock */
	since_ns = ((int64_t)now.tv_sec - (int64_t)STORE_SEEN_HOURS * 3600) * (int64_t)NSEC_PER_SEC;
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct store_file *f = NULL;

		r = store_file_open(s->dir, hours[i], false, why, &f);
		if (r == 0)
			r = load_windows(s, f, since_ns);
		if (r == 0)
			store_roller_note(s, store_file_committed(f));
		store_file_close(f);
		if (r == -EUCLEAN)
			store_put_quarantine(s, hours[i]);
		if (r == -EUCLEAN || r == -EIO)
			r = 0; /* a damaged file must not keep the others from being served */
	}
	free(hours);
	return r;
}

static int open_parts(struct store *s, const char **why)
{
	int r = lock_dir(s, why);

	if (r == 0)
		r = store_index_open(s->catalog_path, why, &s->index);
	if (r == 0)
		r = dict_open(s->dict_path, 0, why, &s->dict);
	s->seen = store_seen_new();
	s->scratch = arena_new(SCRATCH_BYTES_MAX);
	if (r == 0 && (!s->seen || !s->scratch))
		r = -ENOMEM;
	if (r == 0) {
		store_dir_unlink_orphans(s->dir);
		store_roll_unlink_unfinished(s->dir);
		r = load_files(s, why);
	}
	if (r == 0)
		r = sync_dirs(s->dir);
	if (r == 0) {
		s->stats.dict_stacks = dict_count(s->dict, DICT_STACK);
		r = store_writer_start(s);
	}
	if (r == 0)
		r = store_roller_start(s);
	return r;
}

int store_open(const char *dir, const struct store_options *o, const char **why, struct store **ret)
{
	const char *reason = "the data directory cannot be opened";
	struct store *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;
	int r;

	if (!s)
		return -ENOMEM;
	s->lock_fd = -1;
	(void)pthread_mutex_init(&s->lock, NULL); /* none of these fails on Linux */
	(void)pthread_mutex_init(&s->roller_lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->wake, &attr);
	(void)pthread_cond_init(&s->roller_wake, &attr);
	(void)pthread_condattr_destroy(&attr);
	buf_init(&s->blob, BLOB_BYTES_MAX);
	buf_init(&s->facts, FACTS_BYTES_MAX);
	set_options(s, o);
	r = set_paths(s, dir);
	if (r == 0)
		r = open_parts(s, &reason);
	if (r < 0) {
		if (why)
			*why = reason;
		store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	store_writer_stop(s);
	store_roller_stop(s);
	dict_close(s->dict);
	store_index_close(s->index);
	store_seen_free(s->seen);
	arena_free(s->scratch);
	buf_done(&s->blob);
	buf_done(&s->facts);
	(void)pthread_cond_destroy(&s->wake);
	(void)pthread_cond_destroy(&s->roller_wake);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_mutex_destroy(&s->roller_lock);
	closep(&s->lock_fd);
	free(s);
}

struct store_stats store_stats(struct store *s)
{
	struct store_stats stats;

	(void)pthread_mutex_lock(&s->lock);
	stats = s->stats;
	stats.queue_depth = s->queued;
	(void)pthread_mutex_unlock(&s->lock);
	return stats;
}

const char *store_catalog_path(const struct store *s)
{
	return s->catalog_path;
}
