/*
 * debug_files: where debug files are looked for, and that none of another build is taken. The helper
 * is this test program, see symbolize_test.c.
 */
#include "agent/debug_files.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/elf_identity.h"
#include "base/def.h"
#include "base/file.h"

struct places {
	char top[32];   /* a directory of the test's own */
	char debug[64]; /* top/debug: the option */
	struct debug_files *d;
	struct helper *h;
	int self; /* /proc/self */
};

static const char *at(const struct places *p, const char *rest)
{
	static char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", p->top, rest);
	return path;
}

static void make_dir(const struct places *p, const char *dir)
{
	cr_assert_eq(file_mkdir_parents(at(p, dir)), 0, "%s", dir);
}

static void put(const struct places *p, const char *fixture, const char *to)
{
	char from[PATH_MAX];
	char dir[PATH_MAX];

	(void)snprintf(from, sizeof(from), "fixtures/debug/%s", fixture);
	(void)snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(to, '/') - to), to);
	make_dir(p, dir);
	cr_assert_eq(file_copy(from, at(p, to), 0644), 0, "%s -> %s", from, to);
}

static void places_init(struct places *p)
{
	struct helper_options o = {.role = HELPER_NAMES};

	(void)snprintf(p->top, sizeof(p->top), "/tmp/debug_files.XXXXXX");
	cr_assert_not_null(mkdtemp(p->top));
	(void)snprintf(p->debug, sizeof(p->debug), "%s/debug", p->top);
	const char *const dirs[] = {p->debug};
	cr_assert_eq(debug_files_new(dirs, 1, &p->d), 0);
	cr_assert_eq(helper_new(&o, &p->h), 0);
	p->self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void places_done(struct places *p)
{
	char command[128];

	debug_files_free(p->d);
	helper_free(p->h);
	closep(&p->self);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", p->top);
	cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a path of our own */
}

static bool is_same_file(int fd, const char *path)
{
	struct stat a, b;

	return fd >= 0 && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino;
}

/* The debug file found for program (below top) must be the one at expected, or none. */
static void finds_as(struct places *p, int process_fd, const char *program, const char *seen_as,
	const char *expected)
{
	_cleanup_(closep) int fd = open(at(p, program), O_RDONLY | O_CLOEXEC);
	struct helper_file f = {.id = 1, .fd = fd, .debug_fd = -1, .alt_fd = -1};
	uint64_t number = debug_files_add(p->d, process_fd, seen_as);

	cr_assert_geq(fd, 0);
	cr_assert_neq(number, 0);
	cr_assert_eq(debug_files_find(p->d, p->h, number, &f), 0);
	if (!expected)
		cr_assert_lt(f.debug_fd, 0, "%s has a debug file", program);
	else
		cr_assert(
			is_same_file(f.debug_fd, at(p, expected)), "%s: not %s", program, expected);
}

static void finds(struct places *p, const char *program, const char *expected)
{
	char seen_as[PATH_MAX];

	(void)snprintf(seen_as, sizeof(seen_as), "%s", at(p, program));
	finds_as(p, p->self, program, seen_as, expected);
}

#define BY_ID "debug/.build-id/a1/b2c3d4e5f60718293a4b5c6d7e8f9001122334.debug"

Test(debug_files, B11_looks_in_all_places_of_gdb_and_in_its_order)
{
	_cleanup_(places_done) struct places p;
	char in_debug[PATH_MAX];

	places_init(&p);
	(void)snprintf(in_debug, sizeof(in_debug), "debug%s/app/by_id.debug", p.top);
	put(&p, "by_id.so", "app/by_id.so");
	finds(&p, "app/by_id.so", NULL);
	put(&p, "by_id.debug", in_debug);
	finds(&p, "app/by_id.so", in_debug);
	put(&p, "by_id.debug", "app/.debug/by_id.debug");
	finds(&p, "app/by_id.so", "app/.debug/by_id.debug");
	put(&p, "by_id.debug", "app/by_id.debug");
	finds(&p, "app/by_id.so", "app/by_id.debug");
	put(&p, "by_id.debug", BY_ID);
	finds(&p, "app/by_id.so", BY_ID);
}

Test(debug_files, B11_finds_by_crc_what_has_no_build_id)
{
	_cleanup_(places_done) struct places p;

	places_init(&p);
	put(&p, "by_crc.so", "app/by_crc.so");
	put(&p, "by_crc.debug", "app/.debug/by_crc.debug");
	finds(&p, "app/by_crc.so", "app/.debug/by_crc.debug");
}

Test(debug_files, B12_refuses_other_builds_and_goes_on)
{
	_cleanup_(places_done) struct places p;

	places_init(&p);
	put(&p, "by_id.so", "app/by_id.so");
	put(&p, "other.debug", BY_ID);
	put(&p, "other.debug", "app/by_id.debug");
	put(&p, "by_crc.so", "app/by_crc.so");
	put(&p, "other_by_crc.debug", "app/by_crc.debug");
	finds(&p, "app/by_id.so", NULL);
	finds(&p, "app/by_crc.so", NULL);
	cr_assert_eq(debug_files_stats(p.d).refused, 3);
	put(&p, "by_id.debug", "app/.debug/by_id.debug");
	finds(&p, "app/by_id.so", "app/.debug/by_id.debug");
	cr_assert_eq(debug_files_stats(p.d).found, 1);
}

Test(debug_files, a_file_is_not_its_own_debug_file)
{
	_cleanup_(places_done) struct places p;

	places_init(&p);
	put(&p, "by_id.so", "app/by_id.debug");
	finds(&p, "app/by_id.debug", NULL);
}

Test(debug_files, opens_neither_fifos_nor_directories, .timeout = 20)
{
	_cleanup_(places_done) struct places p;

	places_init(&p);
	put(&p, "by_id.so", "app/by_id.so");
	put(&p, "by_id.debug", "app/.debug/by_id.debug");
	cr_assert_eq(mkfifo(at(&p, "app/by_id.debug"), 0600), 0);
	make_dir(&p, BY_ID);
	finds(&p, "app/by_id.so", "app/.debug/by_id.debug");
}

Test(debug_files, finds_what_dwz_moved_away_by_path_and_by_build_id)
{
	_cleanup_(places_done) struct places p;
	_cleanup_(closep) int fd = -1;
	char path[PATH_MAX];

	places_init(&p);
	put(&p, "by_id.so", "app/by_id.so");
	put(&p, "by_id.debug", "app/by_id.debug");
	finds(&p, "app/by_id.so", "app/by_id.debug");
	/* dwz.debug has no program of its own here: its CRC is told to by_crc.so. */
	_cleanup_(buf_done) struct buf so = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf old = BUF_INIT(1 << 20);
	cr_assert_eq(file_read("fixtures/debug/by_crc.so", &so), 0);
	uint32_t was, is;
	_cleanup_(closep) int was_fd = open("fixtures/debug/by_crc.debug", O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int is_fd = open("fixtures/debug/dwz.debug", O_RDONLY | O_CLOEXEC);
	cr_assert_eq(elf_identity_crc(was_fd, &was), 0);
	cr_assert_eq(elf_identity_crc(is_fd, &is), 0);
	char *crc = memmem(so.data, so.size, &was, sizeof(was));
	cr_assert_not_null(crc);
	memcpy(crc, &is, sizeof(is));
	cr_assert_eq(file_write_atomic(at(&p, "app/prog"), so.data, so.size), 0);
	put(&p, "dwz.debug", "app/.debug/by_crc.debug");
	put(&p, "common.dwz", "app/.debug/common.dwz");
	fd = open(at(&p, "app/prog"), O_RDONLY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "%s/app/prog", p.top);
	struct helper_file f = {.id = 1, .fd = fd, .debug_fd = -1, .alt_fd = -1};
	(void)debug_files_find(p.d, p.h, debug_files_add(p.d, p.self, path), &f);
	cr_assert(is_same_file(f.debug_fd, at(&p, "app/.debug/by_crc.debug")));
	cr_assert(is_same_file(f.alt_fd, at(&p, "app/.debug/common.dwz")));
}

/* A child that has top/root as its root, and waits there. */
static pid_t chrooted(const struct places *p, int *ret_proc)
{
	char proc[32];
	int ready[2];
	char byte;

	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && chroot(at(p, "root")) == 0 &&
			write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	cr_assert_eq(close(ready[1]), 0);
	bool is_ready = read(ready[0], &byte, 1) == 1;
	cr_assert_eq(close(ready[0]), 0);
	if (!is_ready) {
		cr_assert_eq(waitpid(pid, NULL, 0), pid);
		cr_skip_test("chroot is not permitted");
	}
	(void)snprintf(proc, sizeof(proc), "/proc/%d", pid);
	closep(ret_proc);
	*ret_proc = open(proc, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return pid;
}

Test(debug_files, B11_looks_below_the_root_of_the_process_first, .timeout = 20)
{
	_cleanup_(places_done) struct places p;
	_cleanup_(closep) int proc = -1;
	char seen_as[PATH_MAX];
	char elsewhere[PATH_MAX];

	places_init(&p);
	(void)snprintf(seen_as, sizeof(seen_as), "%s/root/app/by_id.so", p.top);
	put(&p, "by_id.so", "root/app/by_id.so");
	put(&p, "by_id.debug", BY_ID);
	pid_t pid = chrooted(&p, &proc);
	finds_as(&p, proc, "root/app/by_id.so", seen_as, BY_ID);
	put(&p, "by_id.debug", "root/app/.debug/by_id.debug");
	finds_as(&p, proc, "root/app/by_id.so", seen_as, "root/app/.debug/by_id.debug");

	/* Its root is kept, so it may be gone when the file is looked for. */
	uint64_t number = debug_files_add(p.d, proc, seen_as);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	_cleanup_(closep) int fd = open(seen_as, O_RDONLY | O_CLOEXEC);
	struct helper_file f = {.id = 1, .fd = fd, .debug_fd = -1, .alt_fd = -1};
	cr_assert_eq(debug_files_find(p.d, p.h, number, &f), 0);
	cr_assert(is_same_file(f.debug_fd, at(&p, "root/app/.debug/by_id.debug")));

	/* A link says what it says inside: outside's file is not reached. */
	cr_assert_eq(unlink(at(&p, "root/app/.debug/by_id.debug")), 0);
	cr_assert_eq(unlink(at(&p, BY_ID)), 0);
	put(&p, "by_id.debug", "out/by_id.debug");
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/out/by_id.debug", p.top);
	cr_assert_eq(symlink(elsewhere, at(&p, "root/app/.debug/by_id.debug")), 0);
	pid = chrooted(&p, &proc);
	number = debug_files_add(p.d, proc, "/app/by_id.so");
	f.debug_fd = -1;
	cr_assert_eq(debug_files_find(p.d, p.h, number, &f), 0);
	cr_assert_lt(f.debug_fd, 0);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}
