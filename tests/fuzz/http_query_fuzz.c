/* links: backend */
/*
 * Query strings of any bytes: lines of query, service, view, from, until. What is accepted has a range that
 * goes forward and matchers within their limits.
 */
#include <assert.h>

#include "backend/api.h"
#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIELDS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const int64_t now_ns = 1700000000 * (int64_t)NSEC_PER_SEC;
	const char *fields[FIELDS] = {NULL};
	struct api_query *q = malloc(sizeof(*q));
	char *text = malloc(size + 1);
	const char *why = NULL;
	char *at = text;
	int64_t ns;

	if (q && text) {
		memcpy(text, data, size);
		text[size] = '\0';
		for (size_t i = 0; i < FIELDS && at; i++) {
			char *end = strchr(at, '\n');

			if (end)
				*end = '\0';
			fields[i] = at;
			at = end ? end + 1 : NULL;
		}
		if (api_query_parse(fields[0], fields[1], fields[2], fields[3], fields[4], now_ns,
			    &why, q) == 0) {
			assert(q->range.start_ns < q->range.end_ns);
			assert(q->matcher_count <= MATCHERS_MAX);
		} else {
			assert(why && *why);
		}
		(void)api_time(fields[0] ? fields[0] : "", now_ns, &ns); /* any answer, no fault */
	}
	free(text);
	free(q);
	return 0;
}
