/*
 * The collector's side of unwinding by tables: sizes and hands over the maps, passes what the programs
 * lack on to the keeper (tables.h), and has what was deferred walked again (bpf/deferred.h).
 */
#ifndef AGENT_COLLECT_TABLES_H
#define AGENT_COLLECT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/sample.h"
#include "agent/helper.h"
#include "agent/tables.h"

struct collect_bpf;
struct collect_tables;

/*
 * Before loading. samples_per_second are those of all CPUs, by which the room for waiting samples is made.
 * with_tables false: frame pointers only, and nothing is made for tables. 0 or -errno.
 */
int collect_tables_prepare(struct collect_bpf *skel, bool with_tables, uint64_t samples_per_second);

/* After loading. skel, helper and sideband (NULL: none) stay the caller's. 0 or -errno. */
int collect_tables_new(struct collect_bpf *skel, uint32_t budget_mb, struct helper *helper,
	struct sideband *sideband, struct collect_tables **ret);
void collect_tables_free(struct collect_tables *t); /* accepts NULL */

/* Builds what a recording before left in the file, for a moment; a file that is not there is no error. */
void collect_tables_warm(struct collect_tables *t, const char *path);
/* Replaces the file; what fails is logged. */
void collect_tables_save(const struct collect_tables *t, const char *path);

/* The ring `misses` and its callback, whose ctx is the object. */
int collect_tables_ring(const struct collect_tables *t);
int collect_tables_on_miss(void *ctx, void *data, size_t size);
/* To be called when the rings were consumed: walks what waits, if something was built. 0 or -errno. */
int collect_tables_resume(struct collect_tables *t);
/* At each of the collector's ticks. 0 or -errno. */
int collect_tables_tick(struct collect_tables *t);
/* No more sample can come, nothing will be built: what waits ends with its reason. 0 or -errno. */
int collect_tables_finish(struct collect_tables *t);

/* Samples that wait for tables now. */
uint64_t collect_tables_waiting(const struct collect_tables *t);
/* Misses so far: unchanged means that there is nothing to be had any more. */
uint64_t collect_tables_misses(const struct collect_tables *t);
void collect_tables_stats(const struct collect_tables *t, struct tables_stats *ret);

#endif
