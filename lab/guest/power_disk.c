/*
 * See power_disk.h. What dmsetup would do is four ioctls (linux/dm-ioctl.h), each with a header of fixed
 * size and its argument behind it.
 */
#include "lab/guest/power_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/dm-ioctl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/def.h"

enum { DM_TEXT_MAX = 512, SECTOR = 512, COPY_CHUNK = 1 << 16 };

#define DM_NAME "power"

static int is_module(const struct dirent *d)
{
	const char *dot = strrchr(d->d_name, '.');

	return dot && strcmp(dot, ".ko") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int power_modules_load(void)
{
	struct dirent **names = NULL;
	int n = scandir(POWER_DIR, &names, is_module, by_name);
	int err = n < 0 ? -errno : 0;

	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];

		(void)snprintf(path, sizeof(path), POWER_DIR "/%s", names[i]->d_name);
		_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (err == 0 && (fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0) &&
			errno != EEXIST)
			err = -errno;
		free(names[i]);
	}
	free(names);
	return err;
}

int power_file_make(const char *path, uint64_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	return fd < 0 || ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
	char data[COPY_CHUNK];

	while (at < end) {
		ssize_t n = pread(from, data, (size_t)MIN(end - at, (off_t)sizeof(data)), at);

		if (n == 0)
			return -EIO;
		if (n < 0 || pwrite(to, data, (size_t)n, at) != n)
			return -errno;
		at += n;
	}
	return 0;
}

int power_file_copy(const char *from, const char *to)
{
	_cleanup_(closep) int in = open(from, O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int out = open(to, O_RDWR | O_CLOEXEC);
	off_t end, at = 0;
	int err = 0;

	if (in < 0 || out < 0)
		return -errno;
	while (err == 0 && (at = lseek(in, at, SEEK_DATA)) >= 0) {
		end = lseek(in, at, SEEK_HOLE);
		err = end < 0 ? -errno : copy_range(in, out, at, end);
		at = end;
	}
	return err < 0 ? err : errno == ENXIO ? 0 : -errno; /* ENXIO: no data behind */
}

int power_loop_attach(unsigned int number, const char *path)
{
	_cleanup_(closep) int file = open(path, O_RDWR | O_CLOEXEC);
	struct loop_config config = {.fd = (uint32_t)file, .block_size = SECTOR};
	char device[32];

	(void)snprintf(device, sizeof(device), "/dev/loop%u", number);
	_cleanup_(closep) int fd = open(device, O_RDWR | O_CLOEXEC);
	return file < 0 || fd < 0 || ioctl(fd, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

int power_loop_detach(unsigned int number)
{
	char device[32];

	(void)snprintf(device, sizeof(device), "/dev/loop%u", number);
	_cleanup_(closep) int fd = open(device, O_RDWR | O_CLOEXEC);
	return fd < 0 || ioctl(fd, LOOP_CLR_FD, 0) < 0 ? -errno : 0;
}

/* --- device mapper */

struct dm_call {
	struct dm_ioctl head;
	union {
		struct {
			struct dm_target_spec spec;
			char params[DM_TEXT_MAX];
		} table;
		struct {
			struct dm_target_msg msg;
			char text[DM_TEXT_MAX];
		} message;
	};
};
_Static_assert(offsetof(struct dm_call, table) == sizeof(struct dm_ioctl), "the argument's place");

static int dm_do(unsigned long command, struct dm_call *c)
{
	_cleanup_(closep) int fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);

	c->head.version[0] = DM_VERSION_MAJOR;
	c->head.data_size = sizeof(*c);
	c->head.data_start = sizeof(struct dm_ioctl);
	(void)snprintf(c->head.name, sizeof(c->head.name), "%s", DM_NAME);
	return fd < 0 || ioctl(fd, command, c) < 0 ? -errno : 0;
}

int power_dm_create(const char *device, const char *log, uint64_t device_bytes)
{
	struct dm_call create = {0}, load = {.head.target_count = 1}, resume = {0};
	int err = dm_do(DM_DEV_CREATE, &create);

	if (err < 0)
		return err;
	load.table.spec.length = device_bytes / SECTOR;
	(void)snprintf(load.table.spec.target_type, sizeof(load.table.spec.target_type), "%s",
		"log-writes");
	(void)snprintf(load.table.params, sizeof(load.table.params), "%s %s", device, log);
	err = dm_do(DM_TABLE_LOAD, &load);
	if (err == 0)
		err = dm_do(DM_DEV_SUSPEND, &resume); /* without its flag it resumes */
	if (err < 0)
		(void)power_dm_remove(); /* err says what is wrong */
	return err;
}

int power_dm_mark(const char *text)
{
	struct dm_call c = {0};

	(void)snprintf(c.message.text, sizeof(c.message.text), "mark %s", text);
	return dm_do(DM_TARGET_MSG, &c);
}

int power_dm_remove(void)
{
	struct dm_call c = {0};

	return dm_do(DM_DEV_REMOVE, &c);
}
