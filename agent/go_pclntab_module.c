/*
 * runtime.moduledata, found without symbols: it begins with pointers to the table and to its names. Words
 * of 8 bytes; their order has been this since 1.16:
 *
 *	0 table  1 names ...  20 first function  21 end of the last  22 text  23 end of text
 *	38 what funcdata counts from (1.18, 1.19), 40 (1.20 and later; two words came before it)
 *
 * A position-independent file that another linker made has zeros there and the values in its relocations
 * (DT_RELA, R_*_RELATIVE); Go's own linker writes both.
 */
#include <elf.h>
#include <errno.h>

#include "agent/go_pclntab_internal.h"

enum {
	GO_MODULE_WORDS = 41,
	GO_MODULE_FIRST = 20,
	GO_MODULE_LAST = 21,
	GO_MODULE_TEXT = 22,
	GO_MODULE_FUNCDATA_1_18 = 38,
	GO_MODULE_FUNCDATA_1_20 = 40,
	GO_MODULE_RELAS = 512, /* read at once */
	GO_MODULE_RELAS_MAX = 16 << 20,
};

struct go_module_search {
	const struct go_pclntab *g;
	uint64_t at; /* where one may be: vaddr */
	uint64_t words[GO_MODULE_WORDS];
	struct go_module *ret;
	bool is_found;
};

/* Whether the words of s are a module of the table. */
static bool go_module_take(struct go_module_search *s)
{
	const struct go_pclntab *g = s->g;
	const uint64_t *w = s->words;

	if (w[0] != g->vaddr || w[1] != g->vaddr + g->names || w[GO_MODULE_FIRST] == 0 ||
		w[GO_MODULE_FIRST] >= w[GO_MODULE_LAST] ||
		!go_elf_is_code(&g->elf, w[GO_MODULE_FIRST], w[GO_MODULE_LAST]))
		return false;
	*s->ret = (struct go_module){.text = w[GO_MODULE_TEXT],
		.first = w[GO_MODULE_FIRST],
		.last = w[GO_MODULE_LAST],
		.funcdata = g->layout == GO_1_16   ? 0
			    : g->layout == GO_1_18 ? w[GO_MODULE_FUNCDATA_1_18]
						   : w[GO_MODULE_FUNCDATA_1_20]};
	s->is_found = true;
	return true;
}

static int go_module_look(void *data, uint64_t vaddr, const uint8_t *bytes, size_t size)
{
	struct go_module_search *s = data;
	uint64_t offset, left;

	for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		if (word != s->g->vaddr)
			continue;
		if (!go_elf_offset(&s->g->elf, vaddr + i, &offset, &left) ||
			left < sizeof(s->words) ||
			go_elf_pread(&s->g->elf, offset, s->words, sizeof(s->words)) < 0)
			continue;
		if (go_module_take(s))
			return 1;
	}
	return 0;
}

static bool go_module_is_relative(const struct go_elf *e, const Elf64_Rela *r)
{
	return ELF64_R_TYPE(r->r_info) ==
	       (e->quantum == 1 ? (uint32_t)R_X86_64_RELATIVE : (uint32_t)R_AARCH64_RELATIVE);
}

/* A relocation that makes some word point to the table: there a module may be. */
static bool go_module_seek(struct go_module_search *s, const Elf64_Rela *r)
{
	if ((uint64_t)r->r_addend != s->g->vaddr || s->at != 0)
		return false;
	s->at = r->r_offset;
	return true;
}

/* The relocations of the words there. */
static bool go_module_gather(struct go_module_search *s, const Elf64_Rela *r)
{
	uint64_t i = (r->r_offset - s->at) / sizeof(uint64_t);

	if (r->r_offset >= s->at && i < GO_MODULE_WORDS && r->r_offset % sizeof(uint64_t) == 0)
		s->words[i] = (uint64_t)r->r_addend;
	return false;
}

/* Until fn says that it is done. 0 or -errno. */
static int go_module_relas(struct go_module_search *s, const struct go_place *relas,
	bool (*fn)(struct go_module_search *s, const Elf64_Rela *r))
{
	const struct go_elf *e = &s->g->elf;
	Elf64_Rela rows[GO_MODULE_RELAS];
	uint64_t offset, left;

	if (!go_elf_offset(e, relas->vaddr, &offset, &left))
		return -EBADMSG;
	uint64_t count = MIN(MIN(relas->size, left) / sizeof(*rows), (uint64_t)GO_MODULE_RELAS_MAX);

	for (uint64_t i = 0; i < count; i += GO_MODULE_RELAS) {
		size_t n = (size_t)MIN(count - i, (uint64_t)GO_MODULE_RELAS);
		int r = go_elf_pread(e, offset + i * sizeof(*rows), rows, n * sizeof(*rows));

		if (r < 0)
			return r;
		for (size_t k = 0; k < n; k++)
			if (go_module_is_relative(e, &rows[k]) && fn(s, &rows[k]))
				return 0;
	}
	return 0;
}

static struct go_place go_module_rela_table(const struct go_elf *e)
{
	struct go_place ret = {0};
	uint64_t offset, left;
	Elf64_Dyn d;

	if (!go_elf_offset(e, e->dynamic.vaddr, &offset, &left))
		return ret;
	left = MIN(left, e->dynamic.size);
	for (uint64_t i = 0; i + sizeof(d) <= left && i < (uint64_t)GO_WINDOW; i += sizeof(d)) {
		if (go_elf_pread(e, offset + i, &d, sizeof(d)) < 0 || d.d_tag == DT_NULL)
			break;
		if (d.d_tag == DT_RELA)
			ret.vaddr = d.d_un.d_ptr;
		else if (d.d_tag == DT_RELASZ)
			ret.size = d.d_un.d_val;
	}
	return ret;
}

static int go_module_by_relas(struct go_module_search *s)
{
	struct go_place relas = go_module_rela_table(&s->g->elf);

	if (relas.size == 0)
		return 0;
	int r = go_module_relas(s, &relas, go_module_seek);

	if (r < 0 || s->at == 0)
		return r;
	memset(s->words, 0, sizeof(s->words));
	r = go_module_relas(s, &relas, go_module_gather);
	if (r == 0)
		(void)go_module_take(s);
	return r;
}

int go_module_find(const struct go_pclntab *g, struct go_module *ret)
{
	struct go_module_search s = {.g = g, .ret = ret};
	int r = 0;

	for (size_t i = 0; i < g->elf.segment_count && r == 0; i++)
		if (!g->elf.segments[i].is_code)
			r = go_elf_scan(&g->elf, &g->elf.segments[i], go_module_look, &s);
	if (r == 0 && g->elf.is_movable)
		r = go_module_by_relas(&s);
	if (r < 0 && r != -EBADMSG)
		return r;
	return s.is_found ? 0 : -ENOENT;
}
