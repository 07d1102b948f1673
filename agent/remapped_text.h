/*
 * Text that a program moved into memory of its own: to have it on huge pages (node --use-largepages, BOLT's
 * -hugify, iodlr), or to patch it. In /proc/PID/maps it is anonymous and executable, as generated code is.
 *
 * A region is a file's text if
 *  1. it has no file,
 *  2. what is mapped of the file behind it (within 2 MB) or executable before it gives the file's place in
 *     memory, and by that the region lies in an executable PT_LOAD,
 *  3. its bytes are the file's at up to 64 places spread over it, those not counted where the file has one byte
 *     repeated (padding). Text may be patched: of 8 places 7 must agree, of fewer all, and of 1 none is
 *     enough.
 *
 * Then it becomes a region of that file, and names and unwind tables are as if it were mapped.
 */
#ifndef AGENT_REMAPPED_TEXT_H
#define AGENT_REMAPPED_TEXT_H

#include "agent/helper_cfi.h"
#include "agent/maps.h"

/*
 * Changes such regions of m, which was just read of the process whose /proc/PID is open. The helper reads
 * program headers; where it or the process cannot be asked, regions stay what they are. m->beside is empty
 * then.
 */
void remapped_text_find(struct helper *h, int process_fd, struct maps *m);

/*
 * The place of region r in the file's text by rule 2, if seen, a mapping of the file, begins in PT_LOAD
 * number load of s: its offset in the file. False: it has none.
 */
bool remapped_text_place(const struct helper_cfi_segments *s, size_t load,
	const struct maps_region *seen, const struct maps_region *r, uint64_t *ret_offset);

#endif
