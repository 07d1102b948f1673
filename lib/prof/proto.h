/*
 * The protobuf wire format (protobuf.dev/programming-guides/encoding), the part that pprof and
 * push.v1 need: varint, fixed64, length-delimited, fixed32.
 */
#ifndef PROF_PROTO_H
#define PROF_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

enum proto_wire { PROTO_VARINT = 0, PROTO_FIXED64 = 1, PROTO_BYTES = 2, PROTO_FIXED32 = 5 };

struct proto_field {
	uint32_t number;
	enum proto_wire wire;
	uint64_t value;      /* VARINT, FIXED64, FIXED32 */
	struct cursor bytes; /* BYTES */
};

/* True with the next field; false at the end or when the cursor failed (see cursor_error). */
bool proto_next(struct cursor *c, struct proto_field *ret);
/* One value of a repeated integer field, packed or not: call until false. */
bool proto_repeated(struct proto_field *f, uint64_t *ret);

int proto_put_varint(struct buf *b, uint32_t field, uint64_t value); /* proto3: 0 is left out */
int proto_put_bytes(struct buf *b, uint32_t field, const void *data, size_t size);
int proto_put_str(struct buf *b, uint32_t field, const char *s);
int proto_put_packed(struct buf *b, uint32_t field, const uint64_t *values, size_t count);

#endif
