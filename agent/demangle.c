/*
 * Demangling through libstdc++'s own demangler, by its callback form: abi::__cxa_demangle would
 * first build the whole text, however large, and only then could we refuse it. The callback form
 * allocates nothing from the heap (its tables are on the stack, a few KB for our input cap) and
 * hands out 256 bytes at a time, so the first piece past the cap leaves by longjmp with nothing to
 * clean up.
 *
 * It is exported by libstdc++.a only, which is why the agent links that one.
 */
#include "agent/demangle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>

/* libstdc++, cp-demangle.c. 0 or negative; the text comes in pieces. */
int __gcclibcxx_demangle_callback(
	const char *mangled, void (*piece)(const char *, size_t, void *), void *opaque);

struct demangle_sink {
	char text[DEMANGLE_OUT_MAX];
	size_t size;
	jmp_buf too_long;
};

static void demangle_piece(const char *s, size_t size, void *opaque)
{
	struct demangle_sink *sink = opaque;

	if (size > sizeof(sink->text) - sink->size)
		longjmp(sink->too_long, 1); /* NOLINT(cert-err52-cpp): see the file comment */
	memcpy(sink->text + sink->size, s, size);
	sink->size += size;
}

int demangle(const char *name, struct buf *out)
{
	struct demangle_sink sink;

	if (name[0] != '_' || name[1] != 'Z')
		return -EINVAL;
	if (strnlen(name, DEMANGLE_IN_MAX + 1) > DEMANGLE_IN_MAX)
		return -E2BIG;
	sink.size = 0;
	if (setjmp(sink.too_long)) /* NOLINT(cert-err52-cpp) */
		return -E2BIG;
	if (__gcclibcxx_demangle_callback(name, demangle_piece, &sink) != 0)
		return -EINVAL;
	return buf_append(out, sink.text, sink.size);
}
