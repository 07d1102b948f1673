/* links: agent */
/*
 * cfi: any bytes as a file. Its first and last chunks, and those around 0, are compiled; what comes out
 * must keep the promises that cfi_pack() and the kernel programs rely on.
 *
 * corpus/cfi (2026-12): one file of five functions (a call, one with an array, alignas(64), alloca, a naked
 * one with .cfi_signal_frame) by gcc 12, gcc -fno-omit-frame-pointer -fcf-protection, gcc without
 * .eh_frame_hdr, clang 14 with lld for x86-64 and aarch64, clang with .debug_frame, plain and compressed;
 * one without section headers; go1.*: fixtures/go, which have no .eh_frame; *-flip*: the same with 12 bits flipped.
 */
#include "agent/cfi.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

#include "base/def.h"
#include "base/file.h"

enum { FUZZ_CHUNKS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct cfi_chunk *c)
{
	static uint16_t map[TABLE_RULES_MAX];
	size_t packed_size = cfi_packed_size(c);
	_cleanup_(freep) uint8_t *packed = malloc(packed_size);

	assert(packed);
	assert(c->row_count <= TABLE_ROWS_MAX);
	assert(c->rule_count > 0 && c->rule_count <= TABLE_RULES_MAX);
	for (size_t i = 0; i < c->row_count; i++) {
		const struct cfi_row *row = &c->rows[i];

		assert(row->rule < c->rule_count);
		assert(i == 0 ? row->offset == 0 : row->offset > row[-1].offset);
	}
	for (size_t i = 0; i < c->rule_count; i++) {
		assert(c->rules[i].cfa <= UNWIND_CFA_UNSUPPORTED);
		assert(c->rules[i].fp <= UNWIND_UNDEFINED && c->rules[i].ra <= UNWIND_UNDEFINED);
	}
	cfi_pack(c, map, packed, packed_size);
}

static void compile(struct cfi *c, uint64_t index)
{
	static struct cfi_chunk chunk;
	int r = cfi_compile(c, index, &chunk);

	assert(r == 0 || r == -EBADMSG || r == -ENOBUFS || r == -ENODATA);
	if (r == 0 && chunk.row_count > 0)
		check(&chunk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd = memfd_create("fuzz", MFD_CLOEXEC);
	const char *why = NULL;
	struct cfi_info info;
	struct cfi *c = NULL;

	if (fd < 0 || file_write_all(fd, data, size) < 0)
		return 0;
	int r = cfi_open(fd, &why, &c);

	assert(r == 0 || r == -ENOEXEC || r == -ENODATA || r == -ENOBUFS);
	if (r < 0) {
		assert(why);
		return 0;
	}
	cfi_info(c, &info);
	for (uint64_t i = 0; i < FUZZ_CHUNKS; i++) {
		compile(c, (info.text_start >> TABLE_CHUNK_SHIFT) + i);
		compile(c, (info.text_end >> TABLE_CHUNK_SHIFT) - i);
	}
	compile(c, 0);
	compile(c, UINT64_MAX >> TABLE_CHUNK_SHIFT);
	cfi_free(c);
	return 0;
}
