/*
 * Which mapping does an address belong to. A process is (PID, start time, exec generation): a
 * reused PID or an exec is another process with maps of its own.
 */
#include <errno.h>
#include <fcntl.h>

#include "agent/process_maps.h"
#include "agent/procfs.h"
#include "agent/remapped_text.h"
#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/loop.h"

enum { SYMBOLIZE_COST_FACTOR = 8 }; /* readings of one process take at most a ninth of a CPU */

struct symbolize_process_key {
	uint64_t start_ns;
	uint32_t tgid, exec_id;
};

int symbolize_process_init(struct symbolizer *s)
{
	s->entries = calloc(SYMBOLIZE_PROCESSES_MAX, sizeof(*s->entries));
	s->entry_map = map_new(SYMBOLIZE_PROCESSES_MAX);
	return s->entries && s->entry_map ? 0 : -ENOMEM;
}

static void symbolize_process_clear(struct symbolizer *s, struct symbolize_entry *e)
{
	s->maps_size -= maps_memory(&e->maps);
	maps_done(&e->maps);
	*e = (struct symbolize_entry){0};
}

void symbolize_process_done(struct symbolizer *s)
{
	/* What was never used has no memory yet, and is not to get some for its end. */
	for (size_t i = 0; i < s->entries_used; i++)
		symbolize_process_clear(s, &s->entries[i]);
	free(s->entries);
	map_free(s->entry_map);
}

static void symbolize_process_open_files(
	struct symbolizer *s, struct symbolize_entry *e, int process_fd)
{
	size_t opened = 0;

	for (size_t i = 0; i < e->maps.count && opened < SYMBOLIZE_PROCESS_FILES_MAX; i++) {
		struct maps_region *r = &e->maps.regions[i];

		if (r->kind != MAPS_FILE)
			continue;
		struct symbolize_file *f = symbolize_file_open(s, process_fd, &e->maps, r);

		r->user = f ? symbolize_file_handle(s, f) : 0;
		r->user_tried = true;
		opened++;
	}
}

static struct process_maps_ask symbolize_process_ask(
	const struct symbolizer *s, const struct symbolize_entry *e)
{
	return (struct process_maps_ask){.sideband = s->options.sideband,
		.tgid = e->id.tgid,
		.start_ns = e->id.start_ns,
		.seen_ns = e->id.seen_ns};
}

/* Replaces the entry's maps by what they are now, or were last; keeps the old ones if none are known. */
static int symbolize_process_load(struct symbolizer *s, struct symbolize_entry *e)
{
	struct process_maps_ask ask = symbolize_process_ask(s, e);
	_cleanup_(maps_done) struct maps m;
	_cleanup_(closep) int fd = -1;
	bool is_past = false;

	maps_init(&m);
	e->read_ns = loop_now_ns();
	int r = process_maps_read(&ask, &m, &fd, &is_past);

	if (is_past)
		s->stats.processes_past++;
	e->is_gone = is_past || r == -ESRCH;
	if (r == 0 && !is_past)
		remapped_text_find(s->helper, fd, &m);
	if (r == 0) {
		s->maps_size -= maps_memory(&e->maps);
		maps_done(&e->maps);
		maps_trim(&m);
		e->maps = m;
		maps_init(&m);
		s->maps_size += maps_memory(&e->maps);
		symbolize_process_open_files(s, e, fd);
	}
	e->cost_ns = loop_now_ns() - e->read_ns;
	return r;
}

static int symbolize_process_order(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a;
	const uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Drops the half that was not used for longest, since the map has no removal. */
static void symbolize_process_evict(struct symbolizer *s)
{
	uint64_t ticks[SYMBOLIZE_PROCESSES_MAX];
	struct map *kept = map_new(SYMBOLIZE_PROCESSES_MAX);
	size_t count = 0;

	if (!kept)
		return;
	for (size_t i = 0; i < SYMBOLIZE_PROCESSES_MAX; i++)
		if (s->entries[i].is_used)
			ticks[count++] = s->entries[i].used;
	qsort(ticks, count, sizeof(*ticks), symbolize_process_order);
	for (size_t i = 0; i < SYMBOLIZE_PROCESSES_MAX; i++) {
		struct symbolize_entry *e = &s->entries[i];
		struct symbolize_process_key key = {e->id.start_ns, e->id.tgid, e->id.exec_id};

		if (!e->is_used)
			continue;
		if (e->used <= ticks[count / 2]) {
			symbolize_process_clear(s, e);
			continue;
		}
		uint64_t *slot = map_put(kept, &key, sizeof(key), NULL);
		if (slot)
			*slot = i + 1;
	}
	map_free(s->entry_map);
	s->entry_map = kept;
}

static struct symbolize_entry *symbolize_process_slot(
	struct symbolizer *s, const struct symbolize_process_key *key)
{
	if (map_count(s->entry_map) >= SYMBOLIZE_PROCESSES_MAX - 1 ||
		s->maps_size > SYMBOLIZE_MAPS_SIZE_MAX)
		symbolize_process_evict(s);
	for (size_t n = 0; n < SYMBOLIZE_PROCESSES_MAX; n++) {
		size_t i = s->entry_next;

		s->entry_next = (i + 1) % SYMBOLIZE_PROCESSES_MAX;
		if (s->entries[i].is_used)
			continue;
		uint64_t *slot = map_put(s->entry_map, key, sizeof(*key), NULL);

		if (!slot)
			return NULL;
		*slot = i + 1;
		s->entries[i].is_used = true;
		s->entries_used = MAX(s->entries_used, i + 1);
		return &s->entries[i];
	}
	return NULL;
}

struct symbolize_entry *symbolize_process_get(
	struct symbolizer *s, const struct symbolizer_process *p)
{
	struct symbolize_process_key key = {p->start_ns, p->tgid, p->exec_id};
	struct symbolize_entry *e;
	uint64_t slot = 0;

	if (map_get(s->entry_map, &key, sizeof(key), &slot)) {
		e = &s->entries[slot - 1];
		e->id.seen_ns = MAX(e->id.seen_ns, p->seen_ns);
		e->used = ++s->tick;
		return e;
	}
	e = symbolize_process_slot(s, &key);
	if (!e)
		return NULL;
	e->id = *p;
	e->used = ++s->tick;
	/* The first stack often comes from the middle of exec, before anything is mapped. */
	e->refresh_ns = 10 * NSEC_PER_MSEC;
	maps_init(&e->maps);
	if (symbolize_process_load(s, e) < 0)
		s->stats.processes_gone++;
	return e;
}

bool symbolize_process_refresh(struct symbolizer *s, struct symbolize_entry *e)
{
	struct process_maps_ask ask = symbolize_process_ask(s, e);
	uint64_t passed_ns = loop_now_ns() - e->read_ns;
	bool is_due = passed_ns >= e->refresh_ns;

	if (e->is_gone)
		return false;
	if (!is_due && e->is_refreshed && passed_ns < SYMBOLIZE_COST_FACTOR * e->cost_ns)
		return false;
	if (!is_due && !process_maps_is_outdated(&ask, e->read_ns))
		return false;
	e->is_refreshed = true;
	if (is_due)
		e->refresh_ns = MIN(2 * e->refresh_ns, NSEC_PER_SEC);
	return symbolize_process_load(s, e) == 0;
}

struct symbolize_file *symbolize_process_file(
	struct symbolizer *s, struct symbolize_entry *e, struct maps_region *r)
{
	if (r->kind == MAPS_VDSO)
		return r->end - r->start == s->vdso_size ? symbolize_file_at(s, s->vdso) : NULL;
	if (r->kind != MAPS_FILE)
		return NULL;
	struct symbolize_file *f = symbolize_file_at(s, r->user);

	if ((f && f->fd >= 0) || (!f && r->user == 0 && r->user_tried))
		return f;
	/* Evicted, closed, or not opened yet because the process has so many. */
	_cleanup_(closep) int fd = procfs_open(e->id.tgid, e->id.start_ns);
	if (fd < 0 && r->told_ns != 0)
		fd = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct symbolize_file *again = fd < 0 ? NULL : symbolize_file_open(s, fd, &e->maps, r);
	if (again)
		r->user = symbolize_file_handle(s, again);
	r->user_tried = true;
	/* Without a descriptor what was asked before is still known. */
	return again ? again : f;
}
