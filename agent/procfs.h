/*
 * What /proc says of a process, without ever meaning another: /proc/PID is opened once, its start
 * time compared, and everything is read below that descriptor, which gives ESRCH when the process
 * is gone.
 */
#ifndef AGENT_PROCFS_H
#define AGENT_PROCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent/maps.h"

/*
 * /proc/tgid as an O_PATH descriptor, if it is the process that started at start_ns (boot clock; 0:
 * whichever it is); /proc/TID of another thread when the first one has ended before the process.
 * -ESRCH if not, or -errno.
 */
int procfs_open(uint32_t tgid, uint64_t start_ns);
/* Its executable mappings. 0 or -errno; -ESRCH: it has no memory any more. */
int procfs_read_maps(int process_fd, struct maps *m);
/*
 * The file behind a region, open for reading, and its stat; or -errno, -EINVAL: no regular file.
 *
 * By map_files, which reaches the mapped inode itself: deleted, replaced, in another mount namespace
 * or a memfd. Only where that is not allowed (it takes CAP_CHECKPOINT_RESTORE) or the mapping has
 * changed meanwhile, by path below root, which the kernel resolves as the process would
 * (RESOLVE_IN_ROOT), and then by /proc/PID/exe; the inode must be the mapping's. No device, FIFO or
 * socket is ever opened. Of a mapping that an event told of, procfs_find_told().
 */
int procfs_open_mapped(
	int process_fd, const struct maps *m, const struct maps_region *r, struct stat *st);
/*
 * The same of a mapping that an event told of (maps.h): its process may be gone, and whoever is at process_fd
 * another. What is found there, or below our own root, counts only if device, inode, generation
 * (where the file system says it) and an age above the mapping's agree; else -ESTALE.
 */
int procfs_find_told(
	int process_fd, const struct maps *m, const struct maps_region *r, struct stat *st);
/* Whether an open file has the generation that an event told of its inode; true if either says none. */
bool procfs_is_generation(int fd, const struct maps_region *r);
/* An O_PATH descriptor opened for reading, and its stat; -errno, -EINVAL: no regular file. */
int procfs_reopen(int path_fd, struct stat *st);
/* Our own vDSO, as a memfd: every 64-bit process has the same one. -errno when there is none. */
int procfs_copy_vdso(uint64_t *ret_size);

#endif
