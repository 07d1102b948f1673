/* What debug_files.c (which files have what) and debug_files_search.c (where to look) share. */
#ifndef AGENT_DEBUG_FILES_INTERNAL_H
#define AGENT_DEBUG_FILES_INTERNAL_H

#include <limits.h>
#include <sys/stat.h>

#include "agent/debug_files.h"
#include "agent/elf_identity.h"

enum { DEBUG_FILES_HEX_SIZE = 2 * ELF_IDENTITY_BUILD_ID_MAX + 1 };

struct debug_files_root { /* another root directory than ours */
	uint64_t id;      /* 0: the slot is free */
	uint64_t dev, inode, mount;
	uint64_t used;
	int fd; /* O_PATH */
};

struct debug_files_file {
	uint64_t number; /* 0: the slot is free */
	uint64_t root;   /* id of its root; 0: ours */
	char *path;      /* as maps has it */
	char *in_root;   /* the same below its root; NULL: as path */
	uint64_t used;
	uint64_t looked_ns; /* 0: not yet */
	int debug_fd, alt_fd;
};

struct debug_files {
	char *dirs[DEBUG_FILES_DIRS_MAX + 1]; /* and that of debug_files_add_dir() */
	size_t dir_count;
	struct debug_files_file *files; /* DEBUG_FILES_MAX */
	struct debug_files_root roots[DEBUG_FILES_ROOTS_MAX];
	size_t open_count; /* of files with descriptors */
	uint64_t numbers, root_ids, tick;
	char missing[DEBUG_FILES_MISSING_MAX][DEBUG_FILES_HEX_SIZE];
	size_t missing_count;
	struct debug_files_stats stats;
};

/* One look for a file's debug file. */
struct debug_files_search {
	struct debug_files *d;
	struct helper *helper;
	int root;        /* where it looks now */
	const char *dir; /* of the file, below root */
	struct elf_identity of;
	struct stat self; /* of the file: it is not its own debug file */
	struct elf_identity found;
	int fd;
};

/* False: there is no build ID to look by. */
bool debug_files_hex(const struct elf_identity *of, char ret[DEBUG_FILES_HEX_SIZE]);
/* A regular file at path below root, open for reading, or -errno. */
int debug_files_open(int root, const char *path);
/* Looks below one root. True: s->fd and s->found are set. */
bool debug_files_search(struct debug_files_search *s);
/* The alternate file of the one found, which is open as s->fd. A descriptor or -1. */
int debug_files_search_alt(struct debug_files_search *s);

#endif
