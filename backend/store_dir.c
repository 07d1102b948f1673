/*
 * The directory of data files. A name is the UTC hour and nothing else, so no name from a peer is ever a path,
 * and roll-ups can stand beside the files under names of their own ("r10m-...").
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "backend/store_internal.h"
#include "base/def.h"
#include "base/str.h"

enum { NAME_SIZE = 11, SECONDS_PER_HOUR = 3600 };

static const char *const suffixes[] = {".db", ".db-wal", ".db-shm"};

void store_dir_name(int32_t hour, char ret[16])
{
	time_t t = (time_t)hour * SECONDS_PER_HOUR;
	struct tm tm = {0};

	(void)gmtime_r(&t, &tm); /* years of 32-bit hours always fit */
	(void)snprintf(ret, 16, "%04u%02u%02u-%02u", (unsigned int)(tm.tm_year + 1900) % 10000,
		(unsigned int)(tm.tm_mon + 1) % 100, (unsigned int)tm.tm_mday % 100,
		(unsigned int)tm.tm_hour % 100);
}

static bool read_digits(const char *s, size_t count, int *ret)
{
	int value = 0;

	for (size_t i = 0; i < count; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		value = value * 10 + (s[i] - '0');
	}
	*ret = value;
	return true;
}

/* "20240131-23" at the start of name; what follows is the caller's. */
bool store_dir_parse(const char *name, int32_t *ret_hour)
{
	struct tm tm = {0};
	char again[16];
	int32_t hour;

	if (strnlen(name, NAME_SIZE) < NAME_SIZE || name[8] != '-' ||
		!read_digits(name, 4, &tm.tm_year) || !read_digits(name + 4, 2, &tm.tm_mon) ||
		!read_digits(name + 6, 2, &tm.tm_mday) || !read_digits(name + 9, 2, &tm.tm_hour))
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	hour = (int32_t)(timegm(&tm) / SECONDS_PER_HOUR);
	store_dir_name(hour, again);
	if (memcmp(again, name, NAME_SIZE) != 0)
		return false; /* a 31st of February */
	*ret_hour = hour;
	return true;
}

static int path_of(const char *dir, int32_t hour, const char *suffix, char ret[STORE_PATH_MAX])
{
	char name[16];
	int n;

	store_dir_name(hour, name);
	n = snprintf(ret, STORE_PATH_MAX, "%s/data/%s%s", dir, name, suffix);
	return n < 0 || n >= STORE_PATH_MAX ? -ENAMETOOLONG : 0;
}

int store_dir_path(const char *dir, int32_t hour, char ret[STORE_PATH_MAX])
{
	return path_of(dir, hour, ".db", ret);
}

static DIR *open_data(const char *dir)
{
	char path[STORE_PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/data", dir);

	if (n < 0 || (size_t)n >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return opendir(path);
}

static int by_hour(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* Appends to a growing array. 0 or -ENOMEM. */
static int add_hour(int32_t **hours, size_t *count, size_t *allocated, int32_t hour)
{
	if (*count == *allocated) {
		size_t more_count = *allocated ? *allocated * 2 : 256;
		int32_t *more = reallocarray(*hours, more_count, sizeof(*more));

		if (!more)
			return -ENOMEM;
		*hours = more;
		*allocated = more_count;
	}
	(*hours)[(*count)++] = hour;
	return 0;
}

int store_dir_list(const char *dir, int32_t **ret, size_t *ret_count)
{
	DIR *d = open_data(dir);
	size_t count = 0, allocated = 0;
	int32_t *hours = NULL;
	struct dirent *e;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (e = readdir(d)) != NULL) {
		int32_t hour;

		if (store_dir_parse(e->d_name, &hour) && strcmp(e->d_name + NAME_SIZE, ".db") == 0)
			r = add_hour(&hours, &count, &allocated, hour);
	}
	(void)closedir(d); /* only read from */
	if (r < 0) {
		free(hours);
		return r;
	}
	if (count)
		qsort(hours, count, sizeof(*hours), by_hour);
	*ret = hours;
	*ret_count = count;
	return 0;
}

uint64_t store_dir_bytes(const char *dir, int32_t hour)
{
	char path[STORE_PATH_MAX];
	uint64_t bytes = 0;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (path_of(dir, hour, suffixes[i], path) == 0 && stat(path, &st) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

int store_dir_unlink(const char *dir, int32_t hour)
{
	char path[STORE_PATH_MAX];
	int r = 0;

	/* The database first: without it the others mean nothing and are swept as orphans. */
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		int e = path_of(dir, hour, suffixes[i], path);

		if (e == 0 && unlink(path) < 0 && errno != ENOENT)
			e = -errno;
		if (r == 0)
			r = e;
	}
	return r;
}

int store_dir_set_aside(const char *dir, int32_t hour, uint64_t *ret_bytes)
{
	/* The database last: logs without one are swept at the start. */
	static const char *const moves[][2] = {{".db-shm", ".db.damaged-shm"},
		{".db-wal", ".db.damaged-wal"}, {".db", ".db.damaged"}};
	char from[STORE_PATH_MAX] = "", to[STORE_PATH_MAX] = "", parent[STORE_PATH_MAX];
	uint64_t bytes = store_dir_bytes(dir, hour);
	int r = 0;

	/* One of an earlier time gives way: its name says the hour, and the log told of it. */
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(moves); i++) {
		r = path_of(dir, hour, moves[i][0], from);
		if (r == 0)
			r = path_of(dir, hour, moves[i][1], to);
		if (r == 0 && unlink(to) < 0 && errno != ENOENT)
			r = -errno;
		if (r == 0 && rename(from, to) < 0 && errno != ENOENT)
			r = -errno;
	}
	if (r == 0 && snprintf(parent, sizeof(parent), "%s/data", dir) < (int)sizeof(parent))
		r = store_dir_sync(parent);
	if (r == 0)
		*ret_bytes = bytes;
	return r;
}

bool store_dir_is_damaged(const char *name)
{
	int32_t hour;

	return store_dir_parse(name, &hour) && strcmp(name + NAME_SIZE, ".db.damaged") == 0;
}

void store_dir_unlink_orphans(const char *dir)
{
	DIR *d = open_data(dir);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL) {
		char path[STORE_PATH_MAX];
		int32_t hour;

		if (!store_dir_parse(e->d_name, &hour) ||
			(strcmp(e->d_name + NAME_SIZE, ".db-wal") != 0 &&
				strcmp(e->d_name + NAME_SIZE, ".db-shm") != 0))
			continue;
		if (store_dir_path(dir, hour, path) == 0 && access(path, F_OK) < 0 &&
			errno == ENOENT)
			(void)store_dir_unlink(dir, hour); /* tried again at the next start */
	}
	if (d)
		(void)closedir(d); /* only read from */
}

int store_dir_free_bytes(const char *dir, uint64_t *ret)
{
	struct statvfs st;

	if (statvfs(dir, &st) < 0)
		return -errno;
	*ret = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

int store_dir_sync(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}
