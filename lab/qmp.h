/*
 * The part of QEMU's machine protocol that tells how a guest died. One connection, given as a
 * descriptor: QEMU is started with the other end of a socket pair, so nothing has to be awaited or
 * named. Commands are sent before the guest runs and when it is given up on; while it runs we only
 * listen, because in exact mode the guest must get no host input.
 */
#ifndef LAB_QMP_H
#define LAB_QMP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum qmp_kind { QMP_GREETING, QMP_RETURN, QMP_ERROR, QMP_EVENT, QMP_OTHER };

struct qmp_message {
	enum qmp_kind kind;
	char name[64];    /* of an event; class of an error */
	char reason[128]; /* SHUTDOWN's reason, or an error's text */
};

/* One line of the protocol. 0 or -EBADMSG. */
int qmp_parse(const char *line, size_t size, struct qmp_message *ret);

struct qmp {
	int fd; /* the caller's */
	struct buf in;
	bool is_running; /* "cont" was answered */
	bool panicked;
	char shutdown[128]; /* reason; "" until it came */
	char error[160];    /* a refused command or a broken line */
};

void qmp_init(struct qmp *q, int fd);
void qmp_done(struct qmp *q); /* usable as cleanup attribute */
/*
 * Takes what there is to read and answers the greeting: capabilities, then "cont". 0, 1 when QEMU
 * closed the connection, or -errno (-EBADMSG, -ENOBUFS: a line too long).
 */
int qmp_pump(struct qmp *q);

#endif
