/*
 * Mapping lists. Two processes with the same mappings of the same files at the same addresses (a
 * server's forked workers) have one list between them, found by a hash of its content.
 */
#include <errno.h>
#include <xxhash.h>

#include "agent/tables_internal.h"
#include "base/def.h"

static uint32_t *tables_list_bucket(struct tables *t, const uint64_t hash[2])
{
	return &t->list_buckets[hash[0] % TABLES_BUCKETS];
}

static void tables_list_hold_file(struct tables *t, uint32_t file)
{
	struct tables_file *f = &t->files[file - 1];

	if (f->mark == t->mark)
		return;
	f->mark = t->mark;
	tables_file_hold(t, file);
	t->held[t->held_count++] = file;
}

static bool tables_list_joins(const struct table_mapping *a, const struct table_mapping *b)
{
	return a->end == b->start && a->dir == b->dir && a->flags == b->flags &&
	       a->first_chunk == b->first_chunk && a->chunk_count == b->chunk_count &&
	       (a->dir == 0 || (a->bias == b->bias && a->dir >= TABLES_DIR_FIRST));
}

static void tables_list_append(struct tables *t, const struct table_mapping *new)
{
	struct table_mapping *last =
		t->mapping_count == 0 ? NULL : &t->mappings[t->mapping_count - 1];

	if (last && tables_list_joins(last, new))
		last->end = new->end;
	else if (t->mapping_count < TABLE_MAPPINGS_MAX)
		t->mappings[t->mapping_count++] = *new;
}

static void tables_list_add(
	struct tables *t, int process_fd, const struct maps *m, const struct maps_region *r)
{
	struct table_mapping new = {.start = r->start, .end = r->end};
	bool is_file = r->kind == MAPS_FILE || r->kind == MAPS_VDSO;
	uint32_t file = is_file ? tables_file_get(t, process_fd, m, r) : 0;

	if (r->kind == MAPS_ANON || file == TABLES_FILE_IS_ANON) {
		new.flags = TABLE_MAPPING_ANON;
		file = 0;
	} else if (file != 0 || r->kind == MAPS_FILE) {
		tables_file_describe(t, file, r, r->start, &new);
	}
	if (file != 0)
		tables_list_hold_file(t, file);
	tables_list_append(t, &new);
	while (new.end < r->end) { /* several segments in one region */
		tables_file_describe(t, file, r, new.end, &new);
		tables_list_append(t, &new);
	}
}

/* Files come first: of a process with more, generated code is left out. */
static void tables_list_collect(struct tables *t, int process_fd, const struct maps *m)
{
	size_t files = 0;
	size_t others = 0;

	t->mapping_count = 0;
	t->held_count = 0;
	t->mark++;
	for (size_t i = 0; i < m->count; i++)
		files += m->regions[i].kind == MAPS_FILE || m->regions[i].kind == MAPS_VDSO;
	size_t others_max = TABLE_MAPPINGS_MAX - MIN(files, (size_t)TABLE_MAPPINGS_MAX);

	for (size_t i = 0; i < m->count && t->mapping_count < TABLE_MAPPINGS_MAX; i++) {
		const struct maps_region *r = &m->regions[i];
		size_t before = t->mapping_count;
		bool is_other = r->kind != MAPS_FILE && r->kind != MAPS_VDSO;

		if (is_other && others == others_max)
			continue;
		tables_list_add(t, process_fd, m, r);
		if (is_other)
			others += t->mapping_count - before;
	}
}

static uint32_t tables_list_find(struct tables *t, const uint64_t hash[2])
{
	uint32_t at = *tables_list_bucket(t, hash);

	for (; at != 0; at = t->lists[at - 1].next) {
		const struct tables_list *l = &t->lists[at - 1];

		if (l->hash[0] == hash[0] && l->hash[1] == hash[1] &&
			l->count == t->mapping_count &&
			memcmp(tables_slab_at(&t->slabs, l->ref), t->mappings,
				l->count * sizeof(*t->mappings)) == 0)
			return at;
	}
	return 0;
}

/* Takes over what is held. Handle, or 0. */
static uint32_t tables_list_make(struct tables *t, const uint64_t hash[2])
{
	size_t size = t->mapping_count * sizeof(*t->mappings);
	struct tables_list *l = NULL;
	void *memory = NULL;
	uint32_t ref = 0;

	if (tables_slab_take(&t->slabs, TABLES_SLAB_LISTS, (uint32_t)size, tables_now_s(), &ref,
		    &memory) < 0)
		return 0;
	for (size_t i = 0; !l && i < TABLE_PROCESSES_MAX; i++)
		if (t->lists[i].users == 0)
			l = &t->lists[i];
	uint32_t *files = l ? calloc(t->held_count + 1, sizeof(*files)) : NULL;

	if (!files) {
		tables_slab_give(&t->slabs, ref, (uint32_t)size);
		return 0;
	}
	memcpy(memory, t->mappings, size); /* nothing refers to it yet */
	memcpy(files, t->held, t->held_count * sizeof(*files));
	*l = (struct tables_list){
		.hash = {hash[0], hash[1]},
		.ref = ref,
		.count = (uint32_t)t->mapping_count,
		.file_count = (uint32_t)t->held_count,
		.files = files,
	};
	t->held_count = 0;
	uint32_t *bucket = tables_list_bucket(t, hash);

	l->next = *bucket;
	*bucket = (uint32_t)(l - t->lists) + 1;
	t->stats.mappings += l->count;
	return *bucket;
}

uint32_t tables_list_get(struct tables *t, int process_fd, const struct maps *m)
{
	uint32_t list = 0;

	tables_list_collect(t, process_fd, m);
	if (t->mapping_count > 0) {
		XXH128_hash_t h =
			XXH3_128bits(t->mappings, t->mapping_count * sizeof(*t->mappings));
		const uint64_t hash[2] = {h.low64, h.high64};

		list = tables_list_find(t, hash);
		if (list == 0)
			list = tables_list_make(t, hash);
	}
	if (list != 0)
		t->lists[list - 1].users++;
	while (t->held_count > 0)
		tables_file_release(t, t->held[--t->held_count]);
	return list;
}

void tables_list_release(struct tables *t, uint32_t list, bool gives_back)
{
	struct tables_list *l = list == 0 ? NULL : &t->lists[list - 1];

	if (!l || --l->users > 0)
		return;
	uint32_t *at = tables_list_bucket(t, l->hash);

	while (*at != list)
		at = &t->lists[*at - 1].next;
	*at = l->next;
	for (uint32_t i = 0; i < l->file_count; i++)
		tables_file_release(t, l->files[i]);
	free(l->files);
	t->stats.mappings -= l->count;
	if (gives_back)
		tables_slab_give(
			&t->slabs, l->ref, (uint32_t)(l->count * sizeof(struct table_mapping)));
	*l = (struct tables_list){0};
}

bool tables_list_holds(const struct tables *t, uint32_t list, uint64_t pc)
{
	const struct tables_list *l = list == 0 ? NULL : &t->lists[list - 1];
	const struct table_mapping *m = l ? tables_slab_at(&t->slabs, l->ref) : NULL;

	for (uint32_t i = 0; l && i < l->count; i++)
		if (pc >= m[i].start && pc < m[i].end)
			return true;
	return false;
}
