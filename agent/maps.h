/*
 * The executable mappings of a process, from the text of /proc/PID/maps (proc(5)):
 *
 *	start-end perm offset major:minor inode   path
 *	7f1c2000-7f1c8000 r-xp 00026000 fe:01 1234                       /usr/lib/libc.so.6
 *
 * Mappings without x are dropped at once, but for one behind generated code: processes with 100,000
 * mappings exist, and few of them are code. The path is the rest of the line (it may hold spaces, and
 * "(deleted)" as part of the name); only \012 is an escape, for newline.
 *
 * Or from the kernel's events of mapping (sideband.h), one by one: maps_put().
 */
#ifndef AGENT_MAPS_H
#define AGENT_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	MAPS_REGIONS_MAX = 16384,   /* executable ones of one process */
	MAPS_ANON_MAX = 12288,      /* generated code only up to here: the rest is for files */
	MAPS_LINES_MAX = 1 << 18,   /* read of one process */
	MAPS_NAMES_MAX = 1 << 20,   /* bytes of paths of one process */
	MAPS_BESIDE_GAP = 2 << 20,  /* between such code and the file's next mapping: a huge page */
	MAPS_LINE_MAX = 4096 + 128, /* longest line that is understood: PATH_MAX and the numbers */
};

enum maps_kind {
	MAPS_FILE,    /* inode != 0 */
	MAPS_ANON,    /* no file: generated code, or memory that a name was put on */
	MAPS_VDSO,    /* "[vdso]" */
	MAPS_SPECIAL, /* other "[...]" of the kernel: [vsyscall], [uprobes], [stack], [heap] */
};

struct maps_region {
	uint64_t start, end; /* end is past the last byte */
	uint64_t offset;     /* in the file */
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t path; /* offset into names, see maps_path() */
	uint32_t kind; /* enum maps_kind */
	/* Where the file is mapped by which procfs_open_mapped() reaches it; 0: at start to end. */
	uint64_t mapped_start, mapped_end;
	/* Of an event, else 0: when it was mapped (CLOCK_MONOTONIC), and the inode's generation. */
	uint64_t told_ns, generation;
	uint32_t user; /* two fields for the caller; maps_feed and maps_put set 0 */
	uint32_t user_tried;
};

struct sideband;

struct maps {
	struct maps_region *regions; /* sorted, not overlapping */
	size_t count;
	size_t allocated;
	size_t lines;   /* seen */
	size_t skipped; /* malformed, or over a limit */
	/*
	 * Behind generated code that may be a copy of a file's text (remapped_text.h): what is mapped of a file
	 * next, if it is not executable. Sorted.
	 */
	struct maps_region *beside;
	size_t beside_count, beside_allocated;
	struct buf names;
	struct sideband *told_by; /* NULL: no region is told by an event */
};

void maps_init(struct maps *m);
void maps_done(struct maps *m); /* accepts NULL; usable as cleanup attribute */

/*
 * Takes the whole lines at the start of text and says through ret_used how many bytes they were;
 * the caller gives the rest again with more behind it. A malformed line is counted in skipped.
 * 0 or -ENOMEM.
 */
int maps_feed(struct maps *m, const char *text, size_t size, size_t *ret_used);
void maps_drop_beside(struct maps *m);
/* Reads an open maps file to its end. 0 or -errno (-ESRCH: the process is gone). */
int maps_read_fd(struct maps *m, int fd);

/*
 * One executable mapping, as an event tells it: r's path, kind and user fields are set here. replaces:
 * it was mapped over what is there; else it fills what is not covered. A region or path over a limit is
 * counted in skipped. 0 or -ENOMEM.
 */
int maps_put(struct maps *m, const struct maps_region *r, const char *path, size_t path_size,
	bool replaces);

/* Gives back what was allocated beyond need. */
void maps_trim(struct maps *m);
size_t maps_memory(const struct maps *m); /* bytes allocated */

/* The region that holds address, or NULL. */
struct maps_region *maps_find(const struct maps *m, uint64_t address);
/* NUL-terminated, "" for none. */
const char *maps_path(const struct maps *m, const struct maps_region *r);

#endif
