/*
 * Addresses to names. The agent opens files (map_files, then /proc/PID/root) and passes
 * descriptors; all foreign bytes are parsed in helper processes with their own uid, no capabilities,
 * seccomp and rlimits: one for ELF symbols and Go's tables, another, started when it is needed, for
 * DWARF. If the first dies or times out on a file, that file's frames become "[file+0xoff]"; if the
 * second does, its inlined functions and lines are missing. Either is started anew; the agent never
 * fails because of a file.
 *
 * Rules: vaddr by PT_LOAD; pc-1 for frames that come from calls; a name only inside its symbol's
 * st_size (size 0 extends to the next symbol or section end); demangled C++ with an output cap; no
 * mapping:
 * "[unknown]", never an inherited module. Kernel addresses from /proc/kallsyms, "[kernel]" when
 * hidden.
 */
#ifndef AGENT_SYMBOLIZE_H
#define AGENT_SYMBOLIZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/sideband.h"
#include "base/buf.h"
#include "prof/profile.h"

struct symbolizer;

enum symbolizer_lines {
	SYMBOLIZER_LINES_FUNCTION, /* every frame has its function's first line: fewer stacks */
	SYMBOLIZER_LINES_LINE,     /* the line that ran, or that called */
};

struct symbolizer_options {
	uint32_t helper_memory_mb;  /* RLIMIT_AS of the helper for names; 0: 512 */
	uint32_t lines_memory_mb;   /* RLIMIT_DATA of the helper for lines; 0: 64 */
	uint32_t helper_timeout_ms; /* per request; 0: 5000 */
	enum symbolizer_lines lines;
	struct sideband *sideband;     /* stays the caller's; NULL: who is gone is not named */
	const char *const *debug_dirs; /* where separate debug files are; see debug_files.h */
	size_t debug_dir_count;
	const char *fetched_dir; /* one more of these, of debuginfod.h; NULL: none */
	bool keep_pc; /* seeded fault for the lab's selftest: do not subtract 1 from return
			 addresses */
};

struct symbolizer_process {
	uint32_t tgid;
	uint64_t start_ns; /* as in struct stack_key */
	uint32_t exec_id;
	uint64_t seen_ns; /* CLOCK_MONOTONIC: when it had this image; 0: not known */
};

struct symbolizer_stats {
	uint64_t frames, resolved, unresolved; /* user addresses */
	uint64_t inlined;                      /* further frames of these, by inlining */
	uint64_t kernel_frames, kernel_unresolved;
	uint64_t files, files_failed, helper_restarts, processes_gone;
	uint64_t processes_past;           /* gone, too, but known by the kernel's events */
	uint64_t requests, lines_requests; /* to the helpers */
	uint64_t lines_failed;             /* files whose DWARF gave nothing */
	uint64_t debug_unreadable;         /* of these, in a form that cannot be read */
	uint64_t go_unreadable; /* requests about Go programs whose table we do not know */
	uint64_t lines_restarts;
	bool kernel_hidden; /* /proc/kallsyms shows no addresses (kptr_restrict): "[kernel]" */
};

/* Starts the helper; call before capabilities are dropped. 0 or -errno. */
int symbolizer_new(const struct symbolizer_options *o, struct symbolizer **ret);
void symbolizer_free(struct symbolizer *s);
void symbolizer_freep(struct symbolizer **s);

/*
 * Tells of a process as soon as its first stack is seen: reads its maps and keeps descriptors of
 * its files, so that it can be named after it is gone. Cheap when known already; re-reads on a miss,
 * soon after the first reading and then ever more rarely, down to once per second. Never fails: a
 * process that is gone is counted.
 */
void symbolizer_see(struct symbolizer *s, const struct symbolizer_process *p,
	const uint64_t *user_pcs, uint32_t count);

/*
 * Optional, only for speed: tell the addresses of a whole window first, then look up all of them at
 * once (one request per file and batch, one pass over /proc/kallsyms), then call the functions
 * below, which find the answers in the cache. Without it they ask for each stack by itself. Never
 * fail; what does not fit is looked up later.
 */
void symbolizer_user_prepare(struct symbolizer *s, const struct symbolizer_process *p,
	const uint64_t *pcs, uint32_t count, bool is_call_first);
void symbolizer_kernel_prepare(struct symbolizer *s, const uint64_t *pcs, uint32_t count);
void symbolizer_flush_prepare(struct symbolizer *s);

/*
 * Writes the frames for addresses (leaf first) to ret_frames as frame ids of profile. is_call_first
 * says whether pcs[0] is a return address, too (later ones always are). An address has several
 * frames where functions are inlined: returns how many there are of all addresses, of which the
 * first room are written; or -errno of the profile.
 */
int symbolizer_user(struct symbolizer *s, struct profile *profile,
	const struct symbolizer_process *p, const uint64_t *pcs, uint32_t count, bool is_call_first,
	uint32_t room, uint32_t *ret_frames);
/* Each address is one frame; ret_frames has room for count. Returns count or -errno. */
int symbolizer_kernel(struct symbolizer *s, struct profile *profile, const uint64_t *pcs,
	uint32_t count, uint32_t *ret_frames);

/* Build IDs of files without names that had no debug file; see debug_files.h. */
int symbolizer_missing(const struct symbolizer *s, struct buf *out);
struct symbolizer_stats symbolizer_stats(const struct symbolizer *s);
/* 0 when none runs. Their CPU time and memory are part of the agent's cost. */
pid_t symbolizer_helper_pid(const struct symbolizer *s);
pid_t symbolizer_lines_pid(const struct symbolizer *s);

/* The helper process itself, for others whose files it is to read; stays the symbolizer's. */
struct helper *symbolizer_helper(const struct symbolizer *s);

/* The helper's main(), reached by re-executing the agent with this argv[1]; not for people. */
#define SYMBOLIZER_HELPER_ARG "__symbolize-helper"
int symbolizer_helper_main(int argc, char **argv);

#endif
