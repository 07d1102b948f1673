/* links: lab */
/* The scenario reader over any bytes: refuses or accepts, and what it accepts can be planned. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/def.h"
#include "lab/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scenario *s = malloc(sizeof(*s));
	struct arena *a = arena_new(16 << 20);
	struct plan_options o = {0};
	struct plan p;

	if (s && a && size < 1 << 16 && scenario_parse(s, "fuzz.json", data, size) == 0 &&
		plan_make(a, s, &o, &p) == 0)
		for (size_t b = 0; b < p.boot_count; b++) {
			_cleanup_(buf_done) struct buf text = BUF_INIT(1 << 20);

			(void)job_write(&p.boots[b].job, &text); /* may refuse, must not crash */
		}
	if (s && a && size < 1 << 16)
		scenario_done(s);
	arena_free(a);
	free(s);
	return 0;
}
