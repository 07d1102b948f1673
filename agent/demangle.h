/*
 * C++ names made readable, with a cap on what comes in and what goes out: 154 mangled bytes can
 * stand for 17 MB of text (every substitution doubles it), and a profile needs none of that.
 *
 * Nothing is stripped: "ns::f(int) [clone .cold]" is what the Itanium ABI says and tells overloads
 * apart. Foreign input, so it runs in the helper process only.
 */
#ifndef AGENT_DEMANGLE_H
#define AGENT_DEMANGLE_H

#include "base/buf.h"

enum {
	DEMANGLE_IN_MAX = 1024,
	DEMANGLE_OUT_MAX = 2048,
};

/*
 * Appends the readable form of name (NUL-terminated) to out. 0; -EINVAL when it is not a mangled
 * C++ name; -E2BIG when it is longer than DEMANGLE_IN_MAX or its text than DEMANGLE_OUT_MAX (out is
 * as before then, callers show the mangled name); or buf's error.
 */
int demangle(const char *name, struct buf *out);

#endif
