/*
 * Chunks: asked of the helper, packed into a slab, shown in the directory.
 *
 * How much is built at a miss: the whole of a file with little code, else the chunk alone, no neighbour.
 * A chunk of libcrypto or libpython takes the helper 0.2 ms, a request beside it 10 us: what pays
 * is not to build, and only a file of a few chunks is likely to have them all in samples.
 */
#include <errno.h>

#include "agent/tables_internal.h"
#include "base/def.h"

enum { TABLES_WHOLE_CHUNKS = 4 /* 256 KiB of code */ };

struct tables_build {
	struct tables *t;
	struct tables_file *f;
	bool has_none; /* the file says nothing anywhere */
};

/* The chunk's reference, or why there is none. */
static uint32_t tables_chunk_place(struct tables *t, const struct cfi_chunk *c)
{
	uint16_t rule_map[TABLE_RULES_MAX];
	size_t size = cfi_packed_size(c);
	uint32_t ref = 0;
	void *memory = NULL;

	for (size_t i = 0; i < c->rule_count; i++)
		if (tables_rule_place(t, &c->rules[i], &rule_map[i]) < 0)
			return TABLE_FULL;
	if (size > UINT32_MAX || tables_slab_take(&t->slabs, TABLES_SLAB_CHUNKS, (uint32_t)size,
					 tables_now_s(), &ref, &memory) < 0)
		return TABLE_FULL;
	cfi_pack(c, rule_map, memory, size);
	t->stats.chunks++;
	t->stats.rows += c->row_count;
	return ref;
}

static void tables_chunk_take(
	void *data, uint64_t index, enum helper_cfi_status status, const struct cfi_chunk *chunk)
{
	struct tables_build *b = data;
	uint32_t dir = b->f->dir + (uint32_t)(index - b->f->first_chunk);
	uint32_t value = TABLE_BROKEN;

	if (tables_dir_get(b->t, dir) > TABLE_WANTED)
		return; /* built before, a neighbour of what is missing */
	switch (status) {
	case HELPER_CFI_OK:
		value = tables_chunk_place(b->t, chunk);
		break;
	case HELPER_CFI_NONE_AT_ALL:
		b->has_none = true;
		value = TABLE_NO_CFI;
		break;
	case HELPER_CFI_NONE:
		value = TABLE_NO_CFI;
		break;
	default:
		break;
	}
	b->t->stats.chunks_no_cfi += value == TABLE_NO_CFI;
	b->t->stats.chunks_broken += value == TABLE_BROKEN;
	b->t->stats.chunks_full += value == TABLE_FULL;
	tables_dir_set(b->t, dir, value);
}

/* Gives all that is not built yet the same reason. */
static void tables_chunk_close(struct tables *t, const struct tables_file *f, uint32_t first,
	uint32_t count, uint32_t value)
{
	for (uint32_t i = first - f->first_chunk; count > 0; i++, count--) {
		if (tables_dir_get(t, f->dir + i) > TABLE_WANTED)
			continue;
		tables_dir_set(t, f->dir + i, value);
		t->stats.chunks_no_cfi += value == TABLE_NO_CFI;
		t->stats.chunks_broken += value == TABLE_BROKEN;
	}
}

void tables_file_extent(const struct tables *t, const struct tables_file *f, uint32_t chunk,
	uint32_t *ret_first, uint32_t *ret_count)
{
	*ret_first = chunk;
	*ret_count = 1;
	if (f->chunk_count > TABLES_WHOLE_CHUNKS)
		return;
	/* From the first to the last that is not there. */
	uint32_t first = f->first_chunk;
	uint32_t last = first + f->chunk_count - 1;

	while (first < chunk && tables_dir_get(t, f->dir + first - f->first_chunk) > TABLE_WANTED)
		first++;
	while (last > chunk && tables_dir_get(t, f->dir + last - f->first_chunk) > TABLE_WANTED)
		last--;
	*ret_first = first;
	*ret_count = last - first + 1;
}

void tables_file_build(struct tables *t, struct tables_file *f, uint32_t first, uint32_t count)
{
	struct tables_build b = {.t = t, .f = f};
	int r = 0;

	if (f->first_used == 0)
		f->first_used = ++t->tick;
	f->used = ++t->tick;
	if (f->is_stale || !tables_file_is_same(f)) {
		/* Replaced in place: what programs run is neither the old nor the new. */
		f->is_stale = true;
		tables_chunk_close(t, f, first, count, TABLE_BROKEN);
		return;
	}
	while (r == 0 && count > 0) {
		uint32_t some = MIN(count, (uint32_t)HELPER_CFI_CHUNKS_MAX);

		r = helper_cfi_ask(
			t->helper, f->fd, f->id, first, some, &t->chunk, tables_chunk_take, &b);
		first += some;
		count -= some;
	}
	/*
	 * A file that ended or stopped the helper is not given to it again. Where none could be
	 * started the file is not to blame, but stacks do not wait for it either.
	 */
	if (r < 0)
		tables_chunk_close(t, f, f->first_chunk, f->chunk_count, TABLE_BROKEN);
	else if (b.has_none)
		tables_chunk_close(t, f, f->first_chunk, f->chunk_count, TABLE_NO_CFI);
}

void tables_file_take_back(struct tables *t, uint32_t slab)
{
	for (uint32_t i = TABLES_DIR_FIRST; i < TABLE_DIRS_MAX; i++) {
		uint32_t ref = tables_dir_get(t, i);

		if (ref < TABLE_REF_MIN || ref >> TABLE_SLAB_SHIFT != slab)
			continue;
		const struct table_chunk *c = tables_slab_at(&t->slabs, ref);

		t->stats.chunks--;
		t->stats.rows -= c->row_count;
		tables_dir_set(t, i, TABLE_NONE);
	}
}

void tables_file_tick(struct tables *t)
{
	bool has_room =
		t->rule_count < TABLE_RULES_MAX && tables_slabs_has_room(&t->slabs, tables_now_s());

	for (size_t i = 0; i < TABLES_FILES_MAX; i++) {
		const struct tables_file *f = &t->files[i];

		for (uint32_t k = 0; k < f->chunk_count; k++) {
			uint32_t value = tables_dir_get(t, f->dir + k);

			/* Its record may have found no room in the ring: it is asked for again. */
			if (value == TABLE_WANTED || (value == TABLE_FULL && has_room))
				tables_dir_set(t, f->dir + k, TABLE_NONE);
		}
	}
}
