/*
 * procfs_open_mapped() where map_files does not lead to the file: the regions here are made up, so that only the
 * path is left, as without CAP_CHECKPOINT_RESTORE. An open that waits would be ended by the timeout.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/procfs.h"
#include "base/def.h"

static char dir[] = "/tmp/procfs_mapped_XXXXXX";
static char path[64];
static int process = -1;

static void make_dir(void)
{
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	process = procfs_open((uint32_t)getpid(), 0);
	cr_assert_geq(process, 0);
}

static void remove_dir(void)
{
	(void)unlink(path);
	(void)rmdir(dir);
	closep(&process);
}

TestSuite(procfs_mapped, .init = make_dir, .fini = remove_dir, .timeout = 30);

/* What opening a mapping of the file with this inode at path gives; the descriptor is closed. */
static int open_as(const char *at, ino_t inode, struct stat *st)
{
	_cleanup_(maps_done) struct maps m;
	char line[256];
	size_t used;

	maps_init(&m);
	(void)snprintf(line, sizeof(line), "1000-2000 r-xp 00000000 08:01 %llu %s\n",
		(unsigned long long)inode, at);
	cr_assert_eq(maps_feed(&m, line, strlen(line), &used), 0);
	cr_assert_eq(m.count, 1);
	int fd = procfs_open_mapped(process, &m, &m.regions[0], st);

	if (fd < 0)
		return fd;
	cr_expect_eq(close(fd), 0);
	return 0;
}

static ino_t inode_of(const char *at)
{
	struct stat st;

	cr_assert_eq(lstat(at, &st), 0);
	return st.st_ino;
}

Test(procfs_mapped, a_file_is_found_by_path_if_it_is_the_one)
{
	_cleanup_(closep) int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct stat st = {0};

	cr_assert_eq(write(fd, "text", 4), 4);
	cr_expect_eq(open_as(path, inode_of(path), &st), 0);
	cr_expect_eq(st.st_size, 4);
}

Test(procfs_mapped, another_file_at_the_path_is_not_taken)
{
	_cleanup_(closep) int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct stat st = {.st_size = 77};

	cr_assert_geq(fd, 0);
	cr_expect_eq(open_as(path, inode_of(path) + 1, &st), -ESTALE);
	cr_expect_eq(st.st_size, 77);
}

Test(procfs_mapped, a_fifo_in_the_files_place_is_not_waited_for)
{
	struct stat st;

	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_eq(open_as(path, inode_of(path), &st), -EINVAL);
	cr_expect_eq(open_as(path, 1, &st), -ESTALE);
}

Test(procfs_mapped, a_device_is_not_opened)
{
	struct stat st;

	cr_expect_eq(open_as("/dev/zero", inode_of("/dev/zero"), &st), -EINVAL);
}

Test(procfs_mapped, a_magic_link_is_not_followed)
{
	_cleanup_(closep) int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	char link[40];
	struct stat st;

	cr_assert_geq(fd, 0);
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	cr_expect_eq(open_as(link, inode_of(path), &st), -ESTALE);
}

Test(procfs_mapped, the_executable_is_found_when_its_path_is_another_file)
{
	struct stat exe;
	struct stat st = {0};

	cr_assert_eq(stat("/proc/self/exe", &exe), 0);
	cr_expect_eq(open_as("/nowhere/at/all (deleted)", exe.st_ino, &st), 0);
	cr_expect_eq(st.st_ino, exe.st_ino);
	cr_expect_eq(st.st_size, exe.st_size);
}
