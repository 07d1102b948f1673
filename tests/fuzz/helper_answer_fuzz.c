/* links: agent */
/* helper_answer: any bytes as a packet from the helper, and as a request to it. */
#include "agent/helper_answer.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_of(const struct helper_frame *f)
{
	uint64_t sum = 0;

	assert(f->name_size <= NAMES_NAME_MAX && f->file_size <= NAMES_NAME_MAX);
	for (uint32_t i = 0; i < f->name_size; i++)
		sum += (unsigned char)f->name[i];
	for (uint32_t i = 0; i < f->file_size; i++)
		sum += (unsigned char)f->file[i];
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct helper_request q;
	struct helper_packet p;
	struct helper_answer a;
	uint64_t sum = 0;

	if (helper_request_get(data, size, &q) == 0) {
		for (uint32_t i = 0; i < q.count; i++)
			(void)cursor_u64(&q.addresses);
		assert(cursor_error(&q.addresses) == 0 && cursor_left(&q.addresses) == 0);
	}
	if (helper_answer_get(data, size, &p) == 0) {
		assert(p.first + p.count <= HELPER_BATCH_MAX);
		while (helper_answer_next(&p, &a)) {
			assert(a.frame_count <= NAMES_FRAMES_MAX);
			for (size_t i = 0; i < a.frame_count; i++)
				sum += sum_of(&a.frames[i]);
		}
	}
	return sum == UINT64_MAX;
}
