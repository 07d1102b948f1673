/* links: backend */
/* Heartbeats and requests of any bytes: refused with a reason or answered with JSON that parses. */
#include <assert.h>
#include <cjson/cJSON.h>
#include <errno.h>

#include "backend/control.h"
#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NOW_S = 1700000000 };

static void check(int r, const struct buf *out, const struct buf *why)
{
	if (r == 0) {
		cJSON *j = cJSON_ParseWithLength(buf_str(out), out->size);

		assert(j);
		cJSON_Delete(j);
	} else {
		assert(r == -EINVAL || r == -ENOENT || r == -ENOMEM || r == -ENOBUFS ||
			r == -ENOSPC);
		assert(why->size > 0 || (r != -EINVAL && r != -ENOENT));
		assert(!strchr(buf_str(why), '\n'));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char beat[] = "{\"schema\":\"flame-heartbeat/"
				   "1\",\"host\":\"h1\",\"instance\":\"i1\",\"state\":\"dormant\"}";
	static struct control *c;
	const int64_t now_ns = NOW_S * (int64_t)NSEC_PER_SEC;
	struct buf out = BUF_INIT(16 << 20);
	struct buf why = BUF_INIT(4096);

	if (!c && control_open(":memory:", &c) != 0)
		return 0;
	(void)control_heartbeat(
		c, beat, sizeof(beat) - 1, now_ns, &out, &why); /* a host to match */
	buf_reset(&out);
	buf_reset(&why);
	check(control_heartbeat(c, data, size, now_ns, &out, &why), &out, &why);
	buf_reset(&out);
	buf_reset(&why);
	check(control_request_create(c, data, size, now_ns, &out, &why), &out, &why);
	buf_done(&out);
	buf_done(&why);
	return 0;
}
