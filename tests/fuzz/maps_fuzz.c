/* links: agent */
/* maps: any bytes as /proc/PID/maps, in two pieces; the regions must be sorted and searchable. */
#include "agent/maps.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(maps_done) struct maps m;
	size_t used = 0;
	size_t more = 0;

	maps_init(&m);
	(void)maps_feed(&m, (const char *)data, size / 2, &used);
	assert(used <= size / 2);
	(void)maps_feed(&m, (const char *)data + used, size - used, &more);
	assert(used + more <= size);
	for (size_t i = 0; i < m.count; i++) {
		const struct maps_region *r = &m.regions[i];

		assert(r->start < r->end);
		assert(i == 0 || m.regions[i - 1].end <= r->start);
		assert(maps_find(&m, r->start) == r && maps_find(&m, r->end - 1) == r);
		assert(strlen(maps_path(&m, r)) <= MAPS_LINE_MAX);
	}
	return 0;
}
