/*
 * The growing byte buffer. Memory grows by doubling, never past size_max + 1 (the closing NUL), so
 * that a producer that runs away costs its limit and not the machine.
 */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>

#define BUF_ALLOC_MIN 64

void buf_init(struct buf *b, size_t size_max)
{
	*b = BUF_INIT(size_max);
}

void buf_done(struct buf *b)
{
	if (!b)
		return;
	free(b->data);
	*b = BUF_INIT(b->size_max);
}

void buf_reset(struct buf *b)
{
	b->size = 0;
	b->error = 0;
	if (b->data)
		b->data[0] = '\0';
}

/* Makes room for size more bytes and the NUL. */
static int buf_grow(struct buf *b, size_t size)
{
	size_t need, want;
	char *data;

	if (size > b->size_max - b->size || size > SIZE_MAX - 1 - b->size) {
		b->error = -ENOBUFS;
		return b->error;
	}
	need = b->size + size + 1;
	if (need <= b->allocated)
		return 0;
	want = MAX(need, b->allocated > SIZE_MAX / 2 ? need : b->allocated * 2);
	want = MAX(want, (size_t)BUF_ALLOC_MIN);
	if (want > b->size_max)
		want = MAX(b->size_max, need);
	data = realloc(b->data, want);
	if (!data) {
		b->error = -ENOMEM;
		return b->error;
	}
	if (!b->data)
		data[0] = '\0';
	b->data = data;
	b->allocated = want;
	return 0;
}

int buf_append(struct buf *b, const void *data, size_t size)
{
	size_t left = b->size_max - b->size;
	size_t fits = MIN(size, left);
	int r;

	if (b->error)
		return b->error;
	r = buf_grow(b, fits);
	if (r < 0)
		return r;
	if (fits)
		memcpy(b->data + b->size, data, fits);
	b->size += fits;
	b->data[b->size] = '\0';
	if (fits < size)
		b->error = -ENOBUFS;
	return b->error;
}

int buf_append_str(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_append_char(struct buf *b, char c)
{
	return buf_append(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	size_t room, left, want;
	va_list ap;
	int n;

	if (b->error)
		return b->error;
	room = b->allocated > b->size ? b->allocated - b->size : 0;
	va_start(ap, fmt);
	n = vsnprintf(room ? b->data + b->size : NULL, room, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->error = -ENOMEM; /* glibc gives EOVERFLOW only above INT_MAX bytes */
		return b->error;
	}
	want = (size_t)n;
	if (want >= room) {
		left = b->size_max - b->size;
		if (room)
			b->data[b->size] = '\0';
		if (buf_grow(b, MIN(want, left)) < 0)
			return b->error;
		/* What does not fit is cut by vsnprintf: the size given is the room that is left.
		 */
		va_start(ap, fmt);
		(void)vsnprintf(b->data + b->size, MIN(want, left) + 1, fmt, ap);
		va_end(ap);
		if (want > left) {
			b->error = -ENOBUFS;
			want = left;
		}
	}
	b->size += want;
	return b->error;
}

int buf_reserve(struct buf *b, size_t size, void **ret)
{
	if (b->error || buf_grow(b, size) < 0)
		return b->error;
	/* The caller writes over the NUL; it stands again behind the reserved bytes. */
	b->data[b->size + size] = '\0';
	*ret = b->data + b->size;
	return 0;
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}
