/*
 * See spool.h. The queue in memory is what the directory holds, sorted by place; places only grow,
 * so a new file always goes behind all others, whatever the clock does.
 */
#include "agent/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "agent/fault.h"
#include "base/cursor.h"
#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

#define PLACE_DIGITS 20
#define SUFFIX       ".push"

static const uint8_t magic_bytes[8] = {'F', 'L', 'S', 'P', 'O', 'O', 'L', '1'};

_Static_assert(sizeof(magic_bytes) + 2 * sizeof(uint64_t) == SPOOL_HEADER_SIZE, "format");

struct spool_file {
	uint64_t place;
	uint64_t bytes;
};

struct spool {
	char *dir;
	struct spool_limits limits;
	struct spool_stats stats;
	struct spool_file *files; /* by place */
	size_t count, allocated;
	uint64_t next_place;
	uint64_t sending; /* place that must stay; 0: none */
};

static int path_of(const struct spool *s, uint64_t place, char path[SPOOL_PATH_MAX])
{
	int n = snprintf(path, SPOOL_PATH_MAX, "%s/%0*llu" SUFFIX, s->dir, PLACE_DIGITS,
		(unsigned long long)place);

	return n < 0 || n >= SPOOL_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* The place in a file name; false for names that are not ours. */
static bool parse_name(const char *name, uint64_t *ret)
{
	char digits[PLACE_DIGITS + 1];

	if (strlen(name) != PLACE_DIGITS + sizeof(SUFFIX) - 1 || !str_has_suffix(name, SUFFIX))
		return false;
	memcpy(digits, name, PLACE_DIGITS);
	digits[PLACE_DIGITS] = '\0';
	return strspn(digits, "0123456789") == PLACE_DIGITS &&
	       str_to_u64(digits, 1, UINT64_MAX - 1, ret) == 0;
}

static int by_place(const void *a, const void *b)
{
	const struct spool_file *x = a;
	const struct spool_file *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

static int add(struct spool *s, uint64_t place, uint64_t bytes)
{
	if (s->count == s->allocated) {
		size_t more = MAX((size_t)16, s->allocated * 2);
		struct spool_file *files = realloc(s->files, more * sizeof(*files));

		if (!files)
			return -ENOMEM;
		s->files = files;
		s->allocated = more;
	}
	s->files[s->count++] = (struct spool_file){.place = place, .bytes = bytes};
	s->stats.bytes += bytes;
	return 0;
}

static int take_name(struct spool *s, int dir_fd, const char *name)
{
	uint64_t place;
	struct stat st;

	if (strstr(name, SUFFIX ".tmp.")) {
		/* A writer was killed; nobody will finish it. */
		(void)unlinkat(dir_fd, name, 0);
		return 0;
	}
	if (!parse_name(name, &place) || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode))
		return 0; /* not ours: left alone */
	return add(s, place, (uint64_t)st.st_size);
}

static int scan(struct spool *s)
{
	DIR *d = opendir(s->dir);
	const struct dirent *entry;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (entry = readdir(d)))
		r = take_name(s, dirfd(d), entry->d_name);
	(void)closedir(d); /* was only read */
	if (s->count > 0)
		qsort(s->files, s->count, sizeof(*s->files), by_place);
	return r;
}

static void forget(struct spool *s, size_t i)
{
	s->stats.bytes -= s->files[i].bytes;
	s->count--;
	memmove(&s->files[i], &s->files[i + 1], (s->count - i) * sizeof(*s->files));
}

static void unlink_place(const struct spool *s, uint64_t place)
{
	char path[SPOOL_PATH_MAX];

	if (path_of(s, place, path) == 0)
		(void)unlink(path); /* gone already is as good */
}

static void apply_limits(struct spool *s)
{
	size_t i = 0;

	if (fault_spool_unbounded())
		return;
	while (i < s->count &&
		(s->count > s->limits.windows_max || s->stats.bytes > s->limits.bytes_max)) {
		if (s->files[i].place == s->sending) {
			i++;
			continue;
		}
		unlink_place(s, s->files[i].place);
		forget(s, i);
		s->stats.dropped++;
	}
}

int spool_open(const char *dir, const struct spool_limits *limits, struct spool **ret)
{
	struct spool *s = calloc(1, sizeof(*s));
	int r = -ENOMEM;

	if (s) {
		s->limits = *limits;
		s->next_place = 1;
		s->dir = strdup(dir);
	}
	if (s && s->dir)
		r = file_mkdir_parents(dir);
	if (r == 0)
		r = scan(s);
	if (r < 0) {
		spool_free(s);
		return r;
	}
	if (s->count > 0)
		s->next_place = s->files[s->count - 1].place + 1;
	apply_limits(s);
	*ret = s;
	return 0;
}

void spool_free(struct spool *s)
{
	if (!s)
		return;
	free(s->files);
	free(s->dir);
	free(s);
}

int spool_reserve(struct spool *s, char ret_path[SPOOL_PATH_MAX], uint64_t *ret_place)
{
	int r = path_of(s, s->next_place, ret_path);

	if (r < 0)
		return r;
	*ret_place = s->next_place++;
	return 0;
}

/* What spool_write() has removed for want of room on the disk. */
static void forget_removed(struct spool *s)
{
	char path[SPOOL_PATH_MAX];

	while (s->count > 0 && s->files[0].place != s->sending &&
		path_of(s, s->files[0].place, path) == 0 && access(path, F_OK) < 0 &&
		errno == ENOENT) {
		forget(s, 0);
		s->stats.dropped++;
	}
}

int spool_take_in(struct spool *s, uint64_t place)
{
	char path[SPOOL_PATH_MAX];
	struct stat st;
	int r = path_of(s, place, path);

	forget_removed(s);
	if (r < 0)
		return r;
	if (stat(path, &st) < 0)
		return -errno;
	r = add(s, place, (uint64_t)st.st_size);
	if (r < 0)
		return r;
	/* Two recordings may finish in another order than they began. */
	qsort(s->files, s->count, sizeof(*s->files), by_place);
	apply_limits(s);
	return 0;
}

static void put_u64(uint8_t *out, uint64_t v)
{
	for (size_t i = 0; i < sizeof(v); i++)
		out[i] = (uint8_t)(v >> (8 * i));
}

/* Removes the oldest file beside path that is older than it. False: there is none. */
static bool remove_oldest(const char *path)
{
	char dir[SPOOL_PATH_MAX];
	int size = snprintf(dir, sizeof(dir), "%s", path);
	char *name = size > 0 && (size_t)size < sizeof(dir) ? strrchr(dir, '/') : NULL;
	uint64_t place, own, oldest = UINT64_MAX;
	char oldest_name[NAME_MAX + 1] = "";
	const struct dirent *entry;
	DIR *d;

	if (!name || !parse_name(name + 1, &own))
		return false;
	*name = '\0';
	d = opendir(dir);
	while (d && (entry = readdir(d)))
		if (parse_name(entry->d_name, &place) && place < own && place < oldest) {
			oldest = place;
			(void)snprintf(oldest_name, sizeof(oldest_name), "%s", entry->d_name);
		}
	bool removed = d && oldest != UINT64_MAX && unlinkat(dirfd(d), oldest_name, 0) == 0;

	if (d)
		(void)closedir(d); /* was only read */
	return removed;
}

int spool_write(const char *path, const void *data, size_t size)
{
	int r;

	_cleanup_(buf_done) struct buf file = BUF_INIT(SPOOL_HEADER_SIZE + SPOOL_WINDOW_BYTES_MAX);
	uint8_t header[SPOOL_HEADER_SIZE];

	memcpy(header, magic_bytes, sizeof(magic_bytes));
	put_u64(header + 8, size);
	put_u64(header + 16, XXH3_64bits(data, size));
	(void)buf_append(&file, header, sizeof(header));
	(void)buf_append(&file, data, size);
	if (buf_error(&file) < 0)
		return buf_error(&file);
	/* The newest is worth most: a full disk is one more limit. */
	do
		r = file_write_atomic(path, file.data, file.size);
	while ((r == -ENOSPC || r == -EDQUOT) && remove_oldest(path));
	return r;
}

int spool_decode(const void *file, size_t size, const void **ret, size_t *ret_size)
{
	struct cursor c = cursor_over(file, size);
	const void *magic = cursor_bytes(&c, 8);
	uint64_t payload_size = cursor_u64(&c);
	uint64_t hash = cursor_u64(&c);
	const void *payload = c.pos;

	if (cursor_error(&c) < 0 || memcmp(magic, magic_bytes, 8) != 0 ||
		payload_size != cursor_left(&c) ||
		XXH3_64bits(payload, (size_t)payload_size) != hash)
		return -EBADMSG;
	*ret = payload;
	*ret_size = (size_t)payload_size;
	return 0;
}

bool spool_first(const struct spool *s, uint64_t *ret_place)
{
	if (s->count == 0)
		return false;
	*ret_place = s->files[0].place;
	return true;
}

int spool_read(struct spool *s, uint64_t place, struct buf *ret)
{
	_cleanup_(buf_done) struct buf file = BUF_INIT(SPOOL_HEADER_SIZE + SPOOL_WINDOW_BYTES_MAX);
	char path[SPOOL_PATH_MAX];
	const void *payload;
	size_t size;
	int r = path_of(s, place, path);

	if (r == 0)
		r = file_read_own(path, &file);
	if (r == 0)
		r = spool_decode(file.data, file.size, &payload, &size);
	if (r == 0)
		r = buf_append(ret, payload, size);
	if (r == 0)
		s->sending = place;
	return r;
}

void spool_release(struct spool *s)
{
	s->sending = 0;
}

void spool_remove(struct spool *s, uint64_t place, bool is_damaged)
{
	if (s->sending == place)
		s->sending = 0;
	unlink_place(s, place);
	for (size_t i = 0; i < s->count; i++) {
		if (s->files[i].place != place)
			continue;
		forget(s, i);
		s->stats.damaged += is_damaged;
		return;
	}
}

struct spool_stats spool_stats(const struct spool *s)
{
	struct spool_stats st = s->stats;

	st.windows = s->count;
	return st;
}
