/* vm_result: what a guest left is read whole, and nothing that is not whole is believed. */
#include "lab/vm_result.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"
#include "lab/guest/result.h"

enum { DEVICE_SIZE = 4096 };

struct device {
	uint8_t bytes[DEVICE_SIZE];
	uint64_t end;
	uint32_t records;
};

/* Written here a second time, with zlib's crc, so that a common mistake shows. */
static void put_record(struct device *d, const char *name, const char *data, size_t size)
{
	struct result_record r = {.magic = 0x454c4946,
		.name_size = (uint32_t)strlen(name),
		.data_size = size,
		.data_crc = (uint32_t)crc32(0, (const Bytef *)data, (uInt)size)};
	uint8_t *at = d->bytes + d->end;

	r.crc = (uint32_t)crc32(0, (const Bytef *)&r, 20);
	r.crc = (uint32_t)crc32(r.crc, (const Bytef *)name, (uInt)strlen(name));
	memcpy(at, &r, sizeof(r));
	memcpy(at + 24, name, strlen(name));
	memcpy(at + 24 + strlen(name), data, size);
	d->end = (d->end + 24 + strlen(name) + size + 7) / 8 * 8;
	d->records++;
}

static void put_header(struct device *d, uint32_t state)
{
	struct result_header h = {.magic = "FLRESULT",
		.version = 1,
		.state = state,
		.end = d->end,
		.records = d->records};

	h.crc = (uint32_t)crc32(0, (const Bytef *)&h, 28);
	memcpy(d->bytes, &h, sizeof(h));
}

static struct device good_device(void)
{
	struct device d = {.end = 64};

	put_record(&d, "step.1/meters.json", "{}\n", 3);
	put_record(&d, "step.1/agent.log", "", 0);
	put_record(&d, "done", "ok\n", 3);
	put_header(&d, 2);
	return d;
}

static int note_name(void *ctx, const char *name, const void *data, size_t size)
{
	(void)buf_printf(ctx, "%s=%.*s;", name, (int)size, (const char *)data);
	return 0;
}

static int read_device(const struct device *d, struct vm_result *ret)
{
	return vm_result_read(d->bytes, DEVICE_SIZE, NULL, NULL, ret);
}

Test(vm_result, gives_every_file_in_order)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	struct device d = good_device();
	struct vm_result r;

	cr_assert_eq(vm_result_read(d.bytes, DEVICE_SIZE, note_name, &b, &r), 0);
	cr_assert_str_eq(buf_str(&b), "step.1/meters.json={}\n;step.1/agent.log=;done=ok\n;");
	cr_assert_eq(r.state, VM_RESULT_DONE);
	cr_assert_eq(r.files, 3);
	cr_assert(r.has_done);
}

Test(vm_result, is_crashed_as_seeded)
{
	char path[] = "/tmp/vm_result_test.XXXXXX";
	_cleanup_(closep) int fd = mkstemp(path);
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	struct vm_result r;

	cr_assert_eq(vm_result_seed(path, 65536), 0);
	cr_assert_eq(file_read(path, &b), 0);
	(void)unlink(path);
	cr_assert_eq(b.size, 65536);
	cr_assert_eq(vm_result_read(b.data, b.size, NULL, NULL, &r), 0);
	cr_assert_eq(r.state, VM_RESULT_CRASHED);
	cr_assert_eq(r.files, 0);
	cr_assert_not(r.has_done);
}

Test(vm_result, keeps_the_steps_of_a_guest_that_died_or_ran_full)
{
	struct device d = good_device();
	struct vm_result r;

	put_header(&d, 1);
	cr_assert_eq(read_device(&d, &r), 0);
	cr_assert_eq(r.state, VM_RESULT_CRASHED);
	cr_assert_eq(r.files, 3);
	put_header(&d, 3);
	cr_assert_eq(read_device(&d, &r), 0);
	cr_assert_eq(r.state, VM_RESULT_FULL);
}

Test(vm_result, notices_any_flipped_bit)
{
	struct device good = good_device();
	struct vm_result r;

	/* All but the header's zeros and the padding, which mean nothing. */
	for (size_t i = 0; i < good.end; i++) {
		struct device d = good;
		bool padding =
			(i >= 32 && i < 64) || (i >= 109 && i < 112) || (i >= 183 && i < 184);

		d.bytes[i] ^= 0x10;
		cr_assert_eq(read_device(&d, &r), padding ? 0 : -EBADMSG, "byte %zu", i);
	}
}

Test(vm_result, refuses_an_end_or_count_that_is_not_there)
{
	struct device d = good_device();
	struct vm_result r;

	d.records = 4;
	put_header(&d, 2);
	cr_assert_eq(read_device(&d, &r), -EBADMSG);
	d.records = 2;
	put_header(&d, 2);
	cr_assert_eq(read_device(&d, &r), -EBADMSG);
	d = good_device();
	d.end = DEVICE_SIZE + 8;
	put_header(&d, 2);
	cr_assert_eq(read_device(&d, &r), -EBADMSG);
	d.end = UINT64_MAX - 7;
	put_header(&d, 2);
	cr_assert_eq(read_device(&d, &r), -EBADMSG);
}

Test(vm_result, refuses_names_that_leave_the_directory)
{
	static const char *const bad[] = {"../x", "a/../x", "/etc/x", "a//b", "a/b/c", ".x", "a/.x",
		"a/", "a b", "a\nb", "x;y"};
	struct vm_result r;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct device d = {.end = 64};

		put_record(&d, bad[i], "x", 1);
		put_header(&d, 2);
		cr_assert_eq(read_device(&d, &r), -EBADMSG, "%s", bad[i]);
	}
}

Test(vm_result, refuses_a_device_that_is_too_short)
{
	struct device d = good_device();
	struct vm_result r;

	for (size_t size = 0; size < d.end; size++) {
		uint8_t *copy = malloc(size ? size : 1); /* so that a sanitizer sees an overrun */

		memcpy(copy, d.bytes, size);
		cr_assert_eq(vm_result_read(copy, size, NULL, NULL, &r), -EBADMSG, "%zu", size);
		free(copy);
	}
}

Test(vm_result, is_done_only_with_the_right_word)
{
	struct device d = {.end = 64};
	struct vm_result r;

	put_record(&d, "done", "no\n", 3);
	put_header(&d, 2);
	cr_assert_eq(read_device(&d, &r), 0);
	cr_assert_not(r.has_done);
}

Test(vm_result, unpacks_into_a_directory)
{
	char dir[] = "/tmp/vm_result_test.XXXXXX", path[128];
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);
	struct device d = good_device();
	struct vm_result r;

	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/device", dir);
	cr_assert_eq(file_write_atomic(path, d.bytes, DEVICE_SIZE), 0);
	cr_assert_eq(vm_result_extract(path, dir, &r), 0);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/step.1/meters.json", dir);
	cr_assert_eq(file_read(path, &b), 0);
	cr_assert_str_eq(buf_str(&b), "{}\n");
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/step.1/agent.log", dir);
	cr_assert_eq(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/done", dir);
	cr_assert_eq(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/step.1", dir);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(rmdir(dir), 0); /* nothing else was left */
}
