/*
 * What a function is called. Its linkage name, demangled, says all; but GCC writes none for a
 * function that exists only inlined, so there the names of the namespaces and classes around its
 * declaration are put before its own: `ns::type::function`, without parameters.
 *
 * libdw knows no way from an entry to the one around it. So the way is gone from the unit down: of
 * siblings, which stand in the order of their offsets, the last that begins before the declaration
 * is around it. The upper part of the way is in the index of a unit that was read (dwarf_units.c), and
 * names are kept by the function's offset.
 */
#include <dwarf.h>
#include <errno.h>

#include "agent/demangle.h"
#include "agent/dwarf_internal.h"
#include "base/def.h"

enum {
	DWARF_NAMES_MAX = 16384,
	DWARF_NAMES_SIZE_MAX = 2 << 20,
	DWARF_HOPS_MAX = 16,
	DWARF_SCOPES_MAX = 32,
	DWARF_SCOPE_MS = 50, /* of one name; beyond, its scope is left out */
};

struct dwarf_name_key {
	uint64_t offset;
	uint64_t is_alt;
};

static int dwarf_names_reset(struct dwarf_names *d)
{
	map_free(d->name_map);
	d->name_map = map_new(DWARF_NAMES_MAX);
	if (!d->name_arena)
		d->name_arena = arena_new(DWARF_NAMES_SIZE_MAX);
	else
		arena_reset(d->name_arena);
	return d->name_map && d->name_arena ? 0 : -ENOMEM;
}

/* Follows the attribute as long as there is one. */
static void dwarf_follow(Dwarf_Die *die, unsigned int attribute)
{
	Dwarf_Attribute a;
	Dwarf_Die next;

	for (int i = 0; i < DWARF_HOPS_MAX; i++) {
		if (!dwarf_attr(die, attribute, &a) || !dwarf_formref_die(&a, &next))
			return;
		*die = next;
	}
}

static const char *dwarf_text(Dwarf_Die *die, unsigned int attribute)
{
	Dwarf_Attribute a;

	return dwarf_formstring(dwarf_attr_integrate(die, attribute, &a));
}

static bool dwarf_has_scopes(Dwarf_Die *unit)
{
	switch (dwarf_srclang(unit)) {
	case DW_LANG_C:
	case DW_LANG_C89:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case DW_LANG_Mips_Assembler:
		return false;
	default:
		return true;
	}
}

static void dwarf_put_scope(Dwarf_Die *scope, struct buf *out)
{
	int tag = dwarf_tag(scope);
	const char *name = dwarf_diename(scope);

	if (tag == DW_TAG_namespace && !name)
		name = "(anonymous namespace)";
	if (!name || (tag != DW_TAG_namespace && tag != DW_TAG_class_type &&
			     tag != DW_TAG_structure_type && tag != DW_TAG_union_type &&
			     tag != DW_TAG_module))
		return;
	/* A name that does not fit is cut, as all are. */
	(void)buf_append_str(out, name);
	(void)buf_append_str(out, "::");
}

/* The scopes around and including this one, outermost first; *ret is then its DIE. */
static bool dwarf_put_indexed(struct dwarf_names *d, const struct dwarf_unit *u,
	const struct dwarf_scope *scope, struct buf *out, Dwarf_Die *ret)
{
	uint32_t way[DWARF_SCOPES_MAX] = {scope->start};
	size_t count = 1;

	for (; scope->parent > 0 && count < DWARF_SCOPES_MAX; count++) {
		scope = &u->scopes[scope->parent - 1];
		way[count] = scope->start;
	}
	while (count-- > 0) {
		if (!dwarf_offdie(d->dwarf, u->die + way[count], ret))
			return false;
		dwarf_put_scope(ret, out);
	}
	return true;
}

/* Whether the way was found; out may have been appended to in either case. */
static bool dwarf_put_scopes(
	struct dwarf_names *d, Dwarf_Die *unit, Dwarf_Die *declaration, struct buf *out)
{
	struct dwarf_clock clock = dwarf_clock_start(DWARF_SCOPE_MS);
	Dwarf_Off target = dwarf_dieoffset(declaration);
	bool is_alt = d->alt && dwarf_cu_getdwarf(unit->cu) == d->alt;
	const struct dwarf_unit *u = is_alt ? NULL : dwarf_units_read_at(d, dwarf_dieoffset(unit));
	Dwarf_Die at = *unit;

	if (u && target > u->die && target - u->die < UINT32_MAX) {
		const struct dwarf_scope *scope = dwarf_units_scope(u, (uint32_t)(target - u->die));

		if (!scope)
			return true; /* it is the unit's own */
		if (!dwarf_put_indexed(d, u, scope, out, &at))
			return false;
	}
	if (dwarf_child(&at, &at) != 0)
		return false;
	for (int i = 0; i < DWARF_SCOPES_MAX; i++) {
		Dwarf_Die next;

		while (dwarf_siblingof(&at, &next) == 0 && dwarf_dieoffset(&next) <= target) {
			if (dwarf_clock_is_over(&clock))
				return false;
			at = next;
		}
		if (dwarf_dieoffset(&at) == target)
			return true;
		dwarf_put_scope(&at, out);
		if (dwarf_child(&at, &at) != 0)
			return false;
	}
	return false;
}

/* Into d->name. */
static void dwarf_make_name(struct dwarf_names *d, Dwarf_Die *die)
{
	const char *name = dwarf_text(die, DW_AT_linkage_name);
	Dwarf_Die declaration = *die;
	Dwarf_Die unit;

	if (!name)
		name = dwarf_text(die, DW_AT_MIPS_linkage_name);
	buf_reset(&d->name);
	if (name) {
		if (demangle(name, &d->name) < 0)
			(void)buf_append_str(&d->name, name); /* cut if it does not fit */
		return;
	}
	name = dwarf_text(die, DW_AT_name);
	if (!name)
		return;
	dwarf_follow(&declaration, DW_AT_specification);
	if (dwarf_diecu(&declaration, &unit, NULL, NULL) && dwarf_has_scopes(&unit) &&
		!dwarf_put_scopes(d, &unit, &declaration, &d->name))
		buf_reset(&d->name);
	(void)buf_append_str(&d->name, name);
}

const char *dwarf_scope_name(struct dwarf_names *d, Dwarf_Die *function)
{
	Dwarf_Die die = *function;

	dwarf_follow(&die, DW_AT_abstract_origin);
	struct dwarf_name_key key = {
		.offset = dwarf_dieoffset(&die),
		.is_alt = d->alt && dwarf_cu_getdwarf(die.cu) == d->alt,
	};
	uint64_t kept = 0;

	if (d->name_map && map_get(d->name_map, &key, sizeof(key), &kept))
		/* NOLINTNEXTLINE(performance-no-int-to-ptr): the map's values are numbers */
		return (const char *)(uintptr_t)kept;
	dwarf_make_name(d, &die);
	if ((!d->name_map || map_count(d->name_map) == DWARF_NAMES_MAX ||
		    arena_used(d->name_arena) > DWARF_NAMES_SIZE_MAX / 2) &&
		dwarf_names_reset(d) < 0)
		return buf_str(&d->name);
	const char *copy = arena_strndup(d->name_arena, buf_str(&d->name), d->name.size);
	uint64_t *slot = copy ? map_put(d->name_map, &key, sizeof(key), NULL) : NULL;

	if (slot)
		*slot = (uint64_t)(uintptr_t)copy;
	return copy ? copy : buf_str(&d->name);
}
