/*
 * What the files of the CFI compiler share: cfi_elf.c finds sections, cfi_read.c reads them in
 * windows, cfi_fde.c finds the FDEs of an address, cfi_cie.c decodes their heads, cfi_program.c runs their
 * instructions, cfi_go.c has the rules of Go's own table, cfi_rule.c turns states into rules, cfi_call.c adds what a rule needs of a callee, cfi_rows.c
 * and cfi_shape.c collect rows, cfi.c drives.
 */
#ifndef AGENT_CFI_INTERNAL_H
#define AGENT_CFI_INTERNAL_H

#include "agent/cfi.h"
#include "agent/go_pclntab.h"
#include "base/cursor.h"

enum {
	CFI_CHUNK_SIZE = 1 << TABLE_CHUNK_SHIFT,
	CFI_SEGMENTS_MAX = 64, /* PT_LOADs that are kept */
	CFI_PLTS_MAX = 8,
	CFI_WINDOW_SIZE = 65536, /* longest FDE and CIE */
	CFI_WINDOW_FILL = 8192,  /* read at once when less is asked for */
	CFI_TABLE_ENTRIES = 512, /* of .eh_frame_hdr, read at once */
	CFI_CIES = 16,
	CFI_INFLATE_MAX = CFI_MEMORY_MAX / 4, /* of a compressed section, before and behind */
	CFI_HASH = 2 * TABLE_RULES_MAX,
	CFI_PADDING_MAX = 15, /* bytes between functions that keep the rule before them */
	CFI_TEXT_BEHIND = 8,
};

/* DWARF register numbers. */
enum {
	CFI_X86_FP = 6,
	CFI_X86_SP = 7,
	CFI_X86_RA = 16,
	CFI_ARM_FP = 29,
	CFI_ARM_LR = 30,
	CFI_ARM_SP = 31
};

struct cfi_section { /* of the file; size 0: there is none */
	uint64_t vaddr, offset, size;
};

struct cfi_segment {
	uint64_t vaddr, offset, file_size, memory_size;
	bool is_code;
};

struct cfi_ref {        /* of the index that a pass makes */
	uint32_t start; /* from text_start */
	uint32_t entry; /* offset in the section */
};

/* In the order of preference. */
enum { CFI_EH_FRAME, CFI_DEBUG_FRAME, CFI_SOURCES };

struct cfi_source {
	struct cfi_section section;
	uint8_t *bytes; /* of a section that is compressed in the file; NULL: read from there */
	bool is_eh;
	uint64_t table_offset; /* in the file, of .eh_frame_hdr's pairs; 0: refs */
	uint64_t table_vaddr;  /* what the pairs are relative to */
	struct cfi_ref *refs;  /* ascending */
	size_t count, allocated;
};

struct cfi_plt {
	uint64_t start, end;
	bool is_lazy; /* has a first entry that calls the linker */
	int32_t push; /* offset in an entry from which the relocation's index is on the stack */
};

struct cfi {
	int fd;
	enum cfi_arch arch;
	bool is_go;
	uint64_t text_start, text_end;
	struct cfi_segment segments[CFI_SEGMENTS_MAX];
	size_t segment_count;
	struct cfi_section hdr;
	uint64_t got;         /* 0: none */
	uint64_t bare_signal; /* cfi_bare.c: the trampoline; 0: an ordinary file */
	bool bare_has_frames;
	struct cfi_source sources[CFI_SOURCES];
	struct go_pclntab *go;             /* NULL: no Go, or aarch64 */
	struct cfi_plt plts[CFI_PLTS_MAX]; /* by start */
	size_t plt_count;
};

enum cfi_how {
	CFI_UNSET,
	CFI_SAME,
	CFI_UNDEFINED,
	CFI_AT_CFA,  /* at cfa + offset */
	CFI_AT_BASE, /* at the register that the CFA is relative to + offset */
	CFI_IN_REG,
	CFI_AT_REG, /* at reg + offset */
	CFI_OTHER,
};

struct cfi_place {
	uint8_t how; /* enum cfi_how */
	uint64_t reg;
	int64_t offset;
};

enum cfi_cfa_how {
	CFI_CFA_UNSET,
	CFI_CFA_REG,
	CFI_CFA_DEREF,
	CFI_CFA_INDEXED,
	CFI_CFA_PLT,
	CFI_CFA_OTHER
};

/* What is kept of a row: an expression is decoded when its instruction is met. */
struct cfi_state {
	uint8_t cfa; /* enum cfi_cfa_how */
	uint64_t cfa_reg;
	int64_t cfa_offset;
	int64_t aux; /* CFI_CFA_DEREF, _INDEXED: what is added; CFI_CFA_PLT: the constant */
	struct cfi_place fp, ra;
};

struct cfi_cie {
	bool is_known, is_eh, has_z, is_signal;
	uint64_t offset; /* in the section */
	uint8_t encoding;
	uint8_t segment_size;
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra;
	struct cfi_state initial;
};

struct cfi_fde {
	uint64_t start, size;
	const struct cfi_cie *cie;
	struct cursor code;  /* into the window */
	uint64_t code_vaddr; /* of code's first byte */
};

struct cfi_entry {
	uint64_t offset, body, end; /* in the section; body: behind the CIE pointer */
	uint64_t cie;               /* offset of an FDE's CIE */
	bool is_terminator, is_cie;
};

struct cfi_window {
	const struct cfi_section *section;
	uint64_t start;
	size_t size;
	uint8_t bytes[CFI_WINDOW_SIZE];
};

/* Memory of one cfi_compile() or of the pass. */
struct cfi_work {
	const struct cfi *c;
	struct cfi_window window; /* of sections in the file */
	struct {
		uint64_t first;
		size_t count;
		uint8_t bytes[8 * CFI_TABLE_ENTRIES];
	} table;
	struct cfi_cie cies[CFI_CIES];
	uint64_t instructions; /* run */

	/* --- the chunk under way --- */
	struct cfi_chunk *out;
	uint64_t start, end;  /* vaddr of the chunk */
	uint64_t covered_end; /* vaddr up to which rows are there */
	bool has_text;
	uint8_t text[CFI_CHUNK_SIZE + CFI_TEXT_BEHIND];
	uint16_t hash[CFI_HASH]; /* rule's index + 1 */
	uint16_t rename[TABLE_RULES_MAX];
};

struct cfi_program {
	struct cursor code;
	const struct cfi *c;
	const struct cfi_cie *cie;
	uint64_t code_vaddr;
	const uint8_t *code_start;
	uint64_t fp, pc, next;
	struct cfi_state state;
	struct cfi_state stack[CFI_STATES_MAX];
	size_t depth;
};

/* --- cfi_elf.c: 0, -ENOEXEC, -errno of pread; *why is set --- */
int cfi_elf_read(struct cfi *c, const char **why);

/* --- cfi_read.c --- */
int cfi_pread(
	const struct cfi *c, uint64_t offset, void *to, size_t size); /* -ENODATA: too short */
bool cfi_file_offset(const struct cfi *c, uint64_t vaddr, uint64_t *ret, uint64_t *ret_left);
bool cfi_is_code(const struct cfi *c, uint64_t vaddr);
/* size bytes of the section, good until the next call. -EBADMSG: beyond it, or too many. */
int cfi_window_at(struct cfi_work *w, const struct cfi_source *s, uint64_t offset, size_t size,
	const uint8_t **ret);
/*
 * Takes a compressed section into memory (Elf64_Chdr, zlib), if it is no larger than CFI_INFLATE_MAX. What
 * cannot be had is left out: s stays without a section. 0 or -ENOMEM.
 */
int cfi_inflate(const struct cfi *c, struct cfi_source *s, const struct cfi_section *from);
int64_t cfi_sleb(struct cursor *c);
/* A pointer of .eh_frame; field_vaddr is where it stands. An unknown or indirect one fails the cursor. */
uint64_t cfi_pointer(
	const struct cfi *c, struct cursor *at, uint8_t encoding, uint64_t field_vaddr);

/* --- cfi_cie.c: 0, -EBADMSG, -ENODATA, -errno --- */
int cfi_entry_read(
	struct cfi_work *w, const struct cfi_source *s, uint64_t offset, struct cfi_entry *ret);
int cfi_fde_read(struct cfi_work *w, const struct cfi_source *s, const struct cfi_entry *e,
	struct cfi_fde *ret);

/* --- cfi_fde.c --- */
/* Finds or makes the index of s. 0; -ENOBUFS; -ENOMEM; -errno. */
int cfi_index_open(struct cfi *c, struct cfi_source *s);
/* Makes it by a pass over the section, whatever .eh_frame_hdr says. */
int cfi_index_pass(struct cfi *c, struct cfi_source *s);
/* Entry i < s->count: where its function begins, and where in the section it stands. */
int cfi_index_get(struct cfi_work *w, const struct cfi_source *s, size_t i, uint64_t *ret_start,
	uint64_t *ret_entry);
/* The last entry that begins at or before vaddr, 0 if none does. */
int cfi_index_seek(struct cfi_work *w, const struct cfi_source *s, uint64_t vaddr, size_t *ret);

/* --- cfi_bare.c --- */
/* Whether a file without CFI is a vdso of aarch64. */
bool cfi_bare_find(struct cfi *c);
int cfi_bare_rows(struct cfi_work *w);

/* --- cfi_go.c --- */
/* Rows of function index of c->go, up to limit at most. 0; -ENOBUFS; -errno. */
int cfi_go_function(struct cfi_work *w, size_t index, uint64_t limit, uint64_t *ret_end);

/* --- cfi_program.c --- */
void cfi_program_init(struct cfi_program *p, const struct cfi *c, const struct cfi_cie *cie,
	struct cursor code, uint64_t code_vaddr);
/*
 * Runs up to the next row: state holds from pc up to next when it returns 1, from pc to the function's
 * end when it returns 0. -EBADMSG; -ENOBUFS of CFI_INSTRUCTIONS_MAX, counted in *count.
 */
int cfi_program_step(struct cfi_program *p, uint64_t *count);

/* --- cfi_rule.c --- */
void cfi_expression_cfa(struct cursor code, struct cfi_state *ret);
void cfi_expression_place(struct cursor code, struct cfi_place *ret);
void cfi_rule_of(enum cfi_arch arch, const struct cfi_cie *cie, const struct cfi_state *s,
	struct unwind_rule *ret);

/* --- cfi_rows.c --- */
/* A row at pc that holds up to end; what lies outside the chunk is left out. 0 or -ENOBUFS. */
int cfi_rows_put(
	struct cfi_work *w, size_t first, uint64_t pc, uint64_t end, const struct unwind_rule *r);
/* Around the rows of a function: what is between it and the one before, and whether it goes on as that. */
int cfi_rows_begin(struct cfi_work *w, uint64_t start, size_t *ret_first);
void cfi_rows_end(struct cfi_work *w, size_t first, uint64_t end);
int cfi_rows_finish(struct cfi_work *w);
int cfi_rows_plt(struct cfi_work *w, const struct cfi_plt *p, uint64_t end);
/* Index of the rule in out->rules, or -ENOBUFS. */
int cfi_rows_rule(struct cfi_work *w, const struct unwind_rule *r);

/* --- cfi_call.c: rows for calls in rows whose CFA hangs on rbx; 0 or -errno --- */
int cfi_call(struct cfi_work *w, const struct cfi_source *s, size_t first, uint64_t end);

/* Reads the chunk's text; bytes that the file does not have are 0. */
int cfi_shape_text(struct cfi_work *w);
/* --- cfi_shape.c: makes one row of those from first on, if they have the shape; 0 or -errno --- */
int cfi_shape(struct cfi_work *w, size_t first, uint64_t end);

#endif
