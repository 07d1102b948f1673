/*
 * Runs boots, two VMs at a time, each in a worker process of its own: a worker that dies takes its
 * VM with it and nothing else, and vm_run() may block. What a boot came to is kept beside its
 * results as outcome.json, so that a report can be made again without running.
 */
#ifndef LAB_BOOTS_H
#define LAB_BOOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/plan.h"
#include "lab/vm.h"

enum { BOOTS_AT_ONCE_MAX = 8 };

struct boots_item {
	const struct job *job;
	const char *name;
	struct vm_config config;
	double cost_s; /* busy guest seconds: longer ones start first */
	char dir[700];
	int error; /* of vm_run itself */
	bool ran;
	unsigned int retries;
	struct vm_outcome outcome;
};

struct boots_options {
	unsigned int at_once; /* 0: 2 */
	bool quiet;
	int fd; /* progress goes there; a terminal gets one line that moves, else plain lines */
};

/* Runs them all; each item has its outcome afterwards. 0 or -errno when workers cannot start. */
int boots_run(struct boots_item *items, size_t count, const struct boots_options *o);

/* One line: why the results of this boot cannot be used; NULL when they can. */
const char *boots_failure(const struct boots_item *i, char text[400]);
const char *boots_end_name(enum vm_end e);

int boots_save(const struct boots_item *i);
/* Reads outcome.json of i->dir. 0; -errno, also when it is malformed. */
int boots_load(struct boots_item *i);

#endif
