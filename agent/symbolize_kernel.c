/*
 * Kernel addresses: a cache in front of kallsyms.c. The kernel's own text does not change, so its
 * names are kept; those of modules, BPF programs and addresses without a name are asked again after
 * a minute, since modules and programs come and go.
 */
#include <errno.h>

#include "agent/kallsyms.h"
#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"

enum { SYMBOLIZE_KERNEL_NAMES_MAX = 4 << 20 };

int symbolize_kernel_init(struct symbolizer *s)
{
	if (!s->kernel)
		s->kernel = calloc(SYMBOLIZE_KERNEL_MAX, sizeof(*s->kernel));
	if (!s->kernel_arena)
		s->kernel_arena = arena_new(SYMBOLIZE_KERNEL_NAMES_MAX);
	s->kernel_map = map_new(SYMBOLIZE_KERNEL_MAX);
	s->kernel_count = 0;
	return s->kernel && s->kernel_map && s->kernel_arena ? 0 : -ENOMEM;
}

void symbolize_kernel_done(struct symbolizer *s)
{
	free(s->kernel);
	map_free(s->kernel_map);
	arena_free(s->kernel_arena);
}

static void symbolize_kernel_reset(struct symbolizer *s)
{
	map_free(s->kernel_map);
	s->kernel_map = NULL;
	arena_reset(s->kernel_arena);
	(void)symbolize_kernel_init(s); /* without memory frames are "[kernel]" */
}

const struct symbolize_kernel_symbol *symbolize_kernel_get(
	const struct symbolizer *s, uint64_t address)
{
	uint64_t slot = 0;

	if (!s->kernel_map || !map_get(s->kernel_map, &address, sizeof(address), &slot))
		return NULL;
	return &s->kernel[slot - 1];
}

static bool symbolize_kernel_is_fresh(const struct symbolize_kernel_symbol *k)
{
	if (k->name && k->module[0] == '\0')
		return true;
	return loop_now_ns() - k->asked_ns < SYMBOLIZE_KERNEL_STALE_S * NSEC_PER_SEC;
}

static int symbolize_kernel_order(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a;
	const uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool symbolize_kernel_put(
	struct symbolizer *s, uint64_t address, const struct kallsyms_answer *a)
{
	struct symbolize_kernel_symbol k = {.module = "", .asked_ns = loop_now_ns()};

	if (s->kernel_count >= SYMBOLIZE_KERNEL_MAX || !s->kernel_map)
		return false;
	if (a->found) {
		k.name = arena_strdup(s->kernel_arena, a->name);
		k.module = a->module[0] ? arena_strdup(s->kernel_arena, a->module) : "";
		if (!k.name || !k.module)
			return false;
	}
	uint64_t *slot = map_put(s->kernel_map, &address, sizeof(address), NULL);
	if (!slot)
		return false;
	if (*slot == 0)
		*slot = ++s->kernel_count;
	s->kernel[*slot - 1] = k;
	return true;
}

void symbolize_kernel_ask(struct symbolizer *s)
{
	uint64_t *pending = s->kernel_pending;
	size_t count = 0;

	if (s->kernel_pending_count == 0)
		return;
	qsort(pending, s->kernel_pending_count, sizeof(*pending), symbolize_kernel_order);
	for (size_t i = 0; i < s->kernel_pending_count; i++)
		if (count == 0 || pending[count - 1] != pending[i])
			pending[count++] = pending[i];
	s->kernel_pending_count = 0;
	if (count == 0)
		return;
	_cleanup_(freep) struct kallsyms_answer *answers = calloc(count, sizeof(*answers));
	if (!answers)
		return;
	int r = kallsyms_resolve("/proc/kallsyms", pending, count, answers);
	if (r < 0)
		log_warn("symbolize", "read kernel symbols", r, "file=/proc/kallsyms");
	s->stats.kernel_hidden = r == 1;
	for (size_t i = 0; i < count; i++) {
		if (r != 0)
			answers[i].found = false;
		if (symbolize_kernel_put(s, pending[i], &answers[i]))
			continue;
		symbolize_kernel_reset(s);
		/* An empty cache has room, or memory is out. */
		(void)symbolize_kernel_put(s, pending[i], &answers[i]);
	}
}

void symbolize_kernel_queue(struct symbolizer *s, uint64_t address)
{
	const struct symbolize_kernel_symbol *k = symbolize_kernel_get(s, address);

	if (k && symbolize_kernel_is_fresh(k))
		return;
	if (s->kernel_pending_count == SYMBOLIZE_KERNEL_BATCH)
		symbolize_kernel_ask(s);
	s->kernel_pending[s->kernel_pending_count++] = address;
}
