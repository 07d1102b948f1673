/*
 * Whole files, read with a limit and written so that no half file is ever seen under the final
 * name. All descriptors are CLOEXEC. Paths come from our own configuration, never from a peer.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Appends the file's content. 0, -errno; -EFBIG when it has more than b->size_max bytes. Works on
 * /proc. */
int file_read(const char *path, struct buf *b);
int file_read_fd(int fd, struct buf *b);
/* The same of a file that only we write: what is no regular file (a FIFO, which would wait for a writer) is
 * -EINVAL at once. */
int file_read_own(const char *path, struct buf *b);
/* Writes path.tmp.PID beside it, fsyncs, renames. 0 or -errno; nothing is left behind on failure.
 */
int file_write_atomic(const char *path, const void *data, size_t size);
int file_mkdir_parents(const char *path); /* mkdir -p */
int file_write_all(int fd, const void *data, size_t size);
int file_copy(const char *from, const char *to, unsigned int mode);

/* SHA-256 in hex, by GnuTLS. 0 or -errno. */
#define FILE_SHA256_HEX 65
int file_sha256(const char *path, char out[FILE_SHA256_HEX]);
int file_sha256_mem(const void *data, size_t size, char out[FILE_SHA256_HEX]);

#endif
