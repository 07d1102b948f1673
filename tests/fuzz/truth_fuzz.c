/* links: lab */
/* The truth reader over any bytes; what it accepts keeps its sum when it is falsified. */
#include <assert.h>

#include "base/def.h"
#include "lab/truth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum(const struct truth *t)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->function_count; i++)
		n += t->functions[i].cpu_ns;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct truth t;

	if (size < 1 << 16) {
		if (truth_parse(&t, "fuzz.json", data, size) == 0) {
			uint64_t before = sum(&t);

			(void)truth_falsify(&t, 3); /* the amount is the unit tests' matter */
			/* Each entry may be rounded by a nanosecond or two. */
			assert(sum(&t) <= before + 2 * t.function_count);
		}
		truth_done(&t);
	}
	return 0;
}
