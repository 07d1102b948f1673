/*
 * Opens Go's table and finds functions in it, see go_pclntab.h.
 *
 *	u32 magic, u8 0, u8 0, u8 quantum, u8 pointer size
 *	u64 functions, files, [text start, since 1.18], then offsets of:
 *	    names (NUL-terminated)  units (u32: offset of a file's path)  paths  values  functions
 *	functions: pairs of entry and offset of its _func from here, and one entry more where the last one ends
 *
 * Invariants of an open table: the five parts ascend and lie in it, entries ascend, and first to last entry
 * lie in one executable segment.
 */
#include "agent/go_pclntab.h"

#include <elf.h>
#include <errno.h>

#include "agent/go_pclntab_internal.h"
#include "base/cursor.h"

enum {
	GO_MAGIC_1_16 = 0xfffffffa,
	GO_MAGIC_1_18 = 0xfffffff0,
	GO_MAGIC_1_20 = 0xfffffff1,
	GO_HEAD_SIZE = 72, /* 64 before 1.18 */
	GO_RECORD_MAX = 44,
};

static size_t go_pair_size(const struct go_pclntab *g)
{
	return g->layout == GO_1_16 ? 16 : 8;
}

static bool go_magic(uint32_t magic, enum go_layout *ret)
{
	switch (magic) {
	case GO_MAGIC_1_16:
		*ret = GO_1_16;
		return true;
	case GO_MAGIC_1_18:
		*ret = GO_1_18;
		return true;
	case GO_MAGIC_1_20:
		*ret = GO_1_20;
		return true;
	default:
		return false;
	}
}

/* The line is one for all, as the helper asks about one file at a time. */
static int go_refuse_magic(uint32_t magic, const char **why)
{
	static char text[80];

	(void)snprintf(text, sizeof(text), "Go's table is of no known version: magic 0x%08x%s",
		magic, magic == 0xfffffffb ? ", Go 1.15 or older" : "");
	*why = text;
	return -ENOTSUP;
}

/* 0; -EBADMSG; -ENOTSUP: this may be a header of another version. */
static int go_head(struct go_pclntab *g, const char **why)
{
	uint8_t bytes[GO_HEAD_SIZE];
	int r = go_read(g, 0, bytes, sizeof(bytes));
	struct cursor c = cursor_over(bytes, sizeof(bytes));

	*why = "Go's table has no header that makes sense";
	if (r < 0)
		return r;
	uint32_t magic = cursor_u32(&c);

	if (!go_magic(magic, &g->layout))
		return go_refuse_magic(magic, why);
	if (cursor_u16(&c) != 0 || cursor_u8(&c) != g->elf.quantum || cursor_u8(&c) != 8)
		return -EBADMSG;
	g->count = cursor_u64(&c);
	(void)cursor_u64(&c); /* files, as long as the parts are in order */
	g->header_text = g->layout == GO_1_16 ? 0 : cursor_u64(&c);
	g->names = cursor_u64(&c);
	g->units = cursor_u64(&c);
	g->files = cursor_u64(&c);
	g->pcs = cursor_u64(&c);
	g->functions = cursor_u64(&c);
	if (g->count == 0 || g->count > GO_PCLNTAB_FUNCTIONS_MAX || g->names < GO_HEAD_SIZE - 8 ||
		g->units < g->names || g->files < g->units || g->pcs < g->files ||
		g->functions < g->pcs || g->functions >= g->size ||
		(g->count + 1) * go_pair_size(g) > g->size - g->functions)
		return -EBADMSG;
	return 0;
}

static uint64_t go_pair_entry(const struct go_pclntab *g, const uint8_t *pair)
{
	uint64_t entry = 0;

	memcpy(&entry, pair, go_pair_size(g) / 2);
	return entry;
}

/* Reads all pairs once: they ascend. The first and the last, which is an end, from g->text. */
static int go_check_pairs(const struct go_pclntab *g, uint64_t *ret_first, uint64_t *ret_last)
{
	_cleanup_(freep) uint8_t *bytes = malloc(GO_WINDOW);
	size_t size = go_pair_size(g);
	uint64_t before = 0;

	if (!bytes)
		return -ENOMEM;
	for (uint64_t i = 0; i <= g->count; i += GO_WINDOW / size) {
		size_t n = (size_t)MIN(g->count + 1 - i, (uint64_t)(GO_WINDOW / size));
		/* Nothing stands behind the last entry. */
		size_t left = n * size - (i + n > g->count ? size / 2 : 0);
		int r = go_elf_pread(&g->elf, g->offset + g->functions + i * size, bytes, left);

		if (r < 0)
			return r;
		for (size_t k = 0; k < n; k++) {
			uint64_t entry = go_pair_entry(g, bytes + k * size);

			if (entry < before)
				return -EBADMSG;
			before = entry;
			if (i + k == 0)
				*ret_first = entry;
		}
	}
	*ret_last = before;
	return 0;
}

/* Where functions lie, by all that says so. */
static int go_bounds(struct go_pclntab *g, const char **why)
{
	struct go_module m = {0};
	uint64_t first = 0, last = 0;
	int r = go_check_pairs(g, &first, &last);

	*why = "functions of Go's table do not ascend";
	if (r < 0)
		return r;
	*why = "the loader fills this table (position-independent, Go 1.16 or 1.17)";
	if (g->layout == GO_1_16 && last == 0)
		return -ENOTSUP;
	r = go_module_find(g, &m);
	*why = "Go's module cannot be read";
	if (r < 0 && r != -ENOENT)
		return r;
	*why = "nothing says where Go's text begins";
	g->text = g->layout == GO_1_16 ? 0 : r == 0 ? m.text : g->header_text;
	if (g->layout != GO_1_16 && g->text == 0)
		return -EBADMSG;
	*why = "functions of Go's table are not in the code";
	if (last <= first || g->text > INT64_MAX - last ||
		!go_elf_is_code(&g->elf, g->text + first, g->text + last))
		return -EBADMSG;
	*why = "Go's module and its table disagree";
	if (r == 0 && (m.first != g->text + first || m.last != g->text + last))
		return -EBADMSG;
	g->text_first = g->text + first;
	g->text_end = g->text + last;
	g->funcdata = m.funcdata;
	g->is_inlining = r == 0 && go_names_inlining(g);
	return 0;
}

static int go_try(struct go_pclntab *g, uint64_t vaddr, uint64_t size_max, const char **why)
{
	uint64_t left;

	*why = "Go's table is not in the file";
	if (!go_elf_offset(&g->elf, vaddr, &g->offset, &left))
		return -EBADMSG;
	g->vaddr = vaddr;
	g->size = MIN(left, size_max);
	int r = go_head(g, why);

	return r < 0 ? r : go_bounds(g, why);
}

struct go_search {
	struct go_pclntab *g;
	const char **why;
	bool is_found;
	int r;
};

static int go_look(void *data, uint64_t vaddr, const uint8_t *bytes, size_t size)
{
	struct go_search *s = data;
	enum go_layout layout;

	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint32_t words[2];

		memcpy(words, bytes + i, sizeof(words));
		if (!go_magic(words[0], &layout) ||
			words[1] != ((uint32_t)s->g->elf.quantum << 16 | 8u << 24))
			continue;
		s->is_found = true;
		s->r = go_try(s->g, vaddr + i, UINT64_MAX, s->why);
		if (s->r != -EBADMSG)
			return 1;
	}
	return 0;
}

/* 1: found, as s says; 0: not there; -errno. */
static int go_find_in(struct go_search *s, bool in_code)
{
	const struct go_elf *e = &s->g->elf;

	for (size_t i = 0; i < e->segment_count; i++) {
		int r = e->segments[i].is_code == in_code
				? go_elf_scan(e, &e->segments[i], go_look, s)
				: 0;

		if (r != 0 && r != -EBADMSG) /* shorter than it says: the rest may be there */
			return r;
	}
	return 0;
}

/* By its magic: in data first, where linkers put it, then in what also holds code. */
static int go_find_magic(struct go_pclntab *g, const char **why)
{
	struct go_search s = {.g = g, .why = why};
	int r = go_find_in(&s, false);

	if (r == 0)
		r = go_find_in(&s, true);
	if (r > 0 || (r == 0 && s.is_found))
		return s.r;
	*why = "cannot be read";
	if (r < 0)
		return r;
	*why = g->elf.is_go ? "a Go program without a table of a known version" : "no Go program";
	return g->elf.is_go ? -ENOTSUP : -ENODATA;
}

static int go_open(struct go_pclntab *g, const char **why)
{
	int r = go_elf_read(&g->elf, why);

	if (r < 0)
		return r;
	if (g->elf.table.size > 0)
		return go_try(g, g->elf.table.vaddr, g->elf.table.size, why);
	*why = "no Go program";
	if (!g->elf.is_go && g->elf.has_sections)
		return -ENODATA;
	return go_find_magic(g, why);
}

int go_pclntab_open(int fd, const char **why, struct go_pclntab **ret)
{
	struct go_pclntab *g = calloc(1, sizeof(*g));
	int r = -ENOMEM;

	*why = "out of memory";
	if (g)
		g->pages = calloc(GO_PAGES, sizeof(*g->pages));
	if (g && g->pages) {
		g->elf.fd = fd;
		r = go_open(g, why);
	}
	if (r < 0) {
		go_pclntab_free(g);
		return r;
	}
	*why = NULL;
	*ret = g;
	return 0;
}

void go_pclntab_free(struct go_pclntab *g)
{
	if (!g)
		return;
	free(g->pages);
	free(g);
}

void go_pclntab_freep(struct go_pclntab **g)
{
	go_pclntab_free(*g);
}

size_t go_pclntab_memory(const struct go_pclntab *g)
{
	return sizeof(*g) + GO_PAGES * sizeof(*g->pages);
}

bool go_pclntab_has_inlining(const struct go_pclntab *g)
{
	return g->is_inlining;
}

uint64_t go_pclntab_text_start(const struct go_pclntab *g)
{
	return g->text_first;
}

uint64_t go_pclntab_text_end(const struct go_pclntab *g)
{
	return g->text_end;
}

size_t go_pclntab_count(const struct go_pclntab *g)
{
	return g->count;
}

/* Entry i <= count; ret_record only where i < count. */
static int go_pair(struct go_pclntab *g, uint64_t i, uint64_t *ret_entry, uint64_t *ret_record)
{
	uint8_t bytes[16] = {0};
	size_t size = go_pair_size(g);
	int r = go_read(g, g->functions + i * size, bytes, i < g->count ? size : size / 2);

	if (r < 0)
		return r;
	*ret_entry = g->text + go_pair_entry(g, bytes);
	*ret_record = g->functions + go_pair_entry(g, bytes + size / 2);
	return 0;
}

bool go_pclntab_has_flags(const struct go_pclntab *g)
{
	return g->layout != GO_1_16;
}

int go_pclntab_start(struct go_pclntab *g, size_t index, uint64_t *ret)
{
	uint64_t record;

	return index < g->count ? go_pair(g, index, ret, &record) : -ENOENT;
}

int go_pclntab_seek(struct go_pclntab *g, uint64_t vaddr, size_t *ret)
{
	uint64_t low = 0, high = g->count; /* entry of low <= vaddr < entry of high */
	uint64_t entry = 0, record;

	if (vaddr < g->text_first || vaddr >= g->text_end)
		return -ENOENT;
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		int r = go_pair(g, middle, &entry, &record);

		if (r < 0)
			return r;
		if (entry <= vaddr)
			low = middle;
		else
			high = middle;
	}
	*ret = low;
	return 0;
}

int go_pclntab_function(struct go_pclntab *g, size_t index, struct go_function *ret)
{
	struct go_function f = {0};
	uint8_t bytes[GO_RECORD_MAX];
	uint64_t unused;

	if (index >= g->count)
		return -ENOENT;
	int r = go_pair(g, index, &f.start, &f.record);

	if (r == 0)
		r = go_pair(g, index + 1, &f.end, &unused);
	if (r == 0)
		r = go_read(g, f.record, bytes, g->layout == GO_1_18 ? 40 : 44);
	if (r < 0)
		return r;
	struct cursor c = cursor_over(bytes, sizeof(bytes));
	uint64_t entry = g->layout == GO_1_16 ? cursor_u64(&c) : g->text + cursor_u32(&c);

	if (entry != f.start)
		return -EBADMSG;
	f.name = cursor_u32(&c);
	f.args = cursor_u32(&c);
	(void)cursor_u32(&c); /* deferreturn */
	f.pcsp = cursor_u32(&c);
	f.pcfile = cursor_u32(&c);
	f.pcln = cursor_u32(&c);
	f.pcdata_count = cursor_u32(&c);
	f.unit = cursor_u32(&c);
	f.start_line = g->layout == GO_1_20 ? cursor_u32(&c) : 0;
	f.id = cursor_u8(&c);
	f.flags = cursor_u8(&c);
	(void)cursor_u8(&c);
	f.funcdata_count = cursor_u8(&c);
	if (f.start_line > INT32_MAX)
		f.start_line = 0;
	*ret = f;
	return 0;
}
