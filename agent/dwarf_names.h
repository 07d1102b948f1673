/*
 * Inlined functions and source lines of one ELF file by its DWARF 4 or 5, through libdw. Runs in the
 * helper process of the role "lines" only.
 *
 * The file is mapped, where everything else here reads by pread: a program of ordinary size has
 * hundreds of megabytes of DWARF, of which a question touches a few pages, and libdw would read all
 * of it into memory. A file that is cut meanwhile raises SIGBUS, which ends that helper process: the
 * agent goes on, and the file's names, which the other process gives, too. Only what is compressed
 * (zlib) has to be in memory, so it is refused above DWARF_UNPACKED_MAX.
 *
 * How an address is looked up:
 *  1. The ranges of all compilation units, sorted, are read once per file; compilers need not write
 *     .debug_aranges, and clang does not.
 *  2. The functions of a unit, sorted, are read when its first address comes.
 *  3. In the function found, the inlined ones that hold the address are followed to the innermost.
 *     A name is the linkage name, demangled, of where the entry says it comes from.
 *  4. The line of the address is the line table's; that of an outer function is the call's.
 *
 * Time and memory: a unit whose index or walk takes longer than DWARF_UNIT_MS is given up, once; when
 * libdw's memory or our indexes pass a limit they are dropped and read again when needed.
 */
#ifndef AGENT_DWARF_NAMES_H
#define AGENT_DWARF_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/names.h"

struct dwarf_names;

enum {
	DWARF_UNITS_MAX = 1 << 18,
	DWARF_RANGES_MAX = 1 << 20,         /* 16 bytes each */
	DWARF_FUNCTIONS_MAX = 1 << 20,      /* of the units asked about, 16 bytes each */
	DWARF_UNPACKED_MAX = 24 << 20,      /* bytes of compressed sections */
	DWARF_HANDLE_MEMORY_MAX = 12 << 20, /* libdw's, of one file */
	DWARF_OPEN_MS = 2000,
	DWARF_UNIT_MS = 1000,
};

/*
 * alt_fd: the file that .gnu_debugaltlink names, or -1. On success both are owned by *ret. 0;
 * -ENODATA: there is no DWARF; -ENOTSUP: there is, in a form that we cannot read; -EFBIG: above a
 * limit; -EBADMSG: no ELF file, or broken; each with a static line in *why; or -ENOMEM.
 */
int dwarf_names_open(int fd, int alt_fd, const char **why, struct dwarf_names **ret);
void dwarf_names_free(struct dwarf_names *d); /* accepts NULL */
void dwarf_names_freep(struct dwarf_names **d);

/*
 * Adds the functions that vaddr is in to ret, which is empty, and sets its start and size. Where the
 * function is not told of but the line is (split DWARF without its other half), one frame without a
 * name. with_lines: file and line of the address and of the calls; otherwise of the functions' own
 * beginnings, with line 0. 0; -ENOENT: nothing is known; -ETIMEDOUT: its unit was given up.
 */
int dwarf_names_find(struct dwarf_names *d, uint64_t vaddr, bool with_lines, struct names *ret);

/* For tests: another DWARF_UNIT_MS; a libdw that is dropped before each lookup. */
void dwarf_names_hurry(struct dwarf_names *d, uint64_t unit_ms);
void dwarf_names_shrink_always(struct dwarf_names *d);

/* Bytes held, libdw's included. */
size_t dwarf_names_memory(const struct dwarf_names *d);

#endif
