/* elf_symbols: which name an address gets, on the stored files of fixtures/elf. */
#include "agent/elf_symbols.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"

static struct elf_symbols *opened(const char *path)
{
	struct elf_symbols *e = NULL;
	const char *why = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(elf_symbols_open(fd, &why, &e), 0, "%s: %s", path, why);
	return e;
}

static void names(const struct elf_symbols *e, uint64_t vaddr, const char *name)
{
	struct elf_symbols_answer a;

	if (!name) {
		cr_assert_not(elf_symbols_find(e, vaddr, &a), "0x%lx has a name: %s",
			(unsigned long)vaddr, a.name);
		return;
	}
	cr_assert(elf_symbols_find(e, vaddr, &a), "0x%lx has no name", (unsigned long)vaddr);
	cr_assert_str_eq(a.name, name);
}

Test(elf_symbols, takes_vaddr_from_the_segment_not_from_the_file_offset)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/lld.so");
	uint64_t vaddr = 0;

	cr_assert(elf_symbols_vaddr(e, 0x368, &vaddr));
	cr_assert_eq(vaddr, 0x1368);
	cr_assert(elf_symbols_vaddr(e, 0x36d + 4, &vaddr));
	names(e, vaddr, "split_second");
	cr_assert_not(elf_symbols_vaddr(e, 1 << 20, &vaddr));
}

Test(elf_symbols, ends_a_symbol_at_its_size)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/bfd.so");

	names(e, 0x2cf, NULL);
	names(e, 0x300, "split_first");
	names(e, 0x304, "split_first");
	names(e, 0x305, "split_second");
	names(e, 0x316, "split_second");
	names(e, 0x317, "split_calls_out");
	names(e, 0x327, "split_calls_out");
	names(e, 0x328, NULL);
}

Test(elf_symbols, does_not_blame_an_exported_neighbour_for_a_stripped_function)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/hidden.so");

	names(e, 0x1d8, "exported_fn");
	names(e, 0x1db, "exported_fn");
	names(e, 0x1dc, NULL);
	names(e, 0x1e7, NULL);
	names(e, 0x1f6, NULL);
}

Test(elf_symbols, extends_sizeless_assembly_to_the_next_symbol_or_section_end)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/asm.so");

	names(e, 0x1f9, NULL);
	names(e, 0x1fa, "asm_first");
	names(e, 0x1fd, "asm_first");
	names(e, 0x1fe, "asm_untyped");
	names(e, 0x200, "asm_untyped");
	names(e, 0x207, "asm_last");
	names(e, 0x208, NULL);
}

Test(elf_symbols, keeps_a_label_inside_a_function_from_taking_it_over)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/asm.so");

	names(e, 0x201, "asm_sized");
	names(e, 0x203, "asm_sized");
	names(e, 0x204, NULL);
	names(e, 0x205, NULL);
}

Test(elf_symbols, names_plt_slots_after_what_they_call)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *bfd = opened("fixtures/elf/bfd.so");
	_cleanup_(elf_symbols_freep) struct elf_symbols *lld = opened("fixtures/elf/lld.so");
	struct elf_symbols_answer a;

	cr_assert(elf_symbols_find(bfd, 0x2e0 + 6, &a));
	cr_assert_str_eq(a.name, "outside");
	cr_assert(a.is_plt);
	cr_assert_eq(a.start, 0x2e0);
	names(bfd, 0x2f0, "split_first");
	names(bfd, 0x2d0, NULL);
	names(lld, 0x13b0, "outside");
	names(lld, 0x13a0, "split_first");
}

Test(elf_symbols, names_plt_slots_of_aarch64)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/arm64.so");
	struct elf_symbols_answer a;

	cr_assert(elf_symbols_find(e, 0x290 + 12, &a));
	cr_assert_str_eq(a.name, "arm64_elsewhere");
	cr_assert(a.is_plt);
	names(e, 0x2a0, "arm64_further");
	names(e, 0x270, NULL);
	names(e, 0x280, NULL);
}

Test(elf_symbols, takes_mapping_symbols_of_aarch64_for_no_names)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/elf/arm64.so");

	names(e, 0x2b0, "arm64_table");
	names(e, 0x2b8, "arm64_table");
	names(e, 0x2c0, "arm64_table");
	names(e, 0x2c8, "arm64_calls_out");
	names(e, 0x2dc, NULL);
}

Test(elf_symbols, names_hidden_functions_by_minidebuginfo)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/debug/mini.so");

	names(e, 0x200, "parts_exported");
	names(e, 0x212, "parts_hidden");
	names(e, 0x22a, "parts_hidden");
	names(e, 0x22b, "parts_second");
	names(e, 0x23d, "parts_second");
	names(e, 0x23e, NULL);
	cr_assert_gt(elf_symbols_memory(e), 100);
}

Test(elf_symbols, leaves_minidebuginfo_alone_that_unpacks_to_more_than_64_mb)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = opened("fixtures/debug/bomb.so");

	names(e, 0x200, "parts_exported");
	names(e, 0x212, NULL);
}

Test(elf_symbols, reads_a_separate_debug_file)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *so = opened("fixtures/debug/by_id.so");
	_cleanup_(elf_symbols_freep) struct elf_symbols *debug =
		opened("fixtures/debug/by_id.debug");

	names(so, 0x272, NULL);
	names(debug, 0x260, "parts_exported");
	names(debug, 0x272, "parts_hidden");
	names(debug, 0x28b + 18, "parts_second");
	names(debug, 0x28b + 19, NULL);
}

static int in_memory(const void *data, size_t size)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(file_write_all(fd, data, size), 0);
	return fd;
}

static void refuses(const char *data, size_t size, int error, const char *reason)
{
	struct elf_symbols *e = NULL;
	const char *why = NULL;
	int fd = in_memory(data, size);

	cr_assert_eq(elf_symbols_open(fd, &why, &e), error, "why: %s", why);
	cr_assert_str_eq(why, reason);
	cr_assert_null(e);
	cr_assert_eq(close(fd), 0, "the descriptor stays the caller's");
}

Test(elf_symbols, refuses_what_it_does_not_read_with_a_reason)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	cr_assert_eq(file_read("fixtures/elf/bfd.so", &b), 0);
	Elf64_Ehdr *h = (Elf64_Ehdr *)b.data;

	refuses("", 0, -ENOEXEC, "not an ELF file");
	refuses("#!/bin/sh\n", 10, -ENOEXEC, "not an ELF file");
	h->e_machine = EM_RISCV;
	refuses(b.data, b.size, -ENOEXEC, "neither x86-64 nor aarch64");
	h->e_machine = EM_X86_64;
	h->e_type = ET_REL;
	refuses(b.data, b.size, -ENOEXEC, "neither executable nor shared object");
	h->e_type = ET_DYN;
	h->e_ident[EI_CLASS] = ELFCLASS32;
	refuses(b.data, b.size, -ENOEXEC, "not 64-bit little-endian");
}

Test(elf_symbols, still_maps_offsets_of_a_file_without_section_headers)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = NULL;
	const char *why = NULL;
	uint64_t vaddr = 0;

	cr_assert_eq(file_read("fixtures/elf/lld.so", &b), 0);
	Elf64_Ehdr *h = (Elf64_Ehdr *)b.data;
	h->e_shoff = 0;
	h->e_shnum = 0;
	h->e_shstrndx = 0;
	cr_assert_eq(elf_symbols_open(in_memory(b.data, b.size), &why, &e), 0, "%s", why);
	cr_assert(elf_symbols_vaddr(e, 0x370, &vaddr));
	cr_assert_eq(vaddr, 0x1370);
	names(e, vaddr, NULL);
}

Test(elf_symbols, survives_truncation_after_it_was_opened)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = NULL;
	const char *why = NULL;

	cr_assert_eq(file_read("fixtures/elf/bfd.so", &b), 0);
	int fd = in_memory(b.data, b.size);
	cr_assert_eq(elf_symbols_open(fd, &why, &e), 0, "%s", why);
	names(e, 0x300, "split_first");
	cr_assert_eq(ftruncate(fd, 100), 0);
	names(e, 0x300, NULL);
	names(e, 0x2e0, NULL);
}

Test(elf_symbols, survives_ten_thousand_damaged_files)
{
	static const char *const files[] = {
		"fixtures/elf/bfd.so", "fixtures/elf/lld.so", "fixtures/elf/asm.so"};
	struct rng r = rng_seeded(42);
	size_t opens = 0;

	for (size_t i = 0; i < 10000; i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
		_cleanup_(elf_symbols_freep) struct elf_symbols *e = NULL;
		struct elf_symbols_answer a;
		const char *why = NULL;

		cr_assert_eq(file_read(files[i % 3], &b), 0);
		for (uint64_t k = rng_between(&r, 1, 8); k > 0; k--) {
			uint64_t at = rng_between(&r, 0, k % 2 ? 63 : b.size - 1);

			b.data[at] = (char)rng_u64(&r);
		}
		int fd = in_memory(b.data, b.size);
		if (elf_symbols_open(fd, &why, &e) < 0) {
			cr_assert_not_null(why);
			cr_assert_eq(close(fd), 0);
			continue;
		}
		opens++;
		for (uint64_t v = 0x1d0; v < 0x330; v += 7)
			(void)elf_symbols_find(e, v, &a); /* any answer will do */
	}
	cr_assert_gt(opens, 1000, "damage must also reach beyond the headers: %zu", opens);
}
