/*
 * See cgroup.h: mounts, ids and directories. A tree (struct tree) is version 2's or that of one
 * controller of version 1.
 */
#include "agent/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

#define MOUNTINFO_BYTES_MAX (4UL << 20)
#define HEX                 "0123456789abcdef"

enum {
	HANDLE_KERNFS = 0xfe, /* FILEID_KERNFS, include/linux/exportfs.h: the handle is the id */
	DEPTH_MAX = 16,       /* where containers are looked for */
	SCAN_MAX = 100000,
};

/* Those that runtimes use come first. */
static const char *const v1_controllers[] = {
	"memory", "pids", "cpu", "cpuacct", "devices", "freezer", "blkio", "cpuset", "perf_event"};

struct tree {
	int fd; /* -1: not mounted */
	char mount[CGROUP_PATH_MAX];
};

struct cgroups {
	struct tree v2, v1[ARRAY_SIZE(v1_controllers)];
	bool has_v1, has_chosen;
	size_t chosen; /* of v1, when has_chosen */
};

/* The controllers stand between commas behind the last blank of a line. */
static bool has_option(const char *line, size_t size, const char *option)
{
	const char *at = memrchr(line, ' ', size);
	size_t n = strlen(option);

	while (at && (size_t)(at + 1 - line) + n <= size) {
		const char *end = at + 1 + n;

		if (memcmp(at + 1, option, n) == 0 &&
			(end == line + size || *end == ',' || *end == '\n'))
			return true;
		at = memchr(at + 1, ',', size - (size_t)(at + 1 - line));
	}
	return false;
}

/* option NULL: any. */
static bool find_mount(
	const char *mountinfo, const char *type, const char *option, char ret[CGROUP_PATH_MAX])
{
	/* ID PARENT DEV ROOT MOUNT OPTIONS [FIELDS...] - TYPE SOURCE OPTIONS; proc(5). */
	for (const char *line = mountinfo; *line;) {
		size_t size = strcspn(line, "\n");
		const char *found = memmem(line, size, type, strlen(type));
		const char *at = line;

		if (found && option && !has_option(line, size, option))
			found = NULL;
		for (int field = 0; found && at && field < 4; field++) {
			at = memchr(at, ' ', (size_t)(found - at));
			at += at != NULL;
		}
		if (found && at) {
			size_t n = strcspn(at, " ");

			if (n >= CGROUP_PATH_MAX)
				return false;
			memcpy(ret, at, n);
			ret[n] = '\0';
			return true;
		}
		line += size;
		line += *line == '\n';
	}
	return false;
}

bool cgroup_find_mount(const char *mountinfo, char ret[CGROUP_PATH_MAX])
{
	return find_mount(mountinfo, " - cgroup2 ", NULL, ret);
}

bool cgroup_find_mount_v1(const char *mountinfo, const char *controller, char ret[CGROUP_PATH_MAX])
{
	return find_mount(mountinfo, " - cgroup ", controller, ret);
}

int cgroups_new(struct cgroups **ret)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(MOUNTINFO_BYTES_MAX);
	struct cgroups *c = calloc(1, sizeof(*c));
	bool is_read;

	if (!c)
		return -ENOMEM;
	is_read = file_read("/proc/self/mountinfo", &text) == 0;
	c->v2.fd = -1;
	if (is_read && cgroup_find_mount(buf_str(&text), c->v2.mount))
		c->v2.fd = open(c->v2.mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_SIZE(v1_controllers); i++) {
		struct tree *t = &c->v1[i];

		t->fd = -1;
		if (is_read && cgroup_find_mount_v1(buf_str(&text), v1_controllers[i], t->mount))
			t->fd = open(t->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		c->has_v1 |= t->fd >= 0;
	}
	*ret = c;
	return 0;
}

void cgroups_free(struct cgroups *c)
{
	if (!c)
		return;
	closep(&c->v2.fd);
	for (size_t i = 0; i < ARRAY_SIZE(v1_controllers); i++)
		closep(&c->v1[i].fd);
	free(c);
}

void cgroups_freep(struct cgroups **c)
{
	cgroups_free(*c);
}

bool cgroups_has_v1(const struct cgroups *c)
{
	return c->has_v1;
}

const char *cgroups_v1_controller(const struct cgroups *c)
{
	return c->has_chosen ? v1_controllers[c->chosen] : "";
}

static int no_mount(struct buf *why)
{
	(void)buf_append_str(why, "this host has no cgroup mount");
	return -ENODEV;
}

static bool has_dots(const char *path)
{
	for (const char *at = strstr(path, ".."); at; at = strstr(at + 1, ".."))
		if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
			return true;
	return false;
}

/* The directory's id in that tree, 0: it is not there. Path is one below the mount, or with it. */
static uint64_t id_in(const struct tree *t, const char *path)
{
	size_t mount = strlen(t->mount);
	struct stat st;

	if (t->fd < 0)
		return 0;
	if (strncmp(path, t->mount, mount) == 0 && (path[mount] == '/' || path[mount] == '\0'))
		path += mount;
	path += strspn(path, "/");
	if (fstatat(t->fd, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISDIR(st.st_mode))
		return 0;
	return st.st_ino;
}

/* Version 2 says "populated 0" in cgroup.events of a tree without processes; its root has no such file. */
static bool is_empty(const struct tree *t, const char *path)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(4096);
	char events[CGROUP_PATH_MAX + 32];

	(void)snprintf(events, sizeof(events), "%s/%s/cgroup.events",
		str_has_prefix(path, t->mount) ? "" : t->mount, path);
	return file_read(events, &text) == 0 && strstr(buf_str(&text), "populated 0");
}

/* In the controller of earlier answers, or in the first that has it. */
static bool find_v1(struct cgroups *c, const char *path, struct cgroup_id *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(v1_controllers); i++) {
		uint64_t id = !c->has_chosen || c->chosen == i ? id_in(&c->v1[i], path) : 0;

		if (id == 0)
			continue;
		c->has_chosen = true;
		c->chosen = i;
		*ret = (struct cgroup_id){.id = id, .is_v1 = true};
		return true;
	}
	return false;
}

static int id_of_path(struct cgroups *c, const char *path, struct buf *why, struct cgroup_id *ret)
{
	uint64_t id;

	if (has_dots(path)) {
		(void)buf_printf(why, "cgroup '%.200s' must not hold '..'", path);
		return -EINVAL;
	}
	id = id_in(&c->v2, path);
	if ((id == 0 || (c->has_v1 && is_empty(&c->v2, path))) && find_v1(c, path, ret))
		return 0;
	if (id != 0) {
		*ret = (struct cgroup_id){.id = id};
		return 0;
	}
	if (c->has_chosen)
		(void)buf_printf(why,
			"cgroup '%.200s' does not exist in the controller '%s', where the others "
			"are: one recording follows one controller of version 1",
			path, v1_controllers[c->chosen]);
	else
		(void)buf_printf(why, "cgroup '%.200s' does not exist below %.100s%s", path,
			c->v2.fd >= 0 ? c->v2.mount : "any controller",
			c->has_v1 && c->v2.fd >= 0 ? " or a controller of version 1" : "");
	return -ENOENT;
}

int cgroups_id(struct cgroups *c, const char *text, struct buf *why, struct cgroup_id *ret)
{
	char path[CGROUP_PATH_MAX];
	uint64_t id;

	if (c->v2.fd < 0 && !c->has_v1)
		return no_mount(why);
	if (*text == '/')
		return id_of_path(c, text, why, ret);
	if (str_to_u64(text, 1, UINT64_MAX, &id) < 0) {
		(void)buf_printf(why, "cgroup '%.200s' must be a path from / or an id", text);
		return -EINVAL;
	}
	if (cgroups_path(c, id, path) < 0) {
		(void)buf_printf(why, "cgroup %llu does not exist", (unsigned long long)id);
		return -ENOENT;
	}
	*ret = (struct cgroup_id){.id = id};
	return 0;
}

int cgroups_path(const struct cgroups *c, uint64_t id, char ret[CGROUP_PATH_MAX])
{
	_Alignas(struct file_handle) char bytes[sizeof(struct file_handle) + sizeof(id)];
	struct file_handle *handle = (struct file_handle *)bytes;
	char link[64];
	char path[CGROUP_PATH_MAX];
	size_t mount = strlen(c->v2.mount);
	ssize_t n;

	if (c->v2.fd < 0)
		return -ENODEV;
	handle->handle_bytes = sizeof(id);
	handle->handle_type = HANDLE_KERNFS;
	memcpy(handle->f_handle, &id, sizeof(id));
	_cleanup_(closep) int fd = open_by_handle_at(c->v2.fd, handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	if (str_has_suffix(path, " (deleted)") || (size_t)n < mount ||
		memcmp(path, c->v2.mount, mount) != 0)
		return -ENOENT;
	(void)snprintf(ret, CGROUP_PATH_MAX, "%s", path[mount] ? path + mount : "/");
	return 0;
}

/* --- containers by their id */

struct search {
	const char *prefix;
	struct cgroup_id *ids;
	size_t count, max, seen;
	bool is_v1, is_full;
};

static void search_below(int dir_fd, int depth, struct search *s);

static void search_entry(DIR *dir, const struct dirent *d, int depth, struct search *s)
{
	const char *id = cgroup_container_in(d->d_name, strlen(d->d_name));
	struct stat st;
	int fd;

	if (id && strncmp(id, s->prefix, strlen(s->prefix)) == 0) {
		if (s->count == s->max)
			s->is_full = true;
		else if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			s->ids[s->count++] = (struct cgroup_id){.id = st.st_ino, .is_v1 = s->is_v1};
		return; /* all below it is in */
	}
	if (depth == DEPTH_MAX)
		return;
	fd = openat(dirfd(dir), d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		search_below(fd, depth + 1, s); /* it went away: no container */
}

/* Takes dir_fd. Without memory for a directory, what is below it is not found. */
static void search_below(int dir_fd, int depth, struct search *s)
{
	DIR *dir = fdopendir(dir_fd);
	const struct dirent *d;

	if (!dir) {
		closep(&dir_fd);
		return;
	}
	while ((d = readdir(dir)) && ++s->seen < SCAN_MAX && !s->is_full)
		if (d->d_type == DT_DIR && d->d_name[0] != '.')
			search_entry(dir, d, depth, s);
	(void)closedir(dir); /* read only */
}

static void search_tree(const struct tree *t, bool is_v1, struct search *s)
{
	int fd = t->fd < 0 ? -1 : openat(t->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	s->is_v1 = is_v1;
	s->seen = 0;
	if (fd >= 0)
		search_below(fd, 0, s);
}

static void search_all(struct cgroups *c, struct search *s)
{
	search_tree(&c->v2, false, s);
	for (size_t i = 0; i < ARRAY_SIZE(v1_controllers); i++) {
		size_t before = s->count;

		if (c->has_chosen && c->chosen != i)
			continue;
		search_tree(&c->v1[i], true, s);
		if (s->count == before)
			continue;
		c->has_chosen = true;
		c->chosen = i;
		break;
	}
}

int cgroups_containers(struct cgroups *c, const char *prefix, size_t max, struct buf *why,
	struct cgroup_id *ret, size_t *count)
{
	struct search s = {.prefix = prefix, .ids = ret, .max = max};
	int r = 0;

	if (c->v2.fd < 0 && !c->has_v1)
		return no_mount(why);
	if (!*prefix || strlen(prefix) > CGROUP_CONTAINER_MAX ||
		strspn(prefix, HEX) != strlen(prefix)) {
		(void)buf_printf(why,
			"container '%.80s' must be the beginning of an id, lower case hex digits",
			prefix);
		return -EINVAL;
	}
	search_all(c, &s);
	if (s.is_full)
		r = -E2BIG;
	else if (s.count == 0)
		r = -ENOENT;
	if (r == -E2BIG)
		(void)buf_printf(why, "container '%s': more than %zu begin like this", prefix, max);
	else if (r < 0)
		(void)buf_printf(why, "no container here has an id that begins with '%s'", prefix);
	*count = s.count;
	return r;
}
