/*
 * Names of a Go program's functions, from the table that its own runtime uses for tracebacks (pclntab,
 * go.dev/s/go12symtab; layouts: internal/abi/symtab.go, runtime/symtab.go and runtime2.go of the
 * versions). It stays in the program when symbols are stripped. Runs in the helper process on hostile bytes,
 * reads by pread in pages, keeps a few of them and never the whole table.
 *
 * Known: Go 1.16 to 1.26, x86-64 and aarch64. Any other magic is refused with its value, because a table
 * of another layout would give wrong names.
 *
 *	magic		Go		functab		_func	inlined call
 *	0xfffffffa	1.16, 1.17	u64 pairs	44 B	20 B
 *	0xfffffff0	1.18, 1.19	u32 pairs	40 B	20 B
 *	0xfffffff1	1.20 to 1.26	u32 pairs	44 B	16 B
 *
 * WHERE. Section .gopclntab or .data.rel.ro.gopclntab; else, if anything says that this is Go (sections, the
 * note of its build ID, or no section headers at all), every 8th byte of the segments is compared with the magics. What
 * is found must have a header that makes sense, ascending functions inside the code, and a module
 * (runtime.moduledata, found by its pointers to the table) whose bounds are those of the functions. Where
 * the text begins is said by the module; without one, by the header, which has not said it since 1.26.
 * In position-independent files pointers are read from the relocations where the linker has left 0.
 *
 * NAMES are what Go prints in its tracebacks, but for generic functions: whether the table says
 * f[...], f[go.shape.int] or f[go.shape.int_0], every list of type arguments becomes `[...]`, so that one
 * function of the source is one name: main.(*List[...]).Push. Wrappers keep their suffixes (-fm).
 *
 * LINES AND INLINED CALLS are as the runtime has them: file and line of an address, then of the calls. A call
 * tree that makes no sense gives the real function only.
 */
#ifndef AGENT_GO_PCLNTAB_H
#define AGENT_GO_PCLNTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/names.h"

enum {
	GO_PCLNTAB_FUNCTIONS_MAX = 4 << 20,
	GO_PCLNTAB_NAME_MAX = NAMES_NAME_MAX,
};

struct go_pclntab;

/*
 * fd is the caller's and stays open. 0; -ENODATA: no Go program; -ENOTSUP: a version not known, and *why says
 * what was found; -EBADMSG: it makes no sense; -ENOMEM; -errno of pread. *why is good until the next call.
 */
int go_pclntab_open(int fd, const char **why, struct go_pclntab **ret);
void go_pclntab_free(struct go_pclntab *g); /* accepts NULL */
void go_pclntab_freep(struct go_pclntab **g);

/* Fills ret, which is reset first. 0; -ENOENT: not in Go's text; -EBADMSG, -ENOMEM or -errno of pread. */
int go_pclntab_find(struct go_pclntab *g, uint64_t vaddr, struct names *ret);

size_t go_pclntab_memory(const struct go_pclntab *g);
bool go_pclntab_has_inlining(const struct go_pclntab *g);

/* --- for the unwinder --- */

struct go_function {
	uint64_t start, end; /* vaddr; end is the next one's start */
	uint64_t record;     /* offset in the table, of its _func */
	uint32_t name, args, pcsp;
	uint32_t pcfile, pcln, pcdata_count, unit;
	uint32_t start_line;
	uint8_t id, flags, funcdata_count;
};

enum { GO_FUNCTION_TOP = 1, GO_FUNCTION_SP_WRITE = 2, GO_FUNCTION_ASM = 4 }; /* flags, since 1.17 */

uint64_t go_pclntab_text_start(const struct go_pclntab *g);
uint64_t go_pclntab_text_end(const struct go_pclntab *g);
size_t go_pclntab_count(const struct go_pclntab *g);
bool go_pclntab_has_flags(const struct go_pclntab *g); /* of functions: since 1.18 */
int go_pclntab_start(struct go_pclntab *g, size_t index, uint64_t *ret);
/* Index of the function that holds vaddr: 0 or -ENOENT, -EBADMSG, -errno. */
int go_pclntab_seek(struct go_pclntab *g, uint64_t vaddr, size_t *ret);
int go_pclntab_function(struct go_pclntab *g, size_t index, struct go_function *ret);
/* Its name as it stands in the table, cut at size - 1. */
int go_pclntab_function_name(
	struct go_pclntab *g, const struct go_function *f, char *to, size_t size);

/* Steps over what the stack pointer is below its place at the function's entry. */
struct go_sp {
	uint64_t start, end; /* value holds from start up to end */
	int32_t value;       /* bytes; at entry 0 */
	uint64_t place;      /* of the next step; internal */
};
/* Before the first step. -ENODATA: the function has no such table. */
int go_pclntab_sp_begin(struct go_pclntab *g, const struct go_function *f, struct go_sp *ret);
/* 1: the next one; 0: there is none; -EBADMSG, -errno. */
int go_pclntab_sp_next(struct go_pclntab *g, struct go_sp *s);

/* Appends the name, with the type arguments of generic functions as [...]. 0 or buf's error. */
int go_pclntab_generic(const char *name, size_t size, struct buf *b);

#endif
