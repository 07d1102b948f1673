/*
 * Addresses to names. The agent opens files (map_files, then /proc/PID/root) and passes
 * descriptors; all foreign bytes (ELF, later DWARF and Go tables) are parsed in one helper process
 * with its own uid, no capabilities, seccomp and rlimits. If the helper dies or times out on a
 * file, that file's frames become
 * "[file+0xoff]" and the helper is started anew; the agent never fails because of a file.
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

#include "prof/profile.h"

struct symbolizer;

struct symbolizer_options {
	uint32_t helper_memory_mb;  /* RLIMIT_AS of the helper; 0: 512 */
	uint32_t helper_timeout_ms; /* per request; 0: 5000 */
	bool keep_pc; /* seeded fault for the lab's selftest: do not subtract 1 from return
			 addresses */
};

struct symbolizer_process {
	uint32_t tgid;
	uint64_t start_ns; /* as in struct stack_key */
	uint32_t exec_id;
};

struct symbolizer_stats {
	uint64_t frames, resolved, unresolved; /* user frames */
	uint64_t kernel_frames, kernel_unresolved;
	uint64_t files, files_failed, helper_restarts, processes_gone;
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
 * Appends the frames for addresses (leaf first) to ret_frames as frame ids of profile.
 * is_call_first says whether pcs[0] is a return address, too (later ones always are). Returns the
 * count written (at most count; one address is one frame until inlines come) or -errno of the
 * profile.
 */
int symbolizer_user(struct symbolizer *s, struct profile *profile,
	const struct symbolizer_process *p, const uint64_t *pcs, uint32_t count, bool is_call_first,
	uint32_t *ret_frames);
int symbolizer_kernel(struct symbolizer *s, struct profile *profile, const uint64_t *pcs,
	uint32_t count, uint32_t *ret_frames);

struct symbolizer_stats symbolizer_stats(const struct symbolizer *s);
/* 0 when none runs. Its CPU time and memory are part of the agent's cost. */
pid_t symbolizer_helper_pid(const struct symbolizer *s);

/* The helper process itself, for others whose files it is to read; stays the symbolizer's. */
struct helper *symbolizer_helper(const struct symbolizer *s);

/* The helper's main(), reached by re-executing the agent with this argv[1]; not for people. */
#define SYMBOLIZER_HELPER_ARG "__symbolize-helper"
int symbolizer_helper_main(int argc, char **argv);

#endif
