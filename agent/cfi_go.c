/*
 * Rules for Go's functions, from the table that its own runtime unwinds by (go_pclntab.h): exact at every
 * instruction, present in stripped programs. x86-64; on aarch64 Go's frame records are followed instead.
 *
 * The table says how far the stack pointer is below its place at entry: CFA = sp + value + 8. Where rbp is
 * saved, it does not say; the prologue does (cmd/internal/obj/x86/obj6.go), in one of two forms:
 *
 *	push rbp; mov rbp, rsp; sub rsp, N		since 1.21
 *	sub rsp, N; mov [rsp + d], rbp; lea rbp, [rsp + d]	before, and assembly that saves C's registers
 *
 * A row that lies less deep than that place has rbp in its register again.
 *
 * STACKS. Some functions of the runtime are left on another stack than they were entered on; the table's value
 * is nothing there (funcFlag SPWRITE).
 *  1. Where they keep their own frame pointer it is what leads back: CFA = rbp + 16, on a stack that may lie
 *     anywhere (UNWIND_CFA_OTHER_STACK): systemstack and asmcgocall since 1.21, cgocallback, nanotime1.
 *  2. Where they do not, rbp is their caller's: systemstack and asmcgocall before 1.21. The caller's caller is
 *     found by it, and the caller is not (runtime.cgocall for asmcgocall). This counts from the instruction that
 *     writes rsp to the one that writes it back. If rsp was only aligned and the old one kept on the stack, that is read.
 *  3. mcall, morestack, gogo and clone begin a stack, from the write on.
 *  4. goexit, mstart and rt0_go are first frames.
 */
#include <errno.h>

#include "agent/cfi_internal.h"

#include "base/def.h"

enum {
	CFI_GO_PROLOGUE = 160, /* bytes that are looked at */
	CFI_GO_SWITCH = 1024,  /* of a function that writes rsp */
	CFI_GO_SAVE_NEAR = 32, /* behind the sub, in assembly */
	CFI_GO_NAME = 64,
	CFI_GO_SIGRETURN_MAX = 32, /* with what aligns the next function */
};

enum cfi_go_kind { CFI_GO_PLAIN, CFI_GO_FIRST, CFI_GO_BEGINS, CFI_GO_SWITCHES };

struct cfi_go {
	struct cfi_work *w;
	struct go_function f;
	uint64_t end; /* of the rows */
	size_t first;
	enum cfi_go_kind kind;
	uint8_t code[CFI_GO_SWITCH];
	size_t size; /* of code */

	uint64_t saved_from; /* vaddr; 0: rbp is not saved */
	uint64_t kept_from;  /* vaddr from which rbp is this frame's own; 0: never */
	int32_t saved_depth; /* value of the rows that have it */
	int16_t saved_at;    /* from the CFA */
};

static bool cfi_go_is(const struct cfi_go *g, uint64_t vaddr, const void *bytes, size_t size)
{
	uint64_t at = vaddr - g->f.start;

	return at <= g->size && size <= g->size - at && memcmp(g->code + at, bytes, size) == 0;
}

static enum cfi_go_kind cfi_go_kind(const char *name)
{
	static const struct {
		const char *name;
		enum cfi_go_kind kind;
	} kinds[] = {
		{"runtime.goexit", CFI_GO_FIRST},
		{"runtime.mstart", CFI_GO_FIRST},
		{"runtime.rt0_go", CFI_GO_FIRST},
		{"_rt0_amd64_linux", CFI_GO_FIRST},
		{"_rt0_amd64", CFI_GO_FIRST},
		{"runtime.mcall", CFI_GO_BEGINS},
		{"runtime.morestack", CFI_GO_BEGINS},
		{"runtime.gogo", CFI_GO_BEGINS},
		{"gogo", CFI_GO_BEGINS},
		{"runtime.clone", CFI_GO_BEGINS},
		/* Go 1.16 has no flag that says so. */
		{"runtime.systemstack", CFI_GO_SWITCHES},
		{"runtime.asmcgocall", CFI_GO_SWITCHES},
		{"runtime.cgocallback", CFI_GO_SWITCHES},
		{"runtime.nanotime1", CFI_GO_SWITCHES},
		{"runtime.walltime", CFI_GO_SWITCHES},
		{"runtime.walltime1", CFI_GO_SWITCHES},
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcmp(name, kinds[i].name) == 0)
			return kinds[i].kind;
	return CFI_GO_PLAIN;
}

/* Reads the function's first bytes; what the file does not have is left out. */
static void cfi_go_code(struct cfi_go *g)
{
	struct cfi_work *w = g->w;
	size_t most = g->kind == CFI_GO_PLAIN ? CFI_GO_PROLOGUE : CFI_GO_SWITCH;
	uint64_t offset, left;

	g->size = (size_t)MIN(g->f.end - g->f.start, (uint64_t)most);
	if (g->f.start >= w->start && g->f.start + g->size <= w->end && cfi_shape_text(w) == 0) {
		memcpy(g->code, w->text + (g->f.start - w->start), g->size);
		return;
	}
	if (!cfi_file_offset(w->c, g->f.start, &offset, &left) || left < g->size ||
		cfi_pread(w->c, offset, g->code, g->size) < 0)
		g->size = 0;
}

/*
 * An instruction 48 OPCODE on rbp and [rsp + disp] at vaddr: 89 stores rbp there, 8b loads it, 8d is lea. Its size;
 * 0: it is something else.
 */
static size_t cfi_go_rbp(const struct cfi_go *g, uint64_t vaddr, uint8_t opcode, int32_t *ret)
{
	const uint8_t near[] = {0x48, opcode, 0x6c, 0x24};
	const uint8_t far[] = {0x48, opcode, 0xac, 0x24};
	const uint8_t none[] = {0x48, opcode, 0x2c, 0x24};
	const uint8_t *at = g->code + (vaddr - g->f.start);
	uint64_t left = g->size - MIN(vaddr - g->f.start, (uint64_t)g->size);

	*ret = 0;
	if (left >= 5 && memcmp(at, near, sizeof(near)) == 0) {
		*ret = (at[4] ^ 0x80) - 0x80; /* its sign */
		return 5;
	}
	if (left >= 8 && memcmp(at, far, sizeof(far)) == 0) {
		memcpy(ret, at + 4, sizeof(*ret));
		return 8;
	}
	return left >= 4 && memcmp(at, none, sizeof(none)) == 0 ? 4 : 0;
}

/* Whether rbp is saved where the stack pointer goes from `before` to `value`, at vaddr. */
static bool cfi_go_saves(struct cfi_go *g, uint64_t vaddr, int32_t before, int32_t value)
{
	bool is_assembly = g->f.flags & GO_FUNCTION_ASM || g->kind != CFI_GO_PLAIN;
	uint64_t last = is_assembly ? vaddr + CFI_GO_SAVE_NEAR : vaddr;
	int64_t at = -8 - (int64_t)value;
	int32_t disp = 0, unused;

	if (vaddr - g->f.start > g->size || vaddr == g->f.start)
		return false;
	g->saved_depth = value;
	if (value == before + 8 && cfi_go_is(g, vaddr - 1, "\x55", 1)) {
		g->saved_from = vaddr;
		g->saved_at = (int16_t)at;
		if (cfi_go_is(g, vaddr, "\x48\x89\xe5", 3))
			g->kept_from = vaddr + 3;
		return at >= INT16_MIN;
	}
	for (; vaddr <= last; vaddr++) {
		size_t n = cfi_go_rbp(g, vaddr, 0x89, &disp);

		if (n == 0)
			continue;
		at += disp;
		g->saved_from = vaddr + n;
		g->saved_at = (int16_t)at;
		if (at == -16 && cfi_go_rbp(g, vaddr + n, 0x8d, &unused) == n)
			g->kept_from = vaddr + 2 * n;
		return disp >= 0 && at >= INT16_MIN && at <= -16;
	}
	return false;
}

/* Finds the place of rbp; the rows have to be run through for it. 0 or -errno. */
static int cfi_go_find_save(struct cfi_go *g)
{
	struct go_sp s;
	int32_t before = 0;
	int r = go_pclntab_sp_begin(g->w->c->go, &g->f, &s);

	for (size_t i = 0; r == 0 && i < CFI_ROWS_PER_FUNCTION_MAX; i++) {
		int more = go_pclntab_sp_next(g->w->c->go, &s);

		if (more <= 0 || s.start - g->f.start > CFI_GO_PROLOGUE)
			return more < 0 ? more : 0;
		if (s.value > before && cfi_go_saves(g, s.start, before, s.value))
			return 0;
		g->saved_from = 0;
		g->kept_from = 0;
		before = s.value;
	}
	return r;
}

static int cfi_go_put(struct cfi_go *g, uint64_t pc, uint64_t end, const struct unwind_rule *rule)
{
	return pc < end ? cfi_rows_put(g->w, g->first, pc, end, rule) : 0;
}

/* Rows from pc to end, where the stack pointer is `value` below its place at entry. */
static int cfi_go_put_value(struct cfi_go *g, uint64_t pc, uint64_t end, int32_t value)
{
	struct unwind_rule rule = {.cfa = UNWIND_CFA_SP,
		.ra = UNWIND_AT_CFA,
		.cfa_offset = value + 8,
		.ra_offset = -8};
	const struct unwind_rule unsupported = {.cfa = UNWIND_CFA_UNSUPPORTED};
	bool is_saved = g->saved_from != 0 && end > g->saved_from && value >= g->saved_depth;
	uint64_t from = is_saved ? MAX(pc, g->saved_from) : end;

	if (value < 0 || value > INT32_MAX - 8)
		return cfi_go_put(g, pc, end, &unsupported);
	int r = cfi_go_put(g, pc, from, &rule);

	rule.fp = UNWIND_AT_CFA;
	rule.fp_offset = g->saved_at;
	return r < 0 ? r : cfi_go_put(g, from, end, &rule);
}

static const struct unwind_rule cfi_go_by_fp = {.cfa = UNWIND_CFA_OTHER_STACK,
	.fp = UNWIND_AT_CFA,
	.ra = UNWIND_AT_CFA,
	.cfa_offset = 16,
	.fp_offset = -16,
	.ra_offset = -8};

/* As above in a function that keeps its own frame pointer and is on another stack at times. */
static int cfi_go_put_kept(struct cfi_go *g, uint64_t pc, uint64_t end, int32_t value)
{
	uint64_t from = value >= g->saved_depth ? MIN(MAX(pc, g->kept_from), end) : end;
	int r = cfi_go_put_value(g, pc, from, value);

	/* mov rbp, [rsp + d] of an epilogue, with add rsp, N behind it, where the row ends. */
	for (uint64_t at = from; r == 0 && at < end; at++) {
		int32_t disp;
		size_t n = cfi_go_rbp(g, at, 0x8b, &disp);

		if (n == 0 || (end - at != n + 4 && end - at != n + 7))
			continue;
		r = cfi_go_put(g, from, at + n, &cfi_go_by_fp);
		return r < 0 ? r : cfi_go_put_value(g, at + n, end, value);
	}
	return r < 0 ? r : cfi_go_put(g, from, end, &cfi_go_by_fp);
}

/* Size of an instruction at code[i] that writes rsp by a move; *ret_aligns: and rsp, -16. */
static size_t cfi_go_writes(const struct cfi_go *g, size_t i, bool *ret_aligns)
{
	const uint8_t *c = g->code + i;

	*ret_aligns = g->size - i >= 4 && memcmp(c, "\x48\x83\xe4\xf0", 4) == 0;
	if (*ret_aligns)
		return 4;
	if (g->size - i < 8)
		return 0;
	if ((c[0] == 0x48 || c[0] == 0x4c) && c[1] == 0x89 && (c[2] & 0xc7) == 0xc4)
		return 3;
	if ((c[0] != 0x48 && c[0] != 0x49) || c[1] != 0x8b || (c[2] & 0x38) != 0x20)
		return 0;
	size_t sib = (c[2] & 7) == 4 && c[2] >> 6 != 3;

	return 3 + sib + (c[2] >> 6 == 1 ? 1 : c[2] >> 6 == 2 ? 4 : 0);
}

/* Behind `and rsp, -16`: where mov [rsp + d], rdx has kept the old one. */
static bool cfi_go_kept_sp(
	const struct cfi_go *g, size_t i, size_t *ret_end, struct unwind_rule *ret)
{
	for (size_t k = i; k + 5 <= g->size && k < i + 24; k++) {
		if (memcmp(g->code + k, "\x48\x89\x54\x24", 4) != 0)
			continue;
		*ret_end = k + 5;
		*ret = (struct unwind_rule){.cfa = UNWIND_CFA_DEREF,
			.reg = CFI_X86_SP,
			.ra = UNWIND_AT_CFA,
			.cfa_offset = (int8_t)g->code[k + 4],
			.ra_offset = -8,
			.aux = 8};
		return true;
	}
	return false;
}

/* The parts of a function without a frame of its own that are on another stack. 0 or -errno. */
static int cfi_go_switch(struct cfi_go *g, uint64_t pc, uint64_t end, int32_t value)
{
	const struct unwind_rule begins = {.cfa = UNWIND_CFA_END};
	struct unwind_rule rule = g->kind == CFI_GO_BEGINS ? begins : cfi_go_by_fp;
	uint64_t from = pc;
	bool is_away = false;
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->size;) {
		bool aligns = false;
		size_t n = cfi_go_writes(g, i, &aligns);
		uint64_t behind = g->f.start + i + n;

		i += n > 0 ? n : 1;
		if (n == 0 || (is_away && aligns) || (is_away && g->kind == CFI_GO_BEGINS))
			continue;
		if (!is_away && aligns && !cfi_go_kept_sp(g, i, &i, &rule))
			continue;
		if (!is_away && aligns)
			behind = g->f.start + i;
		else if (!is_away)
			rule = g->kind == CFI_GO_BEGINS ? begins : cfi_go_by_fp;
		if (behind > from) {
			uint64_t to = MIN(behind, end);

			r = is_away ? cfi_go_put(g, from, to, &rule)
				    : cfi_go_put_value(g, from, to, value);
			from = to;
		}
		is_away = !is_away;
	}
	if (r < 0 || from >= end)
		return r;
	return is_away ? cfi_go_put(g, from, end, &rule) : cfi_go_put_value(g, from, end, value);
}

static int cfi_go_put_row(struct cfi_go *g, uint64_t pc, uint64_t end, int32_t value)
{
	if (g->kind == CFI_GO_PLAIN)
		return cfi_go_put_value(g, pc, end, value);
	if (g->kind == CFI_GO_SWITCHES && g->kept_from != 0)
		return cfi_go_put_kept(g, pc, end, value);
	return cfi_go_switch(g, pc, end, value);
}

static int cfi_go_rows(struct cfi_go *g)
{
	const struct unwind_rule none = {.cfa = UNWIND_CFA_NONE};
	const struct unwind_rule root = {.cfa = UNWIND_CFA_END};
	struct go_pclntab *t = g->w->c->go;
	struct go_sp s;

	if (g->kind == CFI_GO_FIRST)
		return cfi_go_put(g, g->f.start, g->end, &root);
	int r = go_pclntab_sp_begin(t, &g->f, &s);

	if (r == -ENODATA)
		return cfi_go_put(g, g->f.start, g->end, &none);
	for (size_t rows = 0; r == 0 && s.end < g->end; rows++) {
		int more = go_pclntab_sp_next(t, &s);

		if (more < 0)
			return more;
		if (rows == CFI_ROWS_PER_FUNCTION_MAX)
			return -ENOBUFS;
		if (more == 0) {
			g->end = s.end; /* behind it is what aligns the next function */
			return 0;
		}
		r = cfi_go_put_row(g, s.start, MIN(s.end, g->end), s.value);
	}
	return r;
}

/* Go's own signal restorer, as libgcc and gdb know it: mov $15, %rax; syscall. */
static bool cfi_go_is_sigreturn(const struct cfi_go *g)
{
	return cfi_go_is(g, g->f.start, "\x48\xc7\xc0\x0f\0\0\0\x0f\x05", 9) &&
	       g->f.end - g->f.start <= CFI_GO_SIGRETURN_MAX;
}

int cfi_go_function(struct cfi_work *w, size_t index, uint64_t limit, uint64_t *ret_end)
{
	const struct unwind_rule unsupported = {.cfa = UNWIND_CFA_UNSUPPORTED};
	const struct unwind_rule signal = {.cfa = UNWIND_CFA_SIGNAL};
	struct cfi_go g = {.w = w};
	char name[CFI_GO_NAME] = "";
	int r = go_pclntab_function(w->c->go, index, &g.f);

	if (r < 0)
		return r;
	g.end = MIN(g.f.end, limit);
	*ret_end = g.end;
	if (g.end <= w->start || g.end <= g.f.start)
		return 0;
	if (g.f.flags != 0 || !go_pclntab_has_flags(w->c->go))
		r = go_pclntab_function_name(w->c->go, &g.f, name, sizeof(name));
	g.kind = r == 0 ? cfi_go_kind(name) : CFI_GO_PLAIN;
	if (g.kind == CFI_GO_PLAIN && (g.f.flags & GO_FUNCTION_SP_WRITE))
		g.kind = CFI_GO_SWITCHES;
	cfi_go_code(&g);
	bool is_sigreturn = cfi_go_is_sigreturn(&g);
	/* The handler returns to the first byte, and what is looked up is the one before: in the padding. */
	uint64_t start = g.f.start - (is_sigreturn && g.f.start > w->covered_end);

	r = cfi_rows_begin(w, start, &g.first);
	if (r < 0)
		return r;
	if (is_sigreturn)
		r = cfi_go_put(&g, start, g.end, &signal);
	else
		r = cfi_go_find_save(&g);
	if (r == 0 && !is_sigreturn)
		r = cfi_go_rows(&g);
	if (r == -EBADMSG || r == -ENODATA) {
		w->out->row_count = g.first;
		r = cfi_go_put(&g, g.f.start, g.end, &unsupported);
	}
	if (r == 0)
		cfi_rows_end(w, g.first, g.end);
	return r;
}
