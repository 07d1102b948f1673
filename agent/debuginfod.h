/*
 * Debug files that no directory of this host has, fetched by build ID from debuginfod servers. Only
 * from those that the options name, by none unless they do; DEBUGINFOD_URLS counts for nothing.
 *
 * Nothing waits for it: a window notes what it missed (debuginfod_want), and when it is written one
 * process, `flame-agent __fetch`, without capabilities, fetches it into a directory that is one more
 * place for debug files (debug_files.h) in the next window. What came is read by the helper alone, which
 * takes none of another build. The directory, DIR:
 *
 *	DIR/wanted			build IDs in hex, one a line, of the last window
 *	DIR/negative			"ID TIME" lines: not to be asked for again for DEBUGINFOD_AGAIN_S
 *	DIR/.build-id/xx/yyyy.debug	what was fetched; the least recently used go first
 *
 * DIR is locked (flock) by the process that fetches, so there is one.
 */
#ifndef AGENT_DEBUGINFOD_H
#define AGENT_DEBUGINFOD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/loop.h"

/* argv[1] of the process; not for people. */
#define DEBUGINFOD_ARG "__fetch"

#define DEBUGINFOD_FILE_BYTES_MAX (512UL << 20)
#define DEBUGINFOD_BYTES_MAX      (2UL << 30) /* of all files */

enum {
	DEBUGINFOD_URLS_MAX = 4,
	DEBUGINFOD_WANTED_BYTES_MAX = 32768,
	DEBUGINFOD_FILES_MAX = 8, /* of one run */
	DEBUGINFOD_CONNECT_MS = 2000,
	DEBUGINFOD_TOTAL_MS = 30000, /* of one run */
	DEBUGINFOD_REDIRECTS_MAX = 3,
	DEBUGINFOD_NEGATIVE_MAX = 1024,
	DEBUGINFOD_AGAIN_S = 3600,
};

struct debuginfod_options {
	const char *dir;     /* absolute */
	const char *ca_file; /* NULL or "": the system's */
	const char *const *urls;
	size_t url_count;
};

/* NULL, or in one line what is wrong with these URLs; *ret_url is the one. */
const char *debuginfod_complaint(const char *const *urls, size_t count, const char **ret_url);

/* Notes ids, one a line, in dir, which is made. 0 or -errno. */
int debuginfod_want(const char *dir, const struct buf *ids);

/*
 * Starts the process. detached: it may outlive us, silently. 0; -ENOENT: nothing is wanted;
 * -EBUSY: another one fetches; -EPERM: dir is not ours alone; -errno.
 */
int debuginfod_start(const struct debuginfod_options *o, bool detached, struct child *ret);

/* The process, started in a loop whenever something is wanted and it does not run. */
struct debuginfod;
/* o is copied, its texts outlive. 0 or -ENOMEM. */
int debuginfod_new(struct loop *l, const struct debuginfod_options *o, struct debuginfod **ret);
void debuginfod_free(struct debuginfod *d); /* accepts NULL; ends the process */
void debuginfod_kick(struct debuginfod *d); /* accepts NULL */

/* The process itself. argv: "__fetch", CA file or "", URLs. Descriptor 0 is DIR, locked. */
int debuginfod_main(int argc, char **argv);

#endif
