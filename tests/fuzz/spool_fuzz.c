/* links: agent */
/* spool: any bytes as a spool file; a payload that is taken lies within them and has their checksum. */
#include "agent/spool.h"

#include <assert.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const void *payload;
	size_t payload_size;

	if (spool_decode(data, size, &payload, &payload_size) < 0)
		return 0;
	assert((const uint8_t *)payload == data + SPOOL_HEADER_SIZE);
	assert(payload_size == size - SPOOL_HEADER_SIZE);
	return 0;
}
