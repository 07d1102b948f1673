/* See filter.h: the filter as the kernel side has it. */
#include <bpf/btf.h>
#include <errno.h>

#include "agent/bpf/sample.h"
#include "agent/bpf/skeleton.h"
#include "agent/filter.h"
#include "base/def.h"

/* By enum cgroup_subsys_id of the kernel's own types, which is its configuration. */
int filter_find_subsys(const char *controller, struct buf *why, uint32_t *ret)
{
	struct btf *btf = btf__load_vmlinux_btf();
	char name[CGROUP_CONTROLLER_MAX + 8];
	const struct btf_type *t = NULL;
	int id = btf ? btf__find_by_name_kind(btf, "cgroup_subsys_id", BTF_KIND_ENUM) : -1;
	int r = -ENOTSUP;

	/* The one whose name in the file system is not its own. */
	(void)snprintf(name, sizeof(name), "%s_cgrp_id",
		strcmp(controller, "blkio") == 0 ? "io" : controller);
	if (id > 0)
		t = btf__type_by_id(btf, (uint32_t)id);
	for (uint16_t i = 0; t && i < btf_vlen(t); i++) {
		const struct btf_enum *e = btf_enum(t) + i;

		if (strcmp(btf__name_by_offset(btf, e->name_off), name) != 0)
			continue;
		*ret = (uint32_t)e->val;
		r = 0;
	}
	btf__free(btf);
	if (r < 0)
		(void)buf_printf(
			why, "this kernel does not say where its controller '%s' is", controller);
	return r;
}

static size_t texts_of(const struct filter *f, enum filter_texts_kind kind)
{
	return f->sides[FILTER_SIDE_ONLY].texts[kind].count +
	       f->sides[FILTER_SIDE_EXCEPT].texts[kind].count;
}

/* FILTER_ONLY and FILTER_EXCEPT, as far as there are entries. */
static uint32_t sides(size_t only, size_t except)
{
	return (only > 0 ? FILTER_ONLY : 0) | (except > 0 ? FILTER_EXCEPT : 0);
}

static uint32_t sides_of_texts(const struct filter *f, enum filter_texts_kind kind)
{
	return sides(f->sides[FILTER_SIDE_ONLY].texts[kind].count,
		f->sides[FILTER_SIDE_EXCEPT].texts[kind].count);
}

int filter_prepare(
	struct collect_bpf *skel, const struct filter *f, const struct filter_resolved *resolved)
{
	const struct filter_list *only, *except;
	int r;

	if (!f || !filter_is_any(f))
		return 0;
	only = &f->sides[FILTER_SIDE_ONLY];
	except = &f->sides[FILTER_SIDE_EXCEPT];
	skel->rodata->filter_tgids = sides(only->pid_count, except->pid_count);
	skel->rodata->filter_comms = sides_of_texts(f, FILTER_COMMS);
	skel->rodata->filter_uids = sides_of_texts(f, FILTER_USERS);
	skel->rodata->filter_cgroups =
		sides_of_texts(f, FILTER_CGROUPS) | sides_of_texts(f, FILTER_CONTAINERS);
	skel->rodata->filter_has_v1 = resolved->has_v1;
	skel->rodata->filter_v1_subsys = resolved->v1_subsys;
	r = bpf_map__set_max_entries(
		skel->maps.tgids, MAX((__u32)(only->pid_count + except->pid_count), 1U));
	if (r == 0)
		r = bpf_map__set_max_entries(
			skel->maps.comms, MAX((__u32)texts_of(f, FILTER_COMMS), 1U));
	if (r == 0)
		r = bpf_map__set_max_entries(skel->maps.uids, MAX((__u32)resolved->uid_count, 1U));
	if (r == 0)
		r = bpf_map__set_max_entries(
			skel->maps.cgroups, MAX((__u32)resolved->cgroup_count, 1U));
	return r;
}

/* An entry that is asked for and left out has both. */
static int set_key(struct bpf_map *m, const void *key, size_t size, uint32_t value)
{
	uint32_t old = 0;

	if (bpf_map__lookup_elem(m, key, size, &old, sizeof(old), 0) == 0)
		value |= old;
	return bpf_map__update_elem(m, key, size, &value, sizeof(value), BPF_ANY);
}

static int fill_list(struct collect_bpf *skel, const struct filter_list *l, uint32_t value)
{
	const struct filter_texts *comms = &l->texts[FILTER_COMMS];
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->pid_count; i++) {
		uint32_t tgid = (uint32_t)l->pids[i];

		r = set_key(skel->maps.tgids, &tgid, sizeof(tgid), value);
	}
	for (size_t i = 0; r == 0 && i < comms->count; i++) {
		struct filter_comm comm = {0};

		(void)snprintf(comm.text, sizeof(comm.text), "%s", comms->at[i]); /* was checked */
		r = set_key(skel->maps.comms, &comm, sizeof(comm), value);
	}
	return r;
}

int filter_fill(
	struct collect_bpf *skel, const struct filter *f, const struct filter_resolved *resolved)
{
	int r;

	if (!f || !filter_is_any(f))
		return 0;
	r = fill_list(skel, &f->sides[FILTER_SIDE_ONLY], FILTER_ONLY);
	if (r == 0)
		r = fill_list(skel, &f->sides[FILTER_SIDE_EXCEPT], FILTER_EXCEPT);
	for (size_t i = 0; r == 0 && i < resolved->uid_count; i++)
		r = set_key(skel->maps.uids, &resolved->uids[i], sizeof(resolved->uids[i]),
			resolved->uid_values[i]);
	for (size_t i = 0; r == 0 && i < resolved->cgroup_count; i++)
		r = set_key(skel->maps.cgroups, &resolved->cgroups[i], sizeof(resolved->cgroups[i]),
			resolved->cgroup_values[i]);
	return r;
}
