/* file: limits, atomic writing, hashes. Each test works in a directory of its own. */
#include "base/file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/child.h"

static char dir[64];

static void make_dir(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/flame-file-test-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
}

static void remove_dir(void)
{
	char *const argv[] = {(char *)"rm", (char *)"-rf", dir, NULL};

	cr_assert_eq(child_run(argv, NULL, 10000), 0);
}

TestSuite(file, .init = make_dir, .fini = remove_dir);

static const char *in_dir(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static size_t count_files(void)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2; /* . and .. */
}

Test(file, reads_back_what_was_written_and_leaves_nothing_beside_it)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	static char big[300000];

	memset(big, 'x', sizeof(big));
	cr_assert_eq(file_write_atomic(in_dir("f"), "old", 3), 0);
	cr_assert_eq(file_write_atomic(in_dir("f"), big, sizeof(big)), 0);
	cr_assert_eq(file_read(in_dir("f"), &b), 0);
	cr_assert_eq(b.size, sizeof(big));
	cr_assert_eq(memcmp(b.data, big, sizeof(big)), 0);
	cr_assert_eq(count_files(), 1);
}

Test(file, read_takes_exactly_the_limit_and_refuses_one_more)
{
	_cleanup_(buf_done) struct buf fits = BUF_INIT(5), small = BUF_INIT(4);

	cr_assert_eq(file_write_atomic(in_dir("f"), "12345", 5), 0);
	cr_assert_eq(file_read(in_dir("f"), &fits), 0);
	cr_assert_str_eq(buf_str(&fits), "12345");
	cr_assert_eq(file_read(in_dir("f"), &small), -EFBIG);
}

Test(file, read_appends)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);

	cr_assert_eq(file_write_atomic(in_dir("f"), "b", 1), 0);
	cr_assert_eq(buf_append_str(&b, "a"), 0);
	cr_assert_eq(file_read(in_dir("f"), &b), 0);
	cr_assert_str_eq(buf_str(&b), "ab");
}

Test(file, reads_proc_files_whose_size_is_0)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	cr_assert_eq(file_read("/proc/self/status", &b), 0);
	cr_assert_eq(strncmp(buf_str(&b), "Name:", 5), 0);
}

Test(file, read_of_our_own_refuses_what_could_wait_for_ever)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);
	const char *fifo = in_dir("fifo");

	cr_assert_eq(mkfifo(fifo, 0600), 0);
	cr_assert_eq(file_read_own(fifo, &b), -EINVAL);
	cr_assert_eq(file_read_own(in_dir("."), &b), -EINVAL);
	cr_assert_eq(file_read_own(in_dir("none"), &b), -ENOENT);
	cr_assert_eq(file_read_own("/proc/self/comm", &b), 0);
	cr_assert_gt(b.size, 0);
}

Test(file, errors_of_the_system_come_back)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);
	char hex[FILE_SHA256_HEX];

	cr_assert_eq(file_read(in_dir("none"), &b), -ENOENT);
	cr_assert_eq(file_read(dir, &b), -EISDIR);
	cr_assert_eq(file_write_atomic(in_dir("none/f"), "", 0), -ENOENT);
	cr_assert_eq(file_sha256(in_dir("none"), hex), -ENOENT);
	cr_assert_eq(file_sha256(dir, hex), -EISDIR);
}

Test(file, failed_atomic_write_keeps_the_target_and_leaves_nothing)
{
	cr_assert_eq(mkdir(in_dir("d"), 0700), 0);
	cr_assert_eq(file_write_atomic(in_dir("d"), "x", 1), -EISDIR);
	cr_assert_eq(count_files(), 1);
}

Test(file, atomic_write_replaces_a_stale_temporary_and_follows_no_link)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);
	char temp[300];

	cr_assert_eq(file_write_atomic(in_dir("victim"), "safe", 4), 0);
	(void)snprintf(temp, sizeof(temp), "%s/f.tmp.%d", dir, (int)getpid());
	cr_assert_eq(symlink(in_dir("victim"), temp), 0);
	cr_assert_eq(file_write_atomic(in_dir("f"), "new", 3), 0);
	cr_assert_eq(file_read(in_dir("victim"), &b), 0);
	cr_assert_str_eq(buf_str(&b), "safe");
}

Test(file, mkdir_parents_makes_all_and_accepts_what_is_there)
{
	struct stat st;

	cr_assert_eq(file_mkdir_parents(in_dir("a//b/c")), 0);
	cr_assert_eq(file_mkdir_parents(in_dir("a/b/c/")), 0);
	cr_assert_eq(stat(in_dir("a/b/c"), &st), 0);
	cr_assert(S_ISDIR(st.st_mode));
	cr_assert_eq(file_write_atomic(in_dir("f"), "", 0), 0);
	cr_assert_eq(file_mkdir_parents(in_dir("f")), -ENOTDIR);
	cr_assert_eq(file_mkdir_parents(in_dir("f/g")), -ENOTDIR);
	cr_assert_eq(file_mkdir_parents(""), -ENOENT);
}

Test(file, copy_has_the_content_and_exactly_the_mode)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);
	struct stat st;
	char from[256];

	(void)snprintf(from, sizeof(from), "%s/from", dir);
	cr_assert_eq(file_write_atomic(from, "body", 4), 0);
	umask(077);
	cr_assert_eq(file_copy(from, in_dir("to"), 0755), 0);
	cr_assert_eq(stat(in_dir("to"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0755);
	cr_assert_eq(file_read(in_dir("to"), &b), 0);
	cr_assert_str_eq(buf_str(&b), "body");
	cr_assert_eq(file_copy(in_dir("none"), in_dir("to2"), 0644), -ENOENT);
	cr_assert_eq(count_files(), 2);
}

/* The values of FIPS 180-2, appendix B. */
Test(file, sha256_of_the_standard_examples)
{
	char hex[FILE_SHA256_HEX];

	cr_assert_eq(file_sha256_mem("abc", 3, hex), 0);
	cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	cr_assert_eq(file_sha256_mem(NULL, 0, hex), 0);
	cr_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	cr_assert_eq(file_write_atomic(in_dir("f"), "abc", 3), 0);
	cr_assert_eq(file_sha256(in_dir("f"), hex), 0);
	cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Test(file, descriptors_do_not_leak)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(100);
	int before = open("/dev/null", O_RDONLY | O_CLOEXEC), after;

	closep(&before);
	(void)file_read(in_dir("none"), &b);
	(void)file_read(dir, &b);
	cr_assert_eq(file_write_atomic(in_dir("f"), "x", 1), 0);
	cr_assert_eq(file_copy(in_dir("f"), "/tmp", 0644), -EISDIR);
	after = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(before, after);
	closep(&after);
}
