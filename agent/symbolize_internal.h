/*
 * What the parts of the symbolizer share:
 *	symbolize.c		the API: addresses in, frames out
 *	symbolize_process.c	which file does an address belong to: maps per process identity
 *	symbolize_file.c	open files, one entry per (device, inode, mtime, size)
 *	symbolize_cache.c	answers of the helpers, by file and offset
 *	symbolize_ask.c		what is asked of which helper
 *	symbolize_kernel.c	kernel addresses
 */
#ifndef AGENT_SYMBOLIZE_INTERNAL_H
#define AGENT_SYMBOLIZE_INTERNAL_H

#include "agent/debug_files.h"
#include "agent/helper.h"
#include "agent/maps.h"
#include "agent/symbolize.h"
#include "base/arena.h"
#include "base/map.h"

enum {
	SYMBOLIZE_PROCESSES_MAX = 16384,    /* as many as there may be stacks */
	SYMBOLIZE_MAPS_SIZE_MAX = 16 << 20, /* of their mappings */
	SYMBOLIZE_FILES_BITS = 12,
	SYMBOLIZE_FILES_MAX = 1 << SYMBOLIZE_FILES_BITS,
	SYMBOLIZE_FDS_MAX = 400,           /* below the usual soft limit of 1,024 */
	SYMBOLIZE_PROCESS_FILES_MAX = 256, /* opened when a process is seen; others on demand */
	SYMBOLIZE_SYMBOLS_MAX = 1 << 16,
	SYMBOLIZE_NAMES_SIZE_MAX = 16 << 20,
	SYMBOLIZE_PENDING_MAX = 8 * HELPER_BATCH_MAX, /* of one file, before it is asked */
	SYMBOLIZE_KERNEL_MAX = 1 << 15,
	SYMBOLIZE_KERNEL_BATCH = 2048,
	SYMBOLIZE_RETRY_S = 600, /* a file that failed is tried again */
	SYMBOLIZE_KERNEL_STALE_S = 60,
};

struct symbolize_file {
	uint64_t id; /* for the helper; never used twice */
	uint64_t inode;
	uint32_t dev_major, dev_minor; /* as maps shows them, which stat may not (btrfs) */
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t generation; /* of the slot, in handles */
	int fd;              /* -1: closed to save descriptors */
	bool is_used;        /* the slot holds a file */
	bool is_queued;      /* stands in symbolizer.dirty */
	bool is_deleted;
	uint64_t used;        /* tick of the last use */
	uint64_t checked_ns;  /* last fstat */
	uint64_t failed_ns;   /* 0: not failed */
	uint64_t debug;       /* number of debug_files.h; 0: none */
	uint64_t no_lines_id; /* equal to id: it has no DWARF that helps */
	uint64_t *pending;    /* offsets to ask for */
	size_t pending_count, pending_allocated;
};

struct symbolize_entry { /* one process identity */
	struct symbolizer_process id;
	struct maps maps;
	uint64_t used;
	uint64_t read_ns;
	uint64_t refresh_ns; /* how long to wait before the next reading */
	uint64_t cost_ns;    /* of the last one */
	bool is_refreshed;   /* once at least */
	bool is_gone;        /* nothing can be read of it any more; maps has what is known */
	bool is_used;
};

struct symbolize_name { /* as struct names_frame; texts in symbolizer.names_arena */
	const char *name, *file;
	uint16_t name_size, file_size;
	uint32_t line, start_line;
};

struct symbolize_symbol {
	const struct symbolize_name *names; /* innermost first; in symbolizer.names_arena */
	uint8_t name_count;                 /* 0: it has no name */
	uint8_t kind;                       /* enum names_kind */
	bool has_vaddr;
	bool is_late;   /* the lines were not ready in time: ask again in the next window */
	uint64_t vaddr; /* of the address asked for */
	uint64_t start; /* of the real function */
};

struct symbolize_kernel_symbol {
	const char *name;   /* NULL: not found */
	const char *module; /* "" for the kernel itself */
	uint64_t asked_ns;
};

struct symbolizer {
	struct symbolizer_options options;
	struct symbolizer_stats stats;
	struct helper *helper;
	struct helper *lines; /* NULL: not needed so far */
	struct debug_files *debug_files;
	uint64_t tick;

	struct symbolize_entry *entries; /* SYMBOLIZE_PROCESSES_MAX */
	struct map *entry_map;           /* process key -> slot + 1 */
	size_t entry_next;               /* where the search for a free slot begins */
	size_t entries_used;             /* the ones beyond were never touched */
	size_t maps_size;                /* bytes of all entries' maps */

	struct symbolize_file *files; /* SYMBOLIZE_FILES_MAX */
	struct map *file_map;         /* device, inode -> slot + 1 */
	size_t fd_count;
	uint64_t file_ids;
	uint32_t vdso; /* handle of our own vDSO's copy; 0: none */
	uint64_t vdso_size;

	uint32_t dirty[SYMBOLIZE_FILES_MAX]; /* slots of files with pending offsets */
	size_t dirty_count;

	struct symbolize_symbol *symbols; /* SYMBOLIZE_SYMBOLS_MAX */
	size_t symbol_count;
	struct map *symbol_map; /* file id, offset -> index + 1 */
	struct map *name_map;   /* name -> its copy in names_arena */
	struct arena *names_arena;

	struct symbolize_kernel_symbol *kernel; /* SYMBOLIZE_KERNEL_MAX */
	size_t kernel_count;
	struct map *kernel_map; /* address -> index + 1 */
	struct arena *kernel_arena;
	uint64_t kernel_pending[SYMBOLIZE_KERNEL_BATCH];
	size_t kernel_pending_count;
};

/* --- symbolize_process.c --- */
int symbolize_process_init(struct symbolizer *s);
void symbolize_process_done(struct symbolizer *s);
/* The entry, read now if it is new; NULL without memory. */
struct symbolize_entry *symbolize_process_get(
	struct symbolizer *s, const struct symbolizer_process *p);
/*
 * Reads the maps again: when events say that there is more, as often as that is cheap; else soon after
 * the process was first seen, when it may still be loading, then ever more rarely, down to once per
 * second. True when they were read.
 */
bool symbolize_process_refresh(struct symbolizer *s, struct symbolize_entry *e);
/* The region's open file, or NULL: not a file, or it cannot be opened. */
struct symbolize_file *symbolize_process_file(
	struct symbolizer *s, struct symbolize_entry *e, struct maps_region *r);

/* --- symbolize_file.c --- */
int symbolize_file_init(struct symbolizer *s);
void symbolize_file_done(struct symbolizer *s);
/* Handles survive the slot's reuse: they then give NULL. 0 is none. */
struct symbolize_file *symbolize_file_at(struct symbolizer *s, uint32_t handle);
uint32_t symbolize_file_handle(const struct symbolizer *s, const struct symbolize_file *f);
/* The file behind a region of the process whose /proc/PID is open as process_fd. */
struct symbolize_file *symbolize_file_open(
	struct symbolizer *s, int process_fd, const struct maps *m, const struct maps_region *r);
/* Copies our own vDSO; every 64-bit process has the same one. */
void symbolize_file_add_vdso(struct symbolizer *s);

/* --- symbolize_cache.c --- */
int symbolize_cache_init(struct symbolizer *s);
void symbolize_cache_done(struct symbolizer *s);
/* NULL: not asked yet. Valid until the next symbolize_cache_ask(). */
const struct symbolize_symbol *symbolize_cache_get(
	const struct symbolizer *s, const struct symbolize_file *f, uint64_t offset);
/*
 * The names helper's answer becomes the symbol at the offset; the lines helper's is merged into it:
 * its real function's name is the symbol's if there is one. A full cache is emptied first.
 */
void symbolize_cache_put(struct symbolizer *s, const struct symbolize_file *f, uint64_t offset,
	const struct helper_answer *a);
void symbolize_cache_merge(struct symbolizer *s, const struct symbolize_file *f, uint64_t offset,
	const struct helper_answer *a);

/* --- symbolize_ask.c --- */
void symbolize_cache_queue(struct symbolizer *s, struct symbolize_file *f, uint64_t offset);
/* Asks the helpers for all that is queued. */
void symbolize_cache_ask(struct symbolizer *s);
bool symbolize_file_has_failed(const struct symbolize_file *f);

/* --- symbolize_kernel.c --- */
int symbolize_kernel_init(struct symbolizer *s);
void symbolize_kernel_done(struct symbolizer *s);
void symbolize_kernel_queue(struct symbolizer *s, uint64_t address);
void symbolize_kernel_ask(struct symbolizer *s);
/* NULL: not known. */
const struct symbolize_kernel_symbol *symbolize_kernel_get(
	const struct symbolizer *s, uint64_t address);

#endif
