/*
 * The result device, reader's side. Layout (all little endian; lab/guest/result.h has the structs):
 *
 *	 0 "FLRESULT" | 8 u32 version 1 | 12 u32 state | 16 u64 end | 24 u32 records
 *	28 u32 crc32 of bytes 0..27 | 32 zeros to 64
 *	then records at multiples of 8: u32 "FILE" | u32 name size | u64 data size | u32 data crc32 |
 *	u32 crc32 of these 20 bytes and the name | name | data | zeros to 8
 *
 * Invariants that are checked: end lies inside the device and on a multiple of 8; records lie whole
 * before end and there are exactly as many as the header says; a name is one or two components of
 * [A-Za-z0-9._-] that do not start with a dot, so it can be used as a path below a directory.
 */
#include "lab/vm_result.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cursor.h"
#include "base/def.h"
#include "base/file.h"
#include "lab/guest/result.h"

/* Reserved, not only sized: QEMU maps the file, and a disk that fills up under a mapping is SIGBUS. */
static int reserve(int fd, uint64_t size)
{
	int err = posix_fallocate(fd, 0, (off_t)size);

	if (err == EOPNOTSUPP || err == EINVAL)
		return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	return -err;
}

int vm_result_seed(const char *path, uint64_t size)
{
	struct result_header h = {
		.version = RESULT_VERSION, .state = RESULT_CRASHED, .end = RESULT_HEADER_SIZE};
	_cleanup_(closep) int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int err;

	if (fd < 0)
		return -errno;
	memcpy(h.magic, RESULT_MAGIC, sizeof(h.magic));
	h.crc = result_crc32(0, &h, offsetof(struct result_header, crc));
	err = reserve(fd, size);
	if (err < 0) {
		(void)unlink(path); /* gives back what was reserved */
		return err;
	}
	return file_write_all(fd, &h, sizeof(h));
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

static bool is_safe_name(const char *name, size_t size)
{
	unsigned int slashes = 0;
	bool at_start = true;

	for (size_t i = 0; i < size; i++) {
		if (name[i] == '/') {
			if (at_start || ++slashes > 1)
				return false;
			at_start = true;
			continue;
		}
		if (!is_name_char(name[i]) || (at_start && name[i] == '.'))
			return false;
		at_start = false;
	}
	return !at_start;
}

/* One record. The data is where the device has it; name is copied for its NUL. */
static int read_record(struct cursor *c, const uint8_t *start, char name[RESULT_NAME_MAX + 1],
	const void **data, size_t *data_size)
{
	const uint8_t *head = c->pos;
	uint32_t magic = cursor_u32(c), name_size = cursor_u32(c);
	uint64_t size = cursor_u64(c);
	uint32_t data_crc = cursor_u32(c), crc = cursor_u32(c);
	const char *n;

	if (cursor_error(c) < 0 || magic != RESULT_RECORD_MAGIC || name_size == 0 ||
		name_size > RESULT_NAME_MAX || size > cursor_left(c))
		return -EBADMSG;
	n = cursor_bytes(c, name_size);
	if (!n || result_crc32(result_crc32(0, head, 20), n, name_size) != crc ||
		!is_safe_name(n, name_size))
		return -EBADMSG;
	memcpy(name, n, name_size);
	name[name_size] = 0;
	*data_size = (size_t)size;
	*data = size > 0 ? cursor_bytes(c, (size_t)size) : "";
	if (!*data || result_crc32(0, *data, (size_t)size) != data_crc)
		return -EBADMSG;
	(void)cursor_bytes(
		c, (RESULT_ALIGN - (size_t)(c->pos - start) % RESULT_ALIGN) % RESULT_ALIGN);
	return cursor_error(c);
}

static int read_header(const void *data, size_t size, uint64_t *end, struct vm_result *ret)
{
	struct cursor c = cursor_over(data, size);
	const void *magic = cursor_bytes(&c, 8);
	uint32_t version = cursor_u32(&c), state = cursor_u32(&c);

	*end = cursor_u64(&c);
	ret->files = cursor_u32(&c);
	if (cursor_u32(&c) != (size < 28 ? 0 : result_crc32(0, data, 28)) || cursor_error(&c) < 0)
		return -EBADMSG;
	if (memcmp(magic, RESULT_MAGIC, 8) != 0 || version != RESULT_VERSION ||
		*end < RESULT_HEADER_SIZE || *end > size || *end % RESULT_ALIGN != 0 ||
		ret->files > RESULT_FILES_MAX)
		return -EBADMSG;
	switch (state) {
	case RESULT_CRASHED:
		ret->state = VM_RESULT_CRASHED;
		return 0;
	case RESULT_DONE:
		ret->state = VM_RESULT_DONE;
		return 0;
	case RESULT_FULL:
		ret->state = VM_RESULT_FULL;
		return 0;
	default:
		return -EBADMSG;
	}
}

int vm_result_read(
	const void *data, size_t size, vm_result_fn *fn, void *ctx, struct vm_result *ret)
{
	struct vm_result result = {0};
	char name[RESULT_NAME_MAX + 1];
	struct cursor c;
	uint64_t end;
	int err = read_header(data, size, &end, &result);

	if (err < 0)
		return err;
	c = cursor_over((const uint8_t *)data + RESULT_HEADER_SIZE, end - RESULT_HEADER_SIZE);
	for (uint32_t i = 0; i < result.files; i++) {
		const void *file;
		size_t file_size;

		err = read_record(&c, data, name, &file, &file_size);
		if (err < 0)
			return err;
		if (strcmp(name, "done") == 0 && file_size == 3 && memcmp(file, "ok\n", 3) == 0)
			result.has_done = true;
		err = fn ? fn(ctx, name, file, file_size) : 0;
		if (err < 0)
			return err;
	}
	if (cursor_left(&c) != 0)
		return -EBADMSG;
	*ret = result;
	return 0;
}

static int extract_one(void *ctx, const char *name, const void *data, size_t size)
{
	const char *slash = strrchr(name, '/');
	char path[PATH_MAX];
	int dir_size = slash ? (int)(slash - name) : 0, err;

	if (snprintf(path, sizeof(path), "%s/%.*s", (const char *)ctx, dir_size, name) >=
		(int)sizeof(path))
		return -ENAMETOOLONG;
	err = file_mkdir_parents(path);
	if (err < 0)
		return err;
	if (snprintf(path, sizeof(path), "%s/%s", (const char *)ctx, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return file_write_atomic(path, data, size);
}

int vm_result_extract(const char *path, const char *out_dir, struct vm_result *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map;
	int err;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < RESULT_HEADER_SIZE)
		return -EBADMSG;
	/* Our own scratch file, which nobody truncates: a mapping is safe, unlike with foreign files. */
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	err = vm_result_read(map, (size_t)st.st_size, extract_one, (void *)out_dir, ret);
	(void)munmap(map, (size_t)st.st_size); /* valid by construction */
	return err;
}
