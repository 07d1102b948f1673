/* links: agent */
/*
 * elf_symbols: any bytes as a file; addresses around its segments and symbols are asked for, and
 * what is found is demangled as the helper does.
 */
#include "agent/elf_symbols.h"

#include <assert.h>
#include <sys/mman.h>

#include "agent/demangle.h"
#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const struct elf_symbols *e, uint64_t vaddr)
{
	_cleanup_(buf_done) struct buf name = BUF_INIT(DEMANGLE_OUT_MAX);
	struct elf_symbols_answer a;

	if (!elf_symbols_find(e, vaddr, &a))
		return;
	assert(vaddr - a.start < a.size);
	assert(a.name[0] && strnlen(a.name, sizeof(a.name)) < sizeof(a.name));
	(void)demangle(a.name, &name); /* any outcome will do */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = NULL;
	_cleanup_(closep) int fd = memfd_create("fuzz", MFD_CLOEXEC);
	const char *why = NULL;

	if (fd < 0 || file_write_all(fd, data, size) < 0)
		return 0;
	if (elf_symbols_open(fd, &why, &e) < 0) {
		assert(why);
		return 0;
	}
	fd = -1; /* is e's now */
	for (uint64_t offset = 0; offset < size + 4096; offset += 13) {
		uint64_t vaddr = 0;

		if (elf_symbols_vaddr(e, offset, &vaddr))
			ask(e, vaddr);
	}
	for (uint64_t vaddr = 0; vaddr < 0x1500; vaddr += 5)
		ask(e, vaddr);
	ask(e, UINT64_MAX);
	return 0;
}
