/*
 * Drives the CFI compiler, see cfi.h. A chunk's functions come from up to four places, merged by
 * address: .eh_frame, .debug_frame or Go's table where .eh_frame has nothing, and .plt sections where none has. A
 * function ends where its FDE says, or where the next one of its own place begins.
 */
#include "agent/cfi.h"

#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum { CFI_FROM_GO = CFI_SOURCES, CFI_FROM_PLT, CFI_FROMS };

/* The next function of one place. */
struct cfi_head {
	bool is_there;
	size_t i; /* in the index */
	uint64_t start, entry;
};

/* Go's own table says more than its .debug_frame, which is then left out. */
static int cfi_open_go(struct cfi *c)
{
	const char *why = NULL;
	int r = c->arch == CFI_X86_64 ? go_pclntab_open(c->fd, &why, &c->go) : -ENODATA;

	if (r == 0)
		c->sources[CFI_DEBUG_FRAME].section.size = 0;
	return r == -ENOMEM ? r : 0;
}

int cfi_open(int fd, const char **why, struct cfi **ret)
{
	struct cfi *c = calloc(1, sizeof(*c));
	int r;

	*why = "out of memory";
	if (!c)
		return -ENOMEM;
	c->fd = fd;
	c->sources[CFI_EH_FRAME].is_eh = true;
	r = cfi_elf_read(c, why);
	if (r == 0)
		r = cfi_open_go(c);
	for (size_t i = 0; i < CFI_SOURCES && r == 0; i++) {
		r = cfi_index_open(c, &c->sources[i]);
		*why = r == -ENOBUFS ? "too many FDEs" : "CFI cannot be read";
	}
	if (r == 0 && c->sources[CFI_EH_FRAME].count + c->sources[CFI_DEBUG_FRAME].count == 0 &&
		!c->go && !cfi_bare_find(c)) {
		*why = "no CFI";
		r = -ENODATA;
	}
	if (r < 0) {
		cfi_free(c);
		return r;
	}
	*why = NULL;
	*ret = c;
	return 0;
}

void cfi_free(struct cfi *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < CFI_SOURCES; i++) {
		free(c->sources[i].refs);
		free(c->sources[i].bytes);
	}
	go_pclntab_free(c->go);
	free(c);
}

void cfi_info(const struct cfi *c, struct cfi_info *ret)
{
	*ret = (struct cfi_info){
		.arch = c->arch,
		.text_start = c->text_start,
		.text_end = c->text_end,
		.functions = c->sources[CFI_EH_FRAME].count + c->sources[CFI_DEBUG_FRAME].count,
		.has_eh_frame = c->sources[CFI_EH_FRAME].section.size > 0,
		.has_hdr = c->sources[CFI_EH_FRAME].table_offset != 0,
		.has_debug_frame = c->sources[CFI_DEBUG_FRAME].section.size > 0,
	};
}

static size_t cfi_head_count(const struct cfi *c, size_t from)
{
	if (from == CFI_FROM_PLT)
		return c->plt_count;
	if (from == CFI_FROM_GO)
		return c->go ? go_pclntab_count(c->go) : 0;
	return c->sources[from].count;
}

/* -ESTALE: the table of .eh_frame_hdr is not ascending. */
static int cfi_head_load(struct cfi_work *w, size_t from, struct cfi_head *h, size_t i)
{
	const struct cfi *c = w->c;
	size_t count = cfi_head_count(c, from);
	uint64_t before = h->is_there ? h->start : 0;
	int r = 0;

	h->is_there = i < count;
	h->i = i;
	if (!h->is_there)
		return 0;
	if (from == CFI_FROM_PLT)
		h->start = c->plts[i].start;
	else if (from == CFI_FROM_GO)
		r = go_pclntab_start(c->go, i, &h->start);
	else
		r = cfi_index_get(w, &c->sources[from], i, &h->start, &h->entry);
	if (r == 0 && h->start < before)
		r = -ESTALE;
	h->is_there = r == 0 && h->start < w->end;
	return r;
}

/*
 * Go's .debug_frame does not say where rbp is: next to the return address in every function that has a
 * frame (cmd/internal/obj/x86/obj6.go, since Go 1.7). Without this the walk would keep a callee's.
 */
static void cfi_go_fp(struct unwind_rule *r)
{
	if (r->cfa != UNWIND_CFA_SP || r->cfa_offset < 16 || r->fp != UNWIND_SAME)
		return;
	r->fp = UNWIND_AT_CFA;
	r->fp_offset = -16;
}

/*
 * Go's own signal restorer (runtime.sigreturn__sigaction) says nothing of the frame that the kernel has pushed. It
 * is known by its bytes, as libgcc and gdb do: mov $15, %rax; syscall.
 */
static bool cfi_go_is_sigreturn(const struct cfi *c, const struct cfi_fde *f)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	uint8_t bytes[sizeof(code)];
	uint64_t offset, left;

	return c->is_go && !f->cie->is_eh && f->size >= sizeof(code) &&
	       f->size < 2 * sizeof(code) && cfi_file_offset(c, f->start, &offset, &left) &&
	       left >= sizeof(code) && cfi_pread(c, offset, bytes, sizeof(bytes)) == 0 &&
	       memcmp(bytes, code, sizeof(code)) == 0;
}

/* The handler returns to the first byte, and what is looked up is the one before: in the padding. */
static int cfi_rows_of_sigreturn(struct cfi_work *w, const struct cfi_fde *f, uint64_t end)
{
	const struct unwind_rule rule = {.cfa = UNWIND_CFA_SIGNAL};
	uint64_t start = f->start > w->covered_end ? f->start - 1 : f->start;
	size_t first;
	int r = cfi_rows_begin(w, start, &first);

	if (r == 0)
		r = cfi_rows_put(w, first, start, end, &rule);
	if (r == 0)
		cfi_rows_end(w, first, end);
	return r;
}

static int cfi_rows_of_fde(struct cfi_work *w, const struct cfi_fde *f, size_t first, uint64_t end)
{
	struct cfi_program p;
	size_t rows = 0;
	int r;

	cfi_program_init(&p, w->c, f->cie, f->code, f->code_vaddr);
	p.next = f->start;
	do {
		struct unwind_rule rule;

		r = cfi_program_step(&p, &w->instructions);
		if (r < 0)
			return r;
		if (++rows > CFI_ROWS_PER_FUNCTION_MAX)
			return -ENOBUFS;
		uint64_t next = r > 0 ? MIN(p.next, end) : end;

		if (next <= p.pc || next <= w->start)
			continue;
		cfi_rule_of(w->c->arch, f->cie, &p.state, &rule);
		if (w->c->is_go && !f->cie->is_eh)
			cfi_go_fp(&rule);
		int put = cfi_rows_put(w, first, p.pc, next, &rule);

		if (put < 0)
			return put;
	} while (r > 0 && p.next < MIN(end, w->end));
	return 0;
}

/*
 * A function whose instructions make no sense is one row that says so; a head that makes none is
 * -EBADMSG for the chunk. -ESTALE: .eh_frame_hdr and FDE disagree.
 */
static int cfi_function(struct cfi_work *w, const struct cfi_source *s, const struct cfi_head *h,
	uint64_t limit, uint64_t *ret_end)
{
	const struct unwind_rule unsupported = {.cfa = UNWIND_CFA_UNSUPPORTED};
	struct cfi_entry e;
	struct cfi_fde f = {0};
	size_t first;
	int r = cfi_entry_read(w, s, h->entry, &e);

	if (r == 0)
		r = cfi_fde_read(w, s, &e, &f);
	if (r == 0 && f.start != h->start)
		r = -EBADMSG;
	if (r < 0)
		return r == -EBADMSG && s->table_offset ? -ESTALE : r;
	uint64_t end = MIN(f.start + f.size, limit);

	*ret_end = end;
	if (end <= w->start || end <= f.start)
		return 0;
	if (cfi_go_is_sigreturn(w->c, &f))
		return cfi_rows_of_sigreturn(w, &f, end);
	r = cfi_rows_begin(w, f.start, &first);
	if (r < 0)
		return r;
	r = cfi_rows_of_fde(w, &f, first, end);
	if (r == -EBADMSG) {
		w->out->row_count = first;
		r = cfi_rows_put(w, first, f.start, end, &unsupported);
	}
	if (r == 0)
		r = cfi_call(w, s, first, end);
	if (r == 0)
		r = cfi_shape(w, first, end);
	if (r == 0)
		cfi_rows_end(w, first, end);
	return r;
}

/* What begins next; of several that begin at one address the first place counts. */
static size_t cfi_merge_next(const struct cfi_head *heads)
{
	size_t next = CFI_FROMS;

	for (size_t i = 0; i < CFI_FROMS; i++) {
		if (heads[i].is_there && (next == CFI_FROMS || heads[i].start < heads[next].start))
			next = i;
	}
	return next;
}

/* One function of heads[from], which then holds the next. ends[i]: where place i has ended. */
static int cfi_merge_one(
	struct cfi_work *w, struct cfi_head *heads, size_t from, uint64_t ends[CFI_FROMS])
{
	const struct cfi *c = w->c;
	struct cfi_head h = heads[from];
	int r = cfi_head_load(w, from, &heads[from], h.i + 1);
	uint64_t limit = heads[from].is_there ? heads[from].start : UINT64_MAX;

	if (r < 0)
		return r;
	for (size_t i = 0; i < from; i++) {
		if (h.start < ends[i])
			return 0;
		if (heads[i].is_there)
			limit = MIN(limit, heads[i].start);
	}
	if (from == CFI_FROM_GO)
		return cfi_go_function(w, h.i, limit, &ends[from]);
	if (from != CFI_FROM_PLT)
		return cfi_function(w, &c->sources[from], &h, limit, &ends[from]);
	uint64_t end = MIN(c->plts[h.i].end, limit);

	return end > w->start ? cfi_rows_plt(w, &c->plts[h.i], end) : 0;
}

/* The first function that may reach into the chunk. */
static int cfi_seek_go(struct cfi_work *w, size_t *ret)
{
	struct go_pclntab *go = w->c->go;

	*ret = w->start < go_pclntab_text_start(go) ? 0 : go_pclntab_count(go);
	int r = go_pclntab_seek(go, w->start, ret);

	return r == -ENOENT ? 0 : r;
}

static int cfi_merge(struct cfi_work *w)
{
	struct cfi_head heads[CFI_FROMS] = {0};
	uint64_t ends[CFI_FROMS] = {0};
	size_t from;

	for (size_t i = 0; i < CFI_FROMS; i++) {
		size_t first = 0;
		int r = 0;

		if (i < CFI_SOURCES && w->c->sources[i].count > 0)
			r = cfi_index_seek(w, &w->c->sources[i], w->start, &first);
		else if (i == CFI_FROM_GO && w->c->go)
			r = cfi_seek_go(w, &first);
		if (r == 0)
			r = cfi_head_load(w, i, &heads[i], first);
		if (r < 0)
			return r;
	}
	while ((from = cfi_merge_next(heads)) < CFI_FROMS) {
		int r = cfi_merge_one(w, heads, from, ends);

		if (r < 0)
			return r;
	}
	return cfi_rows_finish(w);
}

static int cfi_compile_once(struct cfi *c, uint64_t index, struct cfi_chunk *ret)
{
	struct cfi_work *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->c = c;
	w->out = ret;
	w->start = index << TABLE_CHUNK_SHIFT;
	w->end = w->start + CFI_CHUNK_SIZE;
	w->covered_end = w->start;
	ret->row_count = 0;
	ret->rule_count = 0;
	int r = c->bare_signal ? cfi_bare_rows(w) : cfi_merge(w);

	free(w);
	if (r < 0)
		ret->row_count = 0;
	return r;
}

int cfi_compile(struct cfi *c, uint64_t index, struct cfi_chunk *ret)
{
	if (index >= (UINT64_MAX >> TABLE_CHUNK_SHIFT)) {
		ret->row_count = 0;
		return 0;
	}
	int r = cfi_compile_once(c, index, ret);

	if (r != -ESTALE)
		return r;
	r = cfi_index_pass(c, &c->sources[CFI_EH_FRAME]);
	return r < 0 ? r : cfi_compile_once(c, index, ret);
}
