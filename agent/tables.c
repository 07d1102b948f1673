/*
 * The keeper's API, see tables.h; the parts are listed in tables_internal.h.
 */
#include "agent/tables.h"

#include <errno.h>

#include "agent/tables_internal.h"
#include "base/def.h"

int tables_new(
	const struct tables_maps *m, uint32_t budget_mb, struct helper *helper, struct tables **ret)
{
	struct tables *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->maps = *m;
	t->helper = helper;
	int r = tables_kernel_init(t, budget_mb);

	if (r == 0)
		r = tables_process_init(t);
	if (r == 0)
		r = tables_file_init(t);
	if (r < 0) {
		tables_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void tables_free(struct tables *t)
{
	if (!t)
		return;
	tables_process_done(t);
	tables_file_done(t);
	tables_kernel_done(t);
	free(t);
}

void tables_freep(struct tables **t)
{
	tables_free(*t);
}

static bool tables_miss_chunk(struct tables *t, const struct table_miss *m)
{
	struct tables_file *f = tables_file_of_dir(t, m->dir);
	uint32_t first = 0;
	uint32_t count = 0;

	/* The file was forgotten since; its directory range may be another's. */
	if (!f || m->chunk != f->first_chunk + (m->dir - f->dir))
		return false;
	if (tables_dir_get(t, m->dir) > TABLE_WANTED)
		return true;
	if (f->fd < 0)
		tables_process_reopen(t, m, f);
	if (f->fd < 0) {
		tables_dir_set(t, m->dir, TABLE_BROKEN);
		t->stats.chunks_broken++;
		f->is_missed = true;
		return true;
	}
	tables_file_extent(t, f, m->chunk, &first, &count);
	tables_file_build(t, f, first, count);
	return true;
}

bool tables_miss(struct tables *t, const struct table_miss *m)
{
	struct tables_process *p;

	t->stats.misses++;
	switch (m->kind) {
	case TABLE_MISS_PROCESS:
		return tables_process_get(t, &m->process, m->seen_ns) != NULL;
	case TABLE_MISS_MAPPING:
		p = tables_process_get(t, &m->process, m->seen_ns);
		return p && tables_process_reread(t, p, m->pc);
	case TABLE_MISS_CHUNK:
		return tables_miss_chunk(t, m);
	default:
		return false;
	}
}

void tables_tick(struct tables *t)
{
	tables_process_tick(t);
	tables_file_tick(t);
	tables_file_close_idle(t);
	if (t->pending_dir_count > 0) {
		tables_wait(t);
		tables_file_flush(t);
	}
	tables_slabs_flush(&t->slabs);
}

void tables_stats(const struct tables *t, struct tables_stats *ret)
{
	*ret = t->stats;
	ret->bytes = tables_slabs_bytes(&t->slabs);
	ret->budget_bytes = t->slabs.budget;
	ret->evictions = t->slabs.evictions;
	ret->rules = t->rule_count;
}
