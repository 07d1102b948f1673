/*
 * Which windows of one series would count the same time twice. A window is left out when it overlaps one of a
 * recording that ranks before its own, whether or not that one is left out in turn. So a window's fate depends
 * on nothing but what overlaps it: not on the range that was asked for, nor on the order of arrival, and parts
 * of a range add up to the whole. Of two windows that overlap at most one counts. The price: where three
 * recordings overlap in a chain, a window may be left out for one that is itself left out.
 *
 * One pass from the right finds for each window the next one that starts later and ranks before it; one pass
 * from the left keeps the windows that are open in a heap by rank. Windows without a length overlap nothing.
 */
#include <errno.h>

#include "backend/store_internal.h"
#include "base/def.h"

struct heap {
	const struct store_window **at;
	size_t count;
};

static void heap_push(struct heap *h, const struct store_window *w)
{
	size_t i = h->count++;

	for (; i > 0 && h->at[(i - 1) / 2]->rank > w->rank; i = (i - 1) / 2)
		h->at[i] = h->at[(i - 1) / 2];
	h->at[i] = w;
}

static void heap_pop(struct heap *h)
{
	const struct store_window *last = h->at[--h->count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= h->count)
			break;
		if (child + 1 < h->count && h->at[child + 1]->rank < h->at[child]->rank)
			child++;
		if (h->at[child]->rank >= last->rank)
			break;
		h->at[i] = h->at[child];
		i = child;
	}
	h->at[i] = last;
}

/* Those that an earlier start covers. */
static void mark_covered(struct store_window *w, size_t count, struct heap *open)
{
	for (size_t i = 0; i < count; i++) {
		if (w[i].end_ns <= w[i].ts_ns)
			continue;
		while (open->count && open->at[0]->end_ns <= w[i].ts_ns)
			heap_pop(open);
		if (open->count && open->at[0]->rank < w[i].rank)
			w[i].is_left_out = true;
		heap_push(open, &w[i]);
	}
}

/* Those that a later start cuts. The stack holds, from the top, ever later starts of ever lower ranks. */
static void mark_cut(
	struct store_window *w, size_t count, const struct store_window **stack, size_t depth)
{
	for (size_t i = count; i-- > 0;) {
		if (w[i].end_ns <= w[i].ts_ns)
			continue;
		while (depth && stack[depth - 1]->rank >= w[i].rank)
			depth--;
		if (depth && stack[depth - 1]->ts_ns < w[i].end_ns)
			w[i].is_left_out = true;
		stack[depth++] = &w[i];
	}
}

int store_overlap_mark(struct store_window *w, size_t count)
{
	const struct store_window **room = calloc(count + 1, sizeof(const struct store_window *));
	struct heap open = {.at = room};

	if (!room)
		return -ENOMEM;
	mark_covered(w, count, &open);
	mark_cut(w, count, room, 0);
	free(room);
	return 0;
}
