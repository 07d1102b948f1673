/* The spool: order, limits, damage, and what a restart finds. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "agent/spool.h"
#include "base/child.h"
#include "base/def.h"
#include "base/file.h"

static char dir[] = "/tmp/spool_test.XXXXXX";
static const struct spool_limits wide = {.bytes_max = 1 << 20, .windows_max = 100};

static void set_up(void)
{
	cr_assert_not_null(mkdtemp(dir));
}

static void tear_down(void)
{
	char *argv[] = {(char *)"rm", (char *)"-rf", dir, NULL};

	(void)child_run(argv, NULL, 10000);
}

TestSuite(spool, .init = set_up, .fini = tear_down);

static struct spool *must_open(const struct spool_limits *limits)
{
	struct spool *s;

	cr_assert_eq(spool_open(dir, limits, &s), 0);
	return s;
}

static uint64_t put(struct spool *s, const char *text)
{
	char path[SPOOL_PATH_MAX];
	uint64_t place;

	cr_assert_eq(spool_reserve(s, path, &place), 0);
	cr_assert_eq(spool_write(path, text, strlen(text)), 0);
	cr_assert_eq(spool_take_in(s, place), 0);
	return place;
}

/* The oldest's payload, which is then removed; "" when there is none. */
static const char *take(struct spool *s)
{
	static struct buf b;
	uint64_t place;

	buf_done(&b);
	b = BUF_INIT(4096);
	if (!spool_first(s, &place))
		return "";
	cr_assert_eq(spool_read(s, place, &b), 0);
	spool_remove(s, place, false);
	return buf_str(&b);
}

Test(spool, windows_leave_in_the_order_they_came_also_after_a_restart)
{
	struct spool *s = must_open(&wide);

	(void)put(s, "one");
	(void)put(s, "two");
	cr_assert_str_eq(take(s), "one");
	spool_free(s);
	s = must_open(&wide);
	cr_assert_eq(spool_stats(s).windows, 1);
	(void)put(s, "three");
	cr_assert_str_eq(take(s), "two");
	cr_assert_str_eq(take(s), "three");
	cr_assert_str_eq(take(s), "");
	cr_assert_eq(spool_stats(s).bytes, 0);
	spool_free(s);
}

Test(spool, a_window_that_is_finished_late_keeps_its_place)
{
	struct spool *s = must_open(&wide);
	char first[SPOOL_PATH_MAX];
	uint64_t place;

	cr_assert_eq(spool_reserve(s, first, &place), 0);
	(void)put(s, "second");
	cr_assert_eq(spool_take_in(s, place), -ENOENT, "it is not there yet");
	cr_assert_eq(spool_write(first, "first", 5), 0);
	cr_assert_eq(spool_take_in(s, place), 0);
	cr_assert_str_eq(take(s), "first");
	cr_assert_str_eq(take(s), "second");
	spool_free(s);
}

Test(spool, above_its_window_limit_the_oldest_goes_and_is_counted)
{
	struct spool *s = must_open(&(struct spool_limits){.bytes_max = 1 << 20, .windows_max = 2});

	(void)put(s, "one");
	(void)put(s, "two");
	(void)put(s, "three");
	cr_assert_eq(spool_stats(s).windows, 2);
	cr_assert_eq(spool_stats(s).dropped, 1);
	cr_assert_str_eq(take(s), "two");
	spool_free(s);
}

Test(spool, above_its_byte_limit_the_oldest_go_and_their_files_too)
{
	struct spool_limits limits = {
		.bytes_max = 2 * (SPOOL_HEADER_SIZE + 100), .windows_max = 100};
	struct spool *s = must_open(&limits);
	char text[101] = "";

	memset(text, 'x', 100);
	for (int i = 0; i < 5; i++)
		(void)put(s, text);
	cr_assert_eq(spool_stats(s).windows, 2);
	cr_assert_leq(spool_stats(s).bytes, limits.bytes_max);
	cr_assert_eq(spool_stats(s).dropped, 3);
	spool_free(s);
	s = must_open(&wide);
	cr_assert_eq(spool_stats(s).windows, 2, "the files of the others are gone");
	spool_free(s);
}

Test(spool, on_a_full_disk_the_oldest_goes_and_is_counted)
{
	static char big[20000];
	struct spool *s;

	memset(big, 'x', sizeof(big) - 1);
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", "", MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", dir, "tmpfs", 0, "size=64k") < 0)
		cr_skip_test("may not mount");
	s = must_open(&wide);
	(void)put(s, "one");
	for (int i = 0; i < 4; i++)
		(void)put(s, big);
	cr_assert_eq(spool_stats(s).dropped, 2);
	cr_assert_eq(spool_stats(s).windows, 3);
	cr_assert_eq(spool_stats(s).damaged, 0);
	spool_free(s);
	cr_assert_eq(umount(dir), 0);
}

Test(spool, the_window_being_sent_is_not_dropped)
{
	struct spool *s = must_open(&(struct spool_limits){.bytes_max = 1 << 20, .windows_max = 1});
	struct buf b = BUF_INIT(64);
	uint64_t place = put(s, "sending");
	uint64_t first;

	cr_assert_eq(spool_read(s, place, &b), 0);
	(void)put(s, "next");
	cr_assert(spool_first(s, &first));
	cr_assert_eq(first, place);
	cr_assert_eq(spool_stats(s).dropped, 1);
	buf_done(&b);
	spool_free(s);
}

Test(spool, a_window_that_waits_for_its_next_try_is_dropped_first)
{
	struct spool *s = must_open(&(struct spool_limits){.bytes_max = 1 << 20, .windows_max = 2});
	struct buf b = BUF_INIT(64);

	cr_assert_eq(spool_read(s, put(s, "oldest"), &b), 0);
	spool_release(s);
	(void)put(s, "second");
	(void)put(s, "third");
	cr_assert_eq(spool_stats(s).dropped, 1);
	cr_assert_str_eq(take(s), "second");
	buf_done(&b);
	spool_free(s);
}

Test(spool, a_damaged_file_is_found_by_its_checksum_and_counted)
{
	struct spool *s = must_open(&wide);
	struct buf b = BUF_INIT(64);
	char path[SPOOL_PATH_MAX];
	uint64_t place = put(s, "precious");
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%020llu.push", dir, (unsigned long long)place);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(pwrite(fd, "X", 1, SPOOL_HEADER_SIZE + 3), 1);
	(void)close(fd);
	cr_assert_eq(spool_read(s, place, &b), -EBADMSG);
	cr_assert_eq(b.size, 0);
	spool_remove(s, place, true);
	cr_assert_eq(spool_stats(s).damaged, 1);
	cr_assert_eq(access(path, F_OK), -1);
	buf_done(&b);
	spool_free(s);
}

Test(spool, half_written_files_go_and_foreign_ones_stay)
{
	char half[SPOOL_PATH_MAX], foreign[SPOOL_PATH_MAX];
	struct spool *s;

	(void)snprintf(half, sizeof(half), "%s/%020d.push.tmp.77", dir, 5);
	(void)snprintf(foreign, sizeof(foreign), "%s/README", dir);
	cr_assert_eq(file_write_atomic(half, "x", 1), 0);
	cr_assert_eq(file_write_atomic(foreign, "x", 1), 0);
	s = must_open(&wide);
	cr_assert_eq(spool_stats(s).windows, 0);
	cr_assert_eq(access(half, F_OK), -1);
	cr_assert_eq(access(foreign, F_OK), 0);
	spool_free(s);
}

Test(spool, a_cut_or_extended_file_is_refused)
{
	char path[SPOOL_PATH_MAX];
	struct buf file = BUF_INIT(256);
	const void *payload;
	size_t size;

	(void)snprintf(path, sizeof(path), "%s/x", dir);
	cr_assert_eq(spool_write(path, "payload", 7), 0);
	cr_assert_eq(file_read(path, &file), 0);
	cr_assert_eq(spool_decode(file.data, file.size, &payload, &size), 0);
	cr_assert_eq(size, 7);
	cr_assert_arr_eq(payload, "payload", 7);
	for (size_t n = 0; n < file.size; n++)
		cr_assert_eq(spool_decode(file.data, n, &payload, &size), -EBADMSG, "%zu", n);
	(void)buf_append_char(&file, 'x');
	cr_assert_eq(spool_decode(file.data, file.size, &payload, &size), -EBADMSG);
	buf_done(&file);
}
