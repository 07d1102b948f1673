/*
 * Which mapping does an address belong to. A process is (PID, start time, exec generation): a
 * reused PID or an exec is another process with maps of its own. /proc/PID is opened once per
 * reading, and everything is read below that descriptor: it gives ESRCH when the process is gone,
 * never another process's files.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"

enum {
	SYMBOLIZE_STAT_SIZE = 1024,
	SYMBOLIZE_STAT_START_FIELD = 22, /* proc(5): starttime, in clock ticks */
	SYMBOLIZE_TASKS_TRIED = 8,
};

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

/* Field 22 of /proc/PID/stat. The name in field 2 may hold spaces and brackets: the last ")" ends
 * it. */
static int symbolize_process_start(int process_fd, uint64_t *ret_ticks)
{
	char text[SYMBOLIZE_STAT_SIZE];
	_cleanup_(closep) int fd = openat(process_fd, "stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ESRCH;
	text[n] = '\0';
	char *pos = strrchr(text, ')');
	for (int field = 2; pos && field < SYMBOLIZE_STAT_START_FIELD; field++) {
		pos = strchr(pos, ' ');
		if (pos)
			pos++;
	}
	if (!pos)
		return -EBADMSG;
	pos[strspn(pos, "0123456789")] = '\0';
	return str_to_u64(pos, 0, UINT64_MAX, ret_ticks);
}

/* /proc/PID as a descriptor, if it is still the process meant; -ESRCH if not. */
static int symbolize_process_open(const struct symbolizer_process *p)
{
	uint64_t tick_ns = NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t ticks = 0;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%u", p->tgid); /* fits */
	_cleanup_(closep) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (p->start_ns == 0)
		return steal_fd(&fd);
	int r = symbolize_process_start(fd, &ticks);
	if (r < 0)
		return r;
	uint64_t wanted = p->start_ns / tick_ns;
	if (ticks > wanted + 1 || ticks + 1 < wanted)
		return -ESRCH;
	return steal_fd(&fd);
}

/* After its leader called pthread_exit, /proc/PID/maps is empty and the threads' are not. */
static void symbolize_process_read_tasks(int process_fd, struct maps *m)
{
	int tasks = openat(process_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = tasks < 0 ? NULL : fdopendir(tasks);
	struct dirent *d;

	if (!dir) {
		closep(&tasks);
		return;
	}
	for (int tried = 0; m->lines == 0 && tried < SYMBOLIZE_TASKS_TRIED; tried++) {
		char name[300];

		d = readdir(dir);
		if (!d)
			break;
		(void)snprintf(name, sizeof(name), "%s/maps", d->d_name); /* fits: 255 + 5 */
		_cleanup_(closep) int fd = openat(dirfd(dir), name, O_RDONLY | O_CLOEXEC);
		if (d->d_name[0] != '.' && fd >= 0)
			(void)maps_read_fd(m, fd); /* what was read until it failed is right */
	}
	(void)closedir(dir); /* read only */
}

static int symbolize_process_read(int process_fd, struct maps *m)
{
	_cleanup_(closep) int fd = openat(process_fd, "maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = maps_read_fd(m, fd);

	if (r == 0 && m->lines == 0)
		symbolize_process_read_tasks(process_fd, m);
	return r == 0 && m->lines == 0 ? -ESRCH : r;
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
	_cleanup_(closep) int fd = symbolize_process_open(&e->id);
	if (fd < 0)
		return fd;
	int r = symbolize_process_read(fd, &m);
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
	_cleanup_(closep) int fd = symbolize_process_open(&e->id);
	struct symbolize_file *again = fd < 0 ? NULL : symbolize_file_open(s, fd, &e->maps, r);
	if (again)
		r->user = symbolize_file_handle(s, again);
	r->user_tried = true;
	/* Without a descriptor what was asked before is still known. */
	return again ? again : f;
}
