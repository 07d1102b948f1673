/* links: backend */
/*
 * The selector's parser over any text; what it accepts also compiles and answers. The text is cut at 300 bytes:
 * longer ones only make glibc's expressions slow to compile, within the bounds that matcher.c sets.
 */
#include <assert.h>
#include <errno.h>

#include "backend/store.h"
#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct push_label labels[] = {{"__name__", "cpu"}, {"host", "h-1.example"},
		{"service_name", "aaaaaaaaaaaaaaaaaaaa"}};
	struct matcher *m = calloc(MATCHERS_MAX, sizeof(*m));
	struct match_set *set = NULL;
	const char *why = NULL;
	size_t count = 99;
	char text[301];
	int r;

	assert(m);
	size = MIN(size, sizeof(text) - 1);
	memcpy(text, data, size);
	text[size] = '\0';
	r = matcher_parse(text, &why, m, &count);
	if (r < 0) {
		assert((r == -EINVAL && why && *why) || r == -ENOMEM);
	} else {
		assert(count <= MATCHERS_MAX);
		assert(match_set_new(m, count, &set) == 0);
		(void)match_set_takes(set, labels, ARRAY_SIZE(labels), "cpu", "nanoseconds");
		match_set_free(set);
	}
	free(m);
	return 0;
}
