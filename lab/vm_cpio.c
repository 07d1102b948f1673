/*
 * newc (Documentation/driver-api/early-userspace/buffer-format.rst): "070701", thirteen fields of
 * eight hex digits, the name with its NUL, padding to 4, the data, padding to 4. The entry
 * "TRAILER!!!" ends it.
 */
#include "lab/vm_cpio.h"

#include <errno.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"

enum { FILE_MAX = 256 << 20, NAME_MAX_SIZE = 255 };

static int put(struct vm_cpio *c, const void *data, size_t size)
{
	static const char zeros[4];
	int err = file_write_all(c->fd, data, size);

	c->offset += size;
	if (err == 0 && c->offset % 4 != 0) {
		size_t pad = 4 - c->offset % 4;

		err = file_write_all(c->fd, zeros, pad);
		c->offset += pad;
	}
	return err;
}

int vm_cpio_add(
	struct vm_cpio *c, const char *name, unsigned int mode, const void *data, size_t size)
{
	char head[110 + NAME_MAX_SIZE + 2];
	size_t name_size = strlen(name) + 1;
	int n, err;

	if (name_size > NAME_MAX_SIZE)
		return -ENAMETOOLONG;
	n = snprintf(head, sizeof(head),
		"070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s", ++c->inode, mode, 0,
		0, 1, 0, (unsigned int)size, 0, 0, 0, 0, (unsigned int)name_size, 0, name);
	err = put(c, head, (size_t)n + 1);
	if (err == 0 && size > 0)
		err = put(c, data, size);
	return err;
}

int vm_cpio_dir(struct vm_cpio *c, const char *name)
{
	return vm_cpio_add(c, name, 040755, NULL, 0);
}

int vm_cpio_add_file(struct vm_cpio *c, const char *name, unsigned int mode, const char *path)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(FILE_MAX);
	int err = file_read(path, &b);

	return err < 0 ? err : vm_cpio_add(c, name, 0100000 | mode, b.data, b.size);
}

int vm_cpio_end(struct vm_cpio *c)
{
	return vm_cpio_add(c, "TRAILER!!!", 0, NULL, 0);
}

int vm_cpio_prepend(struct vm_cpio *c, const char *path)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(FILE_MAX);
	int err = file_read(path, &b);

	return err < 0 ? err : put(c, b.data, b.size);
}
