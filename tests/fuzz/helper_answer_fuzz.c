/* links: agent */
/* helper_answer: any bytes as a packet from the helper, and as a request to it. */
#include "agent/helper_answer.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct helper_request q;
	struct helper_packet p;
	struct helper_answer a;
	uint64_t sum = 0;

	if (helper_request_get(data, size, &q) == 0) {
		for (uint32_t i = 0; i < q.count; i++)
			(void)cursor_u64(&q.offsets);
		assert(cursor_error(&q.offsets) == 0 && cursor_left(&q.offsets) == 0);
	}
	if (helper_answer_get(data, size, &p) == 0) {
		assert(p.first + p.count <= HELPER_BATCH_MAX);
		while (helper_answer_next(&p, &a)) {
			assert(a.name_size <= HELPER_NAME_MAX);
			for (uint32_t i = 0; i < a.name_size; i++)
				sum += (unsigned char)a.name[i];
		}
	}
	return sum == UINT64_MAX;
}
