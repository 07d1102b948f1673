/*
 * Unwind tables as the kernel programs read them and user space writes them. cfi.h makes chunks out
 * of .eh_frame, tables.h places them here, unwind_cfi.h walks by them.
 *
 * FROM A PC TO A RULE
 *	process (struct process_key, map `procs`)	-> its list of executable mappings, sorted
 *	mapping that holds pc				-> vaddr = pc - bias; file chunk = vaddr >> 16
 *	directory entry dirs[m.dir + chunk - m.first_chunk]	-> table_ref of the chunk, or why there is none
 *	chunk: block_first[(vaddr & 0xffff) >> 9]	-> rows to search, at most those of 512 bytes
 *	last row with offset <= vaddr & 0xffff		-> id -> rule_map[id] -> rules[]
 *
 * MEMORY. Slabs of TABLE_SLAB_SIZE bytes (inner maps of `slabs`, mmapable arrays of one value, made when
 * needed) hold chunks and mapping lists, 8-byte aligned. A table_ref is slab << 18 | offset; what is
 * smaller than TABLE_REF_MIN says why there is nothing.
 *
 * CHANGE. Nothing is edited while a program may read it: new bytes are written where no reference
 * points, then one aligned word (directory entry, value of `procs`) is swapped. A slab is used anew only
 * after its inner map was replaced, which waits for running programs (kernel/bpf/syscall.c,
 * maybe_wait_bpf_programs). Every index read from a slab is checked against the slab all the same.
 *
 * MISS. A program that lacks a process, a mapping or a chunk says so once (struct table_miss in ring
 * `misses`; a directory entry goes from TABLE_NONE to TABLE_WANTED by compare and exchange), and keeps the
 * sample in a slot of `deferred`: registers, kernel frames and a copy of the stack, which never
 * leaves the kernel. User space builds what is missing and runs `resume`, which walks the kept copies.
 * So no stack is lost or cut because its tables were not there yet; a slot that cannot be walked
 * within DEFERRED_ATTEMPTS_MAX rounds, or finds no free slot, ends with its reason.
 *
 *	struct table_chunk, then
 *	u16 block_first[TABLE_BLOCKS + 1]	row that covers the block's first byte; last: row_count - 1
 *	u16 rule_map[rule_count]		index into `rules`
 *	u16 offsets[row_count]			ascending, offsets[0] = 0
 *	u8 or u16 ids[row_count]		index into rule_map; u16 when rule_count > 256
 */
#ifndef AGENT_BPF_TABLE_H
#define AGENT_BPF_TABLE_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#include "agent/bpf/sample.h"

enum {
	TABLE_CHUNK_SHIFT = 16,
	TABLE_BLOCK_SHIFT = 9,
	TABLE_BLOCKS = 1 << (TABLE_CHUNK_SHIFT - TABLE_BLOCK_SHIFT),
	TABLE_ROWS_MAX = 16384, /* of one chunk; more is not compiled */
	TABLE_SLAB_SHIFT = 18,
	TABLE_SLAB_SIZE = 1 << TABLE_SLAB_SHIFT,
	TABLE_SLABS_MAX = 512, /* 128 MB, whatever the budget says */
	TABLE_RULES_MAX = 4096,
	TABLE_DIRS_MAX = 1 << 18,  /* 16 GB of code */
	TABLE_MAPPINGS_MAX = 4096, /* of one process; others have frame pointers only */
	TABLE_PROCESSES_MAX = 4096,
};

/* table_ref of what is not there; everything at or above TABLE_REF_MIN is a place. */
enum {
	TABLE_NONE = 0,   /* not built, nobody asked */
	TABLE_WANTED = 1, /* not built, asked for */
	TABLE_NO_CFI = 2, /* the file says nothing here: frame pointers */
	TABLE_BROKEN = 3, /* the file is unreadable or makes no sense: frame pointers, labelled */
	TABLE_FULL = 4,   /* larger than the budget allows: frame pointers, labelled */
	TABLE_REF_MIN = 64,
};

/* How a rule gets the CFA (call frame address, DWARF 5 section 6.4.1). */
enum unwind_cfa {
	UNWIND_CFA_NONE, /* no rule: what the compiler says about this address is nothing */
	UNWIND_CFA_END,  /* return address undefined: the thread's first frame */
	UNWIND_CFA_SP,   /* sp + cfa_offset */
	UNWIND_CFA_FP,   /* fp + cfa_offset */
	UNWIND_CFA_REG, /* reg + cfa_offset; only of an interrupted frame, whose registers are known */
	UNWIND_CFA_DEREF, /* *(reg + cfa_offset) + aux; reg sp or fp, else as UNWIND_CFA_REG */
	/* *(sp + 8 * reg + cfa_offset) + aux; as UNWIND_CFA_REG. OpenSSL's bn_mul_mont. */
	UNWIND_CFA_INDEXED,
	/*
	 * A function that keeps a frame pointer in the usual way; its rows are one. aux: offset in the
	 * row of its "push fp", or -1 when the row begins behind the prologue. x86-64: rows are
	 * push + 0: sp + 8; push + 1: sp + 16; push + 4 and behind: fp + 16, but sp + 8 at a ret (c3).
	 */
	UNWIND_CFA_FP_SHAPE,
	UNWIND_CFA_PLT,    /* x86-64 .plt: sp + 8 + (((pc & 15) >= aux) << 3) */
	UNWIND_CFA_SIGNAL, /* signal frame: registers stand in the ucontext; see UNWIND_SIGNAL_* */
	/* fp + cfa_offset, of a stack that was left and may lie anywhere: Go's systemstack, cgo. */
	UNWIND_CFA_OTHER_STACK,
	UNWIND_CFA_UNSUPPORTED, /* an expression or register we do not follow; labelled */
};

enum unwind_where {
	UNWIND_SAME,      /* still in its register */
	UNWIND_AT_CFA,    /* at cfa + offset */
	UNWIND_IN_REG,    /* in register ra_offset or fp_offset; interrupted frames only */
	UNWIND_AT_FP,     /* fp only: at fp + fp_offset; realigned stacks, with UNWIND_CFA_DEREF */
	UNWIND_UNDEFINED, /* fp only: gone; what needs it ends the walk */
	UNWIND_AT_BASE,   /* aarch64: at cfa - cfa_offset + offset; frames above 32 KB */
};

/* DWARF register numbers (x86-64: System V ABI figure 3.36; aarch64: AADWARF64 4.1) are what reg and IN_REG hold. */
struct unwind_rule {
	__u8 cfa; /* enum unwind_cfa */
	__u8 reg; /* UNWIND_CFA_REG, UNWIND_CFA_DEREF, UNWIND_CFA_INDEXED */
	__u8 fp;  /* enum unwind_where */
	__u8 ra;  /* enum unwind_where; SAME: in the link register (aarch64) */
	__s32 cfa_offset;
	__s16 fp_offset;
	__s16 ra_offset;
	__s32 aux;
};

enum {
	TABLE_RULE_NONE = 0,
	TABLE_RULE_END = 1,
	TABLE_RULE_FIRST = 2
}; /* fixed indices of `rules` */

struct table_chunk {
	__u16 row_count; /* at least 1 */
	__u16 rule_count;
	__u32 bytes; /* of the whole, this head included */
};

struct table_mapping {
	__u64 start, end; /* end is past the last byte */
	__u64 bias;       /* vaddr = pc - bias */
	__u32 dir;        /* of chunk first_chunk; 0: none, frame pointers only */
	__u32 first_chunk;
	__u32 chunk_count;
	__u32 flags; /* TABLE_MAPPING_* */
};

#define TABLE_MAPPING_ANON 1u /* generated code */

struct process_key {
	__u64 start_ns;
	__u32 tgid;
	__u32 exec_id;
};

/* Value of `procs`; swapped whole by an update of the element. */
struct table_process {
	__u32 list; /* table_ref of mappings; 0: none could be read */
	__u32 count;
	__u32 generation;
	__u32 pad;
	__u64 final_until_ns; /* CLOCK_MONOTONIC: until then a pc in no mapping is no miss */
};

enum table_miss_kind { TABLE_MISS_PROCESS, TABLE_MISS_MAPPING, TABLE_MISS_CHUNK };

struct table_miss {
	struct process_key process;
	__u64 pc;
	__u32 kind;
	__u32 dir;   /* TABLE_MISS_CHUNK: index of the directory entry */
	__u32 chunk; /* TABLE_MISS_CHUNK: the file's chunk, vaddr >> 16 */
	__u32 pad;
	__u64 seen_ns; /* of the sample that lacks it, CLOCK_MONOTONIC */
};

enum {
	DEFERRED_SLOTS = 256, /* at most; a recording has half a second of its samples */
	DEFERRED_SLOTS_MIN = 32,
	DEFERRED_STACK_SIZE = 32768, /* a function of 20 KB of locals is believed, too */
	DEFERRED_ATTEMPTS_MAX =
		64, /* each can bring a chunk: a stack through 64 of them is believed */
};

_Static_assert(sizeof(struct unwind_rule) == 16, "unwind_rule is shared with BPF");
_Static_assert(sizeof(struct table_chunk) == 8, "table_chunk is shared with BPF");
_Static_assert(sizeof(struct table_mapping) == 40, "table_mapping is shared with BPF");
_Static_assert(sizeof(struct process_key) == 16, "process_key is shared with BPF");
_Static_assert(sizeof(struct table_process) == 24, "table_process is shared with BPF");
_Static_assert(sizeof(struct table_miss) == 48, "table_miss is shared with BPF");

#endif
