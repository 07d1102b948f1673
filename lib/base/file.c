/*
 * Whole files. A file that somebody may read while we write it goes to a temporary name in the same
 * directory first and is renamed over the final one; whoever opens that sees the old bytes or the
 * new ones.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <sys/stat.h>

#define FILE_BLOCK_SIZE ((size_t)64 * 1024)

struct file_temp {
	char path[PATH_MAX];
	int fd;
	bool is_made;
};

static void file_temp_done(struct file_temp *t)
{
	closep(&t->fd);
	if (t->is_made)
		(void)unlink(t->path); /* the error that brought us here is the one to report */
}

static int file_temp_open(struct file_temp *t, const char *path, unsigned int mode)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int n = snprintf(t->path, sizeof(t->path), "%s.tmp.%d", path, (int)getpid());

	if (n < 0 || (size_t)n >= sizeof(t->path))
		return -ENAMETOOLONG;
	t->fd = open(t->path, flags, mode);
	if (t->fd < 0 && errno == EEXIST) {
		/* Left by an earlier process with our PID that was killed. */
		if (unlink(t->path) < 0)
			return -errno;
		t->fd = open(t->path, flags, mode);
	}
	if (t->fd < 0)
		return -errno;
	t->is_made = true;
	return 0;
}

static int file_temp_commit(struct file_temp *t, const char *path)
{
	int fd;

	if (fsync(t->fd) < 0)
		return -errno;
	fd = steal_fd(&t->fd);
	if (close(fd) < 0)
		return -errno;
	if (rename(t->path, path) < 0)
		return -errno;
	t->is_made = false;
	return 0;
}

static ssize_t file_read_some(int fd, void *data, size_t size)
{
	ssize_t n;

	do {
		n = read(fd, data, size);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int file_read_fd(int fd, struct buf *b)
{
	if (b->error)
		return b->error;
	for (;;) {
		size_t room = MIN(b->size_max - b->size, FILE_BLOCK_SIZE);
		char probe;
		void *p = &probe;
		ssize_t n;
		int r;

		/* With the buffer full, one more byte tells whether the file ends here. */
		if (room > 0) {
			r = buf_reserve(b, room, &p);
			if (r < 0)
				return r;
		}
		n = file_read_some(fd, p, MAX(room, (size_t)1));
		if (room > 0) {
			b->size += n > 0 ? (size_t)n : 0;
			b->data[b->size] = '\0';
		} else if (n > 0) {
			return -EFBIG;
		}
		if (n <= 0)
			return (int)n;
	}
}

int file_read(const char *path, struct buf *b)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return file_read_fd(fd, b);
}

int file_read_own(const char *path, struct buf *b)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? file_read_fd(fd, b) : -EINVAL;
}

int file_write_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

int file_write_atomic(const char *path, const void *data, size_t size)
{
	_cleanup_(file_temp_done) struct file_temp t = {.fd = -1};
	int r = file_temp_open(&t, path, 0666); /* less the umask */

	if (r < 0)
		return r;
	r = file_write_all(t.fd, data, size);
	if (r < 0)
		return r;
	return file_temp_commit(&t, path);
}

static int file_mkdir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0777) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int file_mkdir_parents(const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0)
		return -ENOENT;
	if (len >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, len + 1);
	for (size_t i = 1; i < len; i++) {
		int r;

		if (part[i] != '/' || part[i - 1] == '/')
			continue;
		part[i] = '\0';
		r = file_mkdir(part);
		part[i] = '/';
		if (r < 0)
			return r;
	}
	return file_mkdir(part);
}

int file_copy(const char *from, const char *to, unsigned int mode)
{
	_cleanup_(file_temp_done) struct file_temp t = {.fd = -1};
	_cleanup_(closep) int fd = open(from, O_RDONLY | O_CLOEXEC);
	char block[FILE_BLOCK_SIZE];
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	r = file_temp_open(&t, to, mode);
	if (r < 0)
		return r;
	/* Not copy_file_range: it copies nothing from /proc and sysfs files, whose size is 0. */
	while ((n = file_read_some(fd, block, FILE_BLOCK_SIZE)) > 0) {
		r = file_write_all(t.fd, block, (size_t)n);
		if (r < 0)
			return r;
	}
	if (n < 0)
		return (int)n;
	if (fchmod(t.fd, mode) < 0) /* exactly mode, whatever the umask */
		return -errno;
	return file_temp_commit(&t, to);
}

static void file_hash_end(struct sha256_ctx *hash, char out[FILE_SHA256_HEX])
{
	uint8_t digest[SHA256_DIGEST_SIZE];

	_Static_assert(2 * sizeof(digest) + 1 == FILE_SHA256_HEX, "two digits a byte");
	sha256_digest(hash, sizeof(digest), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)snprintf(out + 2 * i, 3, "%02x", digest[i]); /* two digits always fit */
}

int file_sha256(const char *path, char out[FILE_SHA256_HEX])
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t block[FILE_BLOCK_SIZE];
	struct sha256_ctx hash;
	ssize_t n;

	if (fd < 0)
		return -errno;
	sha256_init(&hash);
	while ((n = file_read_some(fd, block, FILE_BLOCK_SIZE)) > 0)
		sha256_update(&hash, (size_t)n, block);
	if (n < 0)
		return (int)n;
	file_hash_end(&hash, out);
	return 0;
}

int file_sha256_mem(const void *data, size_t size, char out[FILE_SHA256_HEX])
{
	struct sha256_ctx hash;

	sha256_init(&hash);
	sha256_update(&hash, size, data);
	file_hash_end(&hash, out);
	return 0;
}
