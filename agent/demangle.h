/*
 * Symbols' names as people read them: C++ and Rust, with a cap on what comes in and what goes out:
 * 154 mangled bytes can stand for 17 MB of text (every substitution doubles it), and a profile needs
 * none of that. Foreign input, so it runs in the helper process only.
 *
 * The rule of pieces: what compilers split off or clone of a function has the function's name. A row
 * of these at the end of any symbol's name is dropped, so that the parts of a function are one frame
 * and a build's numbers split none:
 *
 *	.cold .cold.N .part.N .isra.N .constprop.N .lto_priv.N .localalias	gcc
 *	.llvm.N .__uniq.N .__part.N .cold.N					clang, N also in hex
 *	17h<16 hex digits>E, [crate hashes]					Rust
 *
 * Go's names (main.cold is a function there) must not be passed through here. Nothing else is
 * stripped: parameters tell overloads apart.
 */
#ifndef AGENT_DEMANGLE_H
#define AGENT_DEMANGLE_H

#include "base/buf.h"

enum {
	DEMANGLE_IN_MAX = 1024,
	DEMANGLE_OUT_MAX = 2048,
};

/*
 * Appends the readable form of name (NUL-terminated) to out. 0; -EINVAL when name is readable as it
 * stands: not mangled, no pieces; -E2BIG when it is longer than DEMANGLE_IN_MAX or its text than
 * DEMANGLE_OUT_MAX; or buf's error. On failure out is as before, and callers show the name as it is.
 */
int demangle(const char *name, struct buf *out);

/* Bytes of name without the row of pieces at its end; all of them if there is none. */
size_t demangle_stem(const char *name);

#endif
