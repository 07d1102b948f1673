/* What demangle_rust.c (the grammar) and demangle_rust_text.c (names, characters, the legacy form)
 * share. */
#ifndef AGENT_DEMANGLE_RUST_INTERNAL_H
#define AGENT_DEMANGLE_RUST_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/demangle_rust.h"

struct rust {
	const char *name; /* behind "_R", which is what back references count from */
	size_t size, at;
	struct demangle_rust_text *out;
	bool is_silent;
	bool is_open; /* the trait printed last */
	int error;
	uint32_t depth, steps;
	uint64_t bound; /* lifetimes bound here */
};

struct rust_name {
	const char *bytes;
	size_t size;
	bool is_punycode;
};

/* --- demangle_rust.c --- */
void rust_fail(struct rust *d, int error);
void rust_put(struct rust *d, const char *s, size_t size);
void rust_say(struct rust *d, const char *s);

/* --- demangle_rust_text.c --- */
void rust_name_put(struct rust *d, const struct rust_name *n);
void rust_char_put(struct rust *d, uint64_t c); /* a quoted literal */
int rust_legacy(const char *name, size_t size, struct demangle_rust_text *out);

#endif
