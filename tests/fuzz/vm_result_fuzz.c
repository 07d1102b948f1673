/* links: lab */
/*
 * Any bytes as a result device. Checksums would stop nearly every mutation at the door, so the
 * input is also read with its checksums made right: what then gets through must still have names
 * that stay below a directory and data that lies inside the device.
 */
#include "lab/vm_result.h"

#include "base/def.h"
#include "lab/guest/result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct range {
	const uint8_t *start;
	size_t size;
};

static void fuzz_check(bool holds)
{
	if (!holds)
		abort();
}

static int check_file(void *ctx, const char *name, const void *data, size_t size)
{
	const struct range *r = ctx;
	const uint8_t *p = data;

	fuzz_check(name[0] != '/' && name[0] != '.' && !strstr(name, "/.") && !strstr(name, "//"));
	fuzz_check(size == 0 || (p >= r->start && p + size <= r->start + r->size));
	return 0;
}

static void read_it(const uint8_t *data, size_t size)
{
	struct range r = {data, size};
	struct vm_result result;

	if (vm_result_read(data, size, check_file, &r, &result) == 0)
		fuzz_check(result.files <= RESULT_FILES_MAX);
}

/* Makes header and records say what their bytes are, as far as they lie inside. */
static void mend(uint8_t *d, size_t size)
{
	size_t at = RESULT_HEADER_SIZE;
	struct result_header h;

	if (size < sizeof(h))
		return;
	memcpy(&h, d, sizeof(h));
	memcpy(h.magic, RESULT_MAGIC, 8);
	h.version = RESULT_VERSION;
	h.crc = result_crc32(0, &h, 28);
	memcpy(d, &h, sizeof(h));
	for (uint32_t i = 0; i < h.records && size - at >= sizeof(struct result_record); i++) {
		struct result_record r;

		memcpy(&r, d + at, sizeof(r));
		if (r.name_size > size - at - sizeof(r) ||
			r.data_size > size - at - sizeof(r) - r.name_size)
			return;
		r.magic = RESULT_RECORD_MAGIC;
		r.data_crc = result_crc32(0, d + at + sizeof(r) + r.name_size, r.data_size);
		r.crc = result_crc32(result_crc32(0, &r, 20), d + at + sizeof(r), r.name_size);
		memcpy(d + at, &r, sizeof(r));
		at += (sizeof(r) + r.name_size + r.data_size + 7) / 8 * 8;
		if (at > size)
			return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = calloc(1, size ? size : 1); /* exact, so that an overrun shows */

	fuzz_check(copy);
	if (size > 0)
		memcpy(copy, data, size);
	read_it(copy, size);
	mend(copy, size);
	read_it(copy, size);
	free(copy);
	return 0;
}
