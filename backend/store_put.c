/*
 * One push into open transactions: its hour's file, its window id, its stacks' ids, its rows. Nothing is committed
 * here. Samples that differ only in labels that the dictionary leaves out become one; negative values are
 * dropped and counted, zeros are left out.
 */
#include <errno.h>

#include "backend/store_roll.h"
#include "base/def.h"
#include "base/log.h"

#define CLAMP_PAST_NS   ((int64_t)7 * 24 * STORE_HOUR_NS)
#define CLAMP_FUTURE_NS ((int64_t)600 * 1000000000)

enum { ROW_OVERHEAD = 100, SEEN_FILES_MAX = 16 };

/* The labels that make a series. The recording is none of them: each one would make every series anew. */
struct identity {
	struct push_label labels[PUSH_LABELS_MAX];
	size_t count;
	const char *recording; /* "": the continuous one */
	bool is_filtered;
};

static int identify(const struct store_push *p, struct identity *ret)
{
	const char *recording = profile_fact(p->profile, "recording");
	const char *filter = profile_fact(p->profile, "filter");

	ret->count = 0;
	ret->recording = recording ? recording : "";
	ret->is_filtered = filter && *filter;
	if (p->label_count > PUSH_LABELS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < p->label_count; i++) {
		if (strcmp(p->labels[i].name, "recording") == 0)
			ret->recording = p->labels[i].value;
		else
			ret->labels[ret->count++] = p->labels[i];
	}
	return 0;
}

/* The open file of the hour. -ENOENT when it is absent and create is not set. */
static int get_file(struct store *s, int32_t hour, bool create, struct store_file **ret)
{
	struct store_file *f = NULL;
	const char *why;
	int r;

	for (size_t i = 0; i < s->file_count; i++) {
		if (store_file_hour(s->files[i]) == hour) {
			*ret = s->files[i];
			return 0;
		}
	}
	if (s->file_count == s->files_allocated) {
		size_t more = s->files_allocated ? s->files_allocated * 2 : 8;
		struct store_file **files =
			reallocarray(s->files, more, sizeof(struct store_file *));

		if (!files)
			return -ENOMEM;
		s->files = files;
		s->files_allocated = more;
	}
	r = store_file_open(s->dir, hour, create, &why, &f);
	if (r == -EUCLEAN) {
		store_put_quarantine(s, hour);
		r = store_file_open(s->dir, hour, create, &why, &f);
	}
	if (r < 0)
		return r;
	s->files[s->file_count++] = f;
	*ret = f;
	return 0;
}

void store_put_close_hour(struct store *s, int32_t hour)
{
	for (size_t i = 0; i < s->file_count; i++) {
		if (store_file_hour(s->files[i]) != hour)
			continue;
		store_file_close(s->files[i]);
		s->files[i] = s->files[--s->file_count];
		break;
	}
}

void store_put_quarantine(struct store *s, int32_t hour)
{
	uint64_t bytes = 0;
	char name[16];
	int r;

	store_put_close_hour(s, hour);
	store_dir_name(hour, name);
	r = store_dir_set_aside(s->dir, hour, &bytes);
	if (r < 0) {
		log_error("store", "set a damaged file aside", r, "file=data/%s.db", name);
		return;
	}
	store_roller_forget(s, hour);
	store_roll_unlink(s->dir, (struct store_roll_id){.number = hour});
	(void)pthread_mutex_lock(&s->lock);
	s->stats.files_damaged++;
	(void)pthread_mutex_unlock(&s->lock);
	log_error("store", "set a damaged file aside", -EUCLEAN,
		"file=data/%s.db kept_as=data/%s.db.damaged lost=\"all profiles acknowledged with "
		"a "
		"time in this UTC hour until now are no longer served\" bytes=%llu",
		name, name, (unsigned long long)bytes);
}

void store_put_close(struct store *s, size_t keep)
{
	while (s->file_count > keep) {
		size_t oldest = 0;

		for (size_t i = 1; i < s->file_count; i++) {
			if (store_file_hour(s->files[i]) < store_file_hour(s->files[oldest]))
				oldest = i;
		}
		store_file_close(s->files[oldest]);
		s->files[oldest] = s->files[--s->file_count];
	}
}

/* 1 when this window is stored already, 0 when it is new and noted, an error. */
static int check_window(
	struct store *s, struct store_file *f, int64_t labels_id, const struct store_push *p)
{
	uint64_t hash = store_seen_hash(labels_id, p->window_id);
	int32_t hours[SEEN_FILES_MAX];
	size_t count = store_seen_find(s->seen, hash, store_file_hour(f), hours, ARRAY_SIZE(hours));
	int r;

	for (size_t i = 0; i < count; i++) {
		struct store_file *other;

		r = get_file(s, hours[i], false, &other);
		if (r == 0)
			r = store_file_has_window(other, labels_id, p->window_id);
		else if (r == -ENOENT)
			r = 0; /* retention took it */
		if (r != 0)
			return r;
	}
	r = store_file_put_window(f, labels_id, p->window_id, p->received_unix_ns);
	if (r <= 0)
		return r == 0 ? 1 : r;
	return store_seen_add(s->seen, hash, p->received_unix_ns, store_file_hour(f));
}

struct sample_ref {
	uint64_t stack;
	size_t sample;
};

static int by_stack(const void *a, const void *b)
{
	const struct sample_ref *x = a, *y = b;

	if (x->stack != y->stack)
		return x->stack < y->stack ? -1 : 1;
	return (x->sample > y->sample) - (x->sample < y->sample);
}

/* One type's entries, ascending; samples that differ only in labels that were left out become one. */
static size_t make_entries(const struct profile *p, size_t type, const struct sample_ref *refs,
	size_t count, struct blob_entry *to)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		struct sample sample;
		int64_t value;

		(void)profile_sample_at(p, refs[i].sample, &sample); /* it was there before */
		value = sample.values[type];
		if (value <= 0)
			continue;
		if (n > 0 && to[n - 1].id == refs[i].stack) {
			if (__builtin_add_overflow(to[n - 1].value, value, &to[n - 1].value))
				to[n - 1].value = INT64_MAX;
		} else {
			to[n++] = (struct blob_entry){.id = refs[i].stack, .value = value};
		}
	}
	return n;
}

static int put_values(struct store *s, struct store_batch *b, struct store_file *f,
	const struct store_push *p, struct store_row *row, int64_t profile, int64_t labels_id,
	const uint64_t *stacks)
{
	const struct profile *q = p->profile;
	size_t count = profile_sample_count(q);
	struct sample_ref *refs = arena_alloc(s->scratch, count * sizeof(*refs));
	struct blob_entry *entries = arena_alloc(s->scratch, count * sizeof(*entries));
	int r = refs && entries ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < count; i++)
		refs[i] = (struct sample_ref){.stack = stacks[i], .sample = i};
	if (r == 0)
		qsort(refs, count, sizeof(*refs), by_stack);
	for (size_t type = 0; r == 0 && type < profile_type_count(q); type++) {
		struct sample_type t = profile_type_at(q, type);
		size_t n = make_entries(q, type, refs, count, entries);

		buf_reset(&s->blob);
		r = store_index_series(s->index, labels_id, profile_text(q, t.type),
			profile_text(q, t.unit), (unsigned int)type, &row->series);
		if (r == 0)
			r = blob_write(entries, n, &s->blob, &row->total);
		if (r == 0)
			r = store_file_put_values(f, row, profile, n, s->blob.data, s->blob.size);
		b->bytes += s->blob.size + ROW_OVERHEAD;
		b->counts.bytes += s->blob.size;
		b->counts.samples += n;
	}
	return r;
}

static uint64_t count_negatives(const struct profile *p)
{
	size_t types = profile_type_count(p);
	struct sample sample;
	uint64_t count = 0;

	for (size_t i = 0; profile_sample_at(p, i, &sample); i++) {
		for (size_t t = 0; t < types; t++)
			count += sample.values[t] < 0;
	}
	return count;
}

static int put_profile(struct store *s, struct store_batch *b, struct store_file *f,
	const struct store_push *p, struct store_row *row, bool is_clamped, int64_t labels_id)
{
	_cleanup_(buf_done) struct buf left_out = BUF_INIT(PROFILE_NAME_MAX);
	struct sample_type period_type = profile_period_type(p->profile);
	struct store_profile_row about = {
		.received_ns = p->received_unix_ns,
		.sent_ns = profile_start_ns(p->profile),
		.is_clamped = is_clamped,
		.duration_ns = MAX(profile_duration_ns(p->profile), 0),
		.period = profile_period(p->profile),
		.period_type = profile_text(p->profile, period_type.type),
		.period_unit = profile_text(p->profile, period_type.unit),
	};
	uint64_t *stacks;
	int64_t profile;
	int r = dict_intern(s->dict, p->profile, s->scratch, &left_out, &stacks);

	buf_reset(&s->facts);
	if (r == 0)
		r = store_facts_write(
			p->profile, buf_str(&left_out), count_negatives(p->profile), &s->facts);
	about.facts = s->facts.data;
	about.facts_size = s->facts.size;
	if (r == 0)
		r = store_file_put_profile(f, &about, &profile);
	b->bytes += s->facts.size + ROW_OVERHEAD;
	b->counts.bytes += s->facts.size;
	b->counts.clamped += is_clamped;
	b->counts.pushed++;
	return r == 0 ? put_values(s, b, f, p, row, profile, labels_id, stacks) : r;
}

int store_put(struct store *s, struct store_batch *b, const struct store_push *p,
	enum store_outcome *outcome)
{
	int64_t sent = profile_start_ns(p->profile), received = p->received_unix_ns;
	bool is_clamped = sent < received - CLAMP_PAST_NS || sent > received + CLAMP_FUTURE_NS;
	struct store_row row = {.ts_ns = is_clamped ? received : sent};
	struct store_file *f = NULL;
	struct identity who;
	int64_t labels_id = 0;
	int r = identify(p, &who);

	if (r == 0)
		r = store_index_labels(s->index, who.labels, who.count, &labels_id);
	arena_reset(s->scratch);
	*outcome = STORE_STORED;
	row.span_ns = MIN(MAX(profile_duration_ns(p->profile), 0), STORE_SPAN_NS_MAX);
	if (r == 0)
		r = get_file(s, store_hour(row.ts_ns), true, &f);
	if (r == 0)
		r = store_file_begin(f);
	if (r == 0 && *p->window_id && !s->options.fault_no_dedupe) {
		r = check_window(s, f, labels_id, p);
		if (r > 0) {
			*outcome = STORE_DUPLICATE;
			b->counts.duplicates++;
			return 0;
		}
	}
	if (r == 0 && (*who.recording || who.is_filtered))
		r = store_file_put_source(f, who.recording, who.is_filtered, &row.source);
	return r < 0 ? r : put_profile(s, b, f, p, &row, is_clamped, labels_id);
}

int store_put_check(struct store *s, const struct store_job *job)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < job->count; i++) {
		const struct store_push *p = &job->pushes[i];
		struct identity who;
		int64_t labels_id, series;

		r = identify(p, &who);
		if (r == 0)
			r = store_index_labels(s->index, who.labels, who.count, &labels_id);
		for (size_t t = 0; r == 0 && t < profile_type_count(p->profile); t++) {
			struct sample_type type = profile_type_at(p->profile, t);

			r = store_index_series(s->index, labels_id,
				profile_text(p->profile, type.type),
				profile_text(p->profile, type.unit), (unsigned int)t, &series);
		}
	}
	return r;
}
