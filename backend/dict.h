/*
 * dict.db: what stack ids mean. Four tables of one shape, (id, hash, data), ids sequential from 1:
 *
 *	string	text in UTF-8
 *	frame	varints: name, file, module (string ids), line, kind (enum frame_kind)
 *	labels	pairs of varints: key, value (string ids), ascending keys
 *	stack	varint labels id, then the varint frame ids, leaf first
 *
 * hash is XXH3-64 of data, for finding; equality is always decided on the bytes. Nothing is ever changed or
 * removed. A stack includes the labels of its samples, so that a flame graph can have the process (comm) as
 * root without a table beside it.
 *
 * Left out on purpose, because each would make a new stack of every process or call: labels that are numbers
 * (pid, tid), the labels trace_id, span_id and profile_id, and a frame's address. dict_intern says which labels
 * those were.
 */
#ifndef BACKEND_DICT_H
#define BACKEND_DICT_H

#include <sqlite3.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "prof/profile.h"

enum dict_kind { DICT_STRING, DICT_FRAME, DICT_LABELS, DICT_STACK, DICT_KIND_COUNT };
enum { DICT_VERSION = 1 };

struct dict;

/* For the one writer. cache_bytes_max bounds the memory of the bytes-to-id cache; 0: 128 MB. */
int dict_open(const char *path, size_t cache_bytes_max, const char **why, struct dict **ret);
void dict_close(struct dict *d); /* accepts NULL; rolls back what is not committed */
/* Ids given since the last commit are on disk after this. 0 or -errno, then they are forgotten. */
int dict_commit(struct dict *d);
void dict_rollback(struct dict *d);
uint64_t dict_count(const struct dict *d, enum dict_kind kind);
uint64_t dict_bytes_added(const struct dict *d); /* since the last commit, with rows and index */

/*
 * The stack id of each of p's samples, in scratch. *left_out (a buf, names joined by ",") gets the labels that
 * were not kept. 0, -errno.
 */
int dict_intern(struct dict *d, const struct profile *p, struct arena *scratch,
	struct buf *left_out, uint64_t **ret);

/* For readers: adds samples by stack id to one profile. Opened after the ids were read (store.h, 3). */
struct dict_reader;
int dict_reader_open(const char *path, struct profile *p, struct dict_reader **ret);
void dict_reader_close(struct dict_reader *d); /* accepts NULL */
void dict_reader_closep(struct dict_reader **d);
/* An id that the dictionary lacks becomes the frame "[missing stack]". 0, profile_add's errors, -EIO. */
int dict_reader_add(struct dict_reader *d, uint64_t stack, const int64_t *values);

/* Checks the whole dictionary; one line a fault into out, counted in *faults. 0 or -errno. */
int dict_verify(const char *path, struct buf *out, uint64_t *faults);

#endif
