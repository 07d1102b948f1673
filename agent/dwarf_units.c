/*
 * Two indexes of a file's DWARF: address to unit, read once, and within the units asked about
 * address to function. Both hold file offsets, not libdw's structures, so they outlive its handle.
 */
#include <dwarf.h>
#include <errno.h>

#include "agent/dwarf_internal.h"
#include "base/def.h"

enum {
	/* A dead function's address: linkers write 0 or, in range lists, where 0 is an end, 1. */
	DWARF_DEAD_MAX = 1,
	DWARF_OVERLAP_MAX = 16, /* ranges that are looked back over for one that holds an address */
	DWARF_NAMESPACES_MAX = 64,
};

void dwarf_units_done(struct dwarf_names *d)
{
	for (size_t i = 0; i < d->unit_count; i++) {
		free(d->units[i].functions);
		free(d->units[i].scopes);
	}
	free(d->units);
	free(d->ranges);
}

/* The array with room for one more element; NULL at max, with -EFBIG, or without memory. */
static void *dwarf_grow(void *array, size_t *allocated, size_t count, size_t element_size,
	size_t max, int *ret_error)
{
	size_t wanted = *allocated ? 2 * *allocated : 64;

	if (array && count < *allocated)
		return array;
	*ret_error = count >= max ? -EFBIG : -ENOMEM;
	if (count >= max)
		return NULL;
	void *grown = reallocarray(array, wanted, element_size);

	if (grown)
		*allocated = wanted;
	return grown;
}

static int dwarf_add_range(struct dwarf_names *d, uint64_t start, uint64_t end)
{
	struct dwarf_range *last = d->range_count > 0 ? &d->ranges[d->range_count - 1] : NULL;
	struct dwarf_range r = {.start = start, .unit = (uint32_t)d->unit_count};

	if (start <= DWARF_DEAD_MAX || end <= start || end - start > UINT32_MAX)
		return 0;
	r.size = (uint32_t)(end - start);
	/* One after the other, as with a section per function: one range. */
	if (last && last->unit == r.unit && last->start + last->size == start &&
		(uint64_t)last->size + r.size <= UINT32_MAX) {
		last->size += r.size;
		return 0;
	}
	int e = 0;
	struct dwarf_range *grown = dwarf_grow(d->ranges, &d->range_allocated, d->range_count,
		sizeof(*d->ranges), DWARF_RANGES_MAX, &e);

	if (!grown)
		return e;
	d->ranges = grown;
	d->ranges[d->range_count++] = r;
	return 0;
}

static int dwarf_add_unit(struct dwarf_names *d, Dwarf_Die *die, struct dwarf_clock *clock)
{
	size_t before = d->range_count;
	Dwarf_Addr base, start, end;
	ptrdiff_t at = 0;
	int r = 0;

	while (r == 0 && (at = dwarf_ranges(die, at, &base, &start, &end)) > 0)
		r = dwarf_clock_is_over(clock) ? -ETIMEDOUT : dwarf_add_range(d, start, end);
	if (r < 0 || d->range_count == before)
		return r;
	struct dwarf_unit *grown = dwarf_grow(d->units, &d->unit_allocated, d->unit_count,
		sizeof(*d->units), DWARF_UNITS_MAX, &r);

	if (!grown)
		return r;
	d->units = grown;
	d->units[d->unit_count++] = (struct dwarf_unit){.die = dwarf_dieoffset(die)};
	return 0;
}

static int dwarf_range_order(const void *a, const void *b)
{
	const struct dwarf_range *x = a;
	const struct dwarf_range *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->unit > y->unit) - (x->unit < y->unit);
}

int dwarf_units_read(struct dwarf_names *d)
{
	struct dwarf_clock clock = dwarf_clock_start(DWARF_OPEN_MS);
	Dwarf_CU *unit = NULL;
	bool has_any = false;
	Dwarf_Die die;
	uint8_t type;
	int r = 0;

	/* Ends: each step is further in the section. */
	while (r == 0 && dwarf_get_units(d->dwarf, unit, &unit, NULL, &type, &die, NULL) == 0) {
		has_any = true;
		if (type == DW_UT_type || type == DW_UT_split_type)
			continue;
		r = dwarf_clock_is_over(&clock) ? -ETIMEDOUT : dwarf_add_unit(d, &die, &clock);
	}
	if (r < 0)
		return r;
	if (d->range_count > 1)
		qsort(d->ranges, d->range_count, sizeof(*d->ranges), dwarf_range_order);
	return has_any ? 0 : -ENODATA;
}

struct dwarf_unit *dwarf_units_find(const struct dwarf_names *d, uint64_t vaddr)
{
	size_t low = 0;
	size_t high = d->range_count;

	while (low < high) { /* the first that begins beyond it */
		size_t middle = low + (high - low) / 2;

		if (d->ranges[middle].start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i > 0 && low - i < DWARF_OVERLAP_MAX; i--) {
		const struct dwarf_range *r = &d->ranges[i - 1];

		if (vaddr - r->start < r->size)
			return &d->units[r->unit];
	}
	return NULL;
}

/* --- functions of a unit --- */

struct dwarf_scan {
	struct dwarf_names *d;
	struct dwarf_unit *unit;
	struct dwarf_clock clock;
	size_t allocated, scopes_allocated;
	size_t depth;
	Dwarf_Die path[DWARF_NAMESPACES_MAX];
	uint32_t scopes[DWARF_NAMESPACES_MAX]; /* of path, index + 1; 0: it is none */
};

static int dwarf_add_function(struct dwarf_scan *s, Dwarf_Die *die)
{
	uint64_t offset = dwarf_dieoffset(die) - s->unit->die;
	Dwarf_Addr base, start, end;
	ptrdiff_t at = 0;
	int r = 0;

	/* Several pieces, hot and cold, are so many entries. */
	while ((at = dwarf_ranges(die, at, &base, &start, &end)) > 0) {
		if (dwarf_clock_is_over(&s->clock))
			return -ETIMEDOUT;
		if (start <= DWARF_DEAD_MAX || end <= start || end - start > UINT32_MAX ||
			offset > UINT32_MAX)
			continue;
		struct dwarf_function *grown = dwarf_grow(s->unit->functions, &s->allocated,
			s->unit->function_count, sizeof(*grown), DWARF_FUNCTIONS_MAX, &r);

		if (!grown)
			return r;
		s->unit->functions = grown;
		s->unit->functions[s->unit->function_count++] = (struct dwarf_function){
			.start = start,
			.size = (uint32_t)(end - start),
			.die = (uint32_t)offset,
		};
	}
	return 0;
}

static bool dwarf_is_scope(int tag)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
		return true;
	default:
		return false;
	}
}

static uint32_t dwarf_scan_offset(const struct dwarf_scan *s)
{
	uint64_t offset = dwarf_dieoffset((Dwarf_Die *)&s->path[s->depth]) - s->unit->die;

	return (uint32_t)MIN(offset, (uint64_t)UINT32_MAX);
}

static int dwarf_add_scope(struct dwarf_scan *s)
{
	struct dwarf_unit *u = s->unit;
	int r = 0;

	if (!dwarf_haschildren(&s->path[s->depth]))
		return 0;
	struct dwarf_scope *grown = dwarf_grow(u->scopes, &s->scopes_allocated, u->scope_count,
		sizeof(*grown), DWARF_FUNCTIONS_MAX, &r);

	if (!grown)
		return r;
	u->scopes = grown;
	u->scopes[u->scope_count++] = (struct dwarf_scope){
		.start = dwarf_scan_offset(s),
		.parent = s->depth > 0 ? s->scopes[s->depth - 1] : 0,
	};
	s->scopes[s->depth] = u->scope_count;
	return 0;
}

/* To the next entry on this level, or on the next one that has any; false at the end. */
static bool dwarf_scan_next(struct dwarf_scan *s)
{
	while (dwarf_siblingof(&s->path[s->depth], &s->path[s->depth]) != 0)
		if (s->depth-- == 0)
			return false;
	if (s->scopes[s->depth] > 0)
		s->unit->scopes[s->scopes[s->depth] - 1].end = dwarf_scan_offset(s);
	s->scopes[s->depth] = 0;
	return true;
}

/* Functions on the unit's level and in namespaces; classes hold declarations only. */
static int dwarf_scan_functions(struct dwarf_scan *s, Dwarf_Die *unit)
{
	int r = 0;

	if (dwarf_child(unit, &s->path[0]) != 0)
		return 0;
	for (;;) {
		Dwarf_Die *die = &s->path[s->depth];
		int tag = dwarf_tag(die);

		if (dwarf_clock_is_over(&s->clock))
			return -ETIMEDOUT;
		if (tag == DW_TAG_subprogram)
			r = dwarf_add_function(s, die);
		else if (dwarf_is_scope(tag))
			r = dwarf_add_scope(s);
		if (r < 0)
			return r;
		if ((tag == DW_TAG_namespace || tag == DW_TAG_module) &&
			s->depth + 1 < DWARF_NAMESPACES_MAX && dwarf_child(die, die + 1) == 0) {
			s->scopes[++s->depth] = 0;
			continue;
		}
		if (!dwarf_scan_next(s))
			return 0;
	}
}

static int dwarf_function_order(const void *a, const void *b)
{
	const struct dwarf_function *x = a;
	const struct dwarf_function *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->die > y->die) - (x->die < y->die);
}

static void dwarf_forget_unit(struct dwarf_unit *u)
{
	free(u->functions);
	free(u->scopes);
	u->functions = NULL;
	u->scopes = NULL;
	u->function_count = 0;
	u->scope_count = 0;
}

static void dwarf_forget_functions(struct dwarf_names *d)
{
	for (size_t i = 0; i < d->unit_count; i++) {
		struct dwarf_unit *u = &d->units[i];

		dwarf_forget_unit(u);
		if (u->state == DWARF_UNIT_READ)
			u->state = DWARF_UNIT_NEW;
	}
	d->function_count = 0;
	d->scope_count = 0;
}

/* The array without the room that was left. */
static void *dwarf_fit(void *array, size_t count, size_t element_size)
{
	void *fit = count > 0 ? reallocarray(array, count, element_size) : NULL;

	return fit ? fit : array;
}

static int dwarf_read_functions(struct dwarf_names *d, struct dwarf_unit *u)
{
	struct dwarf_scan s = {.d = d, .unit = u, .clock = dwarf_clock_start(d->unit_ms)};
	Dwarf_Die die;

	if (d->function_count + d->scope_count >= DWARF_FUNCTIONS_MAX)
		dwarf_forget_functions(d);
	if (!dwarf_offdie(d->dwarf, u->die, &die))
		return -ENOENT;
	int r = dwarf_scan_functions(&s, &die);

	if (r < 0) {
		dwarf_forget_unit(u);
		return r == -EFBIG ? -ETIMEDOUT : r; /* given up likewise */
	}
	u->functions = dwarf_fit(u->functions, u->function_count, sizeof(*u->functions));
	u->scopes = dwarf_fit(u->scopes, u->scope_count, sizeof(*u->scopes));
	if (u->function_count > 1)
		qsort(u->functions, u->function_count, sizeof(*u->functions), dwarf_function_order);
	u->state = DWARF_UNIT_READ;
	d->function_count += u->function_count;
	d->scope_count += u->scope_count;
	return 0;
}

const struct dwarf_unit *dwarf_units_read_at(const struct dwarf_names *d, uint64_t die)
{
	size_t low = 0;
	size_t high = d->unit_count;

	while (low < high) { /* the first at or beyond it: they are in the file's order */
		size_t middle = low + (high - low) / 2;

		if (d->units[middle].die < die)
			low = middle + 1;
		else
			high = middle;
	}
	return low < d->unit_count && d->units[low].die == die &&
			       d->units[low].state == DWARF_UNIT_READ
		       ? &d->units[low]
		       : NULL;
}

/* Whether it and all around it hold the offset, which is not before its start. */
static bool dwarf_scope_holds(
	const struct dwarf_unit *u, const struct dwarf_scope *scope, uint32_t offset)
{
	for (;;) {
		if (scope->end != 0 && scope->end <= offset)
			return false;
		if (scope->parent == 0)
			return true; /* without an end it is the unit's last */
		scope = &u->scopes[scope->parent - 1];
	}
}

const struct dwarf_scope *dwarf_units_scope(const struct dwarf_unit *u, uint32_t offset)
{
	const struct dwarf_scope *scope;
	size_t low = 0;
	size_t high = u->scope_count;

	while (low < high) { /* the first that begins at or beyond it */
		size_t middle = low + (high - low) / 2;

		if (u->scopes[middle].start < offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	scope = &u->scopes[low - 1];
	while (!dwarf_scope_holds(u, scope, offset)) {
		if (scope->parent == 0)
			return NULL;
		scope = &u->scopes[scope->parent - 1];
	}
	return scope;
}

int dwarf_units_function(struct dwarf_names *d, struct dwarf_unit *u, uint64_t vaddr,
	Dwarf_Die *ret, struct dwarf_function *ret_function)
{
	int r = u->state == DWARF_UNIT_READ ? 0 : dwarf_read_functions(d, u);
	size_t low = 0;
	size_t high = u->function_count;

	if (r < 0)
		return r;
	while (low < high) { /* the first that begins beyond it */
		size_t middle = low + (high - low) / 2;

		if (u->functions[middle].start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i > 0 && low - i < DWARF_OVERLAP_MAX; i--) {
		const struct dwarf_function *f = &u->functions[i - 1];

		if (vaddr - f->start >= f->size)
			continue;
		if (!dwarf_offdie(d->dwarf, u->die + f->die, ret))
			return -ENOENT;
		*ret_function = *f;
		return 0;
	}
	return -ENOENT;
}
