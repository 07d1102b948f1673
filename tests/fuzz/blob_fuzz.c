/* links: backend */
/*
 * The blob decoder over any bytes, once as they are and once with the crc made right, since hardly any mutation
 * passes it. What it accepts is written again and reads back to the same entries.
 */
#include "backend/blob.h"

#include <assert.h>
#include <errno.h>

#include "base/def.h"

#define MEMORY_MAX ((size_t)64 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(MEMORY_MAX);
	_cleanup_(freep) struct blob_entry *entries = NULL;
	struct blob_reader r;
	struct blob_entry e;
	const char *why = NULL;
	int64_t total;
	size_t count = 0;
	int n;

	if (blob_open(data, size, &why, &r) < 0) {
		assert(why);
		return;
	}
	assert(r.n <= size / 2);
	entries = calloc(r.n + 1U, sizeof(*entries));
	assert(entries);
	while ((n = blob_next(&r, &e)) > 0) {
		assert(count < r.n);
		assert(e.id > (count ? entries[count - 1].id : 0));
		entries[count++] = e;
	}
	assert(n == 0 || n == -EBADMSG);
	if (n < 0) {
		assert(blob_next(&r, &e) == -EBADMSG);
		return;
	}
	assert(count == r.n);
	assert(blob_write(entries, count, &out, &total) == 0);
	assert(blob_open(out.data, out.size, &why, &r) == 0 && r.total == total);
	for (size_t i = 0; i < count; i++) {
		assert(blob_next(&r, &e) == 1);
		assert(e.id == entries[i].id && e.value == entries[i].value);
	}
	assert(blob_next(&r, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	uint32_t crc;

	check(data, size);
	if (size < BLOB_HEADER_SIZE)
		return 0;
	copy = malloc(size);
	assert(copy);
	memcpy(copy, data, size);
	memcpy(copy, "FLB1", 4);
	crc = blob_crc32c(copy + 8, size - 8);
	for (int i = 0; i < 4; i++)
		copy[4 + i] = (uint8_t)(crc >> 8 * i);
	check(copy, size);
	free(copy);
	return 0;
}
