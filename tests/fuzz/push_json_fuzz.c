/* links: backend */
/* Pushes as JSON, of any bytes: refused with a reason, or a message that has as many series as push_read takes. */
#include <assert.h>
#include <errno.h>

#include "backend/push_json.h"
#include "base/arena.h"
#include "base/def.h"
#include "prof/push.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf out = BUF_INIT(16 << 20);
	struct arena *a = arena_new((size_t)64 << 20);
	struct push_request q = {0};
	const char *why = NULL;
	int r = push_json_read(data, size, &why, &out);

	assert(r == 0 || (r == -EBADMSG && why && *why) || r == -ENOBUFS || r == -ENOMEM);
	if (r == 0 && a) {
		r = push_read(out.data ? out.data : "", out.size, a, &why, &q);
		assert(r == 0 || r == -ENOMEM || (r == -EBADMSG && why && *why));
	}
	arena_free(a);
	buf_done(&out);
	return 0;
}
