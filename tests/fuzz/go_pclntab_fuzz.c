/* links: agent */
/*
 * go_pclntab: any bytes as a file; addresses in and around what it takes for Go's text are asked for.
 *
 * corpus/go_pclntab: the files of fixtures/go, and the same with 12 bits flipped in the last 8 KB.
 */
#include "agent/go_pclntab.h"

#include <assert.h>
#include <sys/mman.h>

#include "base/file.h"

enum { FUZZ_ASKED = 400, FUZZ_STEPS = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(struct go_pclntab *g, uint64_t vaddr, struct names *n)
{
	if (go_pclntab_find(g, vaddr, n) < 0) {
		assert(n->count == 0);
		return;
	}
	assert(n->count > 0 && vaddr - n->start < n->size);
	for (size_t i = 0; i < n->count; i++)
		assert(n->frames[i].name_size > 0);
}

static void ask_function(struct go_pclntab *g, size_t index)
{
	struct go_function f;
	struct go_sp s;
	char name[64];

	if (go_pclntab_function(g, index, &f) < 0)
		return;
	(void)go_pclntab_function_name(g, &f, name, sizeof(name)); /* any outcome will do */
	if (go_pclntab_sp_begin(g, &f, &s) < 0)
		return;
	for (size_t i = 0; i < FUZZ_STEPS && go_pclntab_sp_next(g, &s) == 1; i++)
		assert(s.start <= s.end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd = memfd_create("fuzz", MFD_CLOEXEC);
	_cleanup_(go_pclntab_freep) struct go_pclntab *g = NULL;
	const char *why = NULL;
	struct names n;

	if (fd < 0 || file_write_all(fd, data, size) < 0)
		return 0;
	if (go_pclntab_open(fd, &why, &g) < 0) {
		assert(why);
		return 0;
	}
	names_init(&n);
	uint64_t start = go_pclntab_text_start(g), end = go_pclntab_text_end(g);

	assert(start < end);
	for (uint64_t i = 0; i < FUZZ_ASKED; i++) {
		ask(g, start + (end - start) / FUZZ_ASKED * i, &n);
		ask(g, end - 1 - i * 3, &n);
	}
	for (size_t i = 0; i < go_pclntab_count(g) && i < FUZZ_ASKED; i++)
		ask_function(g, i);
	names_done(&n);
	return 0;
}
