/*
 * Processes through /proc, see procfs.h. Paths and names in there are foreign; numbers are the
 * kernel's.
 */
#include "agent/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

enum {
	PROCFS_STAT_SIZE = 1024,
	PROCFS_STAT_START_FIELD = 22, /* proc(5): starttime, in clock ticks */
	PROCFS_TASKS_TRIED = 8,
};

struct procfs_stat {
	uint64_t start_ticks;
	char state;
};

/*
 * Fields 3 and 22 of /proc/PID/stat. The name in field 2 may hold spaces and brackets: the last ")" ends
 * it.
 */
static int procfs_read_stat(int process_fd, struct procfs_stat *ret)
{
	char text[PROCFS_STAT_SIZE];
	_cleanup_(closep) int fd = openat(process_fd, "stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ESRCH;
	text[n] = '\0';
	char *pos = strrchr(text, ')');
	if (!pos || pos[1] != ' ')
		return -EBADMSG;
	ret->state = pos[2];
	for (int field = 2; pos && field < PROCFS_STAT_START_FIELD; field++) {
		pos = strchr(pos, ' ');
		if (pos)
			pos++;
	}
	if (!pos)
		return -EBADMSG;
	pos[strspn(pos, "0123456789")] = '\0';
	return str_to_u64(pos, 0, UINT64_MAX, &ret->start_ticks);
}

static int procfs_open_number(const char *number)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "/proc/%s", number); /* fits: a name has 255 bytes */
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	return fd;
}

/*
 * After its main thread called pthread_exit, /proc/PID has no memory, no exe and no root, and /proc/TID of
 * another thread has them. -ESRCH: there is none.
 */
static int procfs_open_thread(int process_fd)
{
	int tasks = openat(process_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = tasks < 0 ? NULL : fdopendir(tasks);
	struct dirent *d;
	int found = -ESRCH;

	if (!dir) {
		closep(&tasks);
		return -ESRCH;
	}
	for (int tried = 0; found < 0 && tried < PROCFS_TASKS_TRIED; tried++) {
		struct procfs_stat stat = {0};

		d = readdir(dir);
		if (!d)
			break;
		if (d->d_name[0] == '.')
			continue;
		_cleanup_(closep) int fd = procfs_open_number(d->d_name);
		/* The number is still this process's thread if it still stands here. */
		if (fd >= 0 && procfs_read_stat(fd, &stat) == 0 && stat.state != 'Z' &&
			stat.state != 'X' && faccessat(dirfd(dir), d->d_name, F_OK, 0) == 0)
			found = steal_fd(&fd);
	}
	(void)closedir(dir); /* read only */
	return found;
}

int procfs_open(uint32_t tgid, uint64_t start_ns)
{
	uint64_t tick_ns = NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK);
	struct procfs_stat stat = {0};
	char number[16];

	(void)snprintf(number, sizeof(number), "%u", tgid); /* fits */
	_cleanup_(closep) int fd = procfs_open_number(number);
	if (fd < 0)
		return fd;
	int r = procfs_read_stat(fd, &stat);
	if (r < 0)
		return r;
	uint64_t wanted = start_ns / tick_ns;
	if (start_ns != 0 && (stat.start_ticks > wanted + 1 || stat.start_ticks + 1 < wanted))
		return -ESRCH;
	int thread = stat.state == 'Z' ? procfs_open_thread(fd) : -ESRCH;

	return thread >= 0 ? thread : steal_fd(&fd);
}

int procfs_read_maps(int process_fd, struct maps *m)
{
	_cleanup_(closep) int fd = openat(process_fd, "maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = maps_read_fd(m, fd);

	return r == 0 && m->lines == 0 ? -ESRCH : r;
}

/* A regular file behind an O_PATH descriptor, opened for reading: never a device or a FIFO. */
int procfs_reopen(int path_fd, struct stat *st)
{
	char self[40];

	if (fstat(path_fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd); /* fits */
	int fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/*
 * By path below the process's root: whatever is there now. The kernel writes paths as we reach them, which is
 * from the process's root only if that is a mount; a mere chroot's own path stands before.
 */
static int procfs_open_by_path(int process_fd, const char *path, struct stat *st)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	char link[PATH_MAX];

	if (path[0] != '/')
		return -ENOENT;
	_cleanup_(closep) int root = openat(process_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ssize_t n = readlinkat(process_fd, "root", link, sizeof(link));
	if (root < 0 || n < 0)
		return -errno;
	if (n > 1 && strncmp(path, link, (size_t)n) == 0 && path[n] == '/')
		path += n;
	_cleanup_(closep) int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	return fd < 0 ? -errno : procfs_reopen(fd, st);
}

static int procfs_open_exe(int process_fd, struct stat *st)
{
	_cleanup_(closep) int fd = openat(process_fd, "exe", O_PATH | O_CLOEXEC);

	return fd < 0 ? -errno : procfs_reopen(fd, st);
}

int procfs_open_mapped(
	int process_fd, const struct maps *m, const struct maps_region *r, struct stat *st)
{
	struct stat found = {0};
	char name[64];

	if (r->told_ns != 0)
		return procfs_find_told(process_fd, m, r, st);
	(void)snprintf(name, sizeof(name), "map_files/%llx-%llx",
		(unsigned long long)(r->mapped_end ? r->mapped_start : r->start),
		(unsigned long long)(r->mapped_end ? r->mapped_end : r->end)); /* fits */
	_cleanup_(closep) int by_map = openat(process_fd, name, O_PATH | O_CLOEXEC);
	if (by_map >= 0)
		return procfs_reopen(by_map, st);
	_cleanup_(closep) int by_path = procfs_open_by_path(process_fd, maps_path(m, r), &found);
	if (found.st_ino == r->inode) {
		*st = found;
		return by_path < 0 ? by_path : steal_fd(&by_path);
	}
	_cleanup_(closep) int exe = procfs_open_exe(process_fd, &found);
	if (exe >= 0 && found.st_ino == r->inode) {
		*st = found;
		return steal_fd(&exe);
	}
	return -ESTALE;
}

int procfs_copy_vdso(uint64_t *ret_size)
{
	unsigned long start = getauxval(AT_SYSINFO_EHDR);
	_cleanup_(closep) int maps_fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int fd = memfd_create("vdso", MFD_CLOEXEC);
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	if (maps_fd < 0 || fd < 0)
		return -errno;
	int r = maps_read_fd(&m, maps_fd);
	if (r < 0)
		return r;
	const struct maps_region *region = maps_find(&m, start);
	if (start == 0 || !region || region->start != start)
		return -ENOENT;
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives the address as a number */
	r = file_write_all(fd, (const void *)start, region->end - start);
	if (r < 0)
		return r;
	*ret_size = region->end - start;
	return steal_fd(&fd);
}
