/* What elf_symbols.c (the table), elf_symbols_plt.c (PLT slots) and elf_symbols_mini.c
 * (.gnu_debugdata) share. */
#ifndef AGENT_ELF_SYMBOLS_INTERNAL_H
#define AGENT_ELF_SYMBOLS_INTERNAL_H

#include "agent/elf_symbols.h"

enum {
	ELF_SYMBOLS_SEGMENTS_MAX = 64,
	ELF_SYMBOLS_SECTIONS_MAX = 1 << 17,
	ELF_SYMBOLS_CODE_MAX = 4096, /* executable sections that are kept */
	ELF_SYMBOLS_RELAS_MAX = 16,
};

struct elf_symbols_segment {
	uint64_t offset, vaddr, file_size;
	bool is_code;
};

struct elf_symbols_code { /* an executable section */
	uint64_t start, end, offset;
	uint32_t slot_size; /* of a PLT; 0: no PLT */
};

struct elf_symbols_table { /* .symtab, .dynsym or that of .gnu_debugdata */
	uint64_t offset, count;
	uint64_t names, names_size; /* of ELF_SYMBOLS_MINI they are in mini_names */
};

struct elf_symbols_relas { /* relocations by .dynsym */
	uint64_t offset, count;
};

struct elf_symbol {
	uint64_t start;
	uint64_t size;
	uint32_t name;
	uint8_t rank;  /* lower is preferred, rule 4 up to the underscores */
	uint8_t table; /* index of elf_symbols.tables */
	uint16_t pad;
};

enum { ELF_SYMBOLS_SYMTAB, ELF_SYMBOLS_DYNSYM, ELF_SYMBOLS_MINI, ELF_SYMBOLS_TABLES };

struct elf_symbols {
	int fd;
	bool is_arm; /* aarch64 */
	struct elf_symbols_segment segments[ELF_SYMBOLS_SEGMENTS_MAX];
	size_t segment_count;
	struct elf_symbols_code *codes; /* sorted by start */
	size_t code_count;
	struct elf_symbols_table tables[ELF_SYMBOLS_TABLES];
	struct elf_symbols_relas relas[ELF_SYMBOLS_RELAS_MAX]; /* .rela.plt first */
	size_t rela_count;
	uint64_t mini_offset, mini_size; /* .gnu_debugdata */
	char *mini_names;
	struct elf_symbol *symbols; /* sorted by start */
	size_t count, allocated;
};

/* Exactly size bytes at offset: 0, -EBADMSG (the file is shorter) or -errno. */
int elf_symbols_pread(const struct elf_symbols *e, uint64_t offset, void *to, size_t size);
/* The NUL-terminated string, cut at size - 1. False: unreadable or empty. */
bool elf_symbols_name(
	const struct elf_symbols *e, size_t table, uint32_t name, char *to, size_t size);
/* Adds those of count symbols that name code. 0 or -ENOMEM. */
int elf_symbols_take(struct elf_symbols *e, const void *symbols, size_t count, size_t table);
/* Adds the symbols of .gnu_debugdata. On failure some may be there. */
int elf_symbols_read_mini(struct elf_symbols *e, uint64_t offset, uint64_t size);
/* The executable section that holds vaddr, or NULL. */
const struct elf_symbols_code *elf_symbols_code_at(const struct elf_symbols *e, uint64_t vaddr);
bool elf_symbols_find_plt(const struct elf_symbols *e, const struct elf_symbols_code *code,
	uint64_t vaddr, struct elf_symbols_answer *ret);

#endif
