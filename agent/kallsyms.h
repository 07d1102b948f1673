/*
 * Kernel addresses to names, from the text of /proc/kallsyms:
 *
 *	ffffffff810a1230 t __schedule
 *	ffffffffc0a01000 t ext4_readdir	[ext4]
 *
 * A kernel has 120,000 to 250,000 symbols, a profile needs a few hundred: the file is read once,
 * in a window, for a sorted set of addresses, and only the answers are kept. There are no sizes, so
 * a symbol ends where the next one (of any type: data after the text ends it) begins, and at most
 * KALLSYMS_SPAN_MAX on.
 */
#ifndef AGENT_KALLSYMS_H
#define AGENT_KALLSYMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	KALLSYMS_NAME_SIZE = 192, /* longer ones are cut */
	KALLSYMS_MODULE_SIZE = 64,
	KALLSYMS_SPAN_MAX = 1 << 20,
};

struct kallsyms_answer {
	uint64_t start;
	bool found;     /* name is the function that holds the address */
	bool is_text;   /* internal */
	bool is_global; /* internal */
	char name[KALLSYMS_NAME_SIZE];
	char module[KALLSYMS_MODULE_SIZE]; /* "" for the kernel itself */
};

struct kallsyms_pass {
	const uint64_t *addresses; /* sorted, no duplicates */
	size_t count;
	struct kallsyms_answer *answers; /* one per address, zeroed by kallsyms_begin */
	size_t lines;
	size_t addressed; /* lines whose address was not 0 */
	size_t hint;
};

void kallsyms_begin(struct kallsyms_pass *p, const uint64_t *addresses, size_t count,
	struct kallsyms_answer *answers);
/* Takes the whole lines at the start of text; malformed ones are passed over. Returns the bytes
 * used. */
size_t kallsyms_feed(struct kallsyms_pass *p, const char *text, size_t size);
/* Sets found. Returns false when no line had an address: they are hidden (kptr_restrict). */
bool kallsyms_end(struct kallsyms_pass *p);

/* All of it over the file at path. 0; 1 addresses are hidden; -errno. */
int kallsyms_resolve(
	const char *path, const uint64_t *addresses, size_t count, struct kallsyms_answer *answers);

#endif
