/* See cfi_image.h. */
#include "cfi_image.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <sys/mman.h>
#include <zlib.h>

#include "base/def.h"
#include "base/file.h"

enum {
	FILE_TEXT = 0x1000,
	FILE_FRAME = 0x22000,
	FILE_HDR = FILE_FRAME + IMAGE_FRAME_MAX,
	FILE_SHDRS = FILE_HDR + IMAGE_HDR_MAX,
	FILE_SIZE = FILE_SHDRS + 0x1000,
};

static const char section_names[] =
	"\0.eh_frame\0.debug_frame\0.eh_frame_hdr\0.plt\0.shstrtab\0.gopclntab";

enum {
	NAME_EH = 1,
	NAME_DEBUG = 11,
	NAME_HDR = 24,
	NAME_PLT = 38,
	NAME_STRINGS = 43,
	NAME_GO = 53
};

void image_put(struct image *m, const void *bytes, size_t size)
{
	cr_assert_leq(m->frame_size + size, IMAGE_FRAME_MAX);
	memcpy(m->frame + m->frame_size, bytes, size);
	m->frame_size += size;
}

void image_put_u32(struct image *m, uint32_t v)
{
	image_put(m, &v, sizeof(v));
}

size_t image_begin(struct image *m)
{
	size_t begin = m->frame_size;

	image_put_u32(m, 0);
	return begin;
}

void image_end(struct image *m, size_t begin)
{
	while ((m->frame_size - begin) % 8 != 0)
		image_put(m, "", 1);
	uint32_t length = (uint32_t)(m->frame_size - begin - 4);

	memcpy(m->frame + begin, &length, sizeof(length));
}

size_t image_cie(struct image *m, const char *letters, const void *rest, size_t size)
{
	size_t begin = image_begin(m);

	image_put_u32(m, m->is_debug ? UINT32_MAX : 0);
	image_put(m, "\1", 1);
	image_put(m, letters, strlen(letters) + 1);
	image_put(m, m->machine == EM_AARCH64 ? "\4\x78\x1e" : "\1\x78\x10", 3);
	image_put(m, rest, size);
	image_end(m, begin);
	return begin;
}

size_t image_usual_cie(struct image *m)
{
	return image_cie(m, "zR", BYTES("\x01\x1b\x0c\x07\x08\x90\x01"));
}

void image_fde(struct image *m, size_t cie, uint32_t start, uint32_t size, const void *code,
	size_t code_size)
{
	size_t begin = image_begin(m);

	if (m->fde_count < IMAGE_FDES_MAX) {
		m->fdes[m->fde_count].start = start;
		m->fdes[m->fde_count++].entry = (uint32_t)begin;
	}
	image_put_u32(m, (uint32_t)(begin + 4 - cie));
	image_put_u32(m, start - (uint32_t)(IMAGE_FRAME + m->frame_size));
	image_put_u32(m, size);
	image_put(m, "", 1);
	image_put(m, code, code_size);
	image_end(m, begin);
}

void image_make_hdr(struct image *m)
{
	uint32_t words[2] = {IMAGE_FRAME - (IMAGE_HDR + 4), (uint32_t)m->fde_count};

	m->has_hdr = true;
	memcpy(m->hdr, "\x01\x1b\x03\x3b", 4);
	memcpy(m->hdr + 4, words, sizeof(words));
	m->hdr_size = 12;
	for (size_t i = 0; i < m->fde_count; i++) {
		words[0] = m->fdes[i].start - IMAGE_HDR;
		words[1] = IMAGE_FRAME + m->fdes[i].entry - IMAGE_HDR;
		memcpy(m->hdr + m->hdr_size, words, sizeof(words));
		m->hdr_size += sizeof(words);
	}
}

static void put_program_headers(const struct image *m, uint8_t *file)
{
	Elf64_Phdr p[3] = {
		{.p_type = PT_LOAD,
			.p_flags = PF_X | PF_R,
			.p_offset = FILE_TEXT,
			.p_vaddr = IMAGE_TEXT,
			.p_filesz = IMAGE_TEXT_SIZE,
			.p_memsz = IMAGE_TEXT_SIZE},
		{.p_type = PT_LOAD,
			.p_flags = PF_R,
			.p_offset = FILE_FRAME,
			.p_vaddr = IMAGE_FRAME,
			.p_filesz = m->frame_size,
			.p_memsz = m->frame_size},
		{.p_type = PT_GNU_EH_FRAME,
			.p_offset = FILE_HDR,
			.p_vaddr = IMAGE_HDR,
			.p_filesz = m->hdr_size},
	};

	memcpy(file + sizeof(Elf64_Ehdr), p, sizeof(p));
}

static void put_section_headers(const struct image *m, uint8_t *file, size_t frame_size)
{
	Elf64_Shdr s[5] = {
		{0},
		{.sh_name = m->is_debug ? NAME_DEBUG : NAME_EH,
			.sh_type = SHT_PROGBITS,
			.sh_addr = m->is_debug ? 0 : IMAGE_FRAME,
			.sh_offset = FILE_FRAME,
			.sh_flags = m->is_compressed ? SHF_COMPRESSED : 0,
			.sh_size = frame_size},
		{.sh_name = NAME_STRINGS,
			.sh_type = SHT_STRTAB,
			.sh_offset = FILE_SHDRS + sizeof(s),
			.sh_size = sizeof(section_names)},
		{.sh_name = NAME_HDR,
			.sh_type = SHT_PROGBITS,
			.sh_addr = IMAGE_HDR,
			.sh_offset = FILE_HDR,
			.sh_size = m->hdr_size},
		{.sh_name = m->is_go ? NAME_GO : NAME_PLT,
			.sh_type = SHT_PROGBITS,
			.sh_addr = IMAGE_PLT,
			.sh_offset = FILE_TEXT + IMAGE_PLT - IMAGE_TEXT,
			.sh_size = m->plt_size},
	};

	memcpy(file + FILE_SHDRS, s, sizeof(s));
	memcpy(file + FILE_SHDRS + sizeof(s), section_names, sizeof(section_names));
}

/* Returns its size in the file. */
static size_t put_frame(const struct image *m, uint8_t *to)
{
	Elf64_Chdr head = {
		.ch_type = ELFCOMPRESS_ZLIB, .ch_size = m->frame_size, .ch_addralign = 8};
	uLongf size = IMAGE_FRAME_MAX - sizeof(head);

	if (!m->is_compressed) {
		memcpy(to, m->frame, m->frame_size);
		return m->frame_size;
	}
	memcpy(to, &head, sizeof(head));
	cr_assert_eq(compress(to + sizeof(head), &size, m->frame, m->frame_size), Z_OK);
	return sizeof(head) + size;
}

int image_file(const struct image *m)
{
	_cleanup_(freep) uint8_t *file = calloc(1, FILE_SIZE);
	Elf64_Ehdr h = {.e_type = ET_DYN,
		.e_machine = m->machine ? m->machine : EM_X86_64,
		.e_phoff = sizeof(h),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = m->has_hdr ? 3 : 2,
		.e_shoff = m->no_sections ? 0 : FILE_SHDRS,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 5,
		.e_shstrndx = 2};
	int fd = memfd_create("image", MFD_CLOEXEC);

	cr_assert_not_null(file);
	cr_assert_geq(fd, 0);
	memcpy(h.e_ident, "\177ELF\2\1\1", 7);
	memcpy(file, &h, sizeof(h));
	put_program_headers(m, file);
	memcpy(file + FILE_TEXT, m->text, sizeof(m->text));
	put_section_headers(m, file, put_frame(m, file + FILE_FRAME));
	memcpy(file + FILE_HDR, m->hdr, m->hdr_size);
	cr_assert_eq(file_write_all(fd, file, FILE_SIZE), 0);
	return fd;
}

int image_open(const struct image *m, int *ret_fd, struct cfi **ret)
{
	const char *why = NULL;

	*ret_fd = image_file(m);
	int r = cfi_open(*ret_fd, &why, ret);

	cr_assert_eq(r < 0, why != NULL);
	return r;
}

static void describe_place(char *at, size_t size, uint8_t where, int16_t offset, const char *name)
{
	if (where == UNWIND_AT_CFA)
		(void)snprintf(at, size, ",%s@%d", name, offset);
	else if (where == UNWIND_IN_REG)
		(void)snprintf(at, size, ",%s=r%d", name, offset);
	else if (where == UNWIND_AT_FP)
		(void)snprintf(at, size, ",%s@fp%+d", name, offset);
	else if (where == UNWIND_AT_BASE)
		(void)snprintf(at, size, ",%s@base%+d", name, offset);
	else if (where == UNWIND_UNDEFINED)
		(void)snprintf(at, size, ",%s=?", name);
}

static void describe(char *at, size_t size, const struct unwind_rule *r)
{
	char cfa[128] = "none";
	char fp[32] = "";
	char ra[32] = "";

	describe_place(fp, sizeof(fp), r->fp, r->fp_offset, "fp");
	if (r->ra == UNWIND_SAME)
		(void)snprintf(ra, sizeof(ra), ",lr");
	else if (r->ra != UNWIND_AT_CFA || r->ra_offset != -8)
		describe_place(ra, sizeof(ra), r->ra, r->ra_offset, "ra");
	switch (r->cfa) {
	case UNWIND_CFA_SP:
		(void)snprintf(cfa, sizeof(cfa), "sp%+d%s%s", r->cfa_offset, fp, ra);
		break;
	case UNWIND_CFA_FP:
		(void)snprintf(cfa, sizeof(cfa), "fp%+d%s%s", r->cfa_offset, fp, ra);
		break;
	case UNWIND_CFA_REG:
		(void)snprintf(cfa, sizeof(cfa), "r%d%+d%s%s", r->reg, r->cfa_offset, fp, ra);
		break;
	case UNWIND_CFA_DEREF:
		(void)snprintf(cfa, sizeof(cfa), "*(r%d%+d)%+d%s%s", r->reg, r->cfa_offset, r->aux,
			fp, ra);
		break;
	case UNWIND_CFA_INDEXED:
		(void)snprintf(cfa, sizeof(cfa), "*(sp+8*r%d%+d)%+d%s%s", r->reg, r->cfa_offset,
			r->aux, fp, ra);
		break;
	case UNWIND_CFA_FP_SHAPE:
		(void)snprintf(cfa, sizeof(cfa), "shape%+d", r->aux);
		break;
	case UNWIND_CFA_PLT:
		(void)snprintf(cfa, sizeof(cfa), "plt%+d", r->aux);
		break;
	case UNWIND_CFA_END:
		(void)snprintf(cfa, sizeof(cfa), "end");
		break;
	case UNWIND_CFA_SIGNAL:
		(void)snprintf(cfa, sizeof(cfa), "signal");
		break;
	case UNWIND_CFA_UNSUPPORTED:
		(void)snprintf(cfa, sizeof(cfa), "unsupported");
		break;
	default:
		break;
	}
	(void)snprintf(at, size, "%s", cfa);
}

const char *image_rows(const struct image *m, uint64_t chunk)
{
	static char text[8192];
	static struct cfi_chunk out;
	_cleanup_(closep) int fd = -1;
	struct cfi *c = NULL;
	char rule[128];
	int r = image_open(m, &fd, &c);

	if (r == 0)
		r = cfi_compile(c, chunk, &out);
	cfi_free(c);
	(void)snprintf(text, sizeof(text), "%s", r == 0 ? "nothing" : "");
	if (r < 0) {
		(void)snprintf(text, sizeof(text), "error %d", -r);
		return text;
	}
	for (size_t i = 0, n = 0; i < out.row_count && n < sizeof(text) - 200; i++) {
		describe(rule, sizeof(rule), &out.rules[out.rows[i].rule]);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%x:%s", i > 0 ? " " : "",
			out.rows[i].offset, rule);
	}
	return text;
}

const char *image_program(const void *code, size_t size)
{
	static struct image m;

	memset(&m, 0, sizeof(m));
	image_fde(&m, image_usual_cie(&m), IMAGE_TEXT, 0x100, code, size);
	return image_rows(&m, 1);
}
