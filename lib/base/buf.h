/*
 * A growing byte buffer that cannot be made without its maximum (STYLE 19). It holds text or
 * binary; data is always followed by one NUL that size does not count, so buf.data can be printed.
 *
 * A failed append leaves a prefix of what was asked, sets buf.error, and every later append fails
 * with the same error: a producer may write many pieces and check once, with buf_error().
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/def.h"

struct buf {
	char *data; /* NULL until the first append */
	size_t size;
	size_t allocated;
	size_t size_max;
	int error; /* 0, -ENOBUFS (size_max reached) or -ENOMEM */
};

#define BUF_INIT(max) ((struct buf){.size_max = (max)})

void buf_init(struct buf *b, size_t size_max);
void buf_done(struct buf *b);  /* accepts NULL; usable as cleanup attribute */
void buf_reset(struct buf *b); /* forgets content and error, keeps the memory */

/* All return 0, -ENOBUFS or -ENOMEM. */
int buf_append(struct buf *b, const void *data, size_t size);
int buf_append_str(struct buf *b, const char *s);
int buf_append_char(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
/* Makes room for size more bytes and returns where they go through ret; the caller adds to b->size.
 */
int buf_reserve(struct buf *b, size_t size, void **ret);

static inline int buf_error(const struct buf *b)
{
	return b->error;
}
/* The text so far, never NULL. */
const char *buf_str(const struct buf *b);

#endif
