/*
 * Writes the result device, whose format stands in result.h. Records go first, the header that
 * counts them after an fsync, so the header never promises what is not there.
 *
 * On x86-64 the device is a pmem block device. On aarch64 it is a PCI memory region that the host's file
 * stands behind (ivshmem-plain: no registers, no interrupts), which sysfs lets us map and nothing else.
 */
#include "lab/guest/sink.h"

#include "lab/guest/result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/def.h"

static int write_at(const struct sink *s, const void *data, size_t size, uint64_t offset)
{
	const char *p = data;

	if (s->memory) {
		memcpy(s->memory + offset, data, size);
		return 0;
	}
	while (size > 0) {
		ssize_t n = pwrite(s->fd, p, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int sink_open(struct sink *s, const char *path)
{
	struct result_header h;
	_cleanup_(closep) int fd = open(path, O_RDWR | O_CLOEXEC);
	off_t size;

	uint8_t *memory = NULL;
	struct stat st;
	bool is_region;

	if (fd < 0)
		return -errno;
	/* A block device has no size in its inode; a PCI region has one nowhere else. */
	is_region = strncmp(path, "/sys/", 5) == 0;
	if (is_region && fstat(fd, &st) < 0)
		return -errno;
	size = is_region ? st.st_size : lseek(fd, 0, SEEK_END);
	if (size < RESULT_HEADER_SIZE)
		return size < 0 ? -errno : -EINVAL;
	if (is_region) {
		/* Mapped until the machine is switched off. */
		memory = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		/* Its 16,384 pages would be copied by each fork and torn down by each exec. */
		if (memory == MAP_FAILED || madvise(memory, (size_t)size, MADV_DONTFORK) < 0)
			return -errno;
		memcpy(&h, memory, sizeof(h));
	} else if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h)) {
		return -EIO;
	}
	if (memcmp(h.magic, RESULT_MAGIC, sizeof(h.magic)) != 0 || h.version != RESULT_VERSION ||
		h.end != RESULT_HEADER_SIZE)
		return -EINVAL;
	*s = (struct sink){
		.memory = memory, .size = (uint64_t)size, .end = h.end, .state = RESULT_CRASHED};
	s->fd = steal_fd(&fd);
	return 0;
}

int sink_add(struct sink *s, const char *name, const void *data, uint64_t size)
{
	static const char zeros[RESULT_ALIGN];
	size_t name_size = strlen(name);
	uint64_t at = s->end, whole;
	struct result_record r = {.magic = RESULT_RECORD_MAGIC, .data_size = size};
	int err;

	if (s->fd < 0)
		return 0;
	if (name_size == 0 || name_size > RESULT_NAME_MAX)
		return -ENAMETOOLONG;
	whole = sizeof(r) + name_size + size;
	whole = (whole + RESULT_ALIGN - 1) / RESULT_ALIGN * RESULT_ALIGN;
	if (s->state == RESULT_FULL || s->records >= RESULT_FILES_MAX || whole > s->size - at) {
		s->state = RESULT_FULL;
		return -ENOSPC;
	}
	r.name_size = (uint32_t)name_size;
	r.data_crc = result_crc32(0, data, size);
	r.crc = result_crc32(result_crc32(0, &r, 20), name, name_size);
	if ((err = write_at(s, &r, sizeof(r), at)) < 0 ||
		(err = write_at(s, name, name_size, at + sizeof(r))) < 0 ||
		(err = write_at(s, data, size, at + sizeof(r) + name_size)) < 0)
		return err;
	err = write_at(
		s, zeros, whole - sizeof(r) - name_size - size, at + sizeof(r) + name_size + size);
	if (err < 0)
		return err;
	s->end = at + whole;
	s->records++;
	return 0;
}

/* Reads size bytes, fewer at the end of the file; returns how many, or -errno. */
static ssize_t read_up_to(int fd, char *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = read(fd, data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int sink_add_file(struct sink *s, const char *name, const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	ssize_t size;
	char *data;
	int err;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (s->fd < 0)
		return 0;
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return -ENOMEM;
	size = read_up_to(fd, data, (size_t)st.st_size);
	err = size < 0 ? (int)size : sink_add(s, name, data, (uint64_t)size);
	free(data);
	return err;
}

int sink_commit(struct sink *s, int done)
{
	struct result_header h = {.version = RESULT_VERSION, .end = s->end, .records = s->records};
	int err;

	if (s->fd < 0)
		return 0;
	memcpy(h.magic, RESULT_MAGIC, sizeof(h.magic));
	if (done && s->state == RESULT_CRASHED)
		s->state = RESULT_DONE;
	h.state = s->state;
	h.crc = result_crc32(0, &h, 28);
	if (!s->memory && fsync(s->fd) < 0)
		return -errno;
	if ((err = write_at(s, &h, sizeof(h), 0)) < 0)
		return err;
	return !s->memory && fsync(s->fd) < 0 ? -errno : 0;
}
