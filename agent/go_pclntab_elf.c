/*
 * The file around Go's table: segments, sections, the note of Go's build ID, and bytes by pread, through a
 * few pages that are kept. Every offset is a claim that the pread tests.
 */
#include <elf.h>
#include <errno.h>

#include "agent/go_pclntab_internal.h"

enum {
	GO_ELF_HEADERS_MAX = 4096,
	GO_ELF_SECTIONS_MAX = 1 << 16,
	GO_ELF_BATCH = 32,
	GO_ELF_NAME_SIZE = 32,
	GO_ELF_NOTE_GO = 4, /* cmd/link/internal/ld/elf.go: ELF_NOTE_GOBUILDID_TAG */
};

int go_elf_pread(const struct go_elf *e, uint64_t offset, void *to, size_t size)
{
	size_t done = 0;

	if (offset > INT64_MAX - size)
		return -EBADMSG;
	while (done < size) {
		ssize_t n = pread(e->fd, (char *)to + done, size - done, (off_t)(offset + done));

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

bool go_elf_offset(const struct go_elf *e, uint64_t vaddr, uint64_t *ret, uint64_t *ret_left)
{
	for (size_t i = 0; i < e->segment_count; i++) {
		const struct go_segment *s = &e->segments[i];

		if (vaddr < s->vaddr || vaddr - s->vaddr >= s->file_size)
			continue;
		*ret = s->offset + (vaddr - s->vaddr);
		*ret_left = s->file_size - (vaddr - s->vaddr);
		return true;
	}
	return false;
}

bool go_elf_is_code(const struct go_elf *e, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < e->segment_count; i++) {
		const struct go_segment *s = &e->segments[i];

		if (s->is_code && start >= s->vaddr && start <= end &&
			end - s->vaddr <= s->memory_size)
			return true;
	}
	return false;
}

int go_elf_scan(const struct go_elf *e, const struct go_segment *s, go_window_fn *fn, void *data)
{
	uint8_t *bytes = malloc(GO_WINDOW);
	uint64_t skip = -s->vaddr & 7;
	int r = 0;

	if (!bytes)
		return -ENOMEM;
	for (uint64_t at = skip; r == 0 && at < s->file_size; at += GO_WINDOW) {
		size_t size = (size_t)MIN(s->file_size - at, (uint64_t)GO_WINDOW);

		r = go_elf_pread(e, s->offset + at, bytes, size);
		if (r == 0)
			r = fn(data, s->vaddr + at, bytes, size);
	}
	free(bytes);
	return r;
}

static void go_elf_load(struct go_elf *e, const Elf64_Phdr *p)
{
	if (p->p_memsz == 0 || p->p_memsz > INT64_MAX || p->p_filesz > p->p_memsz ||
		p->p_offset > INT64_MAX || p->p_vaddr > INT64_MAX ||
		e->segment_count == GO_SEGMENTS_MAX)
		return;
	e->segments[e->segment_count++] = (struct go_segment){
		.vaddr = p->p_vaddr,
		.offset = p->p_offset,
		.file_size = p->p_filesz,
		.memory_size = p->p_memsz,
		.is_code = p->p_flags & PF_X,
	};
}

/* The first note of the segment is Go's, as the linker puts it (cmd/link/internal/ld/elf.go). */
static bool go_elf_is_note(const struct go_elf *e, const Elf64_Phdr *p)
{
	struct {
		Elf64_Nhdr head;
		char name[4];
	} note = {{0}, ""};

	return p->p_filesz >= sizeof(note) &&
	       go_elf_pread(e, p->p_offset, &note, sizeof(note)) == 0 && note.head.n_namesz == 4 &&
	       note.head.n_type == GO_ELF_NOTE_GO && memcmp(note.name, "Go\0", 4) == 0;
}

static int go_elf_segments(struct go_elf *e, const Elf64_Ehdr *h)
{
	Elf64_Phdr batch[GO_ELF_BATCH] = {{0}};

	if (h->e_phentsize != sizeof(*batch) || h->e_phnum > GO_ELF_HEADERS_MAX ||
		h->e_phoff > INT64_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < h->e_phnum; i += GO_ELF_BATCH) {
		size_t n = MIN(h->e_phnum - i, (size_t)GO_ELF_BATCH);
		int r = go_elf_pread(e, h->e_phoff + i * sizeof(*batch), batch, n * sizeof(*batch));

		if (r < 0)
			return r;
		for (size_t k = 0; k < n; k++) {
			const Elf64_Phdr *p = &batch[k];

			if (p->p_type == PT_LOAD)
				go_elf_load(e, p);
			else if (p->p_type == PT_DYNAMIC)
				e->dynamic = (struct go_place){p->p_vaddr, p->p_filesz};
			else if (p->p_type == PT_NOTE && go_elf_is_note(e, p))
				e->is_go = true;
		}
	}
	return 0;
}

static void go_elf_section(struct go_elf *e, const Elf64_Shdr *strings, const Elf64_Shdr *s)
{
	static const char *const marks[] = {".go.buildinfo", ".note.go.buildid", ".gosymtab",
		".go.module", ".data.rel.ro.gosymtab"};
	char name[GO_ELF_NAME_SIZE] = "";
	uint64_t left = strings->sh_size > s->sh_name ? strings->sh_size - s->sh_name : 0;

	if (go_elf_pread(e, strings->sh_offset + s->sh_name, name,
		    (size_t)MIN(left, sizeof(name) - 1)) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		e->is_go |= strcmp(name, marks[i]) == 0;
	if (strcmp(name, ".gopclntab") != 0 && strcmp(name, ".data.rel.ro.gopclntab") != 0)
		return;
	e->is_go = true;
	if (s->sh_type != SHT_NOBITS)
		e->table = (struct go_place){s->sh_addr, s->sh_size};
}

/* Section headers may be missing or nonsense: then there are none. */
static void go_elf_sections(struct go_elf *e, const Elf64_Ehdr *h)
{
	Elf64_Shdr batch[GO_ELF_BATCH] = {{0}};
	Elf64_Shdr strings = {0};

	if (h->e_shentsize != sizeof(*batch) || h->e_shoff > INT64_MAX / 2 || h->e_shoff == 0 ||
		h->e_shnum < 2 || h->e_shstrndx >= h->e_shnum)
		return;
	if (go_elf_pread(e, h->e_shoff + h->e_shstrndx * sizeof(strings), &strings,
		    sizeof(strings)) < 0 ||
		strings.sh_offset > INT64_MAX / 2)
		return;
	for (size_t i = 1; i < h->e_shnum; i += GO_ELF_BATCH) {
		size_t n = MIN(h->e_shnum - i, (size_t)GO_ELF_BATCH);

		if (go_elf_pread(e, h->e_shoff + i * sizeof(*batch), batch, n * sizeof(*batch)) < 0)
			return;
		for (size_t k = 0; k < n; k++)
			go_elf_section(e, &strings, &batch[k]);
	}
	e->has_sections = true;
}

int go_elf_read(struct go_elf *e, const char **why)
{
	Elf64_Ehdr h = {{0}};
	int r = go_elf_pread(e, 0, &h, sizeof(h));

	*why = "cannot be read";
	if (r < 0 && r != -EBADMSG)
		return r;
	*why = "no ELF file of x86-64 or aarch64";
	if (r < 0 || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
		h.e_ident[EI_DATA] != ELFDATA2LSB ||
		(h.e_machine != EM_X86_64 && h.e_machine != EM_AARCH64))
		return -ENODATA;
	e->quantum = h.e_machine == EM_X86_64 ? 1 : 4;
	e->is_movable = h.e_type == ET_DYN;
	*why = "no usable program headers";
	r = go_elf_segments(e, &h);
	if (r == 0)
		go_elf_sections(e, &h);
	return r;
}

static int go_page_at(struct go_pclntab *g, uint64_t offset, const struct go_page **ret)
{
	uint64_t number = offset / GO_PAGE_SIZE;
	struct go_page *p = &g->pages[(number * 0x9e3779b97f4a7c15ULL >> 32) % GO_PAGES];
	ssize_t n;

	*ret = p;
	if (p->offset != number * GO_PAGE_SIZE + 1) {
		p->offset = 0;
		do {
			n = pread(
				g->elf.fd, p->bytes, GO_PAGE_SIZE, (off_t)(number * GO_PAGE_SIZE));
		} while (n < 0 && errno == EINTR);
		if (n < 0)
			return -errno;
		p->offset = number * GO_PAGE_SIZE + 1;
		p->size = (uint32_t)n;
	}
	return 0;
}

int go_read_file(struct go_pclntab *g, uint64_t offset, void *to, size_t size)
{
	const struct go_page *p = NULL;
	uint8_t *out = to;

	if (offset > INT64_MAX - GO_PAGE_SIZE - size)
		return -EBADMSG;
	while (size > 0) {
		int r = go_page_at(g, offset, &p);

		if (r < 0)
			return r;
		size_t at = (size_t)(offset % GO_PAGE_SIZE);

		if (at >= p->size)
			return -EBADMSG;
		size_t n = MIN(size, p->size - at);

		memcpy(out, p->bytes + at, n);
		out += n;
		offset += n;
		size -= n;
	}
	return 0;
}

int go_read(struct go_pclntab *g, uint64_t at, void *to, size_t size)
{
	if (at > g->size || size > g->size - at)
		return -EBADMSG;
	return go_read_file(g, g->offset + at, to, size);
}

int go_read_vaddr(struct go_pclntab *g, uint64_t vaddr, void *to, size_t size)
{
	uint64_t offset, left;

	if (!go_elf_offset(&g->elf, vaddr, &offset, &left) || left < size)
		return -EBADMSG;
	return go_read_file(g, offset, to, size);
}

int go_read_text(
	struct go_pclntab *g, uint64_t at, uint64_t end, char *to, size_t size, size_t *ret_size)
{
	size_t length = 0;

	while (length + 1 < size) {
		size_t n = MIN(size - 1 - length, (size_t)64);

		if (at >= end)
			return -EBADMSG; /* no NUL */
		n = (size_t)MIN((uint64_t)n, end - at);
		int r = go_read(g, at, to + length, n);

		if (r < 0)
			return r;
		size_t here = strnlen(to + length, n);

		length += here;
		at += here;
		if (here < n)
			break;
	}
	to[length] = '\0';
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)to[i] < ' ' || to[i] == 0x7f)
			return -EBADMSG;
	*ret_size = length;
	return 0;
}
