/*
 * What opts.c (sources of options), opts_value.c (values) and opts_text.c (help, samples) share.
 */
#ifndef BASE_OPTS_INTERNAL_H
#define BASE_OPTS_INTERNAL_H

#include "base/opts.h"

/* One scalar, or one element of a list. */
struct opts_value {
	bool flag;
	int choice;
	uint64_t u64;
	double f64;
	const char *str;
};

static inline bool opts_is_list(const struct opt_spec *spec)
{
	return spec->type == OPT_U64_LIST || spec->type == OPT_STR_LIST;
}

/* How a message begins: "option '--x': " or "FILE:LINE: 'x': ". */
struct opts_place {
	const char *file; /* NULL: argv */
	unsigned int line;
};

/* Writes o->message anew and returns -EINVAL. */
int opts_fail(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *fmt, ...) _printf_(4, 5);

/*
 * Parses text and, when store says so, puts it into the target (a list gets it appended). text must
 * outlive o for OPT_STR. 0, or -EINVAL with the message.
 */
int opts_set(struct opts *o, const struct opts_place *at, const struct opt_spec *spec,
	const char *text, bool store);
/* Zeroes the target's field: an empty list, NULL, 0. */
void opts_clear(struct opts *o, const struct opt_spec *spec);

/* As one would type it, "90s" or "2h": in the largest unit that divides it. */
#define OPTS_DURATION_MAX 32
char *opts_duration(uint64_t ns, char out[OPTS_DURATION_MAX]);
/* The bounds as "1..10000"; appends nothing when there are none. */
void opts_append_limits(const struct opt_spec *spec, struct buf *b);

/* Bytes from outside inside quotes: repaired, of bounded length. */
void opts_append_quoted(struct buf *b, const char *s);
/* The edit distance of a and b (insert, delete, replace, swap of neighbours); SIZE_MAX if long. */
size_t opts_distance(const char *a, const char *b);

#endif
