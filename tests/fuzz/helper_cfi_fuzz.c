/* links: agent */
/* helper_cfi: any bytes as a packet of tables from the helper, and as a request to it. */
#include "agent/helper_cfi.h"

#include <assert.h>

#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cfi_chunk chunk;

static void check_chunk(struct cursor c)
{
	if (helper_cfi_chunk_get(&c, &chunk) < 0)
		return;
	uint16_t rule_map[TABLE_RULES_MAX];
	size_t packed_size = cfi_packed_size(&chunk);
	uint8_t *packed =
		malloc(packed_size); /* exactly as large, so that ASan sees one too many */

	assert(chunk.row_count >= 1 && chunk.row_count <= TABLE_ROWS_MAX);
	assert(chunk.rule_count >= 1 && chunk.rule_count <= TABLE_RULES_MAX);
	assert(packed && packed_size <= TABLE_SLAB_SIZE - TABLE_REF_MIN);
	for (size_t i = 0; i < chunk.rule_count; i++)
		rule_map[i] = (uint16_t)i;
	cfi_pack(&chunk, rule_map, packed, packed_size);
	free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct helper_cfi_segments segments;
	struct helper_cfi_request q;
	struct helper_cfi_packet p;

	if (helper_cfi_request_get(data, size, &q) == 0)
		assert(q.chunk_count <= HELPER_CFI_CHUNKS_MAX);
	if (helper_cfi_packet_get(data, size, &p) < 0)
		return 0;
	if (p.status != HELPER_CFI_OK)
		return 0;
	struct cursor c = p.rest;
	if (helper_cfi_segments_get(&c, &segments) == 0)
		assert(segments.count <= HELPER_CFI_SEGMENTS_MAX);
	check_chunk(p.rest);
	return 0;
}
