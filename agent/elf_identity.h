/*
 * Which build a file is, and where the rest of it is to be found: what its notes and sections say of
 * themselves. Nothing here is believed about another file before elf_identity_match() compared the
 * two.
 *
 * Reads any bytes (by pread, so that a file cut meanwhile is an error and no SIGBUS), hence only in
 * the helper process. 64-bit little-endian files.
 *
 *	note "GNU" type 3	build ID, in PT_NOTE or in a SHT_NOTE section, wherever in the file
 *	note "Go" type 4	Go's own, a text; counts only without the former
 *	.gnu_debuglink		file name NUL, padding to 4, u32 CRC-32 of the whole debug file
 *	.gnu_debugaltlink	path NUL, build ID of the file that dwz moved shared entries to
 */
#ifndef AGENT_ELF_IDENTITY_H
#define AGENT_ELF_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

enum {
	ELF_IDENTITY_BUILD_ID_MAX = 96, /* SHA-1 has 20, a Go text 83; longer ones are ignored */
	ELF_IDENTITY_DEBUGLINK_SIZE = 256,
	ELF_IDENTITY_ALTLINK_SIZE = 4096,
	ELF_IDENTITY_CRC_MAX = 512 << 20, /* bytes of a file whose CRC is taken: about a second */
};

enum elf_identity_kind { ELF_IDENTITY_NONE, ELF_IDENTITY_GNU, ELF_IDENTITY_GO };

struct elf_identity {
	enum elf_identity_kind kind; /* of build_id */
	uint32_t build_id_size;      /* 0: none, which is usual */
	uint8_t build_id[ELF_IDENTITY_BUILD_ID_MAX];
	bool has_debuglink;
	uint32_t debuglink_crc;
	char debuglink
		[ELF_IDENTITY_DEBUGLINK_SIZE]; /* a bare file name: no '/', not "..", not "" */
	uint32_t alt_build_id_size;            /* 0: no alternate file */
	uint8_t alt_build_id[ELF_IDENTITY_BUILD_ID_MAX];
	char altlink[ELF_IDENTITY_ALTLINK_SIZE];
	bool has_symtab;    /* .symtab with entries in the file */
	bool has_dwarf;     /* .debug_info likewise, compressed or not */
	bool has_debugdata; /* .gnu_debugdata */
	bool is_go;
};

/*
 * 0, -ENOEXEC: no file we read; -EBADMSG: it contradicts itself; both with a static line in *why; or
 * -errno of pread. A section or note that makes no sense is passed over. fd stays the caller's.
 */
int elf_identity_read(int fd, const char **why, struct elf_identity *ret);

/* CRC-32 of the whole file. 0, -EFBIG above ELF_IDENTITY_CRC_MAX, or -errno. */
int elf_identity_crc(int fd, uint32_t *ret);

/*
 * Whether the file open as fd is the debug file of the file that has this identity: the same build
 * ID, or, if the file has none by GNU, the CRC of its debuglink. 0; -EKEYREJECTED: another build, or
 * nothing to tell by; or as the functions above. *why is set in any case but 0.
 */
int elf_identity_match(const struct elf_identity *of, int fd, const char **why);
/* What the alternate file that of names has to be: to be given to elf_identity_match(). */
void elf_identity_alt(const struct elf_identity *of, struct elf_identity *ret);

#endif
