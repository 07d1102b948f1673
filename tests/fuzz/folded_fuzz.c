/* links: prof */
/*
 * The folded reader over any bytes. What it accepts, written and read again, is the same text.
 */
#include "prof/folded.h"

#include <assert.h>
#include <errno.h>

#include "base/def.h"

#define MEMORY_MAX ((size_t)8 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct folded_options o = {.with_suffix = true};
	_cleanup_(buf_done) struct buf one = BUF_INIT(8 * MEMORY_MAX);
	_cleanup_(buf_done) struct buf two = BUF_INIT(8 * MEMORY_MAX);
	_cleanup_(profile_freep) struct profile *p = NULL, *q = NULL;
	size_t line = 0;
	int r = folded_read(data, size, MEMORY_MAX, &line, &p);

	if (r < 0) {
		assert(r == -EBADMSG || r == -ENOBUFS);
		assert(line > 0 && !p);
		return 0;
	}
	assert(folded_write(p, &o, &one) == 0);
	assert(folded_read(one.data, one.size, 8 * MEMORY_MAX, NULL, &q) == 0);
	assert(folded_write(q, &o, &two) == 0);
	assert(one.size == two.size && memcmp(buf_str(&one), buf_str(&two), one.size) == 0);
	return 0;
}
