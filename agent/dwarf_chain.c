/*
 * One address in one function: which inlined functions hold it, what they are called, and where the
 * source is.
 *
 * A function's children are blocks and inlined functions, each with its ranges, nested as the calls
 * were. A block without ranges is looked into, as some compilers leave them out.
 */
#include <dwarf.h>
#include <errno.h>

#include "agent/dwarf_internal.h"
#include "base/def.h"

enum { DWARF_BLOCKS_MAX = 256 };

struct dwarf_walk {
	uint64_t vaddr;
	struct dwarf_clock clock;
	size_t count; /* functions, outermost first */
	Dwarf_Die functions[NAMES_FRAMES_MAX];
};

static bool dwarf_is_block(int tag)
{
	return tag == DW_TAG_lexical_block || tag == DW_TAG_try_block || tag == DW_TAG_catch_block;
}

/* Whether to look into the entry for the address; a block may not say. */
static bool dwarf_holds(const struct dwarf_walk *w, Dwarf_Die *die, int tag)
{
	if (tag != DW_TAG_inlined_subroutine && !dwarf_is_block(tag))
		return false;
	if (dwarf_haspc(die, w->vaddr) > 0)
		return true;
	return dwarf_is_block(tag) && !dwarf_hasattr(die, DW_AT_low_pc) &&
	       !dwarf_hasattr(die, DW_AT_ranges);
}

/*
 * Depth first, through what holds the address. Once in an inlined function there is no way back: the
 * address is nowhere else.
 */
static int dwarf_walk_down(struct dwarf_walk *w)
{
	Dwarf_Die path[DWARF_BLOCKS_MAX];
	size_t depth = 0;

	if (dwarf_child(&w->functions[0], &path[0]) != 0)
		return 0;
	for (;;) {
		int tag = dwarf_tag(&path[depth]);
		bool is_inlined = tag == DW_TAG_inlined_subroutine;

		if (dwarf_clock_is_over(&w->clock))
			return -ETIMEDOUT;
		if (dwarf_holds(w, &path[depth], tag)) {
			if (is_inlined) {
				if (w->count == NAMES_FRAMES_MAX)
					return 0; /* the innermost are left out */
				w->functions[w->count++] = path[depth];
				path[0] = path[depth];
				depth = 0;
			}
			if (depth + 1 < DWARF_BLOCKS_MAX &&
				dwarf_child(&path[depth], &path[depth + !is_inlined]) == 0) {
				depth += !is_inlined;
				continue;
			}
			if (is_inlined)
				return 0;
		}
		while (dwarf_siblingof(&path[depth], &path[depth]) != 0)
			if (depth-- == 0)
				return 0;
	}
}

static uint32_t dwarf_number(Dwarf_Die *die, unsigned int attribute, bool integrate)
{
	Dwarf_Attribute a;
	Dwarf_Word n = 0;

	if (integrate ? !dwarf_attr_integrate(die, attribute, &a) : !dwarf_attr(die, attribute, &a))
		return 0;
	return dwarf_formudata(&a, &n) == 0 && n <= INT32_MAX ? (uint32_t)n : 0;
}

struct dwarf_place {
	const char *file; /* NULL: unknown */
	uint32_t line;
};

static struct dwarf_place dwarf_place_of_address(Dwarf_Die *unit, uint64_t vaddr)
{
	struct dwarf_place p = {0};
	Dwarf_Line *l = dwarf_getsrc_die(unit, vaddr);
	int line = 0;

	if (!l)
		return p;
	p.file = dwarf_linesrc(l, NULL, NULL);
	if (dwarf_lineno(l, &line) == 0 && line > 0)
		p.line = (uint32_t)line;
	return p;
}

/* Where the inlined function was called. */
static struct dwarf_place dwarf_place_of_call(Dwarf_Die *unit, Dwarf_Die *inlined)
{
	uint32_t file = dwarf_number(inlined, DW_AT_call_file, false);
	struct dwarf_place p = {.line = dwarf_number(inlined, DW_AT_call_line, false)};
	Dwarf_Files *files = NULL;
	size_t count = 0;

	if (dwarf_hasattr(inlined, DW_AT_call_file) &&
		dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count)
		p.file = dwarf_filesrc(files, file, NULL, NULL);
	return p;
}

/* place NULL: the function's own beginning. */
static int dwarf_chain_add(
	struct dwarf_names *d, Dwarf_Die *die, const struct dwarf_place *place, struct names *ret)
{
	const char *name = dwarf_scope_name(d, die);
	const char *file = place ? place->file : dwarf_decl_file(die);

	return names_add(ret, name, strlen(name), file, file ? strlen(file) : 0,
		place ? place->line : 0, dwarf_number(die, DW_AT_decl_line, true));
}

int dwarf_chain_read(struct dwarf_names *d, Dwarf_Die *unit, Dwarf_Die *function, uint64_t vaddr,
	bool with_lines, struct names *ret)
{
	struct dwarf_walk w = {.vaddr = vaddr, .clock = dwarf_clock_start(d->unit_ms)};
	struct dwarf_place place = {0};
	int r = 0;

	if (with_lines)
		place = dwarf_place_of_address(unit, vaddr);
	if (!function) {
		if (!place.file)
			return -ENOENT;
		return names_add(ret, "", 0, place.file, strlen(place.file), place.line, 0);
	}
	w.functions[w.count++] = *function;
	r = dwarf_walk_down(&w);
	for (size_t i = w.count; r == 0 && i > 0; i--) {
		Dwarf_Die *die = &w.functions[i - 1];

		/* If there is not room for all, the real function has to be among them. */
		if (i == 1 || ret->text.size < NAMES_TEXT_MAX - 4 * NAMES_NAME_MAX)
			r = dwarf_chain_add(d, die, with_lines ? &place : NULL, ret);
		if (with_lines && i > 1)
			place = dwarf_place_of_call(unit, die);
	}
	return r;
}
