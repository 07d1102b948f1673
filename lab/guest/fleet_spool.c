/*
 * What the agent leaves in its spool. Every file is copied into a directory of ours as soon as it appears:
 * it stays in the spool until the backend has committed it, which takes half a second (--commit-interval),
 * and we look every 20 ms. So what the agent sent is known apart from what the backend made of it.
 *
 * While no backend runs, a file that goes was dropped by the agent: the oldest must go first.
 */
#include "lab/guest/fleet_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPY_CHUNK = 1 << 16 };

static bool is_window(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && strcmp(name + n - 5, ".push") == 0;
}

static bool has_place(const uint64_t *places, size_t count, uint64_t place)
{
	for (size_t i = 0; i < count; i++)
		if (places[i] == place)
			return true;
	return false;
}

/* What was there at the last look and is not any more; kept tells which windows were not dropped. */
static void note_dropped(struct fleet *f, const uint64_t *now, size_t count)
{
	for (size_t i = 0; i < f->seen_count; i++) {
		bool is_older_left = false;

		if (has_place(now, count, f->seen[i]))
			continue;
		for (size_t k = 0; k < count; k++)
			is_older_left |= now[k] < f->seen[i];
		f->dropped_early += is_older_left;
		if (f->dropped_count < FLEET_WINDOWS_MAX)
			f->dropped[f->dropped_count++] = f->seen[i];
	}
}

static int append_file(int to, const char *path)
{
	_cleanup_(closep) int from = open(path, O_RDONLY | O_CLOEXEC);
	char data[COPY_CHUNK];
	ssize_t n = from < 0 ? -1 : 1;

	while (n > 0) {
		n = read(from, data, sizeof(data));
		if (n > 0 && write(to, data, (size_t)n) != n)
			n = -1;
	}
	return n < 0 ? -EIO : 0;
}

/* 1: copied, 0: it was before, or the file is gone, -errno. A link would keep the agent's inode alive. */
static int copy_once(const char *from, const char *to)
{
	int err;

	if (access(to, F_OK) == 0 || access(from, F_OK) < 0)
		return 0;
	_cleanup_(closep) int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	err = append_file(fd, from);
	if (err < 0 && access(from, F_OK) < 0) {
		(void)unlink(to); /* it went while we looked */
		return 0;
	}
	return err < 0 ? err : 1;
}

void fleet_look(struct fleet *f)
{
	uint64_t now[FLEET_WINDOWS_MAX];
	size_t count = 0;
	DIR *d = opendir(f->spool_dir);
	int err;

	for (struct dirent *e; d && (e = readdir(d));) {
		char from[PATH_MAX + 256], to[PATH_MAX + 256];

		if (!is_window(e->d_name) || count == FLEET_WINDOWS_MAX)
			continue;
		now[count++] = strtoull(e->d_name, NULL, 10);
		(void)snprintf(from, sizeof(from), "%s/%s", f->spool_dir, e->d_name);
		(void)snprintf(to, sizeof(to), "%s/%s", f->copy_dir, e->d_name);
		err = copy_once(from, to);
		f->windows += err > 0;
		f->spool_changed_ns = err > 0 ? step_now_ns() : f->spool_changed_ns;
		if (err < 0)
			(void)fleet_fail(f, "cannot copy %s: %s", from, strerror(-err));
	}
	if (d)
		(void)closedir(d); /* was only read */
	if (f->run->backend.pidfd < 0 && f->is_watching)
		note_dropped(f, now, count);
	memcpy(f->seen, now, count * sizeof(*now));
	f->seen_count = count;
	f->spool_now = count;
	f->spool_max = MAX(f->spool_max, count);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_window_entry(const struct dirent *d)
{
	return is_window(d->d_name);
}

int fleet_first_copy(struct fleet *f, char ret[PATH_MAX])
{
	struct dirent **names = NULL;
	int n = scandir(f->copy_dir, &names, is_window_entry, by_name);

	if (n > 0)
		(void)snprintf(ret, PATH_MAX, "%.3800s/%.200s", f->copy_dir, names[0]->d_name);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return n > 0 ? 0 : fleet_fail(f, "the agent made no window");
}

void fleet_write_windows(struct fleet *f)
{
	struct dirent **names = NULL;
	int n = scandir(f->copy_dir, &names, is_window_entry, by_name);
	char path[PATH_MAX];

	step_path(f->run, "windows.spool", path);
	_cleanup_(closep) int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	for (int i = 0; i < n; i++) {
		(void)snprintf(path, sizeof(path), "%.3800s/%.200s", f->copy_dir, names[i]->d_name);
		if (has_place(f->dropped, f->dropped_count, strtoull(names[i]->d_name, NULL, 10)))
			;
		else if (to < 0 || append_file(to, path) < 0)
			(void)fleet_fail(f, "cannot copy %s", names[i]->d_name);
		free(names[i]);
	}
	free(names);
}
