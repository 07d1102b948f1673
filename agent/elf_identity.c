/*
 * See elf_identity.h. Headers are read a window at a time and notes one by one, so that a file costs
 * what it has, up to limits: a note may lie anywhere, not only in the first page.
 */
#include "agent/elf_identity.h"

#include <elf.h>
#include <errno.h>
#include <zlib.h>

#include "base/cursor.h"
#include "base/def.h"

enum {
	ELF_IDENTITY_WINDOW = 64, /* headers read at once */
	ELF_IDENTITY_SEGMENTS_MAX = UINT16_MAX,
	ELF_IDENTITY_SECTIONS_MAX = 1 << 17,
	ELF_IDENTITY_NOTES_MAX = 1024, /* of all segments and sections */
	ELF_IDENTITY_NOTE_HEAD = 12,
	ELF_IDENTITY_NAME_SIZE = 32, /* of a section, as far as it matters */
	ELF_IDENTITY_GO_NOTE = 4,
	ELF_IDENTITY_CRC_WINDOW = 64 << 10,
};

struct elf_identity_file {
	int fd;
	uint64_t phoff, phnum;
	uint64_t shoff, shnum, shstrndx;
	uint64_t names, names_size; /* .shstrtab */
	uint32_t notes;             /* looked at so far */
};

/* Exactly size bytes: 0, -EBADMSG (the file is shorter) or -errno. */
static int elf_identity_pread(int fd, uint64_t offset, void *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		if (offset > INT64_MAX - size)
			return -EBADMSG;
		ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		done += (size_t)n;
	}
	return 0;
}

static uint64_t elf_identity_align(uint64_t value, uint64_t to)
{
	return (value + to - 1) & ~(to - 1);
}

static void elf_identity_take_id(struct elf_identity *id, int fd, uint64_t offset, uint32_t size,
	enum elf_identity_kind kind)
{
	uint8_t bytes[ELF_IDENTITY_BUILD_ID_MAX];

	/* The first of a kind counts, GNU's before Go's. */
	if (size == 0 || size > sizeof(bytes) || id->kind == ELF_IDENTITY_GNU || id->kind == kind)
		return;
	if (elf_identity_pread(fd, offset, bytes, size) < 0)
		return;
	id->kind = kind;
	id->build_id_size = size;
	memcpy(id->build_id, bytes, size);
}

/* The notes in [offset, offset + size), which align 4 or 8 (gABI: both are in use). */
static void elf_identity_notes(struct elf_identity *id, struct elf_identity_file *f,
	uint64_t offset, uint64_t size, uint64_t align)
{
	uint64_t at = 0;

	align = align == 8 ? 8 : 4;
	while (f->notes++ < ELF_IDENTITY_NOTES_MAX) {
		uint8_t head[ELF_IDENTITY_NOTE_HEAD + 4] = {0};

		if (at > size || size - at < ELF_IDENTITY_NOTE_HEAD)
			return;
		if (offset > INT64_MAX - at || elf_identity_pread(f->fd, offset + at, head,
						       MIN(size - at, sizeof(head))) < 0)
			return;
		struct cursor c = cursor_over(head, sizeof(head));
		uint32_t name_size = cursor_u32(&c);
		uint32_t body_size = cursor_u32(&c);
		uint32_t type = cursor_u32(&c);
		uint64_t body = elf_identity_align(
			at + ELF_IDENTITY_NOTE_HEAD + (uint64_t)name_size, align);

		if (body > size || body_size > size - body)
			return;
		if (name_size == 4 && memcmp(head + ELF_IDENTITY_NOTE_HEAD, "GNU", 4) == 0 &&
			type == NT_GNU_BUILD_ID)
			elf_identity_take_id(id, f->fd, offset + body, body_size, ELF_IDENTITY_GNU);
		if (name_size == 4 && memcmp(head + ELF_IDENTITY_NOTE_HEAD, "Go\0", 4) == 0 &&
			type == ELF_IDENTITY_GO_NOTE) {
			id->is_go = true;
			elf_identity_take_id(id, f->fd, offset + body, body_size, ELF_IDENTITY_GO);
		}
		at = elf_identity_align(body + body_size, align);
	}
}

static int elf_identity_segments(struct elf_identity *id, struct elf_identity_file *f)
{
	Elf64_Phdr window[ELF_IDENTITY_WINDOW] = {0};
	uint64_t count = MIN(f->phnum, ELF_IDENTITY_SEGMENTS_MAX);

	for (uint64_t i = 0; i < count; i += ELF_IDENTITY_WINDOW) {
		size_t n = MIN(count - i, ELF_IDENTITY_WINDOW);
		int r = elf_identity_pread(
			f->fd, f->phoff + i * sizeof(*window), window, n * sizeof(*window));

		if (r < 0)
			return r;
		for (size_t k = 0; k < n; k++)
			if (window[k].p_type == PT_NOTE)
				elf_identity_notes(id, f, window[k].p_offset, window[k].p_filesz,
					window[k].p_align);
	}
	return 0;
}

static bool elf_identity_is_bare(const char *name)
{
	return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static void elf_identity_debuglink(struct elf_identity *id, int fd, const Elf64_Shdr *s)
{
	uint8_t bytes[ELF_IDENTITY_DEBUGLINK_SIZE + 8];
	struct cursor c = cursor_over(bytes, MIN(s->sh_size, sizeof(bytes)));

	if (elf_identity_pread(fd, s->sh_offset, bytes, cursor_left(&c)) < 0)
		return;
	size_t length = strnlen((const char *)bytes, cursor_left(&c));
	const char *name = cursor_bytes(&c, elf_identity_align(length + 1, 4));
	uint32_t crc = cursor_u32(&c);

	if (cursor_error(&c) || length >= sizeof(id->debuglink) || !elf_identity_is_bare(name))
		return;
	memcpy(id->debuglink, name, length + 1);
	id->debuglink_crc = crc;
	id->has_debuglink = true;
}

static void elf_identity_altlink(struct elf_identity *id, int fd, const Elf64_Shdr *s)
{
	char bytes[ELF_IDENTITY_ALTLINK_SIZE + ELF_IDENTITY_BUILD_ID_MAX];
	struct cursor c = cursor_over(bytes, MIN(s->sh_size, sizeof(bytes)));

	if (elf_identity_pread(fd, s->sh_offset, bytes, cursor_left(&c)) < 0)
		return;
	size_t length = strnlen(bytes, cursor_left(&c));
	const char *path = cursor_bytes(&c, length + 1);
	size_t id_size = cursor_left(&c);
	const uint8_t *build_id = cursor_bytes(&c, id_size);

	if (cursor_error(&c) || length == 0 || length >= sizeof(id->altlink) || id_size == 0 ||
		id_size > sizeof(id->alt_build_id) || s->sh_size > sizeof(bytes))
		return;
	memcpy(id->altlink, path, length + 1);
	memcpy(id->alt_build_id, build_id, id_size);
	id->alt_build_id_size = (uint32_t)id_size;
}

/* Cut at to's size, which is longer than any name we know; "" when unreadable. */
static void elf_identity_name(
	const struct elf_identity_file *f, uint32_t name, char to[ELF_IDENTITY_NAME_SIZE])
{
	size_t want = ELF_IDENTITY_NAME_SIZE - 1;

	to[0] = '\0';
	if (name >= f->names_size)
		return;
	want = MIN(want, f->names_size - name);
	if (elf_identity_pread(f->fd, f->names + name, to, want) < 0)
		want = 0;
	to[want] = '\0';
}

static void elf_identity_section(
	struct elf_identity *id, struct elf_identity_file *f, const Elf64_Shdr *s)
{
	char name[ELF_IDENTITY_NAME_SIZE];

	if (s->sh_type == SHT_NOTE)
		elf_identity_notes(id, f, s->sh_offset, s->sh_size, s->sh_addralign);
	if (s->sh_type == SHT_SYMTAB && s->sh_size > sizeof(Elf64_Sym))
		id->has_symtab = true;
	/* SHT_NOBITS: what stands in another file. */
	if (s->sh_type != SHT_PROGBITS || s->sh_size == 0)
		return;
	elf_identity_name(f, s->sh_name, name);
	if (strcmp(name, ".gnu_debuglink") == 0)
		elf_identity_debuglink(id, f->fd, s);
	else if (strcmp(name, ".gnu_debugaltlink") == 0)
		elf_identity_altlink(id, f->fd, s);
	else if (strcmp(name, ".gnu_debugdata") == 0)
		id->has_debugdata = true;
	else if (strcmp(name, ".debug_info") == 0 || strcmp(name, ".zdebug_info") == 0)
		id->has_dwarf = true;
	else if (strcmp(name, ".gopclntab") == 0 || strcmp(name, ".data.rel.ro.gopclntab") == 0 ||
		 strcmp(name, ".go.buildinfo") == 0)
		id->is_go = true;
}

/* Files without section headers are usual, and files whose section headers are cut off exist. */
static void elf_identity_sections(struct elf_identity *id, struct elf_identity_file *f)
{
	Elf64_Shdr window[ELF_IDENTITY_WINDOW] = {0};

	if (f->shoff == 0 || elf_identity_pread(f->fd, f->shoff, window, sizeof(*window)) < 0)
		return;
	/* Counts that do not fit the header stand in section 0 (gABI, chapter 4). */
	uint64_t count = f->shnum ? f->shnum : window[0].sh_size;

	if (f->shstrndx == SHN_XINDEX)
		f->shstrndx = window[0].sh_link;
	count = MIN(count, ELF_IDENTITY_SECTIONS_MAX);
	if (f->shstrndx > 0 && f->shstrndx < count &&
		elf_identity_pread(f->fd, f->shoff + f->shstrndx * sizeof(*window), window,
			sizeof(*window)) == 0) {
		f->names = window[0].sh_offset;
		f->names_size = window[0].sh_size;
	}
	for (uint64_t i = 1; i < count; i += ELF_IDENTITY_WINDOW) {
		size_t n = MIN(count - i, ELF_IDENTITY_WINDOW);

		if (elf_identity_pread(
			    f->fd, f->shoff + i * sizeof(*window), window, n * sizeof(*window)) < 0)
			return;
		for (size_t k = 0; k < n; k++)
			elf_identity_section(id, f, &window[k]);
	}
}

static int elf_identity_header(struct elf_identity_file *f, const char **why)
{
	Elf64_Ehdr h;
	int r = elf_identity_pread(f->fd, 0, &h, sizeof(h));

	*why = "cannot be read";
	if (r < 0 && r != -EBADMSG)
		return r;
	if (r < 0 || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) {
		*why = "not an ELF file";
		return -ENOEXEC;
	}
	if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB) {
		*why = "not 64-bit little-endian";
		return -ENOEXEC;
	}
	if ((h.e_phnum > 0 && h.e_phentsize != sizeof(Elf64_Phdr)) ||
		(h.e_shoff > 0 && h.e_shentsize != sizeof(Elf64_Shdr))) {
		*why = "headers of another size";
		return -EBADMSG;
	}
	f->phoff = h.e_phoff;
	f->phnum = h.e_phnum;
	f->shoff = h.e_shoff;
	f->shnum = h.e_shnum;
	f->shstrndx = h.e_shstrndx;
	return 0;
}

int elf_identity_read(int fd, const char **why, struct elf_identity *ret)
{
	struct elf_identity_file f = {.fd = fd};
	struct elf_identity id = {0};
	int r = elf_identity_header(&f, why);

	if (r < 0)
		return r;
	*why = "program headers cannot be read";
	r = elf_identity_segments(&id, &f);
	if (r < 0)
		return r;
	elf_identity_sections(&id, &f);
	*why = NULL;
	*ret = id;
	return 0;
}

int elf_identity_crc(int fd, uint32_t *ret)
{
	uint8_t window[ELF_IDENTITY_CRC_WINDOW];
	uLong crc = crc32(0, NULL, 0);
	uint64_t at = 0;

	for (;;) {
		ssize_t n = pread(fd, window, sizeof(window), (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		at += (uint64_t)n;
		if (at > ELF_IDENTITY_CRC_MAX)
			return -EFBIG;
		crc = crc32(crc, window, (uInt)n);
	}
	*ret = (uint32_t)crc;
	return 0;
}

static int elf_identity_match_id(
	const struct elf_identity *found, const uint8_t *id, uint32_t size, const char **why)
{
	*why = "no build ID to tell by";
	if (found->kind != ELF_IDENTITY_GNU)
		return -EKEYREJECTED;
	*why = "of another build: its build ID differs";
	if (found->build_id_size != size || memcmp(found->build_id, id, size) != 0)
		return -EKEYREJECTED;
	*why = NULL;
	return 0;
}

int elf_identity_match(const struct elf_identity *of, int fd, const char **why)
{
	struct elf_identity found;
	uint32_t crc = 0;
	int r = elf_identity_read(fd, why, &found);

	if (r < 0)
		return r;
	if (of->kind == ELF_IDENTITY_GNU)
		return elf_identity_match_id(&found, of->build_id, of->build_id_size, why);
	*why = "neither build ID nor debuglink to tell by";
	if (!of->has_debuglink)
		return -EKEYREJECTED;
	*why = "its CRC cannot be taken";
	r = elf_identity_crc(fd, &crc);
	if (r < 0)
		return r;
	*why = "of another build: its CRC differs";
	if (crc != of->debuglink_crc)
		return -EKEYREJECTED;
	*why = NULL;
	return 0;
}

void elf_identity_alt(const struct elf_identity *of, struct elf_identity *ret)
{
	*ret = (struct elf_identity){
		.kind = of->alt_build_id_size > 0 ? ELF_IDENTITY_GNU : ELF_IDENTITY_NONE,
		.build_id_size = of->alt_build_id_size,
	};
	memcpy(ret->build_id, of->alt_build_id, sizeof(ret->build_id));
}
