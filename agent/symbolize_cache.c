/*
 * What the helpers answered, by (file id, offset). Bounded by count and bytes; when either is
 * reached everything is forgotten and asked again, which is simpler than ages and, at 65,536
 * addresses, rare.
 */
#include <errno.h>

#include "agent/symbolize_internal.h"
#include "base/def.h"

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

/* One copy per name. NULL at a limit. */
static const char *symbolize_cache_text(struct symbolizer *s, const char *name, size_t size)
{
	bool is_new = false;

	if (size == 0)
		return "";
	uint64_t *slot = s->name_map ? map_put(s->name_map, name, size, &is_new) : NULL;

	if (!slot)
		return NULL;
	if (is_new || *slot == 0)
		*slot = (uint64_t)(uintptr_t)arena_strndup(s->names_arena, name, size);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the map's values are numbers */
	return (const char *)(uintptr_t)*slot;
}

/* The answer's chain into the cache. NULL at a limit. */
static struct symbolize_name *symbolize_cache_chain(
	struct symbolizer *s, const struct helper_answer *a)
{
	struct symbolize_name *names = arena_alloc(s->names_arena, a->frame_count * sizeof(*names));

	for (size_t i = 0; names && i < a->frame_count; i++) {
		const struct helper_frame *f = &a->frames[i];

		names[i] = (struct symbolize_name){
			.name = symbolize_cache_text(s, f->name, f->name_size),
			.file = symbolize_cache_text(s, f->file, f->file_size),
			.name_size = (uint16_t)f->name_size, /* at most NAMES_NAME_MAX */
			.file_size = (uint16_t)f->file_size,
			.line = f->line,
			.start_line = f->start_line,
		};
		if (!names[i].name || !names[i].file)
			return NULL;
	}
	return names;
}

static struct symbolize_symbol *symbolize_cache_find(
	const struct symbolizer *s, const struct symbolize_file *f, uint64_t offset)
{
	struct symbolize_cache_key key = {f->id, offset};
	uint64_t slot = 0;

	if (!s->symbol_map || !map_get(s->symbol_map, &key, sizeof(key), &slot))
		return NULL;
	return &s->symbols[slot - 1];
}

const struct symbolize_symbol *symbolize_cache_get(
	const struct symbolizer *s, const struct symbolize_file *f, uint64_t offset)
{
	return symbolize_cache_find(s, f, offset);
}

static bool symbolize_cache_try_put(struct symbolizer *s, const struct symbolize_file *f,
	uint64_t offset, const struct helper_answer *a)
{
	struct symbolize_cache_key key = {f->id, offset};
	struct symbolize_symbol symbol = {
		.kind = (uint8_t)a->kind,
		.has_vaddr = a->flags & HELPER_HAS_VADDR,
		.vaddr = a->vaddr,
		.start = a->start,
	};

	if (s->symbol_count >= SYMBOLIZE_SYMBOLS_MAX || !s->symbol_map)
		return false;
	if (a->flags & HELPER_HAS_NAME) {
		symbol.names = symbolize_cache_chain(s, a);
		symbol.name_count = (uint8_t)a->frame_count;
		if (!symbol.names)
			return false;
	}
	uint64_t *slot = map_put(s->symbol_map, &key, sizeof(key), NULL);
	if (!slot)
		return false;
	if (*slot == 0)
		*slot = ++s->symbol_count;
	s->symbols[*slot - 1] = symbol;
	return true;
}

void symbolize_cache_put(struct symbolizer *s, const struct symbolize_file *f, uint64_t offset,
	const struct helper_answer *a)
{
	if (symbolize_cache_try_put(s, f, offset, a))
		return;
	symbolize_cache_reset(s);
	(void)symbolize_cache_try_put(s, f, offset, a); /* it has room now, or memory is out */
}

void symbolize_cache_merge(struct symbolizer *s, const struct symbolize_file *f, uint64_t offset,
	const struct helper_answer *a)
{
	struct symbolize_symbol *symbol = symbolize_cache_find(s, f, offset);

	if (!symbol) /* the cache was emptied since */
		return;
	symbol->is_late = a->flags & HELPER_IS_LATE;
	if (!(a->flags & HELPER_HAS_NAME))
		return;
	struct symbolize_name *names = symbolize_cache_chain(s, a);
	struct symbolize_name *real = names ? &names[a->frame_count - 1] : NULL;

	if (!real)
		return; /* the name alone is true as well */
	if (symbol->name_count > 0) {
		real->name = symbol->names[symbol->name_count - 1].name;
		real->name_size = symbol->names[symbol->name_count - 1].name_size;
	} else if (real->name_size == 0) {
		return; /* a line of nobody's */
	} else {
		symbol->start = a->start;
	}
	symbol->names = names;
	symbol->name_count = (uint8_t)a->frame_count;
}
