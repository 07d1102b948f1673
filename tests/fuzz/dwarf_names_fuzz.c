/* links: agent */
/*
 * dwarf_names: any bytes as a file with DWARF. libdw itself is not instrumented, so what is found here is ours, or a
 * crash of libdw, which in the product ends the helper for lines and costs lines.
 */
#include "agent/dwarf_names.h"

#include <assert.h>
#include <sys/mman.h>

#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd = memfd_create("dwarf", MFD_CLOEXEC);
	struct dwarf_names *d = NULL;
	const char *why = NULL;
	struct names n;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		return 0;
	if (dwarf_names_open(fd, -1, &why, &d) < 0) {
		assert(why);
		return 0;
	}
	fd = -1;
	names_init(&n);
	dwarf_names_hurry(d, 100);
	for (uint64_t vaddr = 0x1000; vaddr < 0x1400; vaddr += 3) {
		names_reset(&n);
		if (dwarf_names_find(d, vaddr, vaddr & 1, &n) == 0)
			assert(n.count > 0 && n.count <= NAMES_FRAMES_MAX);
	}
	names_done(&n);
	dwarf_names_free(d);
	return 0;
}
