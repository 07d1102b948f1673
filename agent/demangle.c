/*
 * C++ demangling through libstdc++'s own demangler, by its callback form: abi::__cxa_demangle would
 * first build the whole text, however large, and only then could we refuse it. The callback form
 * allocates nothing from the heap (its tables are on the stack, a few KB for our input cap) and
 * hands out 256 bytes at a time, so the first piece past the cap leaves by longjmp with nothing to
 * clean up.
 *
 * It is exported by libstdc++.a only, which is why the agent links that one. It knows no Rust, whose
 * names are demangle_rust.c's.
 */
#include "agent/demangle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>

#include "agent/demangle_rust.h"

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

static bool demangle_is_word(const char *s, size_t size, const char *word)
{
	return strlen(word) == size && memcmp(s, word, size) == 0;
}

/* Whether ".word" (its number, if it has one, cut off already) is one of the pieces. */
static bool demangle_is_piece(const char *word, size_t size, bool has_number)
{
	static const char *const numbered[] = {
		"part", "isra", "constprop", "lto_priv", "llvm", "__uniq", "__part"};

	if (demangle_is_word(word, size, "cold"))
		return true;
	if (!has_number)
		return demangle_is_word(word, size, "localalias");
	for (size_t i = 0; i < ARRAY_SIZE(numbered); i++)
		if (demangle_is_word(word, size, numbered[i]))
			return true;
	return false;
}

/* Where the last ".x" of name[0, size) begins; size when there is none behind the first byte. */
static size_t demangle_last_dot(const char *name, size_t size)
{
	for (size_t at = size; at > 1; at--)
		if (name[at - 1] == '.')
			return at - 1;
	return size;
}

size_t demangle_stem(const char *name)
{
	size_t size = strlen(name);

	for (;;) {
		size_t dot = demangle_last_dot(name, size);
		size_t end = size;
		size_t digits = dot < size ? strspn(name + dot + 1, "0123456789abcdefABCDEF") : 0;
		bool has_number = digits > 0 && dot + 1 + digits == size;

		if (has_number) {
			end = dot;
			dot = demangle_last_dot(name, end);
		}
		/* Nothing between the dots, or none at all, is no piece. */
		if (dot == 0 || dot >= end ||
			!demangle_is_piece(name + dot + 1, end - dot - 1, has_number))
			return size;
		size = dot;
	}
}

static int demangle_rust_into(const char *name, size_t size, struct buf *out)
{
	struct demangle_rust_text text;
	int r = demangle_rust(name, size, &text);

	return r < 0 ? r : buf_append(out, text.bytes, text.size);
}

static int demangle_cxx(const char *name, size_t size, struct buf *out)
{
	char stem[DEMANGLE_IN_MAX + 1];
	struct demangle_sink sink;

	if (size > DEMANGLE_IN_MAX)
		return -E2BIG;
	memcpy(stem, name, size);
	stem[size] = '\0';
	sink.size = 0;
	if (setjmp(sink.too_long)) /* NOLINT(cert-err52-cpp) */
		return -E2BIG;
	if (__gcclibcxx_demangle_callback(stem, demangle_piece, &sink) != 0)
		return -EINVAL;
	return buf_append(out, sink.text, sink.size);
}

int demangle(const char *name, struct buf *out)
{
	size_t size = demangle_stem(name);
	int r = demangle_rust_into(name, size, out);

	if (r == -EINVAL && size > 2 && name[0] == '_' && name[1] == 'Z')
		r = demangle_cxx(name, size, out);
	if (r == -EINVAL && name[size] != '\0')
		r = buf_append(out, name, size);
	return r;
}
