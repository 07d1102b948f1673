/*
 * Bounded gunzip over zlib. The output grows by what inflate really produced, so a bomb costs at
 * most the buffer's maximum.
 */
#include "prof/gunzip.h"

#include <errno.h>
#include <zlib.h>

#include "base/def.h"

enum { INFLATE_STEP = 64 * 1024, GZIP_WINDOW_BITS = 15 + 16 };

bool gunzip_is(const void *data, size_t size)
{
	const uint8_t *bytes = data;

	return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* One step of inflate into out. 0 go on, 1 the member ended, or an error. */
static int inflate_step(z_stream *z, struct buf *out)
{
	size_t left = out->size_max - out->size;
	size_t room = MIN(left, (size_t)INFLATE_STEP);
	uint8_t probe;
	void *to = &probe;
	int r;

	/* At the limit one byte more tells whether the stream ends here or is too long. */
	if (room) {
		r = buf_reserve(out, room, &to);
		if (r < 0)
			return r;
	}
	z->next_out = to;
	z->avail_out = (uInt)MAX(room, 1U);
	r = inflate(z, Z_NO_FLUSH);
	if (!room && z->avail_out == 0)
		return -EFBIG;
	if (room)
		out->size += room - z->avail_out;
	if (r == Z_STREAM_END)
		return 1;
	if (r == Z_MEM_ERROR)
		return -ENOMEM;
	/* Z_BUF_ERROR: no progress, the input ends too early. */
	return r == Z_OK ? 0 : -EBADMSG;
}

int gunzip(const void *data, size_t size, struct buf *out)
{
	z_stream z = {0};
	size_t step;
	int r = 0;

	if (inflateInit2(&z, GZIP_WINDOW_BITS) != Z_OK)
		return -ENOMEM;
	z.next_in = (Bytef *)data;
	while (r == 0) {
		if (z.avail_in == 0) {
			step = MIN(size, (size_t)1 << 30);
			z.avail_in = (uInt)step;
			size -= step;
		}
		r = inflate_step(&z, out);
		if (r == 1 && gunzip_is(z.next_in, z.avail_in))
			r = inflateReset(&z) == Z_OK ? 0 : -EBADMSG;
	}
	(void)inflateEnd(&z); /* only fails for a stream that was never begun */
	return r == 1 ? 0 : r;
}
