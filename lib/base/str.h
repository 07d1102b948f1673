/*
 * Text: UTF-8 repair, parsing of numbers and durations, escaping. Everything here works on
 * (pointer, size) or NUL-terminated strings, allocates only where it says so, and ignores the
 * locale.
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * Appends size bytes of s as valid UTF-8: each malformed sequence, control byte (< 0x20, 0x7f) and
 * code point that XML 1.0 forbids becomes U+FFFD; at most size_max bytes are appended, cut at a
 * whole code point and closed with "..." when something was cut. Returns 0 or buf's error.
 */
int str_append_utf8(struct buf *b, const char *s, size_t size, size_t size_max);
bool str_is_utf8(const char *s, size_t size);

/* Escapes for XML text and double-quoted attributes: & < > " ' */
int str_append_xml(struct buf *b, const char *s);
/* As a JSON string with its quotes; <, > and & as \u003c..., so that it may stand inside <script>.
 */
int str_append_json(struct buf *b, const char *s);

/* The whole string must be the number. 0, -EINVAL (not a number), -ERANGE (outside min..max). */
int str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);
int str_to_i64(const char *s, int64_t min, int64_t max, int64_t *ret);
int str_to_f64(const char *s, double min, double max, double *ret); /* no nan, inf, hex */
/* "10", "10s", "250ms", "5m", "2h" -> nanoseconds. 0, -EINVAL, -ERANGE. */
int str_to_duration_ns(const char *s, uint64_t *ret);

bool str_has_prefix(const char *s, const char *prefix);
bool str_has_suffix(const char *s, const char *suffix);

/* "1.2 MB", "837 ns", "12.3 s": three significant digits, for people. Returns out. */
#define STR_HUMAN_MAX 24
char *str_human_bytes(uint64_t bytes, char out[STR_HUMAN_MAX]);
char *str_human_ns(uint64_t ns, char out[STR_HUMAN_MAX]);

#endif
