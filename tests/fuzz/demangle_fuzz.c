/* links: agent */
/* demangle: any bytes as a symbol's name; what comes out is bounded, and nothing on failure. */
#include "agent/demangle.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(2 * DEMANGLE_OUT_MAX);
	char name[2048];

	if (size >= sizeof(name))
		return 0;
	memcpy(name, data, size);
	name[size] = '\0';
	int r = demangle(name, &out);

	assert(r == 0 ? out.size <= DEMANGLE_OUT_MAX : out.size == 0);
	assert(r == 0 || r == -EINVAL || r == -E2BIG);
	assert(demangle_stem(name) <= strlen(name));
	return 0;
}
