/*
 * The directory that debug files are fetched into (debuginfod.h), which is the working directory:
 * what is there, what is not to be asked for, and what has to go. Its user holds the directory's lock.
 */
#ifndef AGENT_DEBUGINFOD_STORE_H
#define AGENT_DEBUGINFOD_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/debuginfod.h"
#include "agent/elf_identity.h"

enum { DEBUGINFOD_ID_SIZE = 2 * ELF_IDENTITY_BUILD_ID_MAX + 1, DEBUGINFOD_PATH_SIZE = 256 };

/* Lower case hex of at least three bytes. */
bool debuginfod_id_is_good(const char *id, size_t size);

/* --- what is not to be asked for */

struct debuginfod_negative {
	struct {
		char id[DEBUGINFOD_ID_SIZE]; /* "": free */
		uint64_t time_s;
	} at[DEBUGINFOD_NEGATIVE_MAX];
};

/* What stands in the file and is not older than DEBUGINFOD_AGAIN_S, nor from the future. */
void debuginfod_negative_load(struct debuginfod_negative *n, uint64_t now_s);
int debuginfod_negative_save(const struct debuginfod_negative *n); /* 0 or -errno */
bool debuginfod_negative_has(const struct debuginfod_negative *n, const char *id);
/* In place of the oldest when there is no room. */
void debuginfod_negative_put(struct debuginfod_negative *n, const char *id, uint64_t time_s);
void debuginfod_negative_remove(struct debuginfod_negative *n, const char *id);

/* --- files */

/*
 * There is one, not older than DEBUGINFOD_AGAIN_S. It is wanted although it is there: it is of another
 * build, or came after the window looked.
 */
bool debuginfod_store_has(const char *id, uint64_t now_s);
/* A new file for it under a temporary name, or -errno. */
int debuginfod_store_begin(const char *id);
/* Gives it its name, or, unless it is good, removes it. 0 or -errno. */
int debuginfod_store_end(const char *id, bool is_good);
/* Removes what is left of earlier runs, and files, least recently used first, above bytes_max. */
void debuginfod_store_trim(uint64_t bytes_max);

#endif
