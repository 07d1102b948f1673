/* links: agent */
/* kallsyms: any bytes as /proc/kallsyms; what is found must lie at or below the address. */
#include "agent/kallsyms.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t addresses[] = {
		1, 0x1001, 0x2fff, 0xffffffff81000000, 0xffffffff81001234, UINT64_MAX};
	enum { COUNT = sizeof(addresses) / sizeof(addresses[0]) };
	struct kallsyms_answer answers[COUNT];
	struct kallsyms_pass p;

	kallsyms_begin(&p, addresses, COUNT, answers);
	size_t used = kallsyms_feed(&p, (const char *)data, size / 2);
	assert(used <= size / 2);
	assert(kallsyms_feed(&p, (const char *)data + used, size - used) <= size - used);
	(void)kallsyms_end(&p);
	for (size_t i = 0; i < COUNT; i++) {
		assert(strnlen(answers[i].name, KALLSYMS_NAME_SIZE) < KALLSYMS_NAME_SIZE);
		assert(strnlen(answers[i].module, KALLSYMS_MODULE_SIZE) < KALLSYMS_MODULE_SIZE);
		assert(!answers[i].found ||
			(answers[i].start <= addresses[i] && answers[i].name[0]));
	}
	return 0;
}
