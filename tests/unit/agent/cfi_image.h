/*
 * ELF files with hand-made CFI for cfi_test.c: text of 0x20000 bytes at vaddr 0x10000, so that it is
 * chunks 1 and 2, and the sections that a test puts. What a chunk compiles to is read back as text.
 */
#ifndef TESTS_UNIT_AGENT_CFI_IMAGE_H
#define TESTS_UNIT_AGENT_CFI_IMAGE_H

#include <stdbool.h>

#include "agent/cfi.h"

enum {
	IMAGE_TEXT = 0x10000, /* vaddr */
	IMAGE_TEXT_SIZE = 0x20000,
	IMAGE_FRAME = 0x40000, /* vaddr of .eh_frame; .debug_frame has none */
	IMAGE_HDR = 0x70000,
	IMAGE_PLT = 0x2f000,
	IMAGE_FRAME_MAX = 0x18000,
	IMAGE_HDR_MAX = 0x1000,
	IMAGE_FDES_MAX = 64,
};

struct image {
	uint16_t machine;
	bool has_hdr;       /* with the FDEs put so far, in their order */
	bool no_sections;   /* PT_GNU_EH_FRAME only */
	bool is_debug;      /* the frame is .debug_frame */
	bool is_compressed; /* the frame, by zlib */
	bool is_go;         /* has a .gopclntab in .plt's place */
	size_t plt_size;    /* a .plt at IMAGE_PLT */
	uint8_t text[IMAGE_TEXT_SIZE];
	uint8_t frame[IMAGE_FRAME_MAX];
	size_t frame_size;
	uint8_t hdr[IMAGE_HDR_MAX];
	size_t hdr_size;
	struct {
		uint32_t start, entry;
	} fdes[IMAGE_FDES_MAX];
	size_t fde_count;
};

/* Bytes of a string literal, its zeros included. */
#define BYTES(s) (s), sizeof(s) - 1

void image_put(struct image *m, const void *bytes, size_t size);
void image_put_u32(struct image *m, uint32_t v);
/* An entry begins; image_end() pads it to 8 bytes and writes its length. */
size_t image_begin(struct image *m);
void image_end(struct image *m, size_t begin);
/* version, "letters\0", alignments 1 and -8, column 16, then what is given. Returns its offset. */
size_t image_cie(struct image *m, const char *letters, const void *rest, size_t size);
/* zR, pcrel sdata4, cfa = sp + 8, return address at cfa - 8. */
size_t image_usual_cie(struct image *m);
/* An FDE of such a CIE. */
void image_fde(struct image *m, size_t cie, uint32_t start, uint32_t size, const void *code,
	size_t code_size);
void image_make_hdr(struct image *m);
int image_file(const struct image *m); /* a descriptor, the caller's */
/* 0 or cfi_open()'s error. */
int image_open(const struct image *m, int *ret_fd, struct cfi **ret);

/*
 * The rows of a chunk: "0:sp+8 1:sp+16,fp@-16 100:none", or the error as "error 74", or "nothing". What
 * is not said: fp the same, ra at cfa - 8. The text is good until the next call.
 */
const char *image_rows(const struct image *m, uint64_t chunk);
/* Rows of a function of 256 bytes at IMAGE_TEXT with this code and the usual CIE. */
const char *image_program(const void *code, size_t size);

#endif
