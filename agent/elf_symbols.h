/*
 * The function symbols of one ELF file, for naming addresses in it. The file may be anything that
 * a process managed to map, so this runs in the helper process only, reads by pread (a file that
 * is truncated meanwhile gives an error, where mmap would give SIGBUS) and bounds every count.
 *
 * 64-bit little-endian x86-64 and aarch64; other classes are refused with a reason. A separate debug
 * file is read like any other: it has the program's headers, its symbols and none of its bytes.
 *
 * Which name an address gets:
 *  1. Functions (FUNC, IFUNC) and untyped labels in executable sections, of .symtab and .dynsym; if
 *     there is no .symtab, also those of .gnu_debugdata (minidebuginfo). A version behind '@' is cut.
 *  2. A symbol with a size names only [value, value + size). Of several that hold the address the
 *     one that begins last wins.
 *  3. If none does, a symbol of size 0 (assembly) names what follows it, up to the next symbol or
 *     its section's end.
 *  4. Names of one address: typed before untyped, exported (global, weak) before local, fewer
 *     leading underscores, global before weak, then byte order: `getpid`, not `__getpid`, in every
 *     run.
 *  5. A PLT slot is named after the function whose GOT entry it jumps through, with "@plt".
 *  6. Nothing else has a name.
 */
#ifndef AGENT_ELF_SYMBOLS_H
#define AGENT_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_symbols;

enum {
	ELF_SYMBOLS_MAX = 4 << 20,     /* of one file */
	ELF_SYMBOLS_NAME_SIZE = 2049,  /* one more than PROFILE_NAME_MAX; longer ones are cut */
	ELF_SYMBOLS_BUILD_ID_MAX = 32, /* bytes; SHA-1 has 20 */
};

struct elf_symbols_answer {
	uint64_t start; /* vaddr */
	uint64_t size;
	bool is_plt;
	char name[ELF_SYMBOLS_NAME_SIZE]; /* as it stands in the file */
};

/*
 * Reads headers and symbol tables of fd, which is from then on owned by *ret (on failure it stays
 * the caller's). A file without symbols is not an error. 0; -ENOEXEC not an ELF file we read, with
 * a static one-line reason in *why; -EBADMSG malformed, likewise; -ENOMEM; -errno of pread.
 */
int elf_symbols_open(int fd, const char **why, struct elf_symbols **ret);
void elf_symbols_free(struct elf_symbols *e); /* accepts NULL; closes fd */
void elf_symbols_freep(struct elf_symbols **e);

/* File offset of a mapped byte to its address in the file's own space, by PT_LOAD. */
bool elf_symbols_vaddr(const struct elf_symbols *e, uint64_t offset, uint64_t *ret);
/* False when nothing names vaddr, or the name cannot be read. */
bool elf_symbols_find(const struct elf_symbols *e, uint64_t vaddr, struct elf_symbols_answer *ret);

size_t elf_symbols_count(const struct elf_symbols *e);
size_t elf_symbols_memory(const struct elf_symbols *e);

#endif
