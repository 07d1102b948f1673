/*
 * Which files have which debug files. See debug_files.h. Roots of processes are kept once each: most
 * processes have the host's, those of a container share theirs.
 */
#include "agent/debug_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "agent/debug_files_internal.h"
#include "agent/helper_identity.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"

_Static_assert(DEBUG_FILES_DIRS_MAX == 8, "the complaint below says so");

const char *debug_files_complaint(const char *const *dirs, size_t count)
{
	if (count > DEBUG_FILES_DIRS_MAX)
		return "at most 8 directories";
	for (size_t i = 0; i < count; i++)
		if (dirs[i][0] != '/')
			return "must be an absolute path";
	return NULL;
}

int debug_files_new(const char *const *dirs, size_t count, struct debug_files **ret)
{
	static const char *const usual[] = {DEBUG_FILES_DIR};
	struct debug_files *d;

	if (count == 0) {
		dirs = usual;
		count = 1;
	}
	if (debug_files_complaint(dirs, count))
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->files = calloc(DEBUG_FILES_MAX, sizeof(*d->files));
	for (size_t i = 0; i < count && d->files; i++) {
		d->dirs[i] = strdup(dirs[i]);
		d->dir_count += d->dirs[i] != NULL;
	}
	if (d->dir_count != count) {
		debug_files_free(d);
		return -ENOMEM;
	}
	*ret = d;
	return 0;
}

int debug_files_add_dir(struct debug_files *d, const char *dir)
{
	assert(d->dir_count < ARRAY_SIZE(d->dirs));
	d->dirs[d->dir_count] = strdup(dir);
	if (!d->dirs[d->dir_count])
		return -ENOMEM;
	d->dir_count++;
	return 0;
}

static void debug_files_close(struct debug_files *d, struct debug_files_file *f)
{
	if (f->debug_fd < 0)
		return;
	closep(&f->debug_fd);
	closep(&f->alt_fd);
	f->debug_fd = -1;
	f->alt_fd = -1;
	d->open_count--;
}

static void debug_files_clear(struct debug_files *d, struct debug_files_file *f)
{
	if (f->number == 0)
		return;
	debug_files_close(d, f);
	free(f->path);
	free(f->in_root);
	*f = (struct debug_files_file){0};
}

void debug_files_free(struct debug_files *d)
{
	if (!d)
		return;
	for (size_t i = 0; d->files && i < DEBUG_FILES_MAX; i++)
		debug_files_clear(d, &d->files[i]);
	for (size_t i = 0; i < DEBUG_FILES_ROOTS_MAX; i++)
		if (d->roots[i].id)
			closep(&d->roots[i].fd);
	for (size_t i = 0; i < ARRAY_SIZE(d->dirs); i++)
		free(d->dirs[i]);
	free(d->files);
	free(d);
}

static bool debug_files_root_stat(int fd, const char *path, struct debug_files_root *ret)
{
	struct statx st;

	if (statx(fd, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_MNT_ID, &st) < 0)
		return false;
	ret->dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
	ret->inode = st.stx_ino;
	ret->mount = st.stx_mnt_id;
	return true;
}

static bool debug_files_root_is(const struct debug_files_root *a, const struct debug_files_root *b)
{
	return a->dev == b->dev && a->inode == b->inode && a->mount == b->mount;
}

/* The id of the process's root; 0: it is ours, or cannot be had. */
static uint64_t debug_files_root(struct debug_files *d, int process_fd)
{
	_cleanup_(closep) int fd = openat(process_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct debug_files_root root = {0};
	struct debug_files_root ours = {0};
	struct debug_files_root *slot = &d->roots[0];

	if (fd < 0 || !debug_files_root_stat(fd, "", &root) ||
		!debug_files_root_stat(AT_FDCWD, "/", &ours) || debug_files_root_is(&root, &ours))
		return 0;
	for (size_t i = 0; i < DEBUG_FILES_ROOTS_MAX; i++) {
		struct debug_files_root *r = &d->roots[i];

		if (r->id && debug_files_root_is(r, &root)) {
			r->used = ++d->tick;
			return r->id;
		}
		if (r->used < slot->used)
			slot = r;
	}
	if (slot->id)
		closep(&slot->fd);
	*slot = root;
	slot->id = ++d->root_ids;
	slot->used = ++d->tick;
	slot->fd = steal_fd(&fd);
	return slot->id;
}

/*
 * maps shows paths as we would reach them, so a process in a chroot has the path of its root in front
 * of them. What is below it, or NULL: path as it stands.
 */
static char *debug_files_below(int process_fd, const char *path)
{
	char root[PATH_MAX];
	ssize_t n = readlinkat(process_fd, "root", root, sizeof(root) - 1);

	if (n <= 1 || strncmp(path, root, (size_t)n) != 0 || path[n] != '/')
		return NULL;
	return strdup(path + n);
}

static struct debug_files_file *debug_files_slot(struct debug_files *d)
{
	struct debug_files_file *oldest = &d->files[0];

	for (size_t i = 0; i < DEBUG_FILES_MAX; i++) {
		if (d->files[i].number == 0)
			return &d->files[i];
		if (d->files[i].used < oldest->used)
			oldest = &d->files[i];
	}
	debug_files_clear(d, oldest);
	return oldest;
}

uint64_t debug_files_add(struct debug_files *d, int process_fd, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return 0;
	struct debug_files_file *f = debug_files_slot(d);

	*f = (struct debug_files_file){
		.number = ++d->numbers << DEBUG_FILES_BITS | (uint64_t)(f - d->files),
		.root = debug_files_root(d, process_fd),
		.path = copy,
		.used = ++d->tick,
		.debug_fd = -1,
		.alt_fd = -1,
	};
	if (f->root)
		f->in_root = debug_files_below(process_fd, path);
	return f->number;
}

static void debug_files_look_in(
	struct debug_files_search *s, int root, const char *path, int *ret_alt)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');

	(void)snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	s->root = root;
	s->dir = dir;
	if (debug_files_search(s))
		*ret_alt = debug_files_search_alt(s);
	s->dir = NULL;
}

/* Nothing was found for it. A Go program has its own names. */
static void debug_files_miss(struct debug_files *d, const struct elf_identity *of)
{
	char hex[DEBUG_FILES_HEX_SIZE];

	if (of->has_symtab || of->has_dwarf || of->is_go || !debug_files_hex(of, hex) ||
		d->missing_count == DEBUG_FILES_MISSING_MAX)
		return;
	for (size_t i = 0; i < d->missing_count; i++)
		if (strcmp(d->missing[i], hex) == 0)
			return;
	memcpy(d->missing[d->missing_count++], hex, sizeof(hex));
}

int debug_files_missing(const struct debug_files *d, struct buf *out)
{
	for (size_t i = 0; i < d->missing_count; i++)
		(void)buf_printf(out, "%s\n", d->missing[i]); /* buf keeps the error */
	return buf_error(out);
}

/* Below the process's root, then below ours. */
static int debug_files_look(
	struct debug_files *d, struct helper *h, struct debug_files_file *f, int fd)
{
	struct debug_files_search s = {.d = d, .helper = h, .fd = -1};
	char reason[HELPER_REASON_MAX];
	int alt_fd = -1;

	f->looked_ns = loop_now_ns();
	if (fstat(fd, &s.self) < 0)
		return -errno;
	int r = helper_identify(h, fd, reason, &s.of);
	if (r < 0)
		return r == -EKEYREJECTED ? 0 : r;
	/* It has all there is, or nothing to look by. */
	if ((s.of.has_symtab && s.of.has_dwarf) ||
		(s.of.kind != ELF_IDENTITY_GNU && !s.of.has_debuglink))
		return 0;
	for (size_t i = 0; f->root && i < DEBUG_FILES_ROOTS_MAX; i++)
		if (d->roots[i].id == f->root)
			debug_files_look_in(
				&s, d->roots[i].fd, f->in_root ? f->in_root : f->path, &alt_fd);
	if (s.fd < 0) {
		_cleanup_(closep) int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

		debug_files_look_in(&s, host, f->path, &alt_fd);
	}
	if (s.fd < 0) {
		debug_files_miss(d, &s.of);
		return 0;
	}
	f->debug_fd = s.fd;
	f->alt_fd = alt_fd;
	d->open_count++;
	d->stats.found++;
	return 0;
}

/* Descriptors are few: what was not used for longest is looked for anew when it is needed. */
static void debug_files_close_one(struct debug_files *d)
{
	struct debug_files_file *oldest = NULL;

	for (size_t i = 0; i < DEBUG_FILES_MAX; i++) {
		struct debug_files_file *f = &d->files[i];

		if (f->number && f->debug_fd >= 0 && (!oldest || f->used < oldest->used))
			oldest = f;
	}
	if (!oldest)
		return;
	debug_files_close(d, oldest);
	oldest->looked_ns = 0;
}

static struct debug_files_file *debug_files_at(struct debug_files *d, uint64_t number)
{
	struct debug_files_file *f = &d->files[number & (DEBUG_FILES_MAX - 1)];

	return number && f->number == number ? f : NULL;
}

int debug_files_find(
	struct debug_files *d, struct helper *h, uint64_t number, struct helper_file *f)
{
	struct debug_files_file *file = debug_files_at(d, number);
	bool had_none = false;
	int r = 0;

	if (!file || f->fd < 0)
		return 0;
	file->used = ++d->tick;
	if (file->looked_ns == 0 ||
		(file->debug_fd < 0 &&
			loop_now_ns() - file->looked_ns >= DEBUG_FILES_RETRY_S * NSEC_PER_SEC)) {
		had_none = file->looked_ns != 0;
		if (d->open_count >= DEBUG_FILES_OPEN_MAX)
			debug_files_close_one(d);
		r = debug_files_look(d, h, file, f->fd);
	}
	f->debug_fd = file->debug_fd;
	f->alt_fd = file->alt_fd;
	return r < 0 ? r : had_none && file->debug_fd >= 0;
}

struct debug_files_stats debug_files_stats(const struct debug_files *d)
{
	return d->stats;
}
