/* See kernel_names.h. */
#include "agent/kernel_names.h"

#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "base/map.h"

enum { KERNEL_NAMES_MAX = 1 << 16 };
#define KERNEL_NAMES_BYTES_MAX (8UL << 20)

struct kernel_names {
	struct collector *collector;
	struct map *map; /* address -> its text in arena; 0: unknown to the kernel */
	struct arena *arena;
	size_t pending_count;
	uint64_t pending[NAME_BATCH_MAX];
	char texts[NAME_BATCH_MAX][NAME_BATCH_TEXT];
};

/* "+0xOFF/0xSIZE" right behind the name; the offset must lie inside the symbol. */
static bool parse_extent(const char *s, const char **ret_end)
{
	unsigned long long offset;
	unsigned long long size;
	char *end;

	if (strncmp(s, "+0x", 3) != 0)
		return false;
	offset = strtoull(s + 1, &end, 16);
	if (strncmp(end, "/0x", 3) != 0)
		return false;
	size = strtoull(end + 1, &end, 16);
	*ret_end = end;
	return offset < size;
}

bool kernel_names_parse(const char *text, struct kernel_name *ret)
{
	/* Names hold no '+'; the last one leaves a name that does alone. */
	const char *plus = strrchr(text, '+');
	struct kernel_name k = {.name = text, .module = ""};
	const char *end;
	const char *close;

	if (!plus || plus == text || !parse_extent(plus, &end))
		return false;
	k.name_size = (size_t)(plus - text);
	if (strncmp(end, " [", 2) == 0) {
		/* "[module]", or "[module build-id]" on kernels that add it. */
		k.module = end + 2;
		k.module_size = strcspn(k.module, " ]");
		close = strchr(k.module, ']');
		if (!close || close[1] != '\0' || k.module_size == 0)
			return false;
	} else if (*end != '\0') {
		return false;
	}
	*ret = k;
	return true;
}

int kernel_names_new(struct collector *c, struct kernel_names **ret)
{
	struct kernel_names *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->collector = c;
	k->map = map_new(KERNEL_NAMES_MAX);
	k->arena = arena_new(KERNEL_NAMES_BYTES_MAX);
	if (!k->map || !k->arena) {
		kernel_names_free(k);
		return -ENOMEM;
	}
	*ret = k;
	return 0;
}

void kernel_names_free(struct kernel_names *k)
{
	if (!k)
		return;
	map_free(k->map);
	arena_free(k->arena);
	free(k);
}

void kernel_names_freep(struct kernel_names **k)
{
	kernel_names_free(*k);
}

void kernel_names_want(struct kernel_names *k, uint64_t address)
{
	bool is_new = false;

	/* At its limit the map answers NULL, and the address is not found. */
	if (!map_put(k->map, &address, sizeof(address), &is_new) || !is_new)
		return;
	k->pending[k->pending_count++] = address;
	if (k->pending_count == NAME_BATCH_MAX)
		kernel_names_flush(k);
}

void kernel_names_flush(struct kernel_names *k)
{
	size_t count = k->pending_count;

	k->pending_count = 0;
	if (count == 0 || collector_kernel_names(k->collector, k->pending, count, k->texts) < 0)
		return;
	for (size_t i = 0; i < count; i++) {
		uint64_t *slot = map_put(k->map, &k->pending[i], sizeof(k->pending[i]), NULL);
		struct kernel_name name;

		/* A full row may have been cut. */
		if (!slot || strlen(k->texts[i]) + 1 >= NAME_BATCH_TEXT ||
			!kernel_names_parse(k->texts[i], &name))
			continue;
		*slot = (uint64_t)(uintptr_t)arena_strdup(k->arena, k->texts[i]);
	}
}

bool kernel_names_find(const struct kernel_names *k, uint64_t address, struct kernel_name *ret)
{
	uint64_t text;

	if (!map_get(k->map, &address, sizeof(address), &text) || text == 0)
		return false;
	return kernel_names_parse((const char *)(uintptr_t)text, ret);
}
