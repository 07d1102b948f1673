/*
 * The table of open files. A descriptor held keeps the inode from being reused, so (device, inode)
 * names the same file as long as it is open; mtime and size tell when its content was replaced in
 * place. Above SYMBOLIZE_FDS_MAX the least recently used descriptors are closed; their entries stay
 * and are compared by stat when the file is opened again.
 */
#include <errno.h>
#include <sys/stat.h>

#include "agent/procfs.h"
#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/loop.h"

struct symbolize_file_key {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
};

int symbolize_file_init(struct symbolizer *s)
{
	s->files = calloc(SYMBOLIZE_FILES_MAX, sizeof(*s->files));
	s->file_map = map_new(SYMBOLIZE_FILES_MAX);
	if (!s->files || !s->file_map)
		return -ENOMEM;
	for (size_t i = 0; i < SYMBOLIZE_FILES_MAX; i++)
		s->files[i].fd = -1;
	return 0;
}

static void symbolize_file_close(struct symbolizer *s, struct symbolize_file *f)
{
	if (f->fd < 0)
		return;
	closep(&f->fd);
	f->fd = -1;
	s->fd_count--;
}

static void symbolize_file_clear(struct symbolizer *s, struct symbolize_file *f)
{
	uint32_t generation = f->generation;

	symbolize_file_close(s, f);
	free(f->pending);
	*f = (struct symbolize_file){.generation = generation, .fd = -1};
}

void symbolize_file_done(struct symbolizer *s)
{
	for (size_t i = 0; s->files && i < SYMBOLIZE_FILES_MAX; i++)
		if (s->files[i].is_used)
			symbolize_file_clear(s, &s->files[i]);
	free(s->files);
	map_free(s->file_map);
}

struct symbolize_file *symbolize_file_at(struct symbolizer *s, uint32_t handle)
{
	struct symbolize_file *f = &s->files[handle & (SYMBOLIZE_FILES_MAX - 1)];

	if (handle == 0 || !f->is_used || f->generation != handle >> SYMBOLIZE_FILES_BITS)
		return NULL;
	f->used = ++s->tick;
	return f;
}

uint32_t symbolize_file_handle(const struct symbolizer *s, const struct symbolize_file *f)
{
	return f->generation << SYMBOLIZE_FILES_BITS | (uint32_t)(f - s->files);
}

/* Closes the least recently used descriptor. */
static void symbolize_file_close_one(struct symbolizer *s)
{
	struct symbolize_file *oldest = NULL;

	for (size_t i = 0; i < SYMBOLIZE_FILES_MAX; i++) {
		struct symbolize_file *f = &s->files[i];

		/* One with pending offsets is about to be read. */
		if (f->fd >= 0 && f->pending_count == 0 && symbolize_file_handle(s, f) != s->vdso &&
			(!oldest || f->used < oldest->used))
			oldest = f;
	}
	if (oldest)
		symbolize_file_close(s, oldest);
}

static int symbolize_order_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a;
	const uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The table is full: drops the older half at once, since the map has no removal. */
static void symbolize_file_evict(struct symbolizer *s)
{
	uint64_t ticks[SYMBOLIZE_FILES_MAX];
	struct map *kept = map_new(SYMBOLIZE_FILES_MAX);

	if (!kept)
		return;
	for (size_t i = 0; i < SYMBOLIZE_FILES_MAX; i++)
		ticks[i] = s->files[i].used;
	qsort(ticks, SYMBOLIZE_FILES_MAX, sizeof(*ticks), symbolize_order_u64);
	for (size_t i = 0; i < SYMBOLIZE_FILES_MAX; i++) {
		struct symbolize_file *f = &s->files[i];
		struct symbolize_file_key key = {f->inode, f->dev_major, f->dev_minor};

		if (!f->is_used)
			continue;
		if (f->used <= ticks[SYMBOLIZE_FILES_MAX / 2] && !f->is_queued &&
			symbolize_file_handle(s, f) != s->vdso) {
			symbolize_file_clear(s, f);
			continue;
		}
		uint64_t *slot = map_put(kept, &key, sizeof(key), NULL);
		if (slot)
			*slot = i + 1;
	}
	map_free(s->file_map);
	s->file_map = kept;
}

static bool symbolize_file_is_same(const struct symbolize_file *f, const struct stat *st)
{
	return f->size == (uint64_t)st->st_size && f->mtime_s == st->st_mtim.tv_sec &&
	       f->mtime_ns == (uint32_t)st->st_mtim.tv_nsec;
}

/* Makes f the file that st describes, under a new id and handle. */
static void symbolize_file_fill(struct symbolizer *s, struct symbolize_file *f,
	const struct symbolize_file_key *key, const struct stat *st)
{
	symbolize_file_close(s, f);
	f->pending_count = 0;
	f->generation = (f->generation + 1) & (UINT32_MAX >> SYMBOLIZE_FILES_BITS);
	if (f->generation == 0)
		f->generation = 1;
	f->id = ++s->file_ids;
	f->inode = key->inode;
	f->dev_major = key->dev_major;
	f->dev_minor = key->dev_minor;
	f->size = (uint64_t)st->st_size;
	f->mtime_s = st->st_mtim.tv_sec;
	f->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
	f->is_used = true;
	f->is_deleted = st->st_nlink == 0;
	f->failed_ns = 0;
	f->debug = 0;
	s->stats.files++;
}

static struct symbolize_file *symbolize_file_slot(
	struct symbolizer *s, const struct symbolize_file_key *key)
{
	if (map_count(s->file_map) >= SYMBOLIZE_FILES_MAX - 1)
		symbolize_file_evict(s);
	for (size_t i = 0; i < SYMBOLIZE_FILES_MAX; i++) {
		if (s->files[i].is_used || s->files[i].is_queued)
			continue;
		uint64_t *slot = map_put(s->file_map, key, sizeof(*key), NULL);

		if (!slot)
			return NULL;
		*slot = i + 1;
		return &s->files[i];
	}
	return NULL;
}

/* Takes over *fd. */
static struct symbolize_file *symbolize_file_take(
	struct symbolizer *s, const struct symbolize_file_key *key, const struct stat *st, int *fd)
{
	uint64_t slot = 0;
	struct symbolize_file *f;

	if (map_get(s->file_map, key, sizeof(*key), &slot)) {
		f = &s->files[slot - 1];
		if (!symbolize_file_is_same(f, st))
			symbolize_file_fill(s, f, key, st);
		else
			symbolize_file_close(s, f);
	} else {
		f = symbolize_file_slot(s, key);
		if (!f)
			return NULL;
		symbolize_file_fill(s, f, key, st);
	}
	if (s->fd_count >= SYMBOLIZE_FDS_MAX)
		symbolize_file_close_one(s);
	f->fd = steal_fd(fd);
	s->fd_count++;
	f->is_deleted = st->st_nlink == 0;
	f->checked_ns = loop_now_ns();
	f->used = ++s->tick;
	return f;
}

struct symbolize_file *symbolize_file_open(
	struct symbolizer *s, int process_fd, const struct maps *m, const struct maps_region *r)
{
	struct symbolize_file_key key = {r->inode, r->dev_major, r->dev_minor};
	uint64_t slot = 0;
	struct stat st = {0};

	if (map_get(s->file_map, &key, sizeof(key), &slot)) {
		struct symbolize_file *f = &s->files[slot - 1];
		uint64_t now_ns = loop_now_ns();

		if (f->fd >= 0 && procfs_is_generation(f->fd, r) &&
			(now_ns - f->checked_ns < NSEC_PER_SEC ||
				(fstat(f->fd, &st) == 0 && symbolize_file_is_same(f, &st)))) {
			if (now_ns - f->checked_ns >= NSEC_PER_SEC) {
				f->checked_ns = now_ns;
				f->is_deleted = st.st_nlink == 0;
			}
			f->used = ++s->tick;
			return f;
		}
	}
	_cleanup_(closep) int fd = procfs_open_mapped(process_fd, m, r, &st);
	if (fd < 0)
		return NULL;
	struct symbolize_file *f = symbolize_file_take(s, &key, &st, &fd);
	if (f && f->debug == 0)
		f->debug = debug_files_add(s->debug_files, process_fd, maps_path(m, r));
	return f;
}

void symbolize_file_add_vdso(struct symbolizer *s)
{
	struct symbolize_file_key key = {0};
	uint64_t size = 0;
	struct stat st;
	_cleanup_(closep) int fd = procfs_copy_vdso(&size);

	if (fd < 0 || fstat(fd, &st) < 0)
		return; /* its frames are then "[vdso+0x...]" */
	struct symbolize_file *f = symbolize_file_take(s, &key, &st, &fd);
	if (!f)
		return;
	s->vdso = symbolize_file_handle(s, f);
	s->vdso_size = size;
}
