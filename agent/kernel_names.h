/*
 * Kernel symbols of one window, asked of the kernel itself through collector_kernel_names: a few
 * microseconds an address, where reading /proc/kallsyms takes 50 ms. What it does not know here
 * (a name too long for a row, a kernel that cannot answer) is left to the symbolizer.
 */
#ifndef AGENT_KERNEL_NAMES_H
#define AGENT_KERNEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/collect.h"

struct kernel_name {
	const char *name;   /* not terminated: name_size bytes */
	const char *module; /* "" with module_size 0 for the kernel proper */
	size_t name_size, module_size;
};

/*
 * Parses "name+0xoff/0xsize" with an optional " [module]". False for anything else: a bare
 * address, a text that was cut, an offset outside the symbol. *ret points into text.
 */
bool kernel_names_parse(const char *text, struct kernel_name *ret);

struct kernel_names;

/* c is asked, and must outlive the names. 0 or -ENOMEM. */
int kernel_names_new(struct collector *c, struct kernel_names **ret);
void kernel_names_free(struct kernel_names *k);
void kernel_names_freep(struct kernel_names **k);

/* Queues an address; addresses are asked for in batches. Never fails: it is then not found. */
void kernel_names_want(struct kernel_names *k, uint64_t address);
/* Asks for what is queued. */
void kernel_names_flush(struct kernel_names *k);
bool kernel_names_find(const struct kernel_names *k, uint64_t address, struct kernel_name *ret);

#endif
