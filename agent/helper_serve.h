/*
 * What the files of the helper process share:
 *	helper_main.c		confines itself, receives requests, gives each to the one who answers
 *	helper_stream.c		answers in packets
 *	helper_names.c		role "names": ELF symbols, Go's tables
 *	helper_lines.c		role "lines": DWARF
 *	helper_cfi_serve.c	unwind tables (helper_cfi.h)
 *
 * A server's serve function takes over those of fds it keeps and sets them to -1. It returns 0, or
 * -errno, which ends the helper.
 */
#ifndef AGENT_HELPER_SERVE_H
#define AGENT_HELPER_SERVE_H

#include "agent/helper_answer.h"

/* Of one request; -1 where there is none. */
struct helper_fds {
	int file, debug, alt;
};

/* One answer in packets. */
struct helper_stream {
	int socket;
	struct buf out;
	uint32_t sequence;
	uint32_t first, count;
	uint32_t file_flags;
};

void helper_stream_init(struct helper_stream *s, int socket);
void helper_stream_done(struct helper_stream *s);
void helper_stream_begin(struct helper_stream *s, uint32_t sequence, uint32_t file_flags);
int helper_stream_put(struct helper_stream *s, const struct helper_answer *a);
int helper_stream_end(struct helper_stream *s);
/* Instead of the three above. why NULL: "unknown". */
int helper_stream_refuse(
	struct helper_stream *s, uint32_t sequence, uint32_t file_flags, const char *why);

struct helper_names_server;
int helper_names_new(int socket, struct helper_names_server **ret);
void helper_names_free(struct helper_names_server *s); /* accepts NULL */
int helper_names_serve(
	struct helper_names_server *s, struct helper_request *q, struct helper_fds *fds);

struct helper_lines_server;
int helper_lines_new(int socket, struct helper_lines_server **ret);
void helper_lines_free(struct helper_lines_server *s); /* accepts NULL */
int helper_lines_serve(
	struct helper_lines_server *s, struct helper_request *q, struct helper_fds *fds);

#endif
