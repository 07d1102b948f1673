/*
 * What the parts of the keeper share:
 *	tables.c		the API: misses, the tick, statistics
 *	tables_kernel.c		the maps: slabs made and replaced, words swapped
 *	tables_slab.c		the budget; pure, with tables_space.c
 *	tables_file.c		files and their directory ranges
 *	tables_chunk.c		their chunks
 *	tables_process.c	processes
 *	tables_list.c		their mapping lists
 *	tables_text.c		what was used, to and from text
 *
 * One thread; nothing here is called by a program.
 */
#ifndef AGENT_TABLES_INTERNAL_H
#define AGENT_TABLES_INTERNAL_H

#include <sys/stat.h>

#include "agent/helper_cfi.h"
#include "agent/maps.h"
#include "agent/tables.h"
#include "agent/tables_slab.h"
#include "agent/tables_space.h"
#include "base/map.h"

enum {
	TABLES_FILES_MAX = 4096,
	TABLES_FDS_MAX = 128,
	TABLES_BUCKETS = 1024,
	TABLES_FILE_CHUNKS_MAX = 1 << 14, /* 1 GB of code in one file */
	TABLES_SHARED_CHUNKS = 1024,      /* 64 MB of one that has no tables */
	TABLES_PENDING_DIRS_MAX = 256,
	/* Directory entries of no file: index 0 is none, then two runs that all such mappings share. */
	TABLES_DIR_BROKEN = 1,
	TABLES_DIR_FULL = TABLES_DIR_BROKEN + TABLES_SHARED_CHUNKS,
	TABLES_DIR_FIRST = TABLES_DIR_FULL + TABLES_SHARED_CHUNKS,
};

#define TABLES_FILE_IS_ANON UINT32_MAX

enum tables_file_state {
	TABLES_FILE_UNUSED, /* the slot */
	TABLES_FILE_HAS_DIR,
	TABLES_FILE_NO_CFI,
	TABLES_FILE_ANON, /* no ELF file: generated code */
	TABLES_FILE_BROKEN,
	TABLES_FILE_FULL, /* no room for its directory */
};

struct tables_file_key {
	uint64_t inode;
	uint32_t dev_major, dev_minor; /* as maps shows them, which stat may not (btrfs) */
	uint64_t size;
	int64_t mtime_ns;
};

struct tables_file {
	struct tables_file_key key;
	uint64_t id; /* for the helper; never used twice */
	enum tables_file_state state;
	int fd;         /* -1: closed to save descriptors */
	bool is_stale;  /* another content has its key's inode now */
	bool is_missed; /* a chunk was asked for while it could not be opened */
	uint64_t used;
	uint64_t first_used; /* tick of its first chunk; 0: none */
	uint32_t users;      /* lists */
	uint32_t idle_ticks; /* since there were any */
	uint32_t mark;       /* of the list being made that holds it already */
	uint32_t next;       /* slot + 1 in the bucket's chain */
	uint32_t dir, first_chunk, chunk_count;
	size_t segment_count;
	struct helper_cfi_segment *segments;
};

struct tables_list { /* of mappings; the slot's index + 1 is its handle */
	uint64_t hash[2];
	uint32_t ref;
	uint32_t count;
	uint32_t users; /* processes; 0: the slot is free */
	uint32_t next;
	uint32_t file_count;
	uint32_t *files; /* slots + 1, each file once */
};

struct tables_process {
	struct process_key key;
	bool is_used;
	bool is_gone; /* or an older image of a process that is there; forgotten at the next tick */
	bool is_past; /* gone, and its list is from events */
	bool is_tried; /* a gone one's list */
	bool is_warm;  /* from the recording before, which may have known it by another exec_id */
	uint32_t list; /* handle; 0: none */
	uint32_t generation;
	uint32_t next;
	uint64_t sequence;         /* order of first sight */
	uint64_t seen_ns;          /* the last time that it is known to have had this image */
	uint64_t read_ns, cost_ns; /* of the last reading */
	uint64_t backoff_ns;
	uint64_t final_until_ns;
};

struct tables {
	struct tables_maps maps;
	struct helper *helper;
	struct tables_stats stats;
	uint64_t tick; /* counts uses */

	/* --- tables_kernel.c --- */
	uint32_t *dirs;
	struct unwind_rule *rules;
	uint32_t *slab_used;
	bool is_ending;
	int slab_fd; /* slab 0's inner map, by which we wait; -1 */
	struct tables_slabs slabs;
	struct map *rule_map; /* rule -> its index + 1 */
	uint32_t rule_count;

	/* --- tables_file.c --- */
	struct tables_file *files; /* TABLES_FILES_MAX */
	uint32_t file_buckets[TABLES_BUCKETS];
	size_t file_count, fd_count;
	uint64_t file_ids;
	struct tables_space dir_space;
	struct tables_range pending_dirs[TABLES_PENDING_DIRS_MAX];
	size_t pending_dir_count;
	uint32_t vdso; /* slot + 1; 0: none */
	uint64_t vdso_size;
	struct cfi_chunk chunk; /* the helper's answer */

	/* --- tables_process.c --- */
	struct tables_process *processes; /* TABLE_PROCESSES_MAX */
	uint32_t process_buckets[TABLES_BUCKETS];
	size_t process_count;
	uint64_t process_sequence;
	uint32_t checked;          /* slot whose start time was compared last */
	struct tables_list *lists; /* TABLE_PROCESSES_MAX */
	uint32_t list_buckets[TABLES_BUCKETS];
	/* The list being made: its mappings, and the files it holds. */
	uint32_t mark;
	size_t mapping_count, held_count;
	struct table_mapping mappings[TABLE_MAPPINGS_MAX];
	uint32_t held[TABLE_MAPPINGS_MAX];
};

/* --- tables_kernel.c --- */
int tables_kernel_init(struct tables *t, uint32_t budget_mb); /* 0 or -errno */
void tables_kernel_done(struct tables *t);
uint32_t tables_now_s(void);
void tables_wait(struct tables *t); /* for programs that may have read a reference */
uint32_t tables_dir_get(const struct tables *t, uint32_t index);
void tables_dir_set(struct tables *t, uint32_t index, uint32_t value);
/* The rule's place, made if need be; -ENOSPC. */
int tables_rule_place(struct tables *t, const struct unwind_rule *r, uint16_t *ret);
int tables_show_process(struct tables *t, struct tables_process *p); /* 0 or -errno */
void tables_hide_process(struct tables *t, const struct tables_process *p);

/* --- tables_file.c --- */
int tables_file_init(struct tables *t);
void tables_file_done(struct tables *t);
/*
 * The file behind a region of the process whose /proc/PID is open: slot + 1; 0: it cannot be opened;
 * TABLES_FILE_IS_ANON: it is no regular file.
 */
uint32_t tables_file_get(
	struct tables *t, int process_fd, const struct maps *m, const struct maps_region *r);
/* The slot of the file that has this key now, + 1; 0: not known. */
uint32_t tables_file_find(const struct tables *t, const struct tables_file_key *key);
/* Whether it is open, and still what its tables were or will be made of. */
bool tables_file_is_same(const struct tables_file *f);
void tables_file_hold(struct tables *t, uint32_t file);
void tables_file_release(struct tables *t, uint32_t file);
void tables_file_close_idle(struct tables *t);
/*
 * Fills a mapping of the file (0: could not be opened) that begins at start in the region, and ends where
 * another segment begins, at the latest with the region.
 */
void tables_file_describe(const struct tables *t, uint32_t file, const struct maps_region *r,
	uint64_t start, struct table_mapping *ret);
/* The file whose range holds the directory entry, or NULL. */
struct tables_file *tables_file_of_dir(struct tables *t, uint32_t dir);
/* Frees directory ranges; no program can read them any more. */
void tables_file_flush(struct tables *t);

/* --- tables_chunk.c --- */
/* Has the chunks built, of which some may be there already; the file is open. */
void tables_file_build(struct tables *t, struct tables_file *f, uint32_t first, uint32_t count);
/* What is asked for at once when this chunk is missing. */
void tables_file_extent(const struct tables *t, const struct tables_file *f, uint32_t chunk,
	uint32_t *ret_first, uint32_t *ret_count);
void tables_file_take_back(struct tables *t, uint32_t slab);
void tables_file_tick(struct tables *t);

/* --- tables_list.c --- */
/* The list of the maps' mappings, made or shared: its handle, held once; 0: no room. */
uint32_t tables_list_get(struct tables *t, int process_fd, const struct maps *m);
/* gives_back: its bytes are free, else its slab is being emptied. */
void tables_list_release(struct tables *t, uint32_t list, bool gives_back);
bool tables_list_holds(const struct tables *t, uint32_t list, uint64_t pc);

/* --- tables_process.c --- */
int tables_process_init(struct tables *t);
void tables_process_done(struct tables *t);
/*
 * The process, read now if it is new or wants a list; NULL: no room. seen_ns: a time at which it had this
 * image, CLOCK_MONOTONIC; 0: not known.
 */
struct tables_process *tables_process_get(
	struct tables *t, const struct process_key *key, uint64_t seen_ns);
/* A pc in no mapping. True: the mappings are others now, or it is known that they are not. */
bool tables_process_reread(struct tables *t, struct tables_process *p, uint64_t pc);
/* Opens the file of the mapping that holds the miss's pc, if it is f. */
void tables_process_reopen(struct tables *t, const struct table_miss *m, struct tables_file *f);
void tables_process_take_back(struct tables *t, uint32_t slab);
void tables_process_tick(struct tables *t);

#endif
