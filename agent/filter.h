/*
 * What a recording is about, as people say it: process ids, names, cgroups (paths or ids),
 * containers (beginnings of ids). Resolved once when a window starts: a container that starts later
 * is in the next one. The kernel side is bpf/filter.h.
 */
#ifndef AGENT_FILTER_H
#define AGENT_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/opts.h"

enum { FILTER_CGROUPS_MAX = 1024, FILTER_COMM_MAX = 15, FILTER_TEXT_MAX = 1 << 20 };

struct filter {
	const uint64_t *pids;
	const char *const *comms;
	const char *const *cgroups;
	const char *const *containers;
	size_t pid_count, comm_count, cgroup_count, container_count;
};

/* Of options' lists, which stay the owners of what it points at. */
struct filter filter_of(const struct opt_list *pids, const struct opt_list *comms,
	const struct opt_list *cgroups, const struct opt_list *containers);
bool filter_is_any(const struct filter *f); /* it has an entry */
/*
 * Fills ret with the ids of all cgroups and containers (which are one kind), *count of them. 0 or
 * -errno with one line in why.
 */
int filter_resolve(
	const struct filter *f, struct buf *why, uint64_t ret[FILTER_CGROUPS_MAX], size_t *count);
/* For the profile, as JSON: {"pids":[1],"comms":["a"]}; "" without a filter. 0 or buf's error. */
int filter_describe(const struct filter *f, struct buf *out);
/* 0, or -EINVAL with one line in why: what no process can ever match. */
int filter_check(const struct filter *f, struct buf *why);

#endif
