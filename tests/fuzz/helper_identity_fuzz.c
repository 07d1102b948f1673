/* links: agent */
/* helper_identity: any bytes as a request, and as an answer, of which nothing out of range comes. */
#include "agent/helper_identity.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct helper_identity_request q;
	char reason[HELPER_REASON_MAX];
	struct elf_identity id;

	if (helper_identity_request_get(data, size, &q) == 0)
		assert(q.of.build_id_size <= sizeof(q.of.build_id));
	if (helper_identity_answer_get(data, size, 7, reason, &id) == 0) {
		assert(id.build_id_size <= sizeof(id.build_id));
		assert(id.alt_build_id_size <= sizeof(id.alt_build_id));
		assert(!strchr(id.debuglink, '/') && strlen(id.altlink) < sizeof(id.altlink));
	}
	assert(strlen(reason) < sizeof(reason));
	return 0;
}
