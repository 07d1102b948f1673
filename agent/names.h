/*
 * What one address is called: the chain of functions it is in, as every source of names (ELF
 * symbols, DWARF, Go's tables) gives it. One is filled for many addresses, one after the other, so
 * that its memory stays.
 */
#ifndef AGENT_NAMES_H
#define AGENT_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	NAMES_FRAMES_MAX = 64,
	NAMES_TEXT_MAX = 64 << 10, /* bytes of all names and paths of one address */
	NAMES_NAME_MAX = 2048,     /* bytes of one name or path, longer ones are cut */
};

enum names_kind { NAMES_NATIVE, NAMES_GO };

struct names_frame {
	uint32_t name, name_size; /* in text: as people read it (demangled) */
	uint32_t file, file_size; /* source path as the file says it; size 0: unknown */
	uint32_t line;            /* of the address, in outer frames of the call; 0: unknown */
	uint32_t start_line;      /* of the function; 0: unknown */
};

/* Innermost first; the last function is real, the others were inlined into it. */
struct names {
	uint64_t start, size; /* of the real function: vaddr, bytes (0: unknown) */
	enum names_kind kind;
	size_t count;
	struct names_frame frames[NAMES_FRAMES_MAX];
	struct buf text;
};

void names_init(struct names *n);
void names_done(struct names *n); /* accepts NULL */
void names_reset(struct names *n);

/*
 * Adds the next outer function. file NULL: unknown. Neither text needs a NUL. 0; -ENOBUFS above
 * NAMES_FRAMES_MAX or NAMES_TEXT_MAX, -ENOMEM: n keeps the frames it has.
 */
int names_add(struct names *n, const char *name, size_t name_size, const char *file,
	size_t file_size, uint32_t line, uint32_t start_line);

/* Not NUL-terminated; the frame says how long. Valid until the next names_add(). */
const char *names_name(const struct names *n, size_t i);
const char *names_file(const struct names *n, size_t i);

#endif
