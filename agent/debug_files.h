/*
 * Separate debug files of the files that are named: found by names, opened here, read by the helper
 * process alone, which has to say that one belongs to the same build before it is used.
 *
 * Looked for, in this order, first below the root of the process that has the file mapped, then on
 * the host, DIR being the directory of the file and D each of the options' directories:
 *
 *	D/.build-id/xx/yyyy.debug
 *	DIR/LINK   DIR/.debug/LINK   D/DIR/LINK		by .gnu_debuglink
 *
 * (GDB's order, "Debugging Information in Separate Files".) The file that a debug file shares with
 * others (dwz, .gnu_debugaltlink) is looked for by its path, then as D/.build-id/xx/yyyy.debug.
 *
 * Paths below a process's root are resolved there (RESOLVE_IN_ROOT): what a link in a container says
 * never leads out of it. Only regular files are opened. A file without debug file is asked for again
 * after DEBUG_FILES_RETRY_S.
 */
#ifndef AGENT_DEBUG_FILES_H
#define AGENT_DEBUG_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/helper.h"
#include "base/buf.h"

enum {
	DEBUG_FILES_BITS = 12,
	DEBUG_FILES_MAX = 1 << DEBUG_FILES_BITS, /* files that are remembered */
	DEBUG_FILES_ROOTS_MAX = 64,
	DEBUG_FILES_OPEN_MAX = 64, /* files whose debug files are held open */
	DEBUG_FILES_DIRS_MAX = 8,
	DEBUG_FILES_RETRY_S = 600,
	DEBUG_FILES_MISSING_MAX = 128,
};

#define DEBUG_FILES_DIR "/usr/lib/debug" /* unless the options name others */

struct debug_files;

struct debug_files_stats {
	uint64_t found, refused; /* refused: of another build, or unreadable */
};

/* NULL, or in one line what is wrong with these directories. */
const char *debug_files_complaint(const char *const *dirs, size_t count);

/* dirs are copied; count 0: DEBUG_FILES_DIR. 0, -EINVAL (there is a complaint) or -ENOMEM. */
int debug_files_new(const char *const *dirs, size_t count, struct debug_files **ret);
void debug_files_free(struct debug_files *d); /* accepts NULL */
/* One more directory, behind the others, before anything is looked for. 0 or -ENOMEM. */
int debug_files_add_dir(struct debug_files *d, const char *dir);

/*
 * Tells where a file was first seen: in the process whose /proc/PID is open as process_fd, as path in
 * its maps. Keeps the process's root if it is another than ours, so the process may end. Returns the
 * number to ask by, which is never 0; 0 without memory.
 */
uint64_t debug_files_add(struct debug_files *d, int process_fd, const char *path);

/*
 * Sets debug_fd and alt_fd of f to what belongs to the file open as f->fd, or leaves them. number is
 * that of debug_files_add(), 0 finds nothing. Descriptors stay d's and are valid until the next call.
 * 0; 1 when that is another answer than the last one for number: f needs another id then; or -errno
 * as of helper_ask(): the helper failed at the file itself.
 */
int debug_files_find(
	struct debug_files *d, struct helper *h, uint64_t number, struct helper_file *f);

/*
 * Appends the build IDs, in hex, one a line, of files that have neither symbols nor DWARF and no debug
 * file, the first DEBUG_FILES_MISSING_MAX. 0 or buf's error.
 */
int debug_files_missing(const struct debug_files *d, struct buf *out);

struct debug_files_stats debug_files_stats(const struct debug_files *d);

#endif
