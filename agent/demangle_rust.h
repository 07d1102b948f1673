/*
 * Rust's two manglings made readable: v0 (`_R...`, RFC 2603) and the legacy one, which looks like C++
 * and ends in a hash of the build (`_ZN...17h<16 hex digits>E`).
 *
 * Hashes and crate disambiguators are dropped: they change with every build and would split a
 * function in two. Foreign input, so it runs in the helper process only; input, output, recursion and
 * steps have caps, since back references make a few bytes stand for megabytes, or for themselves.
 */
#ifndef AGENT_DEMANGLE_RUST_H
#define AGENT_DEMANGLE_RUST_H

#include <stddef.h>

enum {
	DEMANGLE_RUST_IN_MAX = 2048,
	DEMANGLE_RUST_OUT_MAX = 2048,
	DEMANGLE_RUST_DEPTH_MAX = 200,
	DEMANGLE_RUST_STEPS_MAX = 1 << 14,
};

struct demangle_rust_text {
	char bytes[DEMANGLE_RUST_OUT_MAX];
	size_t size;
};

/*
 * name has size bytes, without suffixes of the compiler's behind it (demangle.h). 0 and the readable
 * form in *ret; -EINVAL: no Rust name; -E2BIG at one of the caps.
 */
int demangle_rust(const char *name, size_t size, struct demangle_rust_text *ret);

#endif
