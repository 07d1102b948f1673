/* See collect_tables.h. */
#include "agent/collect_tables.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "agent/bpf/skeleton.h"
#include "agent/fault.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"

/* While many misses are worked on, what waits is walked that often, so that its slots serve others. */
#define RESUME_INTERVAL_NS (10 * NSEC_PER_MSEC)

enum { TABLES_FILE_MAX = 1 << 20 };

struct collect_tables {
	struct collect_bpf *skel;
	struct tables *tables;
	struct bpf_link *room_link; /* NULL: replaced code is not seen */
	uint64_t misses;
	uint64_t last_tick_ns, last_resume_ns;
	bool is_changed; /* tables, since deferred samples were walked */
};

int collect_tables_prepare(struct collect_bpf *skel, bool with_tables, uint64_t samples_per_second)
{
	uint64_t slots = MIN(MAX(samples_per_second / 2, (uint64_t)DEFERRED_SLOTS_MIN),
		(uint64_t)DEFERRED_SLOTS);
	struct bpf_map *entries[] = {
		skel->maps.slabs, skel->maps.rules, skel->maps.procs, skel->maps.deferred};
	struct bpf_map *values[] = {skel->maps.dirs, skel->maps.slab_used};
	int r = bpf_program__set_autoload(
		with_tables ? skel->progs.on_sample_fp : skel->progs.on_sample, false);

	skel->rodata->deferred_slots = (uint32_t)slots;
	skel->rodata->sample_turns = fault_sample_turns();
	if (r == 0 && with_tables)
		return bpf_map__set_max_entries(skel->maps.deferred, (uint32_t)slots);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(entries); i++)
		r = bpf_map__set_max_entries(entries[i], 1);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(values); i++)
		r = bpf_map__set_value_size(values[i], sizeof(uint64_t));
	if (r == 0)
		r = bpf_program__set_autoload(skel->progs.resume, false);
	return r < 0 ? r : bpf_program__set_autoload(skel->progs.on_room, false);
}

int collect_tables_new(struct collect_bpf *skel, uint32_t budget_mb, struct helper *helper,
	struct sideband *sideband, struct collect_tables **ret)
{
	struct tables_maps maps = {
		.slabs = bpf_map__fd(skel->maps.slabs),
		.dirs = bpf_map__fd(skel->maps.dirs),
		.rules = bpf_map__fd(skel->maps.rules),
		.procs = bpf_map__fd(skel->maps.procs),
		.sideband = sideband,
		.slab_used = bpf_map__fd(skel->maps.slab_used),
	};
	struct collect_tables *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->skel = skel;
	r = tables_new(&maps, budget_mb, helper, &t->tables);
	if (r < 0) {
		free(t);
		return r;
	}
	/* Before any list is read. */
	t->room_link = bpf_program__attach(skel->progs.on_room);
	if (!t->room_link)
		log_warn("collect", "watch for replaced code", -errno,
			"hint=\"what is loaded where something else was may get its names\"");
	*ret = t;
	return 0;
}

void collect_tables_free(struct collect_tables *t)
{
	if (!t)
		return;
	(void)bpf_link__destroy(t->room_link); /* only closes */
	tables_free(t->tables);
	free(t);
}

void collect_tables_warm(struct collect_tables *t, const char *path)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(TABLES_FILE_MAX);
	int r = file_read_own(path, &text);

	if (r == 0)
		tables_warm(t->tables, buf_str(&text), text.size);
	else if (r != -ENOENT)
		log_warn("tables", "read what was used", r, "file=%s", path);
}

void collect_tables_save(const struct collect_tables *t, const char *path)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(TABLES_FILE_MAX);
	int r = tables_save(t->tables, &text);

	if (r == 0)
		r = file_write_atomic(path, buf_str(&text), text.size);
	if (r < 0)
		log_warn("tables", "keep what was used", r, "file=%s", path);
}

int collect_tables_ring(const struct collect_tables *t)
{
	return bpf_map__fd(t->skel->maps.misses);
}

static int run_resume(struct collect_tables *t)
{
	LIBBPF_OPTS(bpf_test_run_opts, run);

	t->is_changed = false;
	t->last_resume_ns = loop_now_ns();
	if (collect_tables_waiting(t) == 0)
		return 0;
	return bpf_prog_test_run_opts(bpf_program__fd(t->skel->progs.resume), &run);
}

int collect_tables_on_miss(void *ctx, void *data, size_t size)
{
	struct collect_tables *t = ctx;
	struct table_miss m;

	if (size < sizeof(m))
		return 0;
	memcpy(&m, data, sizeof(m));
	t->misses++;
	if (tables_miss(t->tables, &m))
		t->is_changed = true;
	if (!t->is_changed || loop_now_ns() - t->last_resume_ns < RESUME_INTERVAL_NS)
		return 0;
	return run_resume(t);
}

int collect_tables_resume(struct collect_tables *t)
{
	return t->is_changed ? run_resume(t) : 0;
}

int collect_tables_tick(struct collect_tables *t)
{
	uint64_t now = loop_now_ns();

	if (now - t->last_tick_ns >= NSEC_PER_SEC) {
		t->last_tick_ns = now;
		tables_tick(t->tables);
	}
	return run_resume(t);
}

int collect_tables_finish(struct collect_tables *t)
{
	__atomic_store_n(&t->skel->bss->finish, true, __ATOMIC_RELEASE);
	return run_resume(t);
}

uint64_t collect_tables_waiting(const struct collect_tables *t)
{
	return __atomic_load_n(&t->skel->bss->resumed.waiting, __ATOMIC_RELAXED);
}

uint64_t collect_tables_misses(const struct collect_tables *t)
{
	return t->misses;
}

void collect_tables_stats(const struct collect_tables *t, struct tables_stats *ret)
{
	tables_stats(t->tables, ret);
}
