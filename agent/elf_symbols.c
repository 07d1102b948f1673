/*
 * ELF function symbols, see elf_symbols.h for the rules. libelf reads the headers (with ELF_C_READ,
 * so by pread); symbol tables are read here, a window at a time, into a sorted array of 24 bytes a
 * function. Names stay in the file and are read when an address is asked for: of a browser's
 * million symbols a profile needs a few thousand.
 */
#include "agent/elf_symbols.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>

#include "agent/elf_symbols_internal.h"
#include "base/def.h"

enum {
	ELF_SYMBOLS_WINDOW = 512,    /* symbols read at once */
	ELF_SYMBOLS_NESTED_MAX = 64, /* symbols looked at per address: nesting and aliases */
	ELF_SYMBOLS_WEAK = 1,        /* bit of a rank that counts after the underscores */
};

static void elf_endp(Elf **e)
{
	(void)elf_end(*e); /* the count of references left */
}

int elf_symbols_pread(const struct elf_symbols *e, uint64_t offset, void *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		if (offset > INT64_MAX - size)
			return -EBADMSG;
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

static int elf_symbols_read_segments(struct elf_symbols *e, Elf *elf, const char **why)
{
	size_t count;

	if (elf_getphdrnum(elf, &count) != 0 || count == 0 || count > UINT16_MAX) {
		*why = "no usable program headers";
		return -EBADMSG;
	}
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(elf, (int)i, &p)) {
			*why = "program headers cannot be read";
			return -EBADMSG;
		}
		if (p.p_type != PT_LOAD)
			continue;
		if (p.p_offset > INT64_MAX || p.p_filesz > INT64_MAX ||
			p.p_vaddr > UINT64_MAX - p.p_filesz)
			continue;
		if (e->segment_count == ELF_SYMBOLS_SEGMENTS_MAX) {
			*why = "too many segments";
			return -EBADMSG;
		}
		e->segments[e->segment_count++] = (struct elf_symbols_segment){
			.offset = p.p_offset,
			.vaddr = p.p_vaddr,
			.file_size = p.p_filesz,
			.is_code = p.p_flags & PF_X,
		};
	}
	return 0;
}

static int elf_symbols_add_code(struct elf_symbols *e, const GElf_Shdr *s, const char *name)
{
	struct elf_symbols_code code = {
		.start = s->sh_addr,
		.end = s->sh_addr + s->sh_size,
		.offset = s->sh_offset,
	};

	if (s->sh_size == 0 || code.end < code.start || e->code_count >= ELF_SYMBOLS_CODE_MAX)
		return 0;
	if (s->sh_type == SHT_PROGBITS && name && strncmp(name, ".plt", 4) == 0)
		code.slot_size = s->sh_entsize == 8 ? 8 : 16;
	if ((e->code_count & (e->code_count - 1)) == 0) {
		size_t allocated = e->code_count ? 2 * e->code_count : 1;
		struct elf_symbols_code *grown = reallocarray(e->codes, allocated, sizeof(code));

		if (!grown)
			return -ENOMEM;
		e->codes = grown;
	}
	e->codes[e->code_count++] = code;
	return 0;
}

static void elf_symbols_add_table(struct elf_symbols *e, Elf *elf, const GElf_Shdr *s)
{
	size_t which = s->sh_type == SHT_SYMTAB ? ELF_SYMBOLS_SYMTAB : ELF_SYMBOLS_DYNSYM;
	GElf_Shdr names;
	Elf_Scn *link = elf_getscn(elf, s->sh_link);

	if (s->sh_entsize != sizeof(Elf64_Sym) || e->tables[which].count > 0)
		return;
	if (!link || !gelf_getshdr(link, &names) || names.sh_type != SHT_STRTAB)
		return;
	e->tables[which] = (struct elf_symbols_table){
		.offset = s->sh_offset,
		.count = s->sh_size / sizeof(Elf64_Sym),
		.names = names.sh_offset,
		.names_size = names.sh_size,
	};
}

static void elf_symbols_add_relas(struct elf_symbols *e, const GElf_Shdr *s, const char *name)
{
	struct elf_symbols_relas r = {s->sh_offset, s->sh_size / sizeof(Elf64_Rela)};

	if (!(s->sh_flags & SHF_ALLOC) || e->rela_count == ELF_SYMBOLS_RELAS_MAX)
		return;
	e->relas[e->rela_count++] = r;
	if (name && strcmp(name, ".rela.plt") == 0) {
		e->relas[e->rela_count - 1] = e->relas[0];
		e->relas[0] = r;
	}
}

static void elf_symbols_add_mini(struct elf_symbols *e, const GElf_Shdr *s)
{
	e->mini_offset = s->sh_offset;
	e->mini_size = s->sh_size;
}

static int elf_symbols_order_codes(const void *a, const void *b)
{
	const struct elf_symbols_code *x = a;
	const struct elf_symbols_code *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* A file without section headers keeps its segments and has no names. */
static int elf_symbols_read_sections(struct elf_symbols *e, Elf *elf, const char **why)
{
	size_t count = 0;
	size_t names = 0;

	if (elf_getshdrnum(elf, &count) != 0 || elf_getshdrstrndx(elf, &names) != 0)
		return 0;
	if (count > ELF_SYMBOLS_SECTIONS_MAX) {
		*why = "too many sections";
		return -EBADMSG;
	}
	for (size_t i = 1; i < count; i++) {
		GElf_Shdr s;
		Elf_Scn *section = elf_getscn(elf, i);

		if (!section || !gelf_getshdr(section, &s))
			continue;
		const char *name = elf_strptr(elf, names, s.sh_name);

		if (s.sh_type == SHT_SYMTAB || s.sh_type == SHT_DYNSYM)
			elf_symbols_add_table(e, elf, &s);
		else if (s.sh_type == SHT_RELA)
			elf_symbols_add_relas(e, &s, name);
		else if (s.sh_type == SHT_PROGBITS && name && strcmp(name, ".gnu_debugdata") == 0)
			elf_symbols_add_mini(e, &s);
		else if ((s.sh_flags & SHF_EXECINSTR) && elf_symbols_add_code(e, &s, name) < 0)
			return -ENOMEM;
	}
	if (e->code_count > 1)
		qsort(e->codes, e->code_count, sizeof(*e->codes), elf_symbols_order_codes);
	return 0;
}

const struct elf_symbols_code *elf_symbols_code_at(const struct elf_symbols *e, uint64_t vaddr)
{
	size_t low = 0;
	size_t high = e->code_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (e->codes[middle].start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && vaddr < e->codes[low - 1].end ? &e->codes[low - 1] : NULL;
}

/* 0..: how much the symbol is preferred; -1: it is no name for code. */
static int elf_symbols_rank(const struct elf_symbols *e, const Elf64_Sym *s)
{
	unsigned int type = ELF64_ST_TYPE(s->st_info);
	unsigned int bind = ELF64_ST_BIND(s->st_info);
	int rank = bind == STB_LOCAL ? 2 : bind == STB_WEAK ? ELF_SYMBOLS_WEAK : 0;

	if (s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS || s->st_shndx == SHN_COMMON ||
		s->st_name == 0)
		return -1;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return rank;
	/* $x and $d say where code and data begin (ELF for the Arm 64-bit Architecture, 5.5.5). */
	if (type == STT_NOTYPE && e->is_arm && bind == STB_LOCAL && s->st_size == 0)
		return -1;
	if (type == STT_NOTYPE && elf_symbols_code_at(e, s->st_value))
		return rank + 4;
	return -1;
}

static int elf_symbols_put(struct elf_symbols *e, const Elf64_Sym *s, int rank, size_t table)
{
	if (e->count == e->allocated) {
		size_t allocated = e->allocated ? e->allocated + e->allocated / 2 : 256;
		struct elf_symbol *grown = reallocarray(e->symbols, allocated, sizeof(*e->symbols));

		if (!grown)
			return -ENOMEM;
		e->symbols = grown;
		e->allocated = allocated;
	}
	e->symbols[e->count++] = (struct elf_symbol){
		.start = s->st_value,
		.size = MIN(s->st_size, UINT64_MAX - s->st_value),
		.name = s->st_name,
		.rank = (uint8_t)rank,
		.table = (uint8_t)table,
	};
	return 0;
}

int elf_symbols_take(struct elf_symbols *e, const void *symbols, size_t count, size_t table)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		Elf64_Sym s;

		memcpy(&s, (const char *)symbols + i * sizeof(s), sizeof(s));
		int rank = elf_symbols_rank(e, &s);

		r = rank < 0 ? 0 : elf_symbols_put(e, &s, rank, table);
	}
	return r;
}

static int elf_symbols_read_table(struct elf_symbols *e, size_t which)
{
	const struct elf_symbols_table *t = &e->tables[which];
	Elf64_Sym window[ELF_SYMBOLS_WINDOW];

	for (uint64_t i = 0; i < t->count; i += ELF_SYMBOLS_WINDOW) {
		size_t n = MIN(t->count - i, ELF_SYMBOLS_WINDOW);
		int r = elf_symbols_pread(
			e, t->offset + i * sizeof(*window), window, n * sizeof(*window));

		if (r == 0)
			r = elf_symbols_take(e, window, n, which);
		if (r < 0)
			return r;
	}
	return 0;
}

static int elf_symbols_order(const void *a, const void *b)
{
	const struct elf_symbol *x = a;
	const struct elf_symbol *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int elf_symbols_read_tables(struct elf_symbols *e, const char **why)
{
	for (size_t i = 0; i < ELF_SYMBOLS_MINI; i++) {
		if (e->tables[i].count > ELF_SYMBOLS_MAX) {
			*why = "too many symbols";
			return -EBADMSG;
		}
		int r = elf_symbols_read_table(e, i);

		if (r < 0) {
			*why = "symbol table cannot be read";
			return r;
		}
	}
	/* What cannot be read of it adds no names. */
	if (e->mini_size > 0 && e->tables[ELF_SYMBOLS_SYMTAB].count == 0 &&
		elf_symbols_read_mini(e, e->mini_offset, e->mini_size) == -ENOMEM)
		return -ENOMEM;
	if (e->count > 1)
		qsort(e->symbols, e->count, sizeof(*e->symbols), elf_symbols_order);
	return 0;
}

static int elf_symbols_check_header(struct elf_symbols *e, Elf *elf, const char **why)
{
	GElf_Ehdr h;

	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &h)) {
		*why = "not an ELF file";
		return -ENOEXEC;
	}
	if (gelf_getclass(elf) != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB) {
		*why = "not 64-bit little-endian";
		return -ENOEXEC;
	}
	if (h.e_machine != EM_X86_64 && h.e_machine != EM_AARCH64) {
		*why = "neither x86-64 nor aarch64";
		return -ENOEXEC;
	}
	e->is_arm = h.e_machine == EM_AARCH64;
	if (h.e_type != ET_EXEC && h.e_type != ET_DYN) {
		*why = "neither executable nor shared object";
		return -ENOEXEC;
	}
	return 0;
}

int elf_symbols_open(int fd, const char **why, struct elf_symbols **ret)
{
	*why = "out of memory";
	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOSYS;
	struct elf_symbols *e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->fd = fd;
	Elf *elf_unowned = elf_begin(fd, ELF_C_READ, NULL);
	_cleanup_(elf_endp) Elf *elf = elf_unowned;
	int r = -ENOEXEC;

	if (elf)
		r = elf_symbols_check_header(e, elf, why);
	else
		*why = "not an ELF file";
	if (r == 0)
		r = elf_symbols_read_segments(e, elf, why);
	if (r == 0)
		r = elf_symbols_read_sections(e, elf, why);
	if (r == 0)
		r = elf_symbols_read_tables(e, why);
	if (r < 0) {
		e->fd = -1; /* stays the caller's */
		elf_symbols_free(e);
		return r;
	}
	*why = NULL;
	*ret = e;
	return 0;
}

void elf_symbols_free(struct elf_symbols *e)
{
	if (!e)
		return;
	closep(&e->fd);
	free(e->codes);
	free(e->symbols);
	free(e->mini_names);
	free(e);
}

void elf_symbols_freep(struct elf_symbols **e)
{
	elf_symbols_free(*e);
}

bool elf_symbols_vaddr(const struct elf_symbols *e, uint64_t offset, uint64_t *ret)
{
	/* Whole pages are mapped, so a byte may lie beside its segment: exact matches come first,
	 * code before data. */
	for (int pass = 0; pass < 4; pass++) {
		uint64_t page = pass < 2 ? 0 : 4095;

		for (size_t i = 0; i < e->segment_count; i++) {
			const struct elf_symbols_segment *s = &e->segments[i];
			uint64_t first = s->offset & ~page;
			uint64_t end = (s->offset + s->file_size + page) & ~page;

			if (s->is_code == (pass % 2 == 0) && offset >= first && offset < end) {
				*ret = s->vaddr + (offset - s->offset);
				return true;
			}
		}
	}
	return false;
}

/* .symtab has "memcpy@@GLIBC_2.14" where .dynsym has the version in a table of its own. */
static bool elf_symbols_unversion(char *name)
{
	char *at = name[0] ? strchr(name + 1, '@') : NULL;

	if (at && (at[1] == '@' || (at[1] >= 'A' && at[1] <= 'Z')))
		*at = '\0';
	return name[0] != '\0';
}

bool elf_symbols_name(
	const struct elf_symbols *e, size_t table, uint32_t name, char *to, size_t size)
{
	const struct elf_symbols_table *t = &e->tables[table];

	if (name >= t->names_size)
		return false;
	size_t want = MIN(size - 1, t->names_size - name);
	size_t chunk = 64; /* most names are short: read little first */

	if (table == ELF_SYMBOLS_MINI) {
		memcpy(to, e->mini_names + name, want);
		to[want] = '\0';
		return elf_symbols_unversion(to);
	}

	for (;;) {
		size_t n = MIN(want, chunk);

		if (elf_symbols_pread(e, t->names + name, to, n) < 0)
			return false;
		to[n] = '\0';
		if (strlen(to) < n || n == want)
			return elf_symbols_unversion(to);
		chunk *= 8;
	}
}

/* Rule 4: < 0 when the first is preferred. */
static int elf_symbols_compare(uint8_t rank, const char *name, uint8_t than_rank, const char *than)
{
	size_t bars = strspn(name, "_");
	size_t than_bars = strspn(than, "_");

	if (rank / 2 != than_rank / 2)
		return rank / 2 < than_rank / 2 ? -1 : 1;
	if (bars != than_bars)
		return bars < than_bars ? -1 : 1;
	if (rank != than_rank)
		return rank < than_rank ? -1 : 1;
	return strcmp(name, than);
}

/*
 * Rule 4 over the symbols that begin where e->symbols[at] does and, like it, have a size that
 * reaches vaddr, or none.
 */
static bool elf_symbols_choose(
	const struct elf_symbols *e, size_t at, uint64_t vaddr, struct elf_symbols_answer *ret)
{
	bool is_sized = e->symbols[at].size > 0;
	size_t first = at;
	bool found = false;
	uint8_t rank = 0;
	char name[ELF_SYMBOLS_NAME_SIZE];

	while (first > 0 && at - first < ELF_SYMBOLS_NESTED_MAX &&
		e->symbols[first - 1].start == e->symbols[at].start)
		first--;
	for (size_t i = first; i < e->count && i - first < ELF_SYMBOLS_NESTED_MAX; i++) {
		const struct elf_symbol *s = &e->symbols[i];

		if (s->start != e->symbols[at].start)
			break;
		if (is_sized ? vaddr - s->start >= s->size : s->size != 0)
			continue;
		if (found && s->rank / 2 > rank / 2)
			continue; /* spares reading its name */
		if (!elf_symbols_name(e, s->table, s->name, name, sizeof(name)))
			continue;
		if (found && elf_symbols_compare(s->rank, name, rank, ret->name) >= 0)
			continue;
		found = true;
		rank = s->rank;
		ret->start = s->start;
		ret->size = s->size;
		memcpy(ret->name, name, sizeof(name));
	}
	return found;
}

/* Whether a symbol with a size that begins before index `at` reaches start. */
static bool elf_symbols_is_inside(const struct elf_symbols *e, size_t at, uint64_t start)
{
	for (size_t i = at; i > 0 && at - i < ELF_SYMBOLS_NESTED_MAX; i--)
		if (start - e->symbols[i - 1].start < e->symbols[i - 1].size)
			return true;
	return false;
}

/*
 * Rule 3. low is the number of symbols that begin at or before vaddr; only those that begin last
 * can reach it. A label inside a function with a size does not go on behind that function.
 */
static bool elf_symbols_find_unsized(
	const struct elf_symbols *e, size_t low, uint64_t vaddr, struct elf_symbols_answer *ret)
{
	uint64_t end = low < e->count ? e->symbols[low].start : UINT64_MAX;

	for (size_t i = low; i > 0 && low - i < ELF_SYMBOLS_NESTED_MAX; i--) {
		const struct elf_symbol *s = &e->symbols[i - 1];
		const struct elf_symbols_code *own = elf_symbols_code_at(e, s->start);

		if (s->start != e->symbols[low - 1].start)
			return false;
		if (s->size != 0)
			continue;
		if (!own || vaddr >= own->end || elf_symbols_is_inside(e, i, s->start))
			return false;
		if (!elf_symbols_choose(e, i - 1, vaddr, ret))
			return false;
		ret->size = MIN(end, own->end) - s->start;
		return true;
	}
	return false;
}

bool elf_symbols_find(const struct elf_symbols *e, uint64_t vaddr, struct elf_symbols_answer *ret)
{
	const struct elf_symbols_code *code = elf_symbols_code_at(e, vaddr);
	size_t low = 0;
	size_t high = e->count;

	memset(ret, 0, sizeof(*ret));
	if (code && code->slot_size > 0 && elf_symbols_find_plt(e, code, vaddr, ret))
		return true;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (e->symbols[middle].start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i > 0 && low - i < ELF_SYMBOLS_NESTED_MAX; i--) {
		const struct elf_symbol *s = &e->symbols[i - 1];

		if (vaddr - s->start < s->size)
			return elf_symbols_choose(e, i - 1, vaddr, ret);
	}
	return elf_symbols_find_unsized(e, low, vaddr, ret);
}

size_t elf_symbols_count(const struct elf_symbols *e)
{
	return e->count;
}

size_t elf_symbols_memory(const struct elf_symbols *e)
{
	return sizeof(*e) + e->allocated * sizeof(*e->symbols) + e->code_count * sizeof(*e->codes) +
	       e->tables[ELF_SYMBOLS_MINI].names_size;
}
