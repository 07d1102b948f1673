/* elf_identity: build IDs, links to debug files, and which file belongs to which. */
#include "agent/elf_identity.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/def.h"
#include "base/file.h"

static struct elf_identity identity_of(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_identity id;
	const char *why = NULL;

	cr_assert_eq(elf_identity_read(fd, &why, &id), 0, "%s: %s", path, why);
	return id;
}

static int match(const struct elf_identity *of, const char *path, const char **why)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	return elf_identity_match(of, fd, why);
}

Test(elf_identity, reads_build_id_and_link_of_a_stripped_file)
{
	static const uint8_t id[] = {0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6, 0x07, 0x18, 0x29, 0x3a,
		0x4b, 0x5c, 0x6d, 0x7e, 0x8f, 0x90, 0x01, 0x12, 0x23, 0x34};
	struct elf_identity so = identity_of("fixtures/debug/by_id.so");
	struct elf_identity debug = identity_of("fixtures/debug/by_id.debug");

	cr_assert_eq(so.kind, ELF_IDENTITY_GNU);
	cr_assert_eq(so.build_id_size, sizeof(id));
	cr_assert_arr_eq(so.build_id, id, sizeof(id));
	cr_assert(so.has_debuglink);
	cr_assert_str_eq(so.debuglink, "by_id.debug");
	cr_assert(!so.has_symtab && !so.has_dwarf && !so.has_debugdata && !so.is_go);
	cr_assert(debug.has_symtab && debug.has_dwarf && !debug.has_debuglink);
	cr_assert_arr_eq(debug.build_id, id, sizeof(id));
	cr_assert(identity_of("fixtures/debug/mini.so").has_debugdata);
}

/* The CRC is objcopy's, so both sides are compared with a third. */
Test(elf_identity, takes_the_crc_that_objcopy_wrote)
{
	struct elf_identity so = identity_of("fixtures/debug/by_crc.so");
	_cleanup_(closep) int fd = open("fixtures/debug/by_crc.debug", O_RDONLY | O_CLOEXEC);
	uint32_t crc = 0;

	cr_assert_eq(so.kind, ELF_IDENTITY_NONE);
	cr_assert_eq(elf_identity_crc(fd, &crc), 0);
	cr_assert_eq(crc, so.debuglink_crc);
}

Test(elf_identity, B12_refuses_a_debug_file_of_another_build)
{
	struct elf_identity by_id = identity_of("fixtures/debug/by_id.so");
	struct elf_identity by_crc = identity_of("fixtures/debug/by_crc.so");
	struct elf_identity none = identity_of("fixtures/debug/mini.so");
	const char *why = NULL;

	cr_assert_eq(match(&by_id, "fixtures/debug/by_id.debug", &why), 0, "%s", why);
	cr_assert_eq(match(&by_crc, "fixtures/debug/by_crc.debug", &why), 0, "%s", why);
	cr_assert_eq(match(&by_id, "fixtures/debug/other.debug", &why), -EKEYREJECTED);
	cr_assert_str_eq(why, "of another build: its build ID differs");
	cr_assert_eq(match(&by_id, "fixtures/debug/by_crc.debug", &why), -EKEYREJECTED);
	cr_assert_str_eq(why, "no build ID to tell by");
	cr_assert_eq(match(&by_crc, "fixtures/debug/other_by_crc.debug", &why), -EKEYREJECTED);
	cr_assert_str_eq(why, "of another build: its CRC differs");
	cr_assert_eq(match(&none, "fixtures/debug/by_crc.debug", &why), -EKEYREJECTED);
	cr_assert_str_eq(why, "neither build ID nor debuglink to tell by");
}

Test(elf_identity, names_the_alternate_file_of_dwz_and_tells_it_from_others)
{
	struct elf_identity of = identity_of("fixtures/debug/dwz.debug");
	struct elf_identity alt;
	const char *why = NULL;

	elf_identity_alt(&of, &alt);
	cr_assert_str_eq(of.altlink, "common.dwz");
	cr_assert_eq(alt.build_id_size, 20);
	cr_assert_eq(match(&alt, "fixtures/debug/common.dwz", &why), 0, "%s", why);
	cr_assert_eq(match(&alt, "fixtures/debug/other.debug", &why), -EKEYREJECTED);
}

/* One program header that says where notes are, and the notes there. */
struct identity_image {
	uint8_t bytes[0x6000];
	size_t size;
};

static void image_open(struct identity_image *m, size_t at)
{
	Elf64_Ehdr h = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_phoff = sizeof(h),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
	};
	Elf64_Phdr p = {.p_type = PT_NOTE, .p_offset = at, .p_align = 4};

	memset(m, 0, sizeof(*m));
	memcpy(m->bytes, &h, sizeof(h));
	memcpy(m->bytes + sizeof(h), &p, sizeof(p));
	m->size = at;
}

static void image_note(struct identity_image *m, const char *name, uint32_t type, const char *body)
{
	Elf64_Phdr *p = (Elf64_Phdr *)(m->bytes + sizeof(Elf64_Ehdr));
	uint32_t head[3] = {((uint32_t)strlen(name) + 4) & ~3U, (uint32_t)strlen(body), type};

	memcpy(m->bytes + m->size, head, sizeof(head));
	m->size += sizeof(head);
	memcpy(m->bytes + m->size, name, strlen(name));
	m->size += head[0];
	memcpy(m->bytes + m->size, body, head[1]);
	m->size += (head[1] + 3) & ~3U;
	p->p_filesz = m->size - p->p_offset;
}

static struct elf_identity image_identity(const struct identity_image *m)
{
	_cleanup_(closep) int fd = memfd_create("elf", MFD_CLOEXEC);
	struct elf_identity id;
	const char *why = NULL;

	cr_assert_eq(file_write_all(fd, m->bytes, m->size), 0);
	cr_assert_eq(elf_identity_read(fd, &why, &id), 0, "%s", why);
	return id;
}

Test(elf_identity, B26_takes_the_gnu_build_id_before_the_one_of_go)
{
	struct identity_image m;

	image_open(&m, 0x100);
	image_note(&m, "Go", 4, "go/id/text");
	struct elf_identity go = image_identity(&m);
	image_note(&m, "GNU", NT_GNU_BUILD_ID, "gnu");
	struct elf_identity both = image_identity(&m);

	cr_assert(go.is_go);
	cr_assert_eq(go.kind, ELF_IDENTITY_GO);
	cr_assert_eq(go.build_id_size, 10);
	cr_assert_arr_eq(go.build_id, "go/id/text", 10);
	cr_assert(both.is_go);
	cr_assert_eq(both.kind, ELF_IDENTITY_GNU);
	cr_assert_eq(both.build_id_size, 3);
	cr_assert_arr_eq(both.build_id, "gnu", 3);
}

Test(elf_identity, B26_takes_no_build_id_for_normal)
{
	struct identity_image m;

	image_open(&m, 0x100);
	image_note(&m, "GNU", NT_GNU_ABI_TAG, "abcdabcdabcdabcd");
	struct elf_identity id = image_identity(&m);

	cr_assert_eq(id.kind, ELF_IDENTITY_NONE);
	cr_assert_eq(id.build_id_size, 0);
}

Test(elf_identity, B26_finds_a_note_beyond_the_first_page)
{
	struct identity_image m;

	image_open(&m, 0x5004);
	image_note(&m, "stapsdt", 3, "another's note of the same type");
	image_note(&m, "GNU", NT_GNU_BUILD_ID, "far away");
	struct elf_identity id = image_identity(&m);

	cr_assert_eq(id.build_id_size, 8);
	cr_assert_arr_eq(id.build_id, "far away", 8);
}

Test(elf_identity, ignores_a_build_id_longer_than_any)
{
	struct identity_image m;
	char body[200];

	memset(body, 'x', sizeof(body) - 1);
	body[sizeof(body) - 1] = '\0';
	image_open(&m, 0x100);
	image_note(&m, "GNU", NT_GNU_BUILD_ID, body);
	cr_assert_eq(image_identity(&m).build_id_size, 0);
}

Test(elf_identity, refuses_what_it_does_not_read_with_a_reason)
{
	_cleanup_(closep) int fd = open("fixtures/debug/parts.c", O_RDONLY | O_CLOEXEC);
	struct elf_identity id;
	const char *why = NULL;

	cr_assert_eq(elf_identity_read(fd, &why, &id), -ENOEXEC);
	cr_assert_str_eq(why, "not an ELF file");
}

/* A link is a file's name beside the file; one with a '/' would lead elsewhere. */
Test(elf_identity, believes_no_link_that_leads_elsewhere)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	_cleanup_(closep) int fd = memfd_create("elf", MFD_CLOEXEC);
	struct elf_identity id;
	const char *why = NULL;

	cr_assert_eq(file_read("fixtures/debug/by_id.so", &b), 0);
	char *link = memmem(b.data, b.size, "by_id.debug", 11);
	cr_assert_not_null(link);
	memcpy(link, "../id.debug", 11);
	cr_assert_eq(file_write_all(fd, b.data, b.size), 0);
	cr_assert_eq(elf_identity_read(fd, &why, &id), 0);
	cr_assert_not(id.has_debuglink);
}
