/* What the agent itself costs, by the kernel's account. */
#ifndef AGENT_OWN_H
#define AGENT_OWN_H

#include <stdint.h>
#include <sys/types.h>

/* Of this process, its reaped children and one that lives (0: none). */
uint64_t own_cpu_ns(pid_t child);
uint64_t own_rss_peak_bytes(void); /* VmHWM */
uint64_t own_anon_bytes(void);     /* anonymous memory now */
/*
 * Handed out by malloc now. Exact to the byte when the process was started with
 * GLIBC_TUNABLES=glibc.malloc.tcache_count=0; else up to some 200 KB of freed pieces that malloc's
 * cache keeps count as handed out until it is full.
 */
uint64_t own_heap_bytes(void);
/*
 * Gives back what starting up, or a recording, left behind: free heap, and pages of code and constants
 * that the program and its libraries touched once (symbol tables, constructors). What is needed again
 * comes back from the page cache when it is. (Breakpoints that others set in this process's code,
 * a debugger's or a uprobe's, go with it.)
 */
void own_trim(void);

#endif
