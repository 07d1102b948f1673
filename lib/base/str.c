/*
 * UTF-8 repair and escaping. Names of processes and functions are hostile bytes: whatever leaves
 * the program passes through here first. Number parsing is in str_number.c.
 *
 * A malformed sequence is replaced by the Unicode recommendation (chapter 3.9, "substitution of
 * maximal subparts"): the longest prefix that could have begun a character gives one U+FFFD.
 */
#include "base/str.h"

#include "base/def.h"

#define STR_REPLACEMENT "\xef\xbf\xbd"
#define STR_ELLIPSIS    "..."

/* One step over the input: how many bytes it takes, and the code point, or -1 when malformed. */
struct str_char {
	size_t size;
	int32_t code;
};

/* size is at least 1. Table 3-7 of the Unicode standard, well-formed UTF-8 byte sequences. */
static struct str_char str_decode(const char *s, size_t size)
{
	const uint8_t *p = (const uint8_t *)s;
	uint8_t lo = 0x80, hi = 0xbf;
	size_t need;
	int32_t code;

	if (p[0] < 0x80)
		return (struct str_char){.size = 1, .code = p[0]};
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		need = 2;
		code = p[0] & 0x1f;
	} else if (p[0] >= 0xe0 && p[0] <= 0xef) {
		need = 3;
		code = p[0] & 0x0f;
		if (p[0] == 0xe0)
			lo = 0xa0; /* below it: overlong */
		if (p[0] == 0xed)
			hi = 0x9f; /* above it: surrogates */
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		need = 4;
		code = p[0] & 0x07;
		if (p[0] == 0xf0)
			lo = 0x90;
		if (p[0] == 0xf4)
			hi = 0x8f; /* above it: beyond U+10FFFF */
	} else {
		return (struct str_char){.size = 1, .code = -1};
	}
	for (size_t i = 1; i < need; i++) {
		if (i >= size || p[i] < lo || p[i] > hi)
			return (struct str_char){.size = i, .code = -1};
		code = code << 6 | (p[i] & 0x3f);
		lo = 0x80;
		hi = 0xbf;
	}
	return (struct str_char){.size = need, .code = code};
}

/* Control bytes, and what XML 1.0 section 2.2 leaves out of Char; surrogates never decode. */
static bool str_is_shown(int32_t code)
{
	return code >= 0x20 && code != 0x7f && code != 0xfffe && code != 0xffff;
}

int str_append_utf8(struct buf *b, const char *s, size_t size, size_t size_max)
{
	size_t dots = MIN(size_max, sizeof(STR_ELLIPSIS) - 1);
	size_t out = 0, keep = 0, i = 0;

	/* How much of the input stays: all of it, or what leaves room for the dots. */
	while (i < size && out <= size_max) {
		struct str_char c = str_decode(s + i, size - i);

		out += str_is_shown(c.code) ? c.size : sizeof(STR_REPLACEMENT) - 1;
		i += c.size;
		if (out <= size_max - dots)
			keep = i;
	}
	if (out <= size_max)
		keep = size;
	for (i = 0; i < keep && !b->error;) {
		struct str_char c = str_decode(s + i, size - i);

		if (str_is_shown(c.code))
			(void)buf_append(b, s + i, c.size); /* checked through buf_error */
		else
			(void)buf_append_str(b, STR_REPLACEMENT);
		i += c.size;
	}
	if (keep < size)
		(void)buf_append(b, STR_ELLIPSIS, dots);
	return buf_error(b);
}

bool str_is_utf8(const char *s, size_t size)
{
	for (size_t i = 0; i < size;) {
		struct str_char c = str_decode(s + i, size - i);

		if (c.code < 0)
			return false;
		i += c.size;
	}
	return true;
}

static const char *str_xml_escape(int32_t code)
{
	switch (code) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	case '\t':
	case '\n':
	case '\r':
		return NULL;
	default:
		return str_is_shown(code) || code == 0x7f ? NULL : STR_REPLACEMENT;
	}
}

int str_append_xml(struct buf *b, const char *s)
{
	size_t size = strlen(s);

	for (size_t i = 0; i < size && !b->error;) {
		struct str_char c = str_decode(s + i, size - i);
		const char *esc = str_xml_escape(c.code);

		if (esc)
			(void)buf_append_str(b, esc);
		else
			(void)buf_append(b, s + i, c.size);
		i += c.size;
	}
	return buf_error(b);
}

static void str_append_json_char(struct buf *b, const char *s, struct str_char c)
{
	switch (c.code) {
	case '"':
		(void)buf_append_str(b, "\\\"");
		return;
	case '\\':
		(void)buf_append_str(b, "\\\\");
		return;
	case '\n':
		(void)buf_append_str(b, "\\n");
		return;
	case '\r':
		(void)buf_append_str(b, "\\r");
		return;
	case '\t':
		(void)buf_append_str(b, "\\t");
		return;
	case '<':
	case '>':
	case '&':
	case 0x2028: /* line ends to a JavaScript older than ES2019 */
	case 0x2029:
		(void)buf_printf(b, "\\u%04x", (unsigned int)c.code);
		return;
	default:
		if (c.code < 0)
			(void)buf_append_str(b, STR_REPLACEMENT);
		else if (c.code < 0x20)
			(void)buf_printf(b, "\\u%04x", (unsigned int)c.code);
		else
			(void)buf_append(b, s, c.size);
	}
}

int str_append_json(struct buf *b, const char *s)
{
	size_t size = strlen(s);

	(void)buf_append_char(b, '"');
	for (size_t i = 0; i < size && !b->error;) {
		struct str_char c = str_decode(s + i, size - i);

		str_append_json_char(b, s + i, c);
		i += c.size;
	}
	return buf_append_char(b, '"');
}

bool str_has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *s, const char *suffix)
{
	size_t len = strlen(s), n = strlen(suffix);

	return len >= n && memcmp(s + len - n, suffix, n) == 0;
}
