/*
 * Where the CFI stands in an ELF file. Headers are read by pread into our own memory; every offset is
 * taken as a claim that cfi_pread() tests. libelf is not used: it would read whole sections.
 */
#include <elf.h>
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_ELF_PHDRS_MAX = 4096,
	CFI_ELF_BATCH = 32,
	CFI_ELF_NAMES_MAX = 1 << 16, /* of section names, what lies behind has none */
	CFI_ELF_SECTIONS_MAX = 1 << 16,
};

static int cfi_elf_header(struct cfi *c, Elf64_Ehdr *h, const char **why)
{
	int r = cfi_pread(c, 0, h, sizeof(*h));

	*why = "cannot be read";
	if (r < 0 && r != -ENODATA)
		return r;
	*why = "not an ELF file";
	if (r < 0 || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	*why = "not 64-bit little-endian";
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB)
		return -ENOEXEC;
	*why = "neither x86-64 nor aarch64";
	if (h->e_machine != EM_X86_64 && h->e_machine != EM_AARCH64)
		return -ENOEXEC;
	c->arch = h->e_machine == EM_X86_64 ? CFI_X86_64 : CFI_AARCH64;
	*why = "neither executable nor shared object";
	return h->e_type == ET_EXEC || h->e_type == ET_DYN ? 0 : -ENOEXEC;
}

static void cfi_elf_load(struct cfi *c, const Elf64_Phdr *p)
{
	if (p->p_memsz == 0 || p->p_memsz > INT64_MAX || p->p_filesz > p->p_memsz ||
		p->p_offset > INT64_MAX || p->p_vaddr > UINT64_MAX - p->p_memsz ||
		c->segment_count == CFI_SEGMENTS_MAX)
		return;
	c->segments[c->segment_count++] = (struct cfi_segment){
		.vaddr = p->p_vaddr,
		.offset = p->p_offset,
		.file_size = p->p_filesz,
		.memory_size = p->p_memsz,
		.is_code = p->p_flags & PF_X,
	};
	if (!(p->p_flags & PF_X))
		return;
	c->text_start = MIN(c->text_start, p->p_vaddr);
	c->text_end = MAX(c->text_end, p->p_vaddr + p->p_memsz);
}

static int cfi_elf_segments(struct cfi *c, const Elf64_Ehdr *h, const char **why)
{
	Elf64_Phdr batch[CFI_ELF_BATCH];

	*why = "no usable program headers";
	c->text_start = UINT64_MAX;
	if (h->e_phentsize != sizeof(*batch) || h->e_phnum > CFI_ELF_PHDRS_MAX ||
		h->e_phoff > INT64_MAX)
		return -ENOEXEC;
	for (size_t i = 0; i < h->e_phnum; i += CFI_ELF_BATCH) {
		size_t n = MIN(h->e_phnum - i, (size_t)CFI_ELF_BATCH);
		int r = cfi_pread(c, h->e_phoff + i * sizeof(*batch), batch, n * sizeof(*batch));

		if (r < 0)
			return r == -ENODATA ? -ENOEXEC : r;
		for (size_t k = 0; k < n; k++) {
			if (batch[k].p_type == PT_LOAD)
				cfi_elf_load(c, &batch[k]);
			else if (batch[k].p_type == PT_GNU_EH_FRAME)
				c->hdr = (struct cfi_section){
					batch[k].p_vaddr, batch[k].p_offset, batch[k].p_filesz};
		}
	}
	*why = "no executable segment";
	return c->text_start < c->text_end ? 0 : -ENOEXEC;
}

/* Looks at the first bytes, as linkers differ: a jump comes first where nothing is bound lazily. */
static void cfi_elf_plt(struct cfi *c, const struct cfi_section *s, bool can_be_lazy)
{
	struct cfi_plt p = {.start = s->vaddr, .end = s->vaddr + s->size, .push = 11};
	uint8_t code[24];

	if (c->plt_count == CFI_PLTS_MAX || s->size == 0 || p.end < p.start)
		return;
	if (can_be_lazy && cfi_pread(c, s->offset, code, sizeof(code)) == 0) {
		if (c->arch == CFI_X86_64) {
			p.is_lazy = code[0] == 0xff && code[1] == 0x35; /* push GOT[1] */
			if (memcmp(code + 16, "\xf3\x0f\x1e\xfa\x68", 5) == 0)
				p.push = 9; /* endbr64, push index, jump */
		} else {                    /* stp x16, x30, [sp, #-16]!, perhaps behind a BTI */
			p.push = memcmp(code, "\xf0\x7b\xbf\xa9", 4) == 0 ? 4 : 8;
			p.is_lazy = memcmp(code + p.push - 4, "\xf0\x7b\xbf\xa9", 4) == 0;
		}
	}
	size_t i = c->plt_count++;

	for (; i > 0 && c->plts[i - 1].start > p.start; i--)
		c->plts[i] = c->plts[i - 1];
	c->plts[i] = p;
}

static int cfi_elf_section(struct cfi *c, const Elf64_Shdr *h, const char *name)
{
	struct cfi_section s = {h->sh_addr, h->sh_offset, h->sh_size};

	if (h->sh_type == SHT_NOBITS || h->sh_offset > INT64_MAX || h->sh_size > UINT32_MAX ||
		s.vaddr > UINT64_MAX - s.size)
		return 0;
	if (h->sh_flags & SHF_COMPRESSED)
		return strcmp(name, ".debug_frame") == 0
			       ? cfi_inflate(c, &c->sources[CFI_DEBUG_FRAME], &s)
			       : 0;
	if (strcmp(name, ".eh_frame") == 0)
		c->sources[CFI_EH_FRAME].section = s;
	else if (strcmp(name, ".debug_frame") == 0 && !c->sources[CFI_DEBUG_FRAME].bytes)
		c->sources[CFI_DEBUG_FRAME].section = s;
	else if (strcmp(name, ".eh_frame_hdr") == 0)
		c->hdr = s;
	else if (strcmp(name, ".got.plt") == 0 || (strcmp(name, ".got") == 0 && c->got == 0))
		c->got = s.vaddr;
	else if (strcmp(name, ".plt") == 0 || strcmp(name, ".plt.got") == 0 ||
		 strcmp(name, ".plt.sec") == 0 || strcmp(name, ".iplt") == 0)
		cfi_elf_plt(c, &s, strcmp(name, ".plt") == 0);
	else if (strcmp(name, ".gopclntab") == 0 || strcmp(name, ".data.rel.ro.gopclntab") == 0)
		c->is_go = true;
	return 0;
}

/* A file that has lost its section headers, or has odd ones, keeps PT_GNU_EH_FRAME. */
static int cfi_elf_sections(struct cfi *c, const Elf64_Ehdr *h)
{
	_cleanup_(freep) char *names = NULL;
	Elf64_Shdr batch[CFI_ELF_BATCH];
	Elf64_Shdr strings;

	if (h->e_shentsize != sizeof(*batch) || h->e_shoff > INT64_MAX / 2 || h->e_shoff == 0 ||
		h->e_shstrndx >= h->e_shnum)
		return 0;
	if (cfi_pread(c, h->e_shoff + h->e_shstrndx * sizeof(strings), &strings, sizeof(strings)) <
		0)
		return 0;
	size_t size = MIN(strings.sh_size, (uint64_t)CFI_ELF_NAMES_MAX);

	names = calloc(1, size + 1);
	if (!names)
		return -ENOMEM;
	if (cfi_pread(c, strings.sh_offset, names, size) < 0)
		return 0;
	for (size_t i = 1; i < h->e_shnum; i += CFI_ELF_BATCH) {
		size_t n = MIN(h->e_shnum - i, (size_t)CFI_ELF_BATCH);

		if (cfi_pread(c, h->e_shoff + i * sizeof(*batch), batch, n * sizeof(*batch)) < 0)
			return 0;
		for (size_t k = 0; k < n; k++) {
			if (batch[k].sh_name < size &&
				cfi_elf_section(c, &batch[k], names + batch[k].sh_name) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* Without a section header: .eh_frame begins where .eh_frame_hdr says, and ends with its segment. */
static void cfi_elf_eh_frame_by_hdr(struct cfi *c)
{
	struct cfi_section *s = &c->sources[CFI_EH_FRAME].section;
	uint8_t head[12];
	uint64_t offset, left;

	if (s->size > 0 || c->hdr.size < sizeof(head) ||
		cfi_pread(c, c->hdr.offset, head, sizeof(head)) < 0 || head[0] != 1)
		return;
	struct cursor at = cursor_over(head + 4, sizeof(head) - 4);
	uint64_t vaddr = cfi_pointer(c, &at, head[1], c->hdr.vaddr + 4);

	if (!cursor_error(&at) && cfi_file_offset(c, vaddr, &offset, &left))
		*s = (struct cfi_section){vaddr, offset, MIN(left, UINT32_MAX)};
}

int cfi_elf_read(struct cfi *c, const char **why)
{
	Elf64_Ehdr h;
	int r = cfi_elf_header(c, &h, why);

	if (r == 0)
		r = cfi_elf_segments(c, &h, why);
	if (r < 0)
		return r;
	*why = "out of memory";
	r = cfi_elf_sections(c, &h);
	if (r < 0)
		return r;
	cfi_elf_eh_frame_by_hdr(c);
	if (c->is_go && c->arch != CFI_X86_64) /* see cfi_go_fp(), which knows x86-64 only */
		c->sources[CFI_DEBUG_FRAME].section.size = 0;
	return 0;
}
