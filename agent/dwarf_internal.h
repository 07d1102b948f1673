/*
 * What the parts of dwarf_names share:
 *	dwarf_names.c	opening, limits, the API
 *	dwarf_units.c	which unit and which of its functions an address is in
 *	dwarf_chain.c	the functions inlined there, and their lines
 *	dwarf_scope.c	what a function is called
 */
#ifndef AGENT_DWARF_INTERNAL_H
#define AGENT_DWARF_INTERNAL_H

#include <elfutils/libdw.h>

#include "agent/dwarf_names.h"
#include "base/arena.h"
#include "base/map.h"

enum dwarf_unit_state { DWARF_UNIT_NEW, DWARF_UNIT_READ, DWARF_UNIT_GIVEN_UP };

struct dwarf_function {
	uint64_t start;
	uint32_t size;
	uint32_t die; /* offset from its unit's */
};

/*
 * A namespace or type that others may be in, of a unit that was read: those on the unit's level and in
 * namespaces, in the order of the file. What is in it begins at start up to end, and where end is 0, up to its
 * parent's.
 */
struct dwarf_scope {
	uint32_t start, end; /* offsets from the unit's */
	uint32_t parent;     /* index + 1; 0: the unit */
};

struct dwarf_unit {
	uint64_t die; /* offset of its DIE */
	enum dwarf_unit_state state;
	uint32_t scope_count;
	struct dwarf_scope *scopes;
	uint32_t function_count;
	struct dwarf_function *functions; /* sorted by start */
};

struct dwarf_range {
	uint64_t start;
	uint32_t size;
	uint32_t unit;
};

struct dwarf_names {
	int fd, alt_fd;
	Elf *elf, *alt_elf;
	Dwarf *dwarf, *alt; /* NULL: dropped, dwarf_names.c reads them again */
	uint64_t unit_ms;
	size_t handle_memory_max;
	size_t memory_before; /* of this process, when they were read */

	struct dwarf_unit *units;
	size_t unit_count;
	size_t unit_allocated;
	struct dwarf_range *ranges; /* sorted by start */
	size_t range_count;
	size_t range_allocated;
	size_t function_count; /* of all units */
	size_t scope_count;
	struct map *name_map; /* struct dwarf_name_key -> text in name_arena */
	struct arena *name_arena;
	struct buf name; /* being made */
};

/* A deadline that costs little to look at often. */
struct dwarf_clock {
	uint64_t end_ns;
	uint32_t ticks;
};
struct dwarf_clock dwarf_clock_start(uint64_t ms);
bool dwarf_clock_is_over(struct dwarf_clock *c);

/* --- dwarf_units.c --- */
/* Reads all units' ranges. 0; -ENODATA: no units; -EFBIG, -ENOMEM, -ETIMEDOUT. */
int dwarf_units_read(struct dwarf_names *d);
void dwarf_units_done(struct dwarf_names *d);
struct dwarf_unit *dwarf_units_find(const struct dwarf_names *d, uint64_t vaddr);
/* The unit of that DIE, if it is read; else NULL. */
const struct dwarf_unit *dwarf_units_read_at(const struct dwarf_names *d, uint64_t die);
/* The innermost scope that holds the unit's DIE of that offset from the unit's; NULL: none. */
const struct dwarf_scope *dwarf_units_scope(const struct dwarf_unit *u, uint32_t offset);
/* The function's DIE and range. 0; -ENOENT; -ETIMEDOUT; -ENOMEM. */
int dwarf_units_function(struct dwarf_names *d, struct dwarf_unit *u, uint64_t vaddr,
	Dwarf_Die *ret, struct dwarf_function *ret_function);

/* --- dwarf_chain.c --- */
/* As dwarf_names_find(); function NULL: only the line is known. */
int dwarf_chain_read(struct dwarf_names *d, Dwarf_Die *unit, Dwarf_Die *function, uint64_t vaddr,
	bool with_lines, struct names *ret);

/* --- dwarf_scope.c --- */
/* "": it has none. Valid until the next call. */
const char *dwarf_scope_name(struct dwarf_names *d, Dwarf_Die *function);

#endif
