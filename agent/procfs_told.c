/*
 * Files of mappings that are known by an event, see procfs.h: found by where they were, believed by what
 * they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "agent/procfs.h"
#include "agent/sideband.h"
#include "base/def.h"

bool procfs_is_generation(int fd, const struct maps_region *r)
{
	uint32_t generation = 0; /* an int is written, whatever the request's size says */

	return r->generation == 0 || ioctl(fd, FS_IOC_GETVERSION, &generation) < 0 ||
	       generation == (uint32_t)r->generation;
}

/* Not written to since the event, by the wall clock as it is now. */
static bool procfs_is_unchanged(const struct stat *st, uint64_t told_ns)
{
	struct timespec now = {0};
	struct timespec wall = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* the clocks exist */
	(void)clock_gettime(CLOCK_REALTIME, &wall);
	int64_t ago_ns = now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec - (int64_t)told_ns;
	int64_t told_wall_ns = wall.tv_sec * (int64_t)NSEC_PER_SEC + wall.tv_nsec - ago_ns;

	return st->st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st->st_mtim.tv_nsec <= told_wall_ns;
}

static bool procfs_is_told(
	int fd, const struct stat *st, const struct maps *m, const struct maps_region *r)
{
	bool is_same = st->st_ino == r->inode && major(st->st_dev) == r->dev_major &&
		       minor(st->st_dev) == r->dev_minor && procfs_is_generation(fd, r);

	return procfs_is_unchanged(st, r->told_ns) &&
	       (is_same || (m->told_by && sideband_is_file(m->told_by, fd, r)));
}

static int procfs_try_told(int dir, const char *path, uint64_t resolve, const struct maps *m,
	const struct maps_region *r, struct stat *st)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = resolve};
	_cleanup_(closep) int by_path = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

	if (by_path < 0)
		return -errno;
	_cleanup_(closep) int fd = procfs_reopen(by_path, st);
	if (fd < 0)
		return fd;
	return procfs_is_told(fd, st, m, r) ? steal_fd(&fd) : -ESTALE;
}

int procfs_find_told(
	int process_fd, const struct maps *m, const struct maps_region *r, struct stat *st)
{
	const char *path = maps_path(m, r);
	char name[64];

	(void)snprintf(name, sizeof(name), "map_files/%llx-%llx", (unsigned long long)r->start,
		(unsigned long long)r->end); /* fits */
	int fd = procfs_try_told(process_fd, name, 0, m, r, st);

	if (fd >= 0 || path[0] != '/')
		return fd;
	_cleanup_(closep) int root = openat(process_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0)
		fd = procfs_try_told(root, path, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS, m, r, st);
	return fd >= 0 ? fd : procfs_try_told(AT_FDCWD, path, RESOLVE_NO_MAGICLINKS, m, r, st);
}
