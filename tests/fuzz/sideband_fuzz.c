/* links: agent */
/*
 * sideband: any bytes as a ring of the kernel's, with a head anywhere. First the head's distance in u32, then
 * the ring's end. What comes out is sorted, inside its limits, and was in the ring.
 */
#include "agent/sideband.h"

#include <assert.h>

#include "base/def.h"

enum { TGIDS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct sideband *s, uint32_t tgid, uint64_t when_ns)
{
	_cleanup_(maps_done) struct maps m;
	struct sideband_origin o = {0};

	maps_init(&m);
	(void)sideband_since(s, tgid, when_ns);
	if (sideband_origin(s, tgid, 0, when_ns, &o) < 0)
		return;
	assert(o.since_ns <= when_ns && o.fork_ns <= when_ns);
	assert(sideband_maps(s, tgid, o.since_ns, when_ns, &m) == 0);
	for (size_t i = 0; i < m.count; i++) {
		const struct maps_region *r = &m.regions[i];

		assert(r->start < r->end);
		assert(i == 0 || m.regions[i - 1].end <= r->start);
		assert(strlen(maps_path(&m, r)) <= SIDEBAND_RECORD_MAX);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[SIDEBAND_RING_MIN];
	uint32_t back = 0;
	uint64_t head = 0;
	struct sideband_ring ring = {bytes, sizeof(bytes), &head};
	_cleanup_(sideband_freep) struct sideband *s = NULL;

	if (size < sizeof(back))
		return 0;
	memcpy(&back, data, sizeof(back));
	data += sizeof(back);
	size = MIN(size - sizeof(back), sizeof(bytes));
	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes + sizeof(bytes) - size, data, size);
	if (sideband_new_over(&ring, 1, &s) < 0)
		return 0;
	head = 0 - (uint64_t)(back & ~7U);
	for (uint32_t tgid = 0; tgid < TGIDS; tgid++)
		for (uint64_t when_ns = 0; when_ns <= UINT64_MAX / 2; when_ns = 2 * when_ns + 999)
			check(s, tgid, when_ns);
	/* It goes on. */
	head -= MIN(size & ~(size_t)7, (size_t)1024);
	check(s, 1, UINT64_MAX);
	return 0;
}
