/*
 * What the files of Go's table share: go_pclntab_elf.c reads the file, go_pclntab_module.c finds what only
 * runtime.moduledata says, go_pclntab.c opens and finds functions, go_pclntab_names.c makes names of them.
 */
#ifndef AGENT_GO_PCLNTAB_INTERNAL_H
#define AGENT_GO_PCLNTAB_INTERNAL_H

#include "agent/go_pclntab.h"
#include "base/def.h"

enum {
	GO_SEGMENTS_MAX = 64,
	GO_PAGE_SIZE = 2048,
	GO_PAGES = 32,
	GO_WINDOW = 65536,  /* of what is read once, from end to end */
	GO_TEXT_MAX = 4096, /* of a string in the table */
	GO_VALUE_STEPS_MAX = 1 << 18,
};

enum go_layout { GO_1_16, GO_1_18, GO_1_20 };

struct go_segment {
	uint64_t vaddr, offset, file_size, memory_size;
	bool is_code;
};

struct go_place { /* size 0: none */
	uint64_t vaddr, size;
};

/* What the headers of the file say. */
struct go_elf {
	int fd;
	uint8_t quantum; /* bytes of the shortest instruction */
	bool is_movable; /* ET_DYN */
	bool has_sections, is_go;
	struct go_segment segments[GO_SEGMENTS_MAX];
	size_t segment_count;
	struct go_place table, dynamic;
};

struct go_page {
	uint64_t offset; /* in the file, + 1; 0: empty */
	uint32_t size;
	uint8_t bytes[GO_PAGE_SIZE];
};

struct go_pclntab {
	struct go_elf elf;
	enum go_layout layout;
	uint64_t vaddr, offset, size; /* of the table in the file; size: what can be read */
	uint64_t names, units, files, pcs, functions; /* offsets of its parts */
	uint64_t count;
	uint64_t text; /* what entries count from; 0 before 1.18 */
	uint64_t text_first, text_end;
	uint64_t header_text; /* what the header says; 0: nothing */
	uint64_t funcdata;    /* vaddr that offsets of funcdata count from; with is_inlining */
	bool is_inlining;
	struct go_page *pages;
};

/* What runtime.moduledata says. */
struct go_module {
	uint64_t text, first, last; /* of the functions */
	uint64_t funcdata;
};

/* --- go_pclntab_elf.c: 0, -EBADMSG (too short), -errno --- */
int go_elf_read(struct go_elf *e, const char **why);
int go_elf_pread(const struct go_elf *e, uint64_t offset, void *to, size_t size);
bool go_elf_offset(const struct go_elf *e, uint64_t vaddr, uint64_t *ret, uint64_t *ret_left);
bool go_elf_is_code(const struct go_elf *e, uint64_t start, uint64_t end);
/* Through the pages. */
int go_read_file(struct go_pclntab *g, uint64_t offset, void *to, size_t size);
int go_read(struct go_pclntab *g, uint64_t at, void *to, size_t size);
int go_read_vaddr(struct go_pclntab *g, uint64_t vaddr, void *to, size_t size);
/* The string at the offset, without its NUL, cut at size - 1; *ret_size is its length. */
int go_read_text(
	struct go_pclntab *g, uint64_t at, uint64_t end, char *to, size_t size, size_t *ret_size);

/*
 * Calls fn for each window of a segment's bytes in the file; a window begins at a multiple of 8 and the next
 * one where it ends. fn ends the pass by a value that is not 0, which is returned.
 */
typedef int go_window_fn(void *data, uint64_t vaddr, const uint8_t *bytes, size_t size);
int go_elf_scan(const struct go_elf *e, const struct go_segment *s, go_window_fn *fn, void *data);

/* --- go_pclntab_module.c: 0; -ENOENT; -ENOMEM; -errno --- */
int go_module_find(const struct go_pclntab *g, struct go_module *ret);

/* --- go_pclntab_names.c --- */
/* Whether the call trees of the first functions that have one make sense. */
bool go_names_inlining(struct go_pclntab *g);
/*
 * The value at pc of the table at offset `table` of the function; -1 where it says nothing. *ret_first
 * where the value began.
 */
int go_names_value(struct go_pclntab *g, const struct go_function *f, uint32_t table, uint64_t pc,
	int32_t *ret);

#endif
