/*
 * Texts of Rust names: identifiers in Punycode (RFC 3492, with '_' before the deltas), characters,
 * and the legacy mangling, which is C++'s nested name whose last part is "h" and 16 hex digits:
 *
 *	$SP$ @  $BP$ *  $RF$ &  $LT$ <  $GT$ >  $LP$ (  $RP$ )  $C$ ,  $u7e$ the character of that number
 *	.. ::   and '_' before a leading '$'
 */
#include <errno.h>

#include "agent/demangle_rust_internal.h"
#include "base/def.h"

enum {
	RUST_PUNYCODE_MAX = 256, /* characters of one identifier */
	RUST_HASH_SIZE = 17,
	RUST_CHAR_MAX = 0x10ffff,
};

/* UTF-8 of c; 0 bytes when it is no character. */
static size_t rust_utf8(uint64_t c, char to[4])
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c > RUST_CHAR_MAX || (c >= 0xd800 && c < 0xe000))
		return 0;
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

static int rust_punycode_digit(char c)
{
	if (c >= 'a' && c <= 'z')
		return c - 'a';
	if (c >= '0' && c <= '9')
		return c - '0' + 26;
	return -1;
}

/* RFC 3492, section 6.1. */
static uint32_t rust_punycode_adapt(uint32_t delta, uint32_t count, bool is_first)
{
	uint32_t k = 0;

	delta = is_first ? delta / 700 : delta / 2;
	delta += delta / count;
	for (; delta > 35 * 26 / 2; k += 36)
		delta /= 35;
	return k + 36 * delta / (delta + 38);
}

/* One generalized integer at *at, added to *i; false when it is none. */
static bool rust_punycode_delta(const struct rust_name *n, size_t *at, uint32_t bias, uint32_t *i)
{
	uint64_t weight = 1;
	uint64_t sum = *i;

	for (uint32_t k = 36;; k += 36) {
		uint32_t t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
		int digit = *at < n->size ? rust_punycode_digit(n->bytes[(*at)++]) : -1;

		if (digit < 0)
			return false;
		sum += (uint64_t)digit * weight;
		if (sum > INT32_MAX)
			return false;
		if ((uint32_t)digit < t)
			break;
		weight *= 36 - t;
		if (weight > INT32_MAX)
			return false;
	}
	*i = (uint32_t)sum;
	return true;
}

/* RFC 3492, section 6.2. */
static bool rust_punycode(const struct rust_name *n, uint32_t *chars, size_t *ret_count)
{
	size_t at = n->size;
	size_t count = 0;
	uint32_t c = 128;
	uint32_t bias = 72;
	uint32_t i = 0;

	while (at > 0 && n->bytes[at - 1] != '_')
		at--;
	for (size_t k = 0; at > 0 && k < at - 1; k++) {
		if (count == RUST_PUNYCODE_MAX)
			return false;
		chars[count++] = (uint8_t)n->bytes[k];
	}
	if (at == n->size)
		return false;
	while (at < n->size) {
		uint32_t before = i;

		if (count == RUST_PUNYCODE_MAX || !rust_punycode_delta(n, &at, bias, &i))
			return false;
		count++;
		bias = rust_punycode_adapt(i - before, (uint32_t)count, before == 0 && c == 128);
		c += i / (uint32_t)count;
		i %= (uint32_t)count;
		if (c > RUST_CHAR_MAX)
			return false;
		memmove(chars + i + 1, chars + i, (count - 1 - i) * sizeof(*chars));
		chars[i++] = c;
	}
	*ret_count = count;
	return true;
}

void rust_name_put(struct rust *d, const struct rust_name *n)
{
	uint32_t chars[RUST_PUNYCODE_MAX];
	size_t count = 0;

	if (d->error || d->is_silent)
		return;
	if (!n->is_punycode) {
		rust_put(d, n->bytes, n->size);
		return;
	}
	if (!rust_punycode(n, chars, &count)) {
		rust_say(d, "punycode{");
		rust_put(d, n->bytes, n->size);
		rust_say(d, "}");
		return;
	}
	for (size_t i = 0; i < count; i++) {
		char utf8[4];

		rust_put(d, utf8, rust_utf8(chars[i], utf8));
	}
}

void rust_char_put(struct rust *d, uint64_t c)
{
	static const struct {
		char c;
		const char *text;
	} escapes[] = {{'\t', "\\t"}, {'\n', "\\n"}, {'\r', "\\r"}, {'\'', "\\'"}, {'\\', "\\\\"},
		{'\0', "\\0"}};
	char text[16];
	size_t size = c < 0x20 || c == 0x7f ? 0 : rust_utf8(c, text);

	if (c > RUST_CHAR_MAX) {
		rust_fail(d, -EINVAL);
		return;
	}
	rust_say(d, "'");
	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++) {
		if (c == (uint8_t)escapes[i].c) {
			rust_say(d, escapes[i].text);
			rust_say(d, "'");
			return;
		}
	}
	if (size == 0)
		size = (size_t)snprintf(text, sizeof(text), "\\u{%x}", (unsigned int)c);
	rust_put(d, text, size);
	rust_say(d, "'");
}

static bool rust_is_hash(const char *s, size_t size)
{
	if (size != RUST_HASH_SIZE || s[0] != 'h')
		return false;
	for (size_t i = 1; i < size; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return false;
	return true;
}

/* The bytes of "$...$" at s, put; 0 when it is no escape. */
static size_t rust_legacy_escape(struct rust *d, const char *s, size_t size)
{
	static const struct {
		const char *name, *text;
	} escapes[] = {{"SP", "@"}, {"BP", "*"}, {"RF", "&"}, {"LT", "<"}, {"GT", ">"}, {"LP", "("},
		{"RP", ")"}, {"C", ","}};
	const char *end = size > 1 ? memchr(s + 1, '$', size - 1) : NULL;
	size_t length = end ? (size_t)(end - s) - 1 : 0;
	uint64_t c = 0;
	char utf8[4];

	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++) {
		if (length == strlen(escapes[i].name) &&
			memcmp(s + 1, escapes[i].name, length) == 0) {
			rust_say(d, escapes[i].text);
			return length + 2;
		}
	}
	if (length < 2 || length > 7 || s[1] != 'u')
		return 0;
	for (size_t i = 2; i <= length; i++) {
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return 0;
		c = c << 4 | (uint64_t)(s[i] <= '9' ? s[i] - '0' : s[i] - 'a' + 10);
	}
	size_t n = c < 0x20 || c == 0x7f ? 0 : rust_utf8(c, utf8);
	if (n == 0)
		return 0;
	rust_put(d, utf8, n);
	return length + 2;
}

static void rust_legacy_part(struct rust *d, const char *s, size_t size)
{
	size_t at = size > 1 && s[0] == '_' && s[1] == '$' ? 1 : 0;

	while (at < size && !d->error) {
		size_t used = 0;

		if (s[at] == '$') {
			used = rust_legacy_escape(d, s + at, size - at);
			if (used == 0) { /* as it stands, from here on */
				rust_put(d, s + at, size - at);
				return;
			}
		} else if (s[at] == '.' && at + 1 < size && s[at + 1] == '.') {
			rust_say(d, "::");
			used = 2;
		} else {
			rust_put(d, s + at, 1);
			used = 1;
		}
		at += used;
	}
}

int rust_legacy(const char *name, size_t size, struct demangle_rust_text *out)
{
	struct rust d = {.out = out};
	bool is_hashed = false;
	size_t at = 3;

	/* At least one part, the hash and "E". */
	if (size < 3 + 2 + 2 + RUST_HASH_SIZE + 1 || name[2] != 'N' || name[size - 1] != 'E')
		return -EINVAL;
	while (at < size - 1 && d.error == 0) {
		size_t length = 0;

		if (is_hashed || name[at] < '1' || name[at] > '9')
			return -EINVAL;
		while (at < size - 1 && name[at] >= '0' && name[at] <= '9' && length < size)
			length = length * 10 + (size_t)(name[at++] - '0');
		if (length > size - 1 - at)
			return -EINVAL;
		is_hashed = at + length == size - 1 && rust_is_hash(name + at, length);
		if (!is_hashed) {
			if (out->size > 0)
				rust_say(&d, "::");
			rust_legacy_part(&d, name + at, length);
		}
		at += length;
	}
	return d.error ? d.error : is_hashed ? 0 : -EINVAL;
}
