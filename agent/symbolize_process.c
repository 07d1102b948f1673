/*
 * Which mapping does an address belong to. A process is (PID, start time, exec generation): a
 * reused PID or an exec is another process with maps of its own.
 */
#include <errno.h>

#include "agent/procfs.h"
#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/loop.h"

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

static void symbolize_process_clear(struct symbolize_entry *e)
{
	maps_done(&e->maps);
	*e = (struct symbolize_entry){0};
}

void symbolize_process_done(struct symbolizer *s)
{
	for (size_t i = 0; s->entries && i < SYMBOLIZE_PROCESSES_MAX; i++)
		symbolize_process_clear(&s->entries[i]);
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

/* Replaces the entry's maps by what they are now; keeps the old ones if the process is gone. */
static int symbolize_process_load(struct symbolizer *s, struct symbolize_entry *e)
{
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	e->read_ns = loop_now_ns();
	_cleanup_(closep) int fd = procfs_open(e->id.tgid, e->id.start_ns);
	if (fd < 0)
		return fd;
	int r = procfs_read_maps(fd, &m);
	if (r < 0)
		return r;
	maps_done(&e->maps);
	e->maps = m;
	maps_init(&m);
	symbolize_process_open_files(s, e, fd);
	return 0;
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

	if (!kept)
		return;
	for (size_t i = 0; i < SYMBOLIZE_PROCESSES_MAX; i++)
		ticks[i] = s->entries[i].used;
	qsort(ticks, SYMBOLIZE_PROCESSES_MAX, sizeof(*ticks), symbolize_process_order);
	for (size_t i = 0; i < SYMBOLIZE_PROCESSES_MAX; i++) {
		struct symbolize_entry *e = &s->entries[i];
		struct symbolize_process_key key = {e->id.start_ns, e->id.tgid, e->id.exec_id};

		if (!e->is_used)
			continue;
		if (e->used <= ticks[SYMBOLIZE_PROCESSES_MAX / 2]) {
			symbolize_process_clear(e);
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
	if (map_count(s->entry_map) >= SYMBOLIZE_PROCESSES_MAX - 1)
		symbolize_process_evict(s);
	for (size_t i = 0; i < SYMBOLIZE_PROCESSES_MAX; i++) {
		if (s->entries[i].is_used)
			continue;
		uint64_t *slot = map_put(s->entry_map, key, sizeof(*key), NULL);

		if (!slot)
			return NULL;
		*slot = i + 1;
		s->entries[i].is_used = true;
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
	if (loop_now_ns() - e->read_ns < e->refresh_ns)
		return false;
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
	struct symbolize_file *again = fd < 0 ? NULL : symbolize_file_open(s, fd, &e->maps, r);
	if (again)
		r->user = symbolize_file_handle(s, again);
	r->user_tried = true;
	/* Without a descriptor what was asked before is still known. */
	return again ? again : f;
}
