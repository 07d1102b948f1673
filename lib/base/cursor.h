/*
 * Reads untrusted bytes without ever running over their end (STYLE 23). Integers are little endian.
 * The first overrun or malformed value sets cursor.error to -EBADMSG; from then on every read
 * yields 0 and moves nothing, so a decoder may read a whole record and check once, with
 * cursor_error().
 */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
	const uint8_t *pos;
	const uint8_t *end;
	int error;
};

struct cursor cursor_over(const void *data, size_t size);
size_t cursor_left(const struct cursor *c);
int cursor_error(const struct cursor *c); /* 0 or -EBADMSG */
void cursor_fail(struct cursor *c);       /* for decoders that find a value out of range */

uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_u16(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
/* Base-128 varint (protobuf, LEB128), at most 10 bytes. */
uint64_t cursor_varint(struct cursor *c);
/* size bytes in place, NULL on overrun (also when size is 0 and the cursor failed before). */
const void *cursor_bytes(struct cursor *c, size_t size);
/* A cursor over the next size bytes; a failed one if there are fewer. */
struct cursor cursor_sub(struct cursor *c, size_t size);

#endif
