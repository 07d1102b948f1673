/* links: agent */
/* elf_identity: any bytes as a file, and as the debug file of itself. */
#include "agent/elf_identity.h"

#include <assert.h>
#include <sys/mman.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct elf_identity id;
	const char *why = NULL;

	if (fd < 0 || file_write_all(fd, data, size) < 0)
		return 0;
	if (elf_identity_read(fd, &why, &id) < 0) {
		assert(why);
		return 0;
	}
	assert((id.kind == ELF_IDENTITY_NONE) == (id.build_id_size == 0));
	assert(id.build_id_size <= sizeof(id.build_id));
	assert(id.alt_build_id_size <= sizeof(id.alt_build_id));
	assert(memchr(id.debuglink, '\0', sizeof(id.debuglink)));
	assert(memchr(id.altlink, '\0', sizeof(id.altlink)));
	assert(id.has_debuglink == (id.debuglink[0] != '\0'));
	assert(!strchr(id.debuglink, '/'));
	int r = elf_identity_match(&id, fd, &why);

	assert(id.kind != ELF_IDENTITY_GNU || r == 0);
	assert((r == 0) == (why == NULL));
	struct elf_identity alt;

	elf_identity_alt(&id, &alt);
	(void)elf_identity_match(&alt, fd, &why); /* any outcome will do */
	return 0;
}
