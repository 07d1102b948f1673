/*
 * The CFI compiler: .eh_frame (or .debug_frame) of one ELF file to chunks of bpf/table.h. Runs in the
 * helper process on hostile bytes, reads with pread in windows and never maps the file.
 *
 *	cfi_open -> (cfi_chunk)* -> cfi_free
 *
 * Sources: .eh_frame through the sorted table of .eh_frame_hdr (Linux Standard Base 5, 10.6) so that
 * a chunk costs only its own FDEs; without a usable table, one pass over the section makes one. Then
 * .debug_frame, also compressed, where .eh_frame has nothing. Sections are found by section headers, else
 * PT_GNU_EH_FRAME. The instructions are those of DWARF 5 section 6.4.2 with GNU's args_size, and
 * aarch64's negate_ra_state. Kept of each row: the CFA, the frame pointer and the return address; rows
 * that do not differ in these are one. Known expressions: libc's signal frame (__restore_rt, by the
 * augmentation S), the .plt's, and *(reg + a) + b of realigned stacks; with any other of the CFA or the
 * return address a row is UNWIND_CFA_UNSUPPORTED, with any other of fp that is UNWIND_UNDEFINED. A
 * function whose program makes no sense is one row of UNWIND_CFA_UNSUPPORTED. Addresses between FDEs
 * have UNWIND_CFA_NONE, but up to 15 bytes of padding go on as what is before them. Functions of Go have their rules from
 * Go's own table (cfi_go.c) on x86-64, whether or not the file is stripped. .plt sections that
 * no FDE covers get UNWIND_CFA_PLT or sp + 8 by their first bytes. Go's .debug_frame is
 * read only where its table is of an unknown version; it says nothing of rbp, which has its known place there. On aarch64
 * it is left out.
 *
 * Functions with the standard frame-pointer shape are coalesced (UNWIND_CFA_FP_SHAPE), after the text
 * bytes were compared: the rule "sp + 8 at a ret byte" must give what the rows say.
 */
#ifndef AGENT_CFI_H
#define AGENT_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/table.h"

enum {
	CFI_MEMORY_MAX = 32 << 20,         /* of one file's index */
	CFI_ROWS_PER_FUNCTION_MAX = 16384, /* the compiler cc1 has one of more than 4,096 */
	CFI_INSTRUCTIONS_MAX = 1 << 20,    /* executed for one chunk */
	CFI_STATES_MAX = 16,               /* remember_state deep */
};

enum cfi_arch { CFI_X86_64, CFI_AARCH64 };

struct cfi;

struct cfi_info {
	enum cfi_arch arch;
	uint64_t text_start, text_end; /* vaddr: lowest and highest of the executable PT_LOADs */
	uint64_t functions;            /* FDEs */
	bool has_eh_frame, has_hdr, has_debug_frame;
};

/* One row of the file's own addresses. */
struct cfi_row {
	uint16_t offset; /* in the chunk */
	uint16_t rule;   /* in rules[] */
};

/* A compiled chunk, before its rules get their places in `rules`. Reused from call to call. */
struct cfi_chunk {
	size_t row_count, rule_count;
	struct cfi_row rows[TABLE_ROWS_MAX];
	struct unwind_rule rules[TABLE_RULES_MAX];
};

/*
 * fd is the caller's and stays open. 0; -ENOEXEC (no ELF64 of a known machine, or it makes no sense);
 * -ENODATA (no CFI in it); -ENOBUFS (CFI_MEMORY_MAX); -ENOMEM; -errno of pread. why gets a static
 * line.
 */
int cfi_open(int fd, const char **why, struct cfi **ret);
void cfi_free(struct cfi *c); /* accepts NULL */
void cfi_info(const struct cfi *c, struct cfi_info *ret);

/*
 * The chunk that begins at vaddr index << TABLE_CHUNK_SHIFT. ret->row_count 0: no FDE touches it. 0;
 * -EBADMSG (the CFI makes no sense here; the rest of the file may be good); -ENOBUFS (a limit above);
 * -errno of pread (-ENODATA: the file is shorter than it says).
 */
int cfi_compile(struct cfi *c, uint64_t index, struct cfi_chunk *ret);

/* Bytes that cfi_pack() writes for it, a multiple of 8. */
size_t cfi_packed_size(const struct cfi_chunk *c);
/*
 * Writes the chunk in the form of bpf/table.h; rule_map has the index into `rules` of each of c->rules.
 * size is cfi_packed_size().
 */
void cfi_pack(const struct cfi_chunk *c, const uint16_t *rule_map, void *ret, size_t size);

#endif
