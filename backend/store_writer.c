/*
 * The writer: the one thread that changes the store. It takes jobs from the queue, writes them into open
 * transactions, and commits when the interval since the first is over or 2 MB are together; then everybody
 * who waits is answered. A failure rolls the whole batch back and is everybody's answer: nothing of it was
 * acknowledged, so its senders come again, and window ids keep the files apart that were committed before the
 * one that failed.
 *
 * A job's memory is the queue's own, its pushes are the caller's. A caller whose time is up takes a queued job
 * back, waits for one that is being read (no disk is waited for there but reads), and leaves one that waits
 * for the commit to the writer.
 */
#include <errno.h>

#include "backend/store_roll.h"
#include "base/def.h"
#include "base/loop.h"

enum {
	BATCH_BYTES = 2 << 20,
	QUEUE_PUSHES_MAX = 8192,
	FILES_KEPT = 3, /* open between batches: this hour and two that are late */
	HOUSEKEEPING_MS = 60000,
};

struct batch {
	struct store_job *first, **last;
	struct store_batch stored;
	int error;
};

static void set_state(struct store *s, struct store_job *job, enum store_job_state state)
{
	(void)pthread_mutex_lock(&s->lock);
	job->state = state;
	(void)pthread_cond_signal(&job->done);
	(void)pthread_mutex_unlock(&s->lock);
}

static void free_job(struct store_job *job)
{
	(void)pthread_cond_destroy(&job->done);
	free(job->outcomes);
	free(job);
}

static void finish(struct store *s, struct store_job *job, int result)
{
	bool is_abandoned;

	(void)pthread_mutex_lock(&s->lock);
	job->result = result;
	job->state = JOB_DONE;
	is_abandoned = job->is_abandoned;
	(void)pthread_cond_signal(&job->done);
	(void)pthread_mutex_unlock(&s->lock);
	if (is_abandoned)
		free_job(job);
}

static struct timespec timespec_at(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};
}

/* The next job, waited for until the deadline; NULL then, or when there is none and the end is near. */
static struct store_job *take(struct store *s, uint64_t deadline_ns)
{
	struct timespec until = timespec_at(deadline_ns);
	struct store_job *job;

	(void)pthread_mutex_lock(&s->lock);
	while (!s->first && !s->is_stopping) {
		if (pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT)
			break;
	}
	job = s->first;
	if (job) {
		s->first = job->next;
		if (!s->first)
			s->last = &s->first;
		s->queued -= job->count;
		job->next = NULL;
		job->state = JOB_TAKEN;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return job;
}

static int commit(struct store *s)
{
	int r = dict_commit(s->dict);

	if (r == 0)
		r = store_index_commit(s->index);
	for (size_t i = 0; r == 0 && i < s->file_count; i++)
		r = store_file_commit(s->files[i]);
	return r;
}

static void roll_back(struct store *s)
{
	for (size_t i = 0; i < s->file_count; i++)
		store_file_rollback(s->files[i]);
	dict_rollback(s->dict);
}

static void count(struct store *s, const struct batch *b)
{
	(void)pthread_mutex_lock(&s->lock);
	s->stats.pushed += b->stored.counts.pushed;
	s->stats.duplicates += b->stored.counts.duplicates;
	s->stats.samples += b->stored.counts.samples;
	s->stats.bytes += b->stored.counts.bytes;
	s->stats.clamped += b->stored.counts.clamped;
	s->stats.commits++;
	s->stats.dict_stacks = dict_count(s->dict, DICT_STACK);
	(void)pthread_mutex_unlock(&s->lock);
}

/* Writes one job into the batch. */
static void add_job(struct store *s, struct batch *b, struct store_job *job)
{
	uint64_t dict_bytes = dict_bytes_added(s->dict);
	int r = store_put_check(s, job);

	if (r < 0) {
		finish(s, job, r);
		return;
	}
	for (size_t i = 0; r == 0 && i < job->count; i++)
		r = store_put(s, &b->stored, &job->pushes[i], &job->outcomes[i]);
	b->stored.bytes += dict_bytes_added(s->dict) - dict_bytes;
	b->error = r;
	if (r == 0 && s->options.fault_ack_early) {
		finish(s, job, 0);
		return;
	}
	*b->last = job;
	b->last = &job->next;
	set_state(s, job, JOB_WAITING);
}

/* After a write that met damage: the files of the batch that are damaged make room for fresh ones. */
static void set_damaged_aside(struct store *s)
{
	for (size_t i = s->file_count; i-- > 0;) {
		if (!store_file_is_whole(s->files[i]))
			store_put_quarantine(s, store_file_hour(s->files[i]));
	}
}

static void run_batch(struct store *s, struct store_job *job)
{
	uint64_t deadline = loop_now_ns() + s->options.commit_interval_ms * NSEC_PER_MSEC;
	struct batch b = {0};

	b.last = &b.first;
	while (job) {
		add_job(s, &b, job);
		if (b.error < 0 || b.stored.bytes >= BATCH_BYTES)
			break;
		job = take(s, deadline);
	}
	if (b.error == 0)
		b.error = commit(s);
	if (b.error < 0)
		roll_back(s);
	if (b.error == -EUCLEAN)
		set_damaged_aside(s);
	else if (b.error == 0)
		count(s, &b);
	/* Also after a failure: files before the one that failed are committed. */
	for (size_t i = 0; i < s->file_count; i++)
		store_roller_note(s, store_file_committed(s->files[i]));
	while (b.first) {
		job = b.first;
		b.first = job->next;
		finish(s, job, b.error);
	}
	store_put_close(s, FILES_KEPT);
}

static void drop_hour(struct store *s, int32_t hour)
{
	store_put_close_hour(s, hour);
	store_roller_forget(s, hour);
	(void)store_dir_unlink(s->dir, hour); /* what stays is found again in a minute */
	store_roll_unlink(s->dir, (struct store_roll_id){.number = hour});
}

static uint64_t bytes_of(const struct store *s, int32_t hour)
{
	return store_dir_bytes(s->dir, hour) + store_roll_bytes(s->dir, hour);
}

void store_writer_retain(struct store *s, int64_t now_ns)
{
	int32_t now = store_hour(now_ns);
	int32_t oldest = store_hour(now_ns - (int64_t)s->options.retention_ns);
	size_t count = 0, from = 0;
	uint64_t bytes = 0;
	int32_t *hours = NULL;

	if (store_dir_list(s->dir, &hours, &count) < 0)
		return; /* tried again in a minute */
	while (from < count && hours[from] < oldest && hours[from] < now)
		drop_hour(s, hours[from++]);
	for (size_t i = from; i < count; i++)
		bytes += bytes_of(s, hours[i]);
	for (; from < count && hours[from] < now && bytes > s->options.size_max_bytes; from++) {
		uint64_t one = bytes_of(s, hours[from]);

		drop_hour(s, hours[from]);
		bytes -= MIN(bytes, one);
	}
	(void)pthread_mutex_lock(&s->lock);
	s->stats.files = count - from;
	(void)pthread_mutex_unlock(&s->lock);
	store_roll_sweep(s->dir, hours + from, count - from);
	free(hours);
	store_seen_expire(s->seen, now_ns);
}

static int64_t unix_now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t); /* cannot fail with this clock */
	return (int64_t)t.tv_sec * (int64_t)NSEC_PER_SEC + t.tv_nsec;
}

static bool is_over(struct store *s)
{
	bool is;

	(void)pthread_mutex_lock(&s->lock);
	is = s->is_stopping && !s->first;
	(void)pthread_mutex_unlock(&s->lock);
	return is;
}

static void *writer_main(void *data)
{
	struct store *s = data;
	uint64_t due = loop_now_ns() + HOUSEKEEPING_MS * NSEC_PER_MSEC;

	while (!is_over(s)) {
		struct store_job *job = take(s, due);

		if (job)
			run_batch(s, job);
		if (loop_now_ns() >= due) {
			store_writer_retain(s, unix_now_ns());
			due = loop_now_ns() + HOUSEKEEPING_MS * NSEC_PER_MSEC;
		}
	}
	return NULL;
}

int store_writer_start(struct store *s)
{
	int r;

	s->last = &s->first;
	store_writer_retain(s, unix_now_ns());
	r = pthread_create(&s->writer, NULL, writer_main, s);
	s->has_writer = r == 0;
	return -r;
}

void store_writer_stop(struct store *s)
{
	if (s->has_writer) {
		(void)pthread_mutex_lock(&s->lock);
		s->is_stopping = true;
		(void)pthread_cond_signal(&s->wake);
		(void)pthread_mutex_unlock(&s->lock);
		(void)pthread_join(s->writer, NULL); /* it is ours and joined once */
		s->has_writer = false;
	}
	store_put_close(s, 0);
	free(s->files);
	s->files = NULL;
}

static void unqueue(struct store *s, struct store_job *job)
{
	struct store_job **at = &s->first;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	if (!*at)
		s->last = at;
	s->queued -= job->count;
}

/* With the lock held. True when job is done; false when time was up and the job is somebody else's now. */
static bool wait_for(struct store *s, struct store_job *job, uint64_t timeout_ms)
{
	struct timespec until = timespec_at(loop_now_ns() + timeout_ms * NSEC_PER_MSEC);
	bool is_late = false;

	while (job->state != JOB_DONE) {
		if (is_late && job->state == JOB_QUEUED) {
			unqueue(s, job);
			job->result = -ETIMEDOUT;
			break;
		}
		if (is_late && job->state == JOB_WAITING) {
			job->is_abandoned = true;
			return false;
		}
		if (is_late)
			(void)pthread_cond_wait(&job->done, &s->lock); /* for the reading's end */
		else
			is_late = pthread_cond_timedwait(&job->done, &s->lock, &until) == ETIMEDOUT;
	}
	return true;
}

static struct store_job *make_job(const struct store_push *pushes, size_t count)
{
	struct store_job *job = calloc(1, sizeof(*job));
	pthread_condattr_t attr;

	if (!job)
		return NULL;
	job->outcomes = calloc(count + 1, sizeof(*job->outcomes));
	if (!job->outcomes) {
		free(job);
		return NULL;
	}
	job->pushes = pushes;
	job->count = count;
	(void)pthread_condattr_init(&attr); /* none of these fails on Linux */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&job->done, &attr);
	(void)pthread_condattr_destroy(&attr);
	return job;
}

/* 0, or why no push may come in now. With the lock held. */
static int admit(struct store *s, size_t count)
{
	uint64_t free_bytes;

	if (store_dir_free_bytes(s->dir, &free_bytes) == 0 &&
		free_bytes < s->options.free_min_bytes) {
		s->stats.refused_full += count;
		return -ENOSPC;
	}
	if (s->is_stopping || s->queued + count > QUEUE_PUSHES_MAX) {
		s->stats.refused_busy += count;
		return -EBUSY;
	}
	return 0;
}

int store_push(struct store *s, const struct store_push *pushes, size_t count, uint64_t timeout_ms,
	enum store_outcome *outcomes)
{
	struct store_job *job;
	int r;

	if (count == 0)
		return 0;
	job = make_job(pushes, count);
	if (!job)
		return -ENOMEM;
	(void)pthread_mutex_lock(&s->lock);
	r = admit(s, count);
	if (r < 0) {
		(void)pthread_mutex_unlock(&s->lock);
		free_job(job);
		return r;
	}
	*s->last = job;
	s->last = &job->next;
	s->queued += count;
	(void)pthread_cond_signal(&s->wake);
	if (!wait_for(s, job, timeout_ms)) {
		(void)pthread_mutex_unlock(&s->lock);
		return -ETIMEDOUT;
	}
	(void)pthread_mutex_unlock(&s->lock);
	r = job->result;
	if (r == 0)
		memcpy(outcomes, job->outcomes, count * sizeof(*outcomes));
	free_job(job);
	return r;
}
