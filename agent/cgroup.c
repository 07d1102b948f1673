/* See cgroup.h. What names of cgroups mean is convention of systemd and of container runtimes. */
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

struct cgroups {
	int mount_fd; /* -1: none */
	char mount[CGROUP_PATH_MAX];
};

bool cgroup_find_mount(const char *mountinfo, char ret[CGROUP_PATH_MAX])
{
	/* ID PARENT DEV ROOT MOUNT OPTIONS [FIELDS...] - TYPE SOURCE OPTIONS; proc(5). */
	for (const char *line = mountinfo; *line;) {
		size_t size = strcspn(line, "\n");
		const char *type = memmem(line, size, " - cgroup2 ", strlen(" - cgroup2 "));
		const char *at = line;

		for (int field = 0; type && at && field < 4; field++) {
			at = memchr(at, ' ', (size_t)(type - at));
			at += at != NULL;
		}
		if (type && at) {
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

int cgroups_new(struct cgroups **ret)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(MOUNTINFO_BYTES_MAX);
	struct cgroups *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->mount_fd = -1;
	if (file_read("/proc/self/mountinfo", &text) == 0 &&
		cgroup_find_mount(buf_str(&text), c->mount))
		c->mount_fd = open(c->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*ret = c;
	return 0;
}

void cgroups_free(struct cgroups *c)
{
	if (!c)
		return;
	closep(&c->mount_fd);
	free(c);
}

void cgroups_freep(struct cgroups **c)
{
	cgroups_free(*c);
}

static int no_mount(struct buf *why)
{
	(void)buf_append_str(why, "this host has no cgroup2 mount");
	return -ENODEV;
}

static bool has_dots(const char *path)
{
	for (const char *at = strstr(path, ".."); at; at = strstr(at + 1, ".."))
		if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
			return true;
	return false;
}

static int id_of_path(const struct cgroups *c, const char *path, struct buf *why, uint64_t *ret)
{
	size_t mount = strlen(c->mount);
	const char *below = path;
	struct stat st;

	if (strncmp(path, c->mount, mount) == 0 && (path[mount] == '/' || path[mount] == '\0'))
		below += mount;
	below += strspn(below, "/");
	if (has_dots(below)) {
		(void)buf_printf(why, "cgroup '%.200s' must not hold '..'", path);
		return -EINVAL;
	}
	if (fstatat(c->mount_fd, *below ? below : ".", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISDIR(st.st_mode)) {
		(void)buf_printf(
			why, "cgroup '%.200s' does not exist below %.100s", path, c->mount);
		return -ENOENT;
	}
	*ret = st.st_ino;
	return 0;
}

int cgroups_id(const struct cgroups *c, const char *text, struct buf *why, uint64_t *ret)
{
	char path[CGROUP_PATH_MAX];
	uint64_t id;

	if (c->mount_fd < 0)
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
	*ret = id;
	return 0;
}

int cgroups_path(const struct cgroups *c, uint64_t id, char ret[CGROUP_PATH_MAX])
{
	_Alignas(struct file_handle) char bytes[sizeof(struct file_handle) + sizeof(id)];
	struct file_handle *handle = (struct file_handle *)bytes;
	char link[64];
	char path[CGROUP_PATH_MAX];
	size_t mount = strlen(c->mount);
	ssize_t n;

	if (c->mount_fd < 0)
		return -ENODEV;
	handle->handle_bytes = sizeof(id);
	handle->handle_type = HANDLE_KERNFS;
	memcpy(handle->f_handle, &id, sizeof(id));
	_cleanup_(closep) int fd = open_by_handle_at(c->mount_fd, handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	if (str_has_suffix(path, " (deleted)") || (size_t)n < mount ||
		memcmp(path, c->mount, mount) != 0)
		return -ENOENT;
	(void)snprintf(ret, CGROUP_PATH_MAX, "%s", path[mount] ? path + mount : "/");
	return 0;
}

/* --- what a path says */

/* The container's id in one component of size bytes, NULL: it is none. */
static const char *container_in(const char *name, size_t size)
{
	static const char *const prefixes[] = {
		"docker-", "cri-containerd-", "crio-", "libpod-", ""};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (size < n + CGROUP_CONTAINER_MAX || memcmp(name, prefixes[i], n) != 0 ||
			strspn(name + n, HEX) != CGROUP_CONTAINER_MAX)
			continue;
		/* Nothing behind it, or ".scope". */
		if (size == n + CGROUP_CONTAINER_MAX ||
			(size == n + CGROUP_CONTAINER_MAX + 6 &&
				memcmp(name + size - 6, ".scope", 6) == 0))
			return name + n;
	}
	return NULL;
}

/* The component before *end, which moves to its slash. NULL: no more. */
static const char *component_before(const char *path, const char **end, size_t *size)
{
	const char *slash = memrchr(path, '/', (size_t)(*end - path));

	if (!slash)
		return NULL;
	*size = (size_t)(*end - slash) - 1;
	*end = slash;
	return slash + 1;
}

bool cgroup_container(const char *path, char ret[CGROUP_CONTAINER_MAX + 1])
{
	const char *end = path + strlen(path);
	const char *name, *id;
	size_t size;

	while ((name = component_before(path, &end, &size))) {
		id = container_in(name, size);
		if (id) {
			memcpy(ret, id, CGROUP_CONTAINER_MAX);
			ret[CGROUP_CONTAINER_MAX] = '\0';
			return true;
		}
	}
	return false;
}

/* run-u17.service, run-r(32 hex digits).service, run-p1-i2.service: systemd-run's own names. */
static bool is_transient(const char *name)
{
	return str_has_prefix(name, "run-") && strchr("urp", name[4]) &&
	       strspn(name + 5, HEX "-i") == strlen(name + 5) - strlen(".service");
}

bool cgroup_unit(const char *path, char ret[CGROUP_UNIT_MAX])
{
	const char *end = path + strlen(path);
	const char *name;
	size_t size;

	while ((name = component_before(path, &end, &size))) {
		char unit[CGROUP_UNIT_MAX];

		if (container_in(name, size))
			return false;
		if (size >= sizeof(unit) || size <= strlen(".service"))
			continue;
		memcpy(unit, name, size);
		unit[size] = '\0';
		if (!str_has_suffix(unit, ".service") || str_has_prefix(unit, "user@") ||
			is_transient(unit))
			continue;
		memcpy(ret, unit, size + 1);
		return true;
	}
	return false;
}

/* --- containers by their id */

struct search {
	const char *prefix;
	uint64_t *ids;
	size_t count, max, seen;
	bool is_full;
};

static int search_below(int dir_fd, int depth, struct search *s);

static void search_entry(DIR *dir, const struct dirent *d, int depth, struct search *s)
{
	const char *id = container_in(d->d_name, strlen(d->d_name));
	struct stat st;
	int fd;

	if (id && strncmp(id, s->prefix, strlen(s->prefix)) == 0) {
		if (s->count == s->max)
			s->is_full = true;
		else if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			s->ids[s->count++] = st.st_ino;
		return; /* all below it is in */
	}
	if (depth == DEPTH_MAX)
		return;
	fd = openat(dirfd(dir), d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		(void)search_below(fd, depth + 1, s); /* it went away: no container */
}

/* Takes dir_fd. */
static int search_below(int dir_fd, int depth, struct search *s)
{
	DIR *dir = fdopendir(dir_fd);
	const struct dirent *d;

	if (!dir) {
		closep(&dir_fd);
		return -ENOMEM;
	}
	while ((d = readdir(dir)) && ++s->seen < SCAN_MAX && !s->is_full)
		if (d->d_type == DT_DIR && d->d_name[0] != '.')
			search_entry(dir, d, depth, s);
	(void)closedir(dir); /* read only */
	return 0;
}

int cgroups_containers(const struct cgroups *c, const char *prefix, size_t max, struct buf *why,
	uint64_t *ret, size_t *count)
{
	struct search s = {.prefix = prefix, .ids = ret, .max = max};
	int fd, r;

	if (c->mount_fd < 0)
		return no_mount(why);
	if (!*prefix || strlen(prefix) > CGROUP_CONTAINER_MAX ||
		strspn(prefix, HEX) != strlen(prefix)) {
		(void)buf_printf(why,
			"container '%.80s' must be the beginning of an id, lower case hex digits",
			prefix);
		return -EINVAL;
	}
	fd = openat(c->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : search_below(fd, 0, &s);
	if (r == 0 && s.is_full)
		r = -E2BIG;
	else if (r == 0 && s.count == 0)
		r = -ENOENT;
	if (r == -E2BIG)
		(void)buf_printf(why, "container '%s': more than %zu begin like this", prefix, max);
	else if (r < 0)
		(void)buf_printf(why, "no container here has an id that begins with '%s'", prefix);
	*count = s.count;
	return r;
}
