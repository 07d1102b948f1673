/*
 * A newc cpio archive, the same bytes for the same content: inodes by position, no times, owner 0.
 * The kernel unpacks several archives one after the other, so a payload goes behind the image's
 * modules.cpio.
 */
#ifndef LAB_VM_CPIO_H
#define LAB_VM_CPIO_H

#include <stddef.h>
#include <stdint.h>

struct vm_cpio {
	int fd; /* the caller's */
	uint32_t inode;
	uint64_t offset;
};

/* All: 0 or -errno. Names have no leading slash; parents come before children. */
int vm_cpio_dir(struct vm_cpio *c, const char *name);
int vm_cpio_add(
	struct vm_cpio *c, const char *name, unsigned int mode, const void *data, size_t size);
int vm_cpio_add_file(struct vm_cpio *c, const char *name, unsigned int mode, const char *path);
int vm_cpio_end(struct vm_cpio *c);
/* Copies a whole archive (or any bytes) to the start. */
int vm_cpio_prepend(struct vm_cpio *c, const char *path);

#endif
