/*
 * The keeper's side of the maps. Reading programs hold no lock, so the order is always the same: new
 * bytes first, then one aligned word with release.
 *
 * Waiting: an update of an ARRAY_OF_MAPS element returns after a grace period
 * (kernel/bpf/syscall.c, maybe_wait_bpf_programs), also when it puts the map there that was there.
 * Slab 0's inner map is kept for that. It does not wait for sleepable programs: `resume` is one,
 * and runs only when this thread runs it.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <sys/mman.h>

#include "agent/tables_internal.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"

uint32_t tables_now_s(void)
{
	return (uint32_t)(loop_now_ns() / NSEC_PER_SEC);
}

uint32_t tables_dir_get(const struct tables *t, uint32_t index)
{
	return __atomic_load_n(&t->dirs[index], __ATOMIC_RELAXED);
}

void tables_dir_set(struct tables *t, uint32_t index, uint32_t value)
{
	__atomic_store_n(&t->dirs[index], value, __ATOMIC_RELEASE);
}

/* NULL with errno set. */
static void *tables_map_memory(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static int tables_slab_add(void *data, uint32_t slab, void **ret)
{
	struct tables *t = data;
	struct bpf_map_create_opts o = {.sz = sizeof(o), .map_flags = BPF_F_MMAPABLE};
	_cleanup_(closep) int fd = bpf_map_create(
		BPF_MAP_TYPE_ARRAY, "unwind_slab", sizeof(uint32_t), TABLE_SLAB_SIZE, 1, &o);

	if (fd < 0)
		return fd;
	void *memory = tables_map_memory(fd, TABLE_SLAB_SIZE);

	if (!memory)
		return -errno;
	int r = bpf_map_update_elem(t->maps.slabs, &slab, &fd, BPF_ANY);
	if (r < 0) {
		(void)munmap(memory, TABLE_SLAB_SIZE); /* ours */
		return r;
	}
	if (slab == 0)
		t->slab_fd = steal_fd(&fd);
	*ret = memory;
	return 0;
}

static void tables_slab_drop(void *data, uint32_t slab, void *memory)
{
	struct tables *t = data;

	if (!t->is_ending) /* else the outer map goes soon, with all its slabs */
		(void)bpf_map_delete_elem(t->maps.slabs, &slab); /* waits as an update does */
	(void)munmap(memory, TABLE_SLAB_SIZE);                   /* ours */
}

static void tables_slab_wait(void *data)
{
	struct tables *t = data;
	uint32_t slab = 0;

	if (t->slab_fd >= 0 && bpf_map_update_elem(t->maps.slabs, &slab, &t->slab_fd, BPF_ANY) < 0)
		log_warn("tables", "wait for programs", -errno, "%s", "");
}

static void tables_slab_take_back(void *data, uint32_t slab, enum tables_slab_kind kind)
{
	struct tables *t = data;

	if (kind == TABLES_SLAB_CHUNKS)
		tables_file_take_back(t, slab);
	else
		tables_process_take_back(t, slab);
}

static uint32_t tables_slab_used_s(void *data, uint32_t slab)
{
	struct tables *t = data;

	return __atomic_load_n(&t->slab_used[slab], __ATOMIC_RELAXED);
}

static const struct tables_slab_ops tables_slab_ops = {
	.add = tables_slab_add,
	.remove = tables_slab_drop,
	.take_back = tables_slab_take_back,
	.wait = tables_slab_wait,
	.used_s = tables_slab_used_s,
};

void tables_wait(struct tables *t)
{
	tables_slab_wait(t);
}

int tables_rule_place(struct tables *t, const struct unwind_rule *r, uint16_t *ret)
{
	bool is_new = false;

	if (r->cfa == UNWIND_CFA_NONE || r->cfa == UNWIND_CFA_END) {
		*ret = r->cfa == UNWIND_CFA_END ? TABLE_RULE_END : TABLE_RULE_NONE;
		return 0;
	}
	uint64_t known = 0;

	if (map_get(t->rule_map, r, sizeof(*r), &known)) {
		*ret = (uint16_t)(known - 1);
		return 0;
	}
	if (t->rule_count >= TABLE_RULES_MAX ||
		tables_slabs_reserve(&t->slabs, sizeof(*r), tables_now_s()) < 0)
		return -ENOSPC;
	uint64_t *value = map_put(t->rule_map, r, sizeof(*r), &is_new);

	if (!value) {
		tables_slabs_release(&t->slabs, sizeof(*r));
		return -ENOSPC;
	}
	t->rules[t->rule_count] = *r; /* no chunk refers to it yet */
	*value = ++t->rule_count;
	*ret = (uint16_t)(*value - 1);
	return 0;
}

int tables_show_process(struct tables *t, struct tables_process *p)
{
	const struct tables_list *l = p->list == 0 ? NULL : &t->lists[p->list - 1];
	struct table_process value = {
		.list = l ? l->ref : 0,
		.count = l ? l->count : 0,
		.generation = ++p->generation,
		.final_until_ns = p->final_until_ns,
	};

	return bpf_map_update_elem(t->maps.procs, &p->key, &value, BPF_ANY);
}

void tables_hide_process(struct tables *t, const struct tables_process *p)
{
	(void)bpf_map_delete_elem(t->maps.procs, &p->key); /* or it was never shown */
}

int tables_kernel_init(struct tables *t, uint32_t budget_mb)
{
	void *first = NULL;
	uint32_t ref = 0;
	uint64_t budget = (uint64_t)MAX(budget_mb, (uint32_t)TABLES_BUDGET_MB_MIN) << 20;

	t->slab_fd = -1;
	tables_slabs_init(&t->slabs, &tables_slab_ops, t, budget);
	t->rule_map = map_new(TABLE_RULES_MAX);
	if (!t->rule_map)
		return -ENOMEM;
	t->dirs = tables_map_memory(t->maps.dirs, TABLE_DIRS_MAX * sizeof(*t->dirs));
	t->rules = tables_map_memory(t->maps.rules, TABLE_RULES_MAX * sizeof(*t->rules));
	t->slab_used =
		tables_map_memory(t->maps.slab_used, TABLE_SLABS_MAX * sizeof(*t->slab_used));
	if (!t->dirs || !t->rules || !t->slab_used)
		return -ENOMEM;
	t->rules[TABLE_RULE_END] = (struct unwind_rule){.cfa = UNWIND_CFA_END};
	t->rule_count = TABLE_RULE_FIRST;
	t->slabs.other = TABLE_RULE_FIRST * sizeof(*t->rules) + TABLES_DIR_FIRST * sizeof(*t->dirs);
	for (uint32_t i = 0; i < TABLES_SHARED_CHUNKS; i++) {
		tables_dir_set(t, TABLES_DIR_BROKEN + i, TABLE_BROKEN);
		tables_dir_set(t, TABLES_DIR_FULL + i, TABLE_FULL);
	}
	/* Slab 0 is there from the start: programs that find no list look at it, and we wait by it. */
	return tables_slab_take(&t->slabs, TABLES_SLAB_LISTS, 1, tables_now_s(), &ref, &first);
}

void tables_kernel_done(struct tables *t)
{
	t->is_ending = true;
	tables_slabs_done(&t->slabs);
	if (t->dirs)
		(void)munmap(t->dirs, TABLE_DIRS_MAX * sizeof(*t->dirs)); /* ours, as those below */
	if (t->rules)
		(void)munmap(t->rules, TABLE_RULES_MAX * sizeof(*t->rules));
	if (t->slab_used)
		(void)munmap(t->slab_used, TABLE_SLABS_MAX * sizeof(*t->slab_used));
	closep(&t->slab_fd);
	map_free(t->rule_map);
}
