/*
 * Keeps roll-ups at hand: a thread of its own, because an hour of a thousand hosts takes seconds, and a push
 * waits a tenth of one. It reads data files like any query and writes files that nothing else writes. Once a
 * minute it makes what is absent or of another version, from the newest on, one after the other; what changed
 * since the last pass has to wait for the next, so late windows do not have an hour made anew for each of them.
 *
 * Which versions are present is known in memory: the writer notes the state of each file that it committed, before
 * it answers, so an acknowledged window is in the next answer.
 */
#include <errno.h>

#include "backend/store_roll.h"
#include "backend/store_sql.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"

enum { PASS_MS = 60000 };
#define CLOSED_FOR_NS ((int64_t)60 * 1000000000) /* what is on its way still comes in first */

/* What is known of a roll-up's file. */
struct store_rolled {
	struct store_roll_id id;
	uint64_t made;  /* version of the file, 0: not known */
	uint64_t tried; /* version that cannot be made */
	uint64_t seen;  /* at the last pass */
};

static struct store_file_state *find_state(struct store *s, int32_t hour)
{
	for (size_t i = s->state_count; i-- > 0;) {
		if (s->states[i].hour == hour)
			return &s->states[i];
	}
	return NULL;
}

void store_roller_note(struct store *s, const struct store_file_state *state)
{
	struct store_file_state *known;

	(void)pthread_mutex_lock(&s->lock);
	known = find_state(s, state->hour);
	if (!known && s->state_count == s->states_allocated) {
		size_t more = s->states_allocated ? s->states_allocated * 2 : 256;
		struct store_file_state *states = reallocarray(s->states, more, sizeof(*states));

		if (states) {
			s->states = states;
			s->states_allocated = more;
		}
	}
	/* Without memory the hour is not known, so it has no version, and is read as it is. */
	if (!known && s->state_count < s->states_allocated)
		known = &s->states[s->state_count++];
	if (known)
		*known = *state;
	(void)pthread_mutex_unlock(&s->lock);
}

void store_roller_forget(struct store *s, int32_t hour)
{
	struct store_file_state *known;

	(void)pthread_mutex_lock(&s->lock);
	known = find_state(s, hour);
	if (known)
		*known = s->states[--s->state_count];
	(void)pthread_mutex_unlock(&s->lock);
}

/* With the lock held. */
static uint64_t hour_version(struct store *s, int32_t hour)
{
	static const struct store_file_state none;
	const struct store_file_state *own = find_state(s, hour);
	const struct store_file_state *before = find_state(s, hour - 1);
	const struct store_file_state *after = find_state(s, hour + 1);

	return own ? store_roll_version(before ? before : &none, own, after ? after : &none) : 0;
}

uint64_t store_roller_version(struct store *s, struct store_roll_id id, uint64_t versions[24])
{
	uint64_t any = 0;
	int count = id.is_day ? 24 : 1;

	memset(versions, 0, 24 * sizeof(*versions));
	(void)pthread_mutex_lock(&s->lock);
	for (int i = 0; i < count; i++) {
		versions[i] = hour_version(s, id.is_day ? id.number * 24 + i : id.number);
		any |= versions[i];
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (!id.is_day || !any)
		return any;
	return store_roll_day_version(versions);
}

/* The entry of the roll-up; NULL without memory. */
static struct store_rolled *find_rolled(struct store *s, struct store_roll_id id)
{
	for (size_t i = s->rolled_count; i-- > 0;) {
		struct store_rolled *r = &s->rolled[i];

		if (r->id.is_day == id.is_day && r->id.number == id.number)
			return r;
	}
	if (s->rolled_count == s->rolled_allocated) {
		size_t more = s->rolled_allocated ? s->rolled_allocated * 2 : 256;
		struct store_rolled *rolled = reallocarray(s->rolled, more, sizeof(*rolled));

		if (!rolled)
			return NULL;
		s->rolled = rolled;
		s->rolled_allocated = more;
	}
	s->rolled[s->rolled_count] = (struct store_rolled){.id = id};
	return &s->rolled[s->rolled_count++];
}

static uint64_t version_on_disk(const char *dir, struct store_roll_id id)
{
	_cleanup_(store_sql_closep) sqlite3 *db = NULL;
	uint64_t version = 0;

	if (store_roll_open(dir, id, 0, &db) < 0 || store_roll_read_version(db, &version) < 0)
		return 0;
	return version;
}

static bool has_room(const struct store *s)
{
	uint64_t free_bytes = 0;

	return store_dir_free_bytes(s->dir, &free_bytes) == 0 &&
	       free_bytes / 2 >= s->options.free_min_bytes;
}

static int make(struct store *s, struct store_roll_id id, bool at_once)
{
	uint64_t versions[24], again[24];
	uint64_t version = store_roller_version(s, id, versions);
	struct store_rolled *known = find_rolled(s, id);
	uint64_t seen = known ? known->seen : 0;
	int r;

	if (!known || !version)
		return 0;
	known->seen = version;
	if (!known->made)
		known->made = version_on_disk(s->dir, id);
	if (known->made == version || known->tried == version || (seen != version && !at_once) ||
		!has_room(s))
		return 0;
	r = store_roll_write(s->dir, id, versions);
	if (r == 0 && store_roller_version(s, id, again) == version) {
		known->made = version;
		(void)pthread_mutex_lock(&s->lock);
		s->stats.rollups_made++;
		(void)pthread_mutex_unlock(&s->lock);
		return 0;
	}
	known->made = 0;
	if (r == -ESTALE || r == 0 || r == -ENOENT)
		return 0; /* what it is made of changed or waits, too */
	if (r == -EUCLEAN || r == -EBADMSG)
		known->tried = version;
	log_warn("store", "make a roll-up", r, "%s=%d", id.is_day ? "day" : "hour", id.number);
	return 0;
}

static bool is_stopping(struct store *s)
{
	bool is;

	(void)pthread_mutex_lock(&s->lock);
	is = s->is_stopping;
	(void)pthread_mutex_unlock(&s->lock);
	return is;
}

/* Entries of hours that retention took, and of days without hours. */
static void prune(struct store *s)
{
	uint64_t versions[24];
	size_t n = 0;

	for (size_t i = 0; i < s->rolled_count; i++) {
		if (store_roller_version(s, s->rolled[i].id, versions))
			s->rolled[n++] = s->rolled[i];
	}
	s->rolled_count = n;
}

int store_roller_pass(struct store *s, int64_t now_ns, bool at_once)
{
	int32_t open_hour = store_hour(now_ns - CLOSED_FOR_NS), *hours = NULL;
	size_t count = 0;
	int r;

	(void)pthread_mutex_lock(&s->roller_lock);
	r = store_dir_list(s->dir, &hours, &count);
	prune(s);
	for (size_t i = count; r == 0 && i-- > 0;) {
		int32_t day = store_roll_day(hours[i]);

		if (is_stopping(s))
			r = -ESHUTDOWN;
		else if (hours[i] < open_hour)
			r = make(s, (struct store_roll_id){.number = hours[i]}, at_once);
		/* The day's first file comes last, so its other hours are there. */
		if (r == 0 && (day + 1) * 24 <= open_hour &&
			(i == 0 || store_roll_day(hours[i - 1]) != day))
			r = make(s, (struct store_roll_id){.is_day = true, .number = day}, at_once);
	}
	(void)pthread_mutex_unlock(&s->roller_lock);
	free(hours);
	return r;
}

static void *roller_main(void *data)
{
	struct store *s = data;
	bool is_over = false;

	while (!is_over) {
		struct timespec now, until;

		(void)clock_gettime(CLOCK_REALTIME, &now); /* neither fails with these clocks */
		(void)store_roller_pass(s,
			(int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec,
			false); /* tried again in a minute */
		(void)clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += PASS_MS / 1000;
		(void)pthread_mutex_lock(&s->lock);
		while (!s->is_stopping &&
			pthread_cond_timedwait(&s->roller_wake, &s->lock, &until) != ETIMEDOUT)
			;
		is_over = s->is_stopping;
		(void)pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

int store_roller_start(struct store *s)
{
	int r = pthread_create(&s->roller, NULL, roller_main, s);

	s->has_roller = r == 0;
	return -r;
}

void store_roller_stop(struct store *s)
{
	if (s->has_roller) {
		(void)pthread_mutex_lock(&s->lock);
		s->is_stopping = true;
		(void)pthread_cond_signal(&s->roller_wake);
		(void)pthread_mutex_unlock(&s->lock);
		(void)pthread_join(s->roller, NULL); /* it is ours and joined once */
		s->has_roller = false;
	}
	free(s->states);
	free(s->rolled);
	s->states = NULL;
	s->rolled = NULL;
}
