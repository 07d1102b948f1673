/* links: prof */
/*
 * The pprof reader over any bytes. What it accepts, our writer turns into a file that reads back to
 * the same bytes, and the other writers can take.
 */
#include "prof/pprof.h"

#include <assert.h>
#include <errno.h>

#include "base/def.h"
#include "prof/folded.h"
#include "prof/svg.h"

#define MEMORY_MAX ((size_t)8 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct profile *p)
{
	_cleanup_(buf_done) struct buf one = BUF_INIT(8 * MEMORY_MAX);
	_cleanup_(buf_done) struct buf two = BUF_INIT(8 * MEMORY_MAX);
	_cleanup_(profile_freep) struct profile *q = NULL;

	assert(pprof_write(p, &one) == 0);
	assert(pprof_read(one.data, one.size, 8 * MEMORY_MAX, NULL, &q) == 0);
	assert(profile_sample_count(q) == profile_sample_count(p));
	assert(pprof_write(q, &two) == 0);
	assert(one.size == two.size && memcmp(one.data, two.data, one.size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(8 * MEMORY_MAX);
	_cleanup_(profile_freep) struct profile *p = NULL;
	const char *why = NULL;
	int r = pprof_read(data, size, MEMORY_MAX, &why, &p);

	if (r < 0) {
		assert(r == -EBADMSG || r == -EFBIG || r == -ENOBUFS);
		assert(why && !p);
		return 0;
	}
	check_round_trip(p);
	r = folded_write(
		p, &(struct folded_options){.with_comm = true, .with_suffix = true}, &text);
	assert(r == 0 || r == -ENOBUFS);
	buf_reset(&text);
	r = svg_write(p, &(struct svg_options){.with_comm = true}, &text);
	assert(r == 0 || r == -ENOBUFS);
	return 0;
}
