/*
 * Where the files of a run go: onto the result device (guest) or into a directory (host mode).
 */
#ifndef LAB_GUEST_SINK_H
#define LAB_GUEST_SINK_H

#include <stdint.h>

struct sink {
	int fd;          /* the result device; -1 in host mode, where files are already in place */
	uint8_t *memory; /* the device, where it is memory that can only be mapped; else NULL */
	uint64_t size;
	uint64_t end;
	uint32_t records;
	uint32_t state;
};

/* Opens the seeded device. 0 or -errno; -EINVAL when it was not seeded. */
int sink_open(struct sink *s, const char *path);
/* Adds a file's content under name. 0; -ENOSPC (the state is then full for good); -errno. */
int sink_add_file(struct sink *s, const char *name, const char *path);
int sink_add(struct sink *s, const char *name, const void *data, uint64_t size);
/* Makes what was added durable; done says that the run came to its end. 0 or -errno. */
int sink_commit(struct sink *s, int done);

#endif
