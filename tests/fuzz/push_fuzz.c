/* links: prof */
/*
 * push_read over any bytes. What it accepts is written and read back to the same request.
 */
#include "prof/push.h"

#include <assert.h>
#include <errno.h>

#include "base/def.h"

#define MEMORY_MAX ((size_t)16 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_series(const struct push_series *a, const struct push_series *b)
{
	assert(a->label_count == b->label_count && a->label_count <= PUSH_LABELS_MAX);
	assert(a->sample_count == b->sample_count);
	for (size_t i = 0; i < a->label_count; i++) {
		assert(strcmp(a->labels[i].name, b->labels[i].name) == 0);
		assert(strcmp(a->labels[i].value, b->labels[i].value) == 0);
		assert(i == 0 || strcmp(a->labels[i - 1].name, a->labels[i].name) < 0);
		assert(strlen(a->labels[i].value) < PUSH_LABEL_VALUE_MAX);
	}
	for (size_t i = 0; i < a->sample_count; i++) {
		assert(a->samples[i].profile_size == b->samples[i].profile_size);
		assert(memcmp(a->samples[i].profile, b->samples[i].profile,
			       a->samples[i].profile_size) == 0);
		assert(strcmp(a->samples[i].id, b->samples[i].id) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(MEMORY_MAX);
	_cleanup_(buf_done) struct buf out = BUF_INIT(MEMORY_MAX);
	struct push_request q, again;
	const char *why = NULL;
	int r;

	assert(a);
	r = push_read(data, size, a, &why, &q);
	if (r < 0) {
		assert((r == -EBADMSG && why) || r == -ENOMEM);
		return 0;
	}
	assert(push_write(&q, &out) == 0);
	r = push_read(out.data ? out.data : "", out.size, a, &why, &again);
	assert(r == 0 || r == -ENOMEM);
	if (r < 0)
		return 0;
	assert(q.series_count == again.series_count);
	for (size_t i = 0; i < q.series_count; i++)
		check_series(&q.series[i], &again.series[i]);
	return 0;
}
