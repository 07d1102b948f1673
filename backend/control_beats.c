/*
 * What hosts say of themselves, on its way to the disk. A large fleet heartbeats thousands of times a second
 * and almost never has anything to tell but new numbers, and a page written for each was two thirds of what a heartbeat
 * cost. So the newest numbers of each host are kept in memory, and its row is written when a text changes, when it is
 * some minutes old, and at the end. Rows that are due are gathered: the first is written at once, what comes within
 * the next 100 ms waits for the first beat after them, and all of it is one transaction.
 *
 * Nobody sees the difference: who reads ctl_hosts calls control_beats_write before, and control_beats_words for
 * numbers. A killed process loses the numbers of minutes at most, which hosts say again in an interval.
 * Acknowledgements and commands never wait: their beats are committed before the answer, by control_heartbeat.c.
 *
 * Which hosts may wait is known without asking the database:
 *	known	instances that have a row, with their numbers; filled by beats that did not wait
 *	open	instances for which a command waits, or did when this was read. An insert into ctl_commands, whoever
 *		makes it, has it read again (SQLite's update hook); what is over is forgotten once a minute.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "backend/control_internal.h"
#include "base/def.h"
#include "base/log.h"

enum {
	WAITING_MAX = 2048,
	WRITE_EVERY_MS = 100,
	OPEN_AGAIN_MS = 60000,
	/* Half of it is drawn, so that a fleet that started at once does not write at once. Less than the 10 min
	 * in which a host counts as alive. */
	ROW_AGE_MAX_MS = 300000,
};

static const int64_t HOST_FORGET_MS = 30 * 86400000LL;

struct host {
	struct control_words words;
	uint64_t texts; /* hash of what is in the row beside the numbers */
	int64_t row_ms; /* when the row was written, or put to those that wait */
	bool is_newer;  /* than the row */
};

struct control_beats {
	struct map *known; /* instance -> index in hosts + 1 */
	struct map *open;
	struct host *hosts;
	size_t host_count, hosts_allocated;
	bool open_stale; /* a command was inserted */
	int64_t open_read_ms, written_ms;
	size_t count;
	struct control_beat waiting[WAITING_MAX];
};

void control_beat_done(struct control_beat *b)
{
	buf_done(&b->host);
	buf_done(&b->instance);
	buf_done(&b->boot_id);
	buf_done(&b->version);
	buf_done(&b->kernel);
	buf_done(&b->arch);
	buf_done(&b->state);
	buf_done(&b->state_text);
	buf_done(&b->can);
}

static void on_change(void *data, int what, const char *db, const char *table, sqlite3_int64 row)
{
	struct control_beats *s = data;

	(void)db, (void)row;
	if (what == SQLITE_INSERT && strcmp(table, "ctl_commands") == 0)
		s->open_stale = true;
}

int control_beats_init(struct control *c)
{
	struct control_beats *s = calloc(1, sizeof(*s));

	c->beats = s;
	if (!s)
		return -ENOMEM;
	s->known = map_new(CONTROL_HOSTS_MAX);
	s->open_stale = true;
	(void)sqlite3_update_hook(c->db, on_change, s); /* gives the hook before, there was none */
	return s->known ? 0 : -ENOMEM;
}

static void waiting_clear(struct control_beats *s)
{
	for (size_t i = 0; i < s->count; i++)
		control_beat_done(&s->waiting[i]);
	s->count = 0;
}

/* The numbers that are newer than their rows. */
static int words_write_all(struct control *c)
{
	struct control_beats *s = c->beats;
	const void *key;
	size_t size;
	uint64_t at;
	int r = control_begin(c);

	for (size_t i = 0; !r && map_entry(s->known, i, &key, &size, &at); i++) {
		const struct host *h = &s->hosts[at - 1];
		const struct control_words *w = &h->words;
		char instance[CONTROL_ID_MAX + 1];

		if (!h->is_newer)
			continue;
		(void)snprintf(instance, sizeof(instance), "%.*s", (int)size, (const char *)key);
		r = control_run(c,
			"UPDATE ctl_hosts SET cpu_ns = ?2, rss_bytes = ?3, kernel_bytes = ?4,"
			" uptime_ns = ?5, lost_samples = ?6, windows_dropped = ?7,"
			" spool_windows = ?8, spool_bytes = ?9, skew_ms = ?10, last_ms = ?11"
			" WHERE instance = ?1",
			"tiiiiiiiiii", instance, w->cpu_ns, w->rss, w->kernel_bytes, w->uptime_ns,
			w->lost, w->dropped, w->spool_windows, w->spool_bytes, w->skew_ms,
			w->received_ms);
	}
	return control_end(c, r);
}

void control_beats_free(struct control *c)
{
	struct control_beats *s = c->beats;
	int r;

	if (!s)
		return;
	r = control_beats_write(c);
	if (!r)
		r = words_write_all(c);
	if (r)
		log_error("control", "keep heartbeats", r, "%s", "");
	waiting_clear(s);
	map_free(s->known);
	map_free(s->open);
	free(s->hosts);
	free(s);
	c->beats = NULL;
}

static int open_read(struct control *c, int64_t now_ms)
{
	struct control_beats *s = c->beats;
	struct map *fresh = map_new(CONTROL_HOSTS_MAX);
	int r = 0;

	if (!fresh)
		return -ENOMEM;
	{
		_cleanup_(control_reset) sqlite3_stmt *stmt = control_query(c, &r,
			"SELECT DISTINCT instance FROM ctl_commands"
			" WHERE state IN ('pending', 'sent')",
			"");

		while (control_row(c, stmt, &r)) {
			const char *instance = control_column(stmt, 0);

			if (!map_put(fresh, instance, strlen(instance), NULL))
				r = -errno;
			if (r)
				break;
		}
	}
	if (r) {
		map_free(fresh);
		return r;
	}
	map_free(s->open);
	s->open = fresh;
	s->open_stale = false;
	s->open_read_ms = now_ms;
	return 0;
}

static uint64_t texts_hash(const struct control_beat *b)
{
	const struct buf *const texts[] = {&b->host, &b->boot_id, &b->version, &b->kernel, &b->arch,
		&b->state, &b->state_text, &b->can};
	uint64_t h = (uint64_t)b->cpus;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		h = XXH3_64bits_withSeed(
			buf_str(texts[i]), texts[i]->size + 1, h); /* with the NUL */
	return h;
}

static struct host *host_find(const struct control_beats *s, const char *instance, size_t size)
{
	uint64_t at = 0;

	return map_get(s->known, instance, size, &at) && at > 0 ? &s->hosts[at - 1] : NULL;
}

/* Makes the host known. Without memory it is not, and goes on the long way, which works, too. */
static struct host *host_know(struct control_beats *s, const struct buf *instance)
{
	struct host *h = host_find(s, buf_str(instance), instance->size);
	uint64_t *at;

	if (h)
		return h;
	if (s->host_count == s->hosts_allocated) {
		size_t more = s->hosts_allocated ? 2 * s->hosts_allocated : 64;
		struct host *grown = reallocarray(s->hosts, more, sizeof(*grown));

		if (!grown)
			return NULL;
		s->hosts = grown;
		s->hosts_allocated = more;
	}
	at = map_put(s->known, buf_str(instance), instance->size, NULL);
	if (!at)
		return NULL;
	*at = ++s->host_count;
	return &s->hosts[s->host_count - 1];
}

static bool is_due(int64_t then_ms, int64_t now_ms, int64_t every_ms)
{
	return now_ms < then_ms || now_ms - then_ms >= every_ms;
}

bool control_beats_is_quiet(struct control *c, const struct control_beat *b)
{
	struct control_beats *s = c->beats;
	uint64_t value;
	bool stale = s->open_stale ||
		     (map_count(s->open) > 0 &&
			     is_due(s->open_read_ms, b->words.received_ms, OPEN_AGAIN_MS));

	/* Without knowing, every beat asks the database. */
	if (stale && open_read(c, b->words.received_ms) < 0)
		return false;
	return host_find(s, buf_str(&b->instance), b->instance.size) &&
	       !map_get(s->open, b->instance.data, b->instance.size, &value);
}

/* Runs a statement that takes all of a beat, in the order of the table's columns. */
static int host_run(struct control *c, const char *sql, const struct control_beat *b)
{
	return control_run(c, sql,
		"ttttttittt"
		"iiiiiiiiii",
		buf_str(&b->instance), buf_str(&b->host), buf_str(&b->boot_id),
		buf_str(&b->version), buf_str(&b->kernel), buf_str(&b->arch), b->cpus,
		buf_str(&b->state), buf_str(&b->state_text), buf_str(&b->can), b->words.cpu_ns,
		b->words.rss, b->words.kernel_bytes, b->words.uptime_ns, b->words.lost,
		b->words.dropped, b->words.spool_windows, b->words.spool_bytes, b->words.skew_ms,
		b->words.received_ms);
}

/* The row as it is, with new words. 0 when there is none for this host; 1; -errno. */
static int host_update(struct control *c, const struct control_beat *b)
{
	int r = host_run(c,
		"UPDATE ctl_hosts SET boot_id = ?3, agent_version = ?4, kernel = ?5, arch = ?6,"
		" cpus = ?7, state = ?8, state_text = ?9, can = ?10, cpu_ns = ?11, rss_bytes = ?12,"
		" kernel_bytes = ?13, uptime_ns = ?14, lost_samples = ?15, windows_dropped = ?16,"
		" spool_windows = ?17, spool_bytes = ?18, skew_ms = ?19, last_ms = ?20"
		" WHERE instance = ?1 AND host = ?2",
		b);

	return r ? r : sqlite3_changes(c->db) > 0;
}

static int host_insert(struct control *c, const struct control_beat *b)
{
	return host_run(c,
		"INSERT OR REPLACE INTO ctl_hosts VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
		"?11, ?12,"
		" ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
		b);
}

static int host_exists(struct control *c, const char *instance, bool *ret)
{
	int r = 0;
	_cleanup_(control_reset) sqlite3_stmt *stmt =
		control_query(c, &r, "SELECT 1 FROM ctl_hosts WHERE instance = ?1", "t", instance);

	*ret = control_row(c, stmt, &r);
	return r;
}

/* At the limit, hosts that were silent for a month make room. */
static int host_admit(struct control *c, const struct control_beat *b)
{
	bool known = false;
	int r = host_exists(c, buf_str(&b->instance), &known);

	if (r || known)
		return r;
	if (c->host_count >= CONTROL_HOSTS_MAX) {
		r = control_run(c, "DELETE FROM ctl_hosts WHERE last_ms < ?1", "i",
			b->words.received_ms - HOST_FORGET_MS);
		c->host_count -= sqlite3_changes(c->db);
	}
	if (!r && c->host_count >= CONTROL_HOSTS_MAX)
		return -ENOSPC;
	c->host_count++;
	return r;
}

static int put_one(struct control *c, const struct control_beat *b)
{
	int r = host_update(c, b);

	if (r == 0) {
		r = host_admit(c, b); /* new, or it has another name now */
		if (r == 0)
			r = host_insert(c, b);
	}
	return MIN(r, 0);
}

static int waiting_put(struct control *c)
{
	struct control_beats *s = c->beats;
	int r = 0;

	for (size_t i = 0; !r && i < s->count; i++)
		r = put_one(c, &s->waiting[i]);
	return r;
}

int control_beats_put(struct control *c, const struct control_beat *b)
{
	int r = waiting_put(c);

	return r ? r : put_one(c, b);
}

void control_beats_done(struct control *c, const struct control_beat *b)
{
	struct control_beats *s = c->beats;
	struct host *h = host_know(s, &b->instance);

	waiting_clear(s);
	s->written_ms = b->words.received_ms;
	if (h)
		*h = (struct host){b->words, texts_hash(b), b->words.received_ms, false};
}

void control_beats_words(struct control *c, const char *instance, struct control_words *ret)
{
	const struct host *h = host_find(c->beats, instance, strlen(instance));

	if (h && h->is_newer)
		*ret = h->words;
}

int control_beats_write(struct control *c)
{
	int64_t hosts = c->host_count;
	int r;

	if (c->beats->count == 0)
		return 0;
	r = control_begin(c);
	if (!r)
		r = waiting_put(c);
	r = control_end(c, r);
	if (r)
		c->host_count = hosts;
	else
		waiting_clear(c->beats);
	return r;
}

/* Whether the row must be written; the numbers are kept in any case. */
static bool host_take(struct host *h, const struct control_beat *b)
{
	uint64_t texts = texts_hash(b);
	int64_t age_max_ms = ROW_AGE_MAX_MS / 2 + (int64_t)(texts % (ROW_AGE_MAX_MS / 2));
	bool due = texts != h->texts || is_due(h->row_ms, b->words.received_ms, age_max_ms);

	h->words = b->words;
	h->is_newer = !due;
	if (due) {
		h->texts = texts;
		h->row_ms = b->words.received_ms;
	}
	return due;
}

int control_beats_add(struct control *c, struct control_beat *b)
{
	struct control_beats *s = c->beats;
	struct host *h = host_find(s, buf_str(&b->instance), b->instance.size);
	int64_t now_ms = b->words.received_ms;
	int r = s->count == WAITING_MAX ? control_beats_write(c) : 0;

	if (r)
		return r;
	assert(h); /* it is quiet, so it is known */
	if (host_take(h, b)) {
		s->waiting[s->count++] = *b;
		*b = (struct control_beat){0};
	}
	if (s->count == 0 || !is_due(s->written_ms, now_ms, WRITE_EVERY_MS))
		return 0;
	r = control_beats_write(c);
	if (r == 0)
		s->written_ms = now_ms;
	return r;
}
