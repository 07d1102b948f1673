/* Compiles dwarf_fixture_source.cpp in a directory of its own, for the tests of DWARF. */
#ifndef TESTS_DWARF_FIXTURE_H
#define TESTS_DWARF_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/names.h"

enum { DWARF_FIXTURE_PATH_MAX = 128 };

struct dwarf_fixture {
	char dir[64];
	char path[DWARF_FIXTURE_PATH_MAX]; /* of the library */
	uint64_t start, size;              /* of outie(), in the library's own addresses */
	uint32_t innie, middle, outie;     /* the marked lines */
};

/* command makes "$dir/f.so" of "$source". False when it fails, e.g. there is no such compiler. */
bool dwarf_fixture_try(struct dwarf_fixture *f, const char *command);
void dwarf_fixture_make(struct dwarf_fixture *f, const char *command); /* has to work */
void dwarf_fixture_done(struct dwarf_fixture *f);
/* Runs a shell command with $dir, $so and $source set; true when it succeeds. */
bool dwarf_fixture_run(const struct dwarf_fixture *f, const char *command);
int dwarf_fixture_open(const struct dwarf_fixture *f, const char *name);

/* Whether the i-th name begins with name and ends there or with its parameters. */
bool dwarf_fixture_is(const struct names *n, size_t i, const char *name);

#endif
