/*
 * Files and their chunks. A descriptor held keeps the inode from being reused, so (device, inode)
 * names the same file as long as it is open; size and mtime tell when its content was replaced. A
 * file that no list refers to keeps its tables until the slot or the budget is needed, since
 * programs that run for a moment come again. Its descriptor stays for some ticks, for chunks that stacks
 * of dead processes wait for, and not longer: it would keep deleted files on disk.
 */
#include "agent/tables_internal.h"

#include <errno.h>

#include "agent/procfs.h"
#include "base/def.h"

enum { TABLES_IDLE_TICKS = 3 };

static uint32_t *tables_file_bucket(struct tables *t, const struct tables_file_key *key)
{
	uint64_t h =
		(key->inode ^ (uint64_t)key->dev_minor << 32 ^ (uint64_t)key->dev_major << 40) *
		0x9e3779b97f4a7c15;

	return &t->file_buckets[h >> 54]; /* TABLES_BUCKETS = 2^10 */
}

_Static_assert(TABLES_BUCKETS == 1 << 10, "buckets are chosen by ten bits");

static bool tables_file_is_inode(const struct tables_file *f, const struct tables_file_key *key)
{
	return f->key.inode == key->inode && f->key.dev_major == key->dev_major &&
	       f->key.dev_minor == key->dev_minor;
}

static bool tables_file_is_content(const struct tables_file *f, const struct tables_file_key *key)
{
	return f->key.size == key->size && f->key.mtime_ns == key->mtime_ns;
}

/* The file that has this inode now: slot + 1, or 0. */
static uint32_t tables_file_by_inode(const struct tables *t, const struct tables_file_key *key)
{
	uint32_t at = *tables_file_bucket((struct tables *)t, key);

	while (at != 0 &&
		(t->files[at - 1].is_stale || !tables_file_is_inode(&t->files[at - 1], key)))
		at = t->files[at - 1].next;
	return at;
}

uint32_t tables_file_find(const struct tables *t, const struct tables_file_key *key)
{
	uint32_t at = tables_file_by_inode(t, key);

	return at != 0 && tables_file_is_content(&t->files[at - 1], key) ? at : 0;
}

static void tables_file_fill_key(struct tables_file_key *key, const struct stat *st)
{
	key->size = (uint64_t)st->st_size;
	key->mtime_ns = st->st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st->st_mtim.tv_nsec;
}

bool tables_file_is_same(const struct tables_file *f)
{
	struct tables_file_key now = f->key;
	struct stat st;

	if (f->fd < 0 || fstat(f->fd, &st) < 0)
		return false;
	tables_file_fill_key(&now, &st);
	return tables_file_is_content(f, &now);
}

static void tables_file_close(struct tables *t, struct tables_file *f)
{
	if (f->fd < 0)
		return;
	closep(&f->fd);
	f->fd = -1;
	t->fd_count--;
}

/* Takes over *fd; the least recently used descriptor goes if there are too many. */
static void tables_file_attach(struct tables *t, struct tables_file *f, int *fd)
{
	struct tables_file *oldest = NULL;

	tables_file_close(t, f);
	for (size_t i = 0; t->fd_count >= TABLES_FDS_MAX && i < TABLES_FILES_MAX; i++) {
		struct tables_file *o = &t->files[i];

		if (o->state != TABLES_FILE_UNUSED && o->fd >= 0 && i + 1 != t->vdso &&
			(!oldest || o->used < oldest->used))
			oldest = o;
	}
	if (oldest)
		tables_file_close(t, oldest);
	f->fd = steal_fd(fd);
	t->fd_count++;
	if (!f->is_missed)
		return;
	/* What could not be built before may be asked for again. */
	f->is_missed = false;
	for (uint32_t i = 0; i < f->chunk_count; i++)
		if (tables_dir_get(t, f->dir + i) == TABLE_BROKEN)
			tables_dir_set(t, f->dir + i, TABLE_NONE);
}

/* Forgets a file that no list refers to. Its entries are empty at once, free after a wait. */
static void tables_file_forget(struct tables *t, struct tables_file *f)
{
	uint32_t *at = tables_file_bucket(t, &f->key);

	while (*at != (uint32_t)(f - t->files) + 1)
		at = &t->files[*at - 1].next;
	*at = f->next;
	for (uint32_t i = 0; i < f->chunk_count; i++) {
		uint32_t ref = tables_dir_get(t, f->dir + i);

		tables_dir_set(t, f->dir + i, TABLE_NONE);
		if (ref >= TABLE_REF_MIN) {
			const struct table_chunk *c = tables_slab_at(&t->slabs, ref);

			t->stats.chunks--;
			t->stats.rows -= c->row_count;
			tables_slab_give(&t->slabs, ref, c->bytes);
		}
	}
	if (f->chunk_count > 0) {
		if (t->pending_dir_count == TABLES_PENDING_DIRS_MAX) {
			tables_wait(t);
			tables_file_flush(t);
		}
		t->pending_dirs[t->pending_dir_count++] =
			(struct tables_range){f->dir, f->chunk_count};
	}
	tables_file_close(t, f);
	free(f->segments);
	*f = (struct tables_file){.fd = -1};
	t->file_count--;
}

void tables_file_flush(struct tables *t)
{
	for (size_t i = 0; i < t->pending_dir_count; i++) {
		struct tables_range r = t->pending_dirs[i];

		/* A program may have asked for a chunk meanwhile. */
		for (uint32_t k = 0; k < r.size; k++)
			tables_dir_set(t, r.start + k, TABLE_NONE);
		tables_space_give(&t->dir_space, r.start, r.size);
		tables_slabs_release(&t->slabs, r.size * sizeof(*t->dirs));
	}
	t->pending_dir_count = 0;
}

/* The slot of the least recently used file without users is emptied. False: all are in use. */
static bool tables_file_forget_one(struct tables *t)
{
	struct tables_file *oldest = NULL;

	for (uint32_t i = 0; i < TABLES_FILES_MAX; i++) {
		struct tables_file *f = &t->files[i];

		if (f->state != TABLES_FILE_UNUSED && f->users == 0 && i + 1 != t->vdso &&
			(!oldest || f->used < oldest->used))
			oldest = f;
	}
	if (oldest)
		tables_file_forget(t, oldest);
	return oldest != NULL;
}

static struct tables_file *tables_file_slot(struct tables *t)
{
	if (t->file_count == TABLES_FILES_MAX && !tables_file_forget_one(t))
		return NULL;
	for (size_t i = 0; i < TABLES_FILES_MAX; i++)
		if (t->files[i].state == TABLES_FILE_UNUSED)
			return &t->files[i];
	return NULL;
}

/* A directory range for all chunks of the segments. */
static enum tables_file_state tables_file_place(struct tables *t, struct tables_file *f)
{
	uint64_t first = UINT64_MAX;
	uint64_t last = 0;

	for (size_t i = 0; i < f->segment_count; i++) {
		const struct helper_cfi_segment *s = &f->segments[i];

		if (s->offset > f->key.size || s->size > f->key.size - s->offset)
			return TABLES_FILE_BROKEN;
		first = MIN(first, s->vaddr >> TABLE_CHUNK_SHIFT);
		last = MAX(last, (s->vaddr + s->size - 1) >> TABLE_CHUNK_SHIFT);
	}
	if (last > UINT32_MAX || last - first >= TABLES_FILE_CHUNKS_MAX)
		return TABLES_FILE_BROKEN;
	uint32_t count = (uint32_t)(last - first) + 1;

	if (tables_slabs_reserve(&t->slabs, count * sizeof(*t->dirs), tables_now_s()) < 0)
		return TABLES_FILE_FULL;
	if (!tables_space_take(&t->dir_space, count, &f->dir)) {
		tables_slabs_release(&t->slabs, count * sizeof(*t->dirs));
		return TABLES_FILE_FULL;
	}
	f->first_chunk = (uint32_t)first;
	f->chunk_count = count;
	return TABLES_FILE_HAS_DIR;
}

static enum tables_file_state tables_file_inspect(struct tables *t, struct tables_file *f)
{
	enum helper_cfi_status status = HELPER_CFI_BROKEN;
	struct helper_cfi_segments s = {0};

	if (helper_cfi_ask_segments(t->helper, f->fd, f->id, &status, &s) < 0)
		return TABLES_FILE_BROKEN;
	if (status == HELPER_CFI_NO_ELF)
		return TABLES_FILE_ANON;
	if (status == HELPER_CFI_NONE_AT_ALL || status == HELPER_CFI_NONE)
		return TABLES_FILE_NO_CFI;
	if (status != HELPER_CFI_OK || s.count == 0)
		return TABLES_FILE_BROKEN;
	f->segments = calloc(s.count, sizeof(*f->segments));
	if (!f->segments)
		return TABLES_FILE_FULL;
	for (size_t i = 0; i < s.count; i++)
		if (s.segments[i].is_code)
			f->segments[f->segment_count++] = s.segments[i];
	return tables_file_place(t, f);
}

/* Takes over *fd. Slot + 1, or 0. */
static uint32_t tables_file_add(struct tables *t, const struct tables_file_key *key, int *fd)
{
	struct tables_file *f = tables_file_slot(t);

	if (!f)
		return 0;
	*f = (struct tables_file){
		.key = *key, .id = ++t->file_ids, .fd = -1, .state = TABLES_FILE_NO_CFI};
	uint32_t *bucket = tables_file_bucket(t, key);

	f->next = *bucket;
	*bucket = (uint32_t)(f - t->files) + 1;
	f->used = ++t->tick;
	t->file_count++;
	t->stats.files++;
	tables_file_attach(t, f, fd);
	f->state = tables_file_inspect(t, f);
	if (f->state == TABLES_FILE_BROKEN || f->state == TABLES_FILE_FULL)
		t->stats.files_failed++;
	return (uint32_t)(f - t->files) + 1;
}

uint32_t tables_file_get(
	struct tables *t, int process_fd, const struct maps *m, const struct maps_region *r)
{
	struct tables_file_key key = {
		.inode = r->inode, .dev_major = r->dev_major, .dev_minor = r->dev_minor};
	struct stat st = {0};

	if (r->kind == MAPS_VDSO)
		return r->end - r->start == t->vdso_size ? t->vdso : 0;
	uint32_t at = tables_file_by_inode(t, &key);

	if (at != 0 && tables_file_is_same(&t->files[at - 1]) &&
		procfs_is_generation(t->files[at - 1].fd, r)) {
		t->files[at - 1].used = ++t->tick;
		return at;
	}
	_cleanup_(closep) int fd = procfs_open_mapped(process_fd, m, r, &st);
	if (fd < 0)
		return fd == -EINVAL ? TABLES_FILE_IS_ANON : 0;
	tables_file_fill_key(&key, &st);
	if (at != 0 && tables_file_is_content(&t->files[at - 1], &key)) {
		t->files[at - 1].used = ++t->tick;
		tables_file_attach(t, &t->files[at - 1], &fd);
		return at;
	}
	if (at != 0)
		t->files[at - 1].is_stale = true;
	return tables_file_add(t, &key, &fd);
}

void tables_file_hold(struct tables *t, uint32_t file)
{
	t->files[file - 1].users++;
}

void tables_file_release(struct tables *t, uint32_t file)
{
	struct tables_file *f = &t->files[file - 1];

	f->users--;
	f->idle_ticks = 0;
}

void tables_file_close_idle(struct tables *t)
{
	for (uint32_t i = 0; i < TABLES_FILES_MAX; i++) {
		struct tables_file *f = &t->files[i];

		if (f->fd >= 0 && f->users == 0 && i + 1 != t->vdso &&
			++f->idle_ticks >= TABLES_IDLE_TICKS)
			tables_file_close(t, f);
	}
}

/*
 * The segment at a file offset of the region, or NULL, and where in the region another begins. Segments
 * that meet within a page are each mapped with all of it, so the region's own offset does not say
 * which it is for; a byte's does.
 */
static const struct helper_cfi_segment *tables_file_segment(const struct tables_file *f,
	const struct maps_region *r, uint64_t offset, uint64_t *ret_end_offset)
{
	const struct helper_cfi_segment *best = NULL;
	uint64_t end = r->offset + (r->end - r->start);

	for (size_t i = 0; i < f->segment_count; i++) {
		const struct helper_cfi_segment *s = &f->segments[i];

		if (s->offset >= end || s->offset + s->size <= r->offset)
			continue;
		if (!best ||
			(s->offset <= offset ? s->offset > best->offset || best->offset > offset
					     : s->offset < best->offset))
			best = s;
	}
	*ret_end_offset = end;
	for (size_t i = 0; best && i < f->segment_count; i++) {
		const struct helper_cfi_segment *s = &f->segments[i];

		if (s->offset > MAX(best->offset, offset) && s->offset < *ret_end_offset)
			*ret_end_offset = s->offset;
	}
	return best;
}

/* A mapping all of whose chunks have the same reason. */
static void tables_file_describe_run(
	uint32_t dir, const struct maps_region *r, struct table_mapping *ret)
{
	uint64_t chunks = ((r->end - r->start - 1) >> TABLE_CHUNK_SHIFT) + 1;

	ret->bias = r->start;
	ret->dir = dir;
	ret->chunk_count = (uint32_t)MIN(chunks, (uint64_t)TABLES_SHARED_CHUNKS);
}

void tables_file_describe(const struct tables *t, uint32_t file, const struct maps_region *r,
	uint64_t start, struct table_mapping *ret)
{
	const struct tables_file *f = file == 0 ? NULL : &t->files[file - 1];
	const struct helper_cfi_segment *s;
	uint64_t end_offset = 0;

	*ret = (struct table_mapping){.start = start, .end = r->end};
	switch (f ? f->state : TABLES_FILE_BROKEN) {
	case TABLES_FILE_HAS_DIR:
		s = tables_file_segment(f, r, start - r->start + r->offset, &end_offset);
		if (!s)
			return; /* executable by a call of its own; nothing is said about it */
		ret->end = r->start + (end_offset - r->offset);
		ret->bias = r->start - r->offset + s->offset - s->vaddr;
		ret->dir = f->dir;
		ret->first_chunk = f->first_chunk;
		ret->chunk_count = f->chunk_count;
		return;
	case TABLES_FILE_ANON:
		ret->flags = TABLE_MAPPING_ANON;
		return;
	case TABLES_FILE_BROKEN:
		tables_file_describe_run(TABLES_DIR_BROKEN, r, ret);
		return;
	case TABLES_FILE_FULL:
		tables_file_describe_run(TABLES_DIR_FULL, r, ret);
		return;
	default:
		return;
	}
}

static void tables_file_add_vdso(struct tables *t)
{
	_cleanup_(closep) int fd = procfs_copy_vdso(&t->vdso_size);
	struct tables_file_key key = {0};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return; /* frames in it are then walked by frame pointers */
	tables_file_fill_key(&key, &st);
	t->vdso = tables_file_add(t, &key, &fd);
}

int tables_file_init(struct tables *t)
{
	t->files = calloc(TABLES_FILES_MAX, sizeof(*t->files));
	if (!t->files)
		return -ENOMEM;
	for (size_t i = 0; i < TABLES_FILES_MAX; i++)
		t->files[i].fd = -1;
	int r = tables_space_init(&t->dir_space, TABLES_DIR_FIRST, TABLE_DIRS_MAX);

	if (r == 0)
		tables_file_add_vdso(t);
	return r;
}

void tables_file_done(struct tables *t)
{
	for (size_t i = 0; t->files && i < TABLES_FILES_MAX; i++) {
		tables_file_close(t, &t->files[i]);
		free(t->files[i].segments);
	}
	free(t->files);
	tables_space_done(&t->dir_space);
}

struct tables_file *tables_file_of_dir(struct tables *t, uint32_t dir)
{
	for (size_t i = 0; i < TABLES_FILES_MAX; i++) {
		struct tables_file *f = &t->files[i];

		if (f->state == TABLES_FILE_HAS_DIR && dir >= f->dir &&
			dir - f->dir < f->chunk_count)
			return f;
	}
	return NULL;
}
