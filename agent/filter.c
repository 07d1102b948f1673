/* See filter.h. */
#include "agent/filter.h"

#include <errno.h>

#include "agent/cgroup.h"
#include "base/def.h"
#include "base/str.h"

struct filter filter_of(const struct opt_list *pids, const struct opt_list *comms,
	const struct opt_list *cgroups, const struct opt_list *containers)
{
	return (struct filter){
		.pids = pids->u64,
		.comms = comms->str,
		.cgroups = cgroups->str,
		.containers = containers->str,
		.pid_count = pids->count,
		.comm_count = comms->count,
		.cgroup_count = cgroups->count,
		.container_count = containers->count,
	};
}

bool filter_is_any(const struct filter *f)
{
	return f->pid_count + f->comm_count + f->cgroup_count + f->container_count > 0;
}

int filter_check(const struct filter *f, struct buf *why)
{
	for (size_t i = 0; i < f->comm_count; i++) {
		size_t size = strlen(f->comms[i]);

		if (size == 0 || size > FILTER_COMM_MAX) {
			(void)buf_printf(why,
				"comm '%.64s' must have 1..%d bytes: the kernel keeps no more of a "
				"process's name",
				f->comms[i], FILTER_COMM_MAX);
			return -EINVAL;
		}
	}
	return 0;
}

int filter_resolve(
	const struct filter *f, struct buf *why, uint64_t ret[FILTER_CGROUPS_MAX], size_t *count)
{
	_cleanup_(cgroups_freep) struct cgroups *c = NULL;
	size_t n = 0;
	int r = f->cgroup_count + f->container_count > 0 ? cgroups_new(&c) : 0;

	for (size_t i = 0; r == 0 && i < f->cgroup_count; i++) {
		if (n == FILTER_CGROUPS_MAX)
			r = -E2BIG;
		else
			r = cgroups_id(c, f->cgroups[i], why, &ret[n++]);
	}
	for (size_t i = 0; r == 0 && i < f->container_count; i++) {
		size_t found = 0;

		r = cgroups_containers(
			c, f->containers[i], FILTER_CGROUPS_MAX - n, why, ret + n, &found);
		n += found;
	}
	*count = n;
	return r;
}

static void append_texts(struct buf *out, const char *key, const char *const *texts, size_t count)
{
	if (count == 0)
		return;
	(void)buf_printf(out, "%s\"%s\":[", out->size > 1 ? "," : "", key);
	for (size_t i = 0; i < count; i++) {
		(void)buf_append_str(out, i > 0 ? "," : "");
		(void)str_append_json(out, texts[i]);
	}
	(void)buf_append_str(out, "]");
}

int filter_describe(const struct filter *f, struct buf *out)
{
	if (!filter_is_any(f))
		return buf_append_str(out, "");
	(void)buf_append_str(out, "{");
	for (size_t i = 0; i < f->pid_count; i++)
		(void)buf_printf(
			out, "%s%llu", i > 0 ? "," : "\"pids\":[", (unsigned long long)f->pids[i]);
	if (f->pid_count > 0)
		(void)buf_append_str(out, "]");
	append_texts(out, "comms", f->comms, f->comm_count);
	append_texts(out, "cgroups", f->cgroups, f->cgroup_count);
	append_texts(out, "containers", f->containers, f->container_count);
	return buf_append_str(out, "}");
}
