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

#endif
