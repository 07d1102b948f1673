/*
 * What the parts of the differential unwinder share: a stopped thread as it was recorded, and the
 * stack that a walker made of it. unwind_differential.c records and compares, unwind_differential_file.c
 * stores, unwind_differential_ours.c and unwind_differential_libdw.c walk. Both walkers see the same bytes
 * and nothing else of the process.
 */
#ifndef UNWIND_DIFFERENTIAL_H
#define UNWIND_DIFFERENTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "agent/maps.h"

enum {
	DIFF_REGS = 16, /* by DWARF number */
	DIFF_FRAMES_MAX = 512,
	DIFF_STACK_SIZE = 65536, /* kept from sp on */
	DIFF_BELOW = 512,        /* and below it: popped registers, red zone */
	DIFF_PAGE = 4096,
	DIFF_PAGES_MAX = 16, /* read elsewhere */
};

struct diff_sample {
	uint64_t regs[DIFF_REGS];
	uint64_t pc;
	int64_t orig_ax; /* below 0: the thread was not in a system call */
	uint64_t stack_start, stack_size;
	uint8_t stack[DIFF_STACK_SIZE + DIFF_BELOW];
	/* What a walker read elsewhere (the stack that a signal interrupted); the other sees the same. */
	uint64_t page_count;
	struct diff_page {
		uint64_t address;
		uint8_t bytes[DIFF_PAGE];
	} pages[DIFF_PAGES_MAX];
	pid_t live; /* a stopped process to read pages of; 0: what is not here cannot be read */
};

/* The executable mappings at one time. */
struct diff_space {
	char *text; /* of /proc/PID/maps, whole */
	size_t text_size;
	struct maps maps;
	int vdso_fd; /* a file with its bytes; -1: none */
};

struct diff_walk {
	uint64_t pcs[DIFF_FRAMES_MAX];
	size_t count;
	bool is_complete; /* the thread's first frame was reached */
	const char *end;  /* why it ended; static */
};

/* 0, or -1: the recorded bytes do not have it. */
int diff_read_stack(struct diff_sample *s, void *dst, size_t size, uint64_t address);

/* --- unwind_differential_file.c: a recording; the format stands there --- */
int diff_file_put_space(FILE *f, const struct diff_space *space); /* 0 or -errno */
int diff_file_put_sample(FILE *f, const struct diff_sample *s);
/* 's' a sample was read; 'm' the space has changed; 0 at the end; -errno. */
int diff_file_get(FILE *f, struct diff_space *space, struct diff_sample *s);
/* Takes over text; 0 or -errno. */
int diff_space_set(struct diff_space *space, char *text, size_t size);
int diff_space_set_vdso(struct diff_space *space, const void *bytes, size_t size);

/* --- the walkers; _space after each change of the space, which must stay --- */
int diff_ours_space(const struct diff_space *space); /* 0 or -errno */
void diff_ours_walk(struct diff_sample *s, struct diff_walk *ret);
int diff_libdw_space(const struct diff_space *space);
void diff_libdw_walk(struct diff_sample *s, struct diff_walk *ret);
extern bool diff_ours_fault;   /* one rule of 4 is wrong */
void diff_ours_print(FILE *f); /* what tables were made */

#endif
