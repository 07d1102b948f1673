/*
 * What the helper answered, by (file id, offset). Bounded by count and bytes; when either is
 * reached everything is forgotten and asked again, which is simpler than ages and, at 65,536
 * addresses, rare.
 */
#include <errno.h>

#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"

struct symbolize_cache_key {
	uint64_t file, offset;
};

int symbolize_cache_init(struct symbolizer *s)
{
	if (!s->symbols)
		s->symbols = calloc(SYMBOLIZE_SYMBOLS_MAX, sizeof(*s->symbols));
	s->symbol_map = map_new(SYMBOLIZE_SYMBOLS_MAX);
	s->name_map = map_new(SYMBOLIZE_SYMBOLS_MAX);
	if (!s->names_arena)
		s->names_arena = arena_new(SYMBOLIZE_NAMES_SIZE_MAX);
	s->symbol_count = 0;
	return s->symbols && s->symbol_map && s->name_map && s->names_arena ? 0 : -ENOMEM;
}

void symbolize_cache_done(struct symbolizer *s)
{
	free(s->symbols);
	map_free(s->symbol_map);
	map_free(s->name_map);
	arena_free(s->names_arena);
}

static void symbolize_cache_reset(struct symbolizer *s)
{
	map_free(s->symbol_map);
	map_free(s->name_map);
	s->symbol_map = NULL;
	s->name_map = NULL;
	arena_reset(s->names_arena);
	/* Without memory for the maps nothing is kept, and frames stay "[file+0x...]". */
	(void)symbolize_cache_init(s);
}

const struct symbolize_symbol *symbolize_cache_get(
	const struct symbolizer *s, const struct symbolize_file *f, uint64_t offset)
{
	struct symbolize_cache_key key = {f->id, offset};
	uint64_t slot = 0;

	if (!s->symbol_map || !map_get(s->symbol_map, &key, sizeof(key), &slot))
		return NULL;
	return &s->symbols[slot - 1];
}

/* One copy per name. NULL at a limit. */
static const char *symbolize_cache_name(struct symbolizer *s, const char *name, size_t size)
{
	bool is_new = false;
	uint64_t *slot = s->name_map ? map_put(s->name_map, name, size, &is_new) : NULL;

	if (!slot)
		return NULL;
	if (is_new || *slot == 0)
		*slot = (uint64_t)(uintptr_t)arena_strndup(s->names_arena, name, size);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the map's values are numbers */
	return (const char *)(uintptr_t)*slot;
}

static bool symbolize_cache_put(
	struct symbolizer *s, const struct symbolize_cache_key *key, const struct helper_answer *a)
{
	struct symbolize_symbol symbol = {
		.has_vaddr = a->flags & HELPER_HAS_VADDR,
		.vaddr = a->vaddr,
		.start = a->start,
	};

	if (s->symbol_count >= SYMBOLIZE_SYMBOLS_MAX || !s->symbol_map)
		return false;
	if (a->flags & HELPER_HAS_NAME) {
		symbol.name = symbolize_cache_name(s, a->name, a->name_size);
		symbol.name_size = a->name_size;
		if (!symbol.name)
			return false;
	}
	uint64_t *slot = map_put(s->symbol_map, key, sizeof(*key), NULL);
	if (!slot)
		return false;
	if (*slot == 0)
		*slot = ++s->symbol_count;
	s->symbols[*slot - 1] = symbol;
	return true;
}

bool symbolize_file_has_failed(const struct symbolize_file *f)
{
	return f->failed_ns != 0 && loop_now_ns() - f->failed_ns < SYMBOLIZE_RETRY_S * NSEC_PER_SEC;
}

static int symbolize_cache_order(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a;
	const uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Sorts the pending offsets and drops repeated and known ones. */
static void symbolize_cache_tidy(const struct symbolizer *s, struct symbolize_file *f)
{
	size_t kept = 0;

	if (f->pending_count > 1)
		qsort(f->pending, f->pending_count, sizeof(*f->pending), symbolize_cache_order);
	for (size_t i = 0; i < f->pending_count; i++) {
		uint64_t offset = f->pending[i];

		if ((kept > 0 && f->pending[kept - 1] == offset) ||
			symbolize_cache_get(s, f, offset))
			continue;
		f->pending[kept++] = offset;
	}
	f->pending_count = kept;
}

struct symbolize_cache_batch {
	struct symbolizer *s;
	struct symbolize_file *file;
	const uint64_t *offsets;
};

static void symbolize_cache_take(void *data, size_t index, const struct helper_answer *a)
{
	struct symbolize_cache_batch *b = data;
	struct symbolize_cache_key key = {b->file->id, b->offsets[index]};

	if (symbolize_cache_put(b->s, &key, a))
		return;
	symbolize_cache_reset(b->s);
	(void)symbolize_cache_put(b->s, &key, a); /* an empty cache has room, or memory is out */
}

static void symbolize_cache_ask_file(struct symbolizer *s, struct symbolize_file *f)
{
	char reason[HELPER_REASON_MAX];

	if (f->fd >= 0 && !symbolize_file_has_failed(f))
		symbolize_cache_tidy(s, f);
	for (size_t i = 0; i < f->pending_count; i += HELPER_BATCH_MAX) {
		struct symbolize_cache_batch batch = {s, f, f->pending + i};

		if (f->fd < 0 || symbolize_file_has_failed(f))
			break;
		int r = helper_ask(s->helper, f->fd, f->id, batch.offsets,
			MIN(f->pending_count - i, (size_t)HELPER_BATCH_MAX), symbolize_cache_take,
			&batch, reason);

		if (r == 0 || r == -EAGAIN)
			continue;
		f->failed_ns = loop_now_ns();
		s->stats.files_failed++;
		log_debug("symbolize", "read symbols",
			"inode=%llu device=%u:%u error=%d why=\"%s\"", (unsigned long long)f->inode,
			f->dev_major, f->dev_minor, -r, reason);
	}
	f->pending_count = 0;
}

void symbolize_cache_queue(struct symbolizer *s, struct symbolize_file *f, uint64_t offset)
{
	if (f->fd < 0 || symbolize_file_has_failed(f))
		return;
	if (f->pending_count >= SYMBOLIZE_PENDING_MAX)
		symbolize_cache_ask_file(s, f);
	if (f->pending_count == f->pending_allocated) {
		size_t allocated = f->pending_allocated ? 2 * f->pending_allocated : 32;
		uint64_t *grown = reallocarray(f->pending, allocated, sizeof(*f->pending));

		if (!grown)
			return; /* the frame stays "[file+0x...]" this time */
		f->pending = grown;
		f->pending_allocated = allocated;
	}
	f->pending[f->pending_count++] = offset;
	if (!f->is_queued) {
		f->is_queued = true;
		s->dirty[s->dirty_count++] = (uint32_t)(f - s->files);
	}
}

void symbolize_cache_ask(struct symbolizer *s)
{
	for (size_t i = 0; i < s->dirty_count; i++) {
		struct symbolize_file *f = &s->files[s->dirty[i]];

		f->is_queued = false;
		symbolize_cache_ask_file(s, f);
	}
	s->dirty_count = 0;
}
