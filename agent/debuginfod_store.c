/* See debuginfod_store.h. */
#include "agent/debuginfod_store.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

enum { FILES_MAX = 4096, NEGATIVE_BYTES_MAX = 1 << 18 };

static const char negative_file[] = "negative";

bool debuginfod_id_is_good(const char *id, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!isxdigit((unsigned char)id[i]) || isupper((unsigned char)id[i]))
			return false;
	return size >= 6 && size % 2 == 0 && size < DEBUGINFOD_ID_SIZE;
}

/* --- what is not to be asked for */

void debuginfod_negative_put(struct debuginfod_negative *n, const char *id, uint64_t time_s)
{
	size_t slot = 0;

	debuginfod_negative_remove(n, id);
	for (size_t i = 0; i < DEBUGINFOD_NEGATIVE_MAX; i++)
		if (n->at[i].time_s < n->at[slot].time_s)
			slot = i;
	(void)snprintf(n->at[slot].id, sizeof(n->at[slot].id), "%s", id); /* fits: it is good */
	n->at[slot].time_s = time_s;
}

void debuginfod_negative_load(struct debuginfod_negative *n, uint64_t now_s)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(NEGATIVE_BYTES_MAX);

	memset(n, 0, sizeof(*n));
	if (file_read_own(negative_file, &text) < 0)
		return; /* what is not kept is asked for */
	for (const char *at = buf_str(&text); *at; at += *at == '\n') {
		size_t line = strcspn(at, "\n");
		size_t size = strcspn(at, " \n");
		uint64_t time_s = size < line ? strtoull(at + size, NULL, 10) : 0;
		char id[DEBUGINFOD_ID_SIZE];

		if (debuginfod_id_is_good(at, size) && time_s > 0 && time_s <= now_s &&
			now_s - time_s < DEBUGINFOD_AGAIN_S) {
			(void)snprintf(id, sizeof(id), "%.*s", (int)size, at);
			debuginfod_negative_put(n, id, time_s);
		}
		at += line;
	}
}

int debuginfod_negative_save(const struct debuginfod_negative *n)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(NEGATIVE_BYTES_MAX);

	for (size_t i = 0; i < DEBUGINFOD_NEGATIVE_MAX; i++)
		if (n->at[i].id[0])
			(void)buf_printf(&out, "%s %llu\n", n->at[i].id,
				(unsigned long long)n->at[i].time_s); /* buf keeps the error */
	return buf_error(&out) < 0 ? buf_error(&out)
				   : file_write_atomic(negative_file, buf_str(&out), out.size);
}

bool debuginfod_negative_has(const struct debuginfod_negative *n, const char *id)
{
	for (size_t i = 0; i < DEBUGINFOD_NEGATIVE_MAX; i++)
		if (strcmp(n->at[i].id, id) == 0)
			return true;
	return false;
}

void debuginfod_negative_remove(struct debuginfod_negative *n, const char *id)
{
	for (size_t i = 0; i < DEBUGINFOD_NEGATIVE_MAX; i++)
		if (strcmp(n->at[i].id, id) == 0)
			memset(&n->at[i], 0, sizeof(n->at[i]));
}

/* --- files */

static void path_of(char path[DEBUGINFOD_PATH_SIZE], const char *id, const char *suffix)
{
	(void)snprintf(path, DEBUGINFOD_PATH_SIZE, ".build-id/%.2s/%s.debug%s", id, id + 2,
		suffix); /* fits */
}

bool debuginfod_store_has(const char *id, uint64_t now_s)
{
	char path[DEBUGINFOD_PATH_SIZE];
	struct stat st;

	path_of(path, id, "");
	return stat(path, &st) == 0 && now_s - (uint64_t)st.st_mtim.tv_sec < DEBUGINFOD_AGAIN_S;
}

int debuginfod_store_begin(const char *id)
{
	char path[DEBUGINFOD_PATH_SIZE];

	(void)snprintf(path, sizeof(path), ".build-id/%.2s", id);
	int r = file_mkdir_parents(path);

	if (r < 0)
		return r;
	path_of(path, id, ".tmp");
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

int debuginfod_store_end(const char *id, bool is_good)
{
	char from[DEBUGINFOD_PATH_SIZE], to[DEBUGINFOD_PATH_SIZE];

	path_of(from, id, ".tmp");
	path_of(to, id, "");
	return (is_good ? rename(from, to) : unlink(from)) < 0 ? -errno : 0;
}

struct stored {
	char path[DEBUGINFOD_PATH_SIZE];
	int64_t used_s; /* as well as atime tells: to the day on most hosts */
	uint64_t bytes;
};

struct listing {
	struct stored *files; /* FILES_MAX */
	size_t count;
	uint64_t bytes;
};

/* One name below .build-id/xx. What is no debug file of ours, or too many, goes. */
static void list_file(struct listing *l, const char *dir, const char *name)
{
	struct stored f;
	struct stat st;
	int n = snprintf(f.path, sizeof(f.path), ".build-id/%s/%s", dir, name);

	if (n < 0 || (size_t)n >= sizeof(f.path) || lstat(f.path, &st) < 0)
		return;
	if (!str_has_suffix(name, ".debug") || !S_ISREG(st.st_mode) || l->count == FILES_MAX) {
		(void)unlink(f.path); /* else it is there next time, too */
		return;
	}
	f.used_s = MAX(st.st_atim.tv_sec, st.st_mtim.tv_sec);
	f.bytes = (uint64_t)st.st_size;
	l->files[l->count++] = f;
	l->bytes += f.bytes;
}

static void list_dir(struct listing *l, const char *dir)
{
	char path[DEBUGINFOD_PATH_SIZE];
	struct dirent *e;

	(void)snprintf(path, sizeof(path), ".build-id/%.16s", dir);
	DIR *d = opendir(path);

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			list_file(l, dir, e->d_name);
	if (d)
		(void)closedir(d); /* was only read */
}

static int by_use(const void *a, const void *b)
{
	const struct stored *x = a, *y = b;

	return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

void debuginfod_store_trim(uint64_t bytes_max)
{
	struct listing l = {.files = calloc(FILES_MAX, sizeof(*l.files))};
	DIR *d = l.files ? opendir(".build-id") : NULL;
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && strlen(e->d_name) == 2)
			list_dir(&l, e->d_name);
	if (d)
		(void)closedir(d); /* was only read */
	if (l.count > 0)
		qsort(l.files, l.count, sizeof(*l.files), by_use);
	for (size_t i = 0; i < l.count && l.bytes > bytes_max; i++)
		if (unlink(l.files[i].path) == 0)
			l.bytes -= l.files[i].bytes;
	free(l.files);
}
