/*
 * vm: every way a VM can end is told apart. QEMU is played by a shell script that finds its QMP
 * descriptor, console and result device in the arguments that the real one would get, so no guest
 * has to boot; `flamelab.die=` does the same with real guests.
 */
#include "lab/vm.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"
#include "lab/vm_internal.h"

/* What every fake QEMU starts with: $qmp, $console, $result, and the talk up to "cont". */
#define FIND_ARGUMENTS                                      \
	"#!/bin/bash\n"                                     \
	"for a in \"$@\"; do case $a in\n"                  \
	"socket,id=qmp,fd=*) qmp=${a##*=} ;;\n"             \
	"file,id=console,path=*) console=${a##*path=} ;;\n" \
	"*id=result*) result=${a##*mem-path=} ;;\n"         \
	"esac; done\n"                                      \
	"tell() { echo \"$1\" >&$qmp; }\n"                  \
	"put() { printf \"$2\" | dd of=$result bs=1 seek=$1 conv=notrunc status=none; }\n"
#define START_GUEST                                                                 \
	FIND_ARGUMENTS                                                              \
	"tell '{\"QMP\": {}}'; read -r l <&$qmp\n"                                  \
	"tell '{\"return\": {}, \"id\": \"qmp_capabilities\"}'; read -r l <&$qmp\n" \
	"tell '{\"return\": {}, \"id\": \"cont\"}'\n"
#define SHUT_DOWN(reason) \
	"tell '{\"event\": \"SHUTDOWN\", \"data\": {\"reason\": \"" reason "\"}}'\n"

static char dir[64];
static struct job_step step = {.name = "one", .workload = "w", .timeout_ms = 1000};

static void put_file(const char *name, const char *text, unsigned int mode)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	cr_assert_eq(file_write_atomic(path, text, strlen(text)), 0);
	cr_assert_eq(chmod(path, mode), 0);
}

static void set_up(void)
{
	char path[128];

	(void)snprintf(dir, sizeof(dir), "/tmp/vm_test.XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/workloads", dir);
	cr_assert_eq(mkdir(path, 0755), 0);
	put_file("root.ext4", "root", 0644);
	put_file("modules.cpio", "modules!", 0644);
	put_file("lab-init", "init", 0755);
	put_file("workloads/w", "workload", 0755);
}

static void tear_down(void)
{
	char *const argv[] = {(char[]){"rm"}, (char[]){"-rf"}, dir, NULL};
	pid_t pid = fork();

	if (pid == 0) {
		(void)execv("/bin/rm", argv);
		_exit(127);
	}
	(void)waitpid(pid, NULL, 0); /* what it could not remove lies in /tmp */
}

/* Runs the job under a QEMU that is this script; NULL: there is none. */
static struct vm_outcome run_under(const char *script, uint64_t timeout_ms)
{
	struct vm_config c = {.mode = VM_EXACT,
		.shift = 1,
		.image_dir = dir,
		.bin_dir = dir,
		.timeout_ms = timeout_ms};
	struct job j = {.steps = &step, .step_count = 1};
	struct vm_outcome o = {0};
	char out[128], path[256];

	if (script)
		put_file("qemu-system-x86_64", script, 0755);
	(void)snprintf(path, sizeof(path), script ? "%s:/usr/bin:/bin" : "%s", dir);
	cr_assert_eq(setenv("PATH", path, 1), 0);
	(void)snprintf(out, sizeof(out), "%s/out", dir);
	cr_assert_eq(vm_run(&c, &j, out, NULL, NULL, &o), 0);
	return o;
}

#define cr_expect_end(o, expected, words)                                        \
	do {                                                                     \
		cr_assert_eq((o).end, expected, "%s", (o).reason);               \
		cr_assert_not_null(strstr((o).reason, words), "%s", (o).reason); \
	} while (0)

TestSuite(vm, .init = set_up, .fini = tear_down);

Test(vm, says_that_qemu_is_missing)
{
	struct vm_outcome o = run_under(NULL, 5000);

	cr_expect_end(o, VM_NO_START, "not installed");
}

Test(vm, says_why_qemu_refused_to_start)
{
	struct vm_outcome o = run_under("#!/bin/sh\n"
					"echo 'qemu-system-x86_64: no such machine' >&2; exit 1\n",
		5000);

	cr_expect_end(o, VM_NO_START, "exit 1: no such machine");
}

Test(vm, ends_a_guest_at_the_deadline)
{
	struct vm_outcome o = run_under(START_GUEST "printf 'flamelab: boot 7\\n' >$console\n"
						    "exec sleep 100\n",
		1000);

	cr_expect_end(o, VM_HUNG, "deadline");
	cr_assert_lt(o.host_ns, 10 * NSEC_PER_SEC);
	cr_assert_eq(o.guest_ns, 7);
}

Test(vm, names_the_panic_and_the_step)
{
	struct vm_outcome o = run_under(START_GUEST
		"printf 'flamelab: boot 7\\nflamelab: step 1/1 one start\\n"
		"[ 5.1] Kernel panic - not syncing: Attempted\\n' >$console\n"
		"tell '{\"event\": \"GUEST_PANICKED\"}'\n" SHUT_DOWN("guest-panic") "exit 1\n",
		5000);

	cr_expect_end(o, VM_CRASHED, "Kernel panic - not syncing: Attempted");
	cr_assert_not_null(strstr(o.reason, "in step one"), "%s", o.reason);
}

Test(vm, believes_pvpanic_without_a_word_on_the_console)
{
	struct vm_outcome o = run_under(START_GUEST
		"tell '{\"event\": \"GUEST_PANICKED\"}'\n" SHUT_DOWN("guest-panic") "exit 1\n",
		5000);

	cr_expect_end(o, VM_CRASHED, "pvpanic");
}

Test(vm, is_not_fooled_by_a_clean_power_off)
{
	struct vm_outcome o = run_under(START_GUEST SHUT_DOWN("guest-shutdown") "exit 0\n", 5000);

	cr_expect_end(o, VM_CRASHED, "guest-shutdown");
	cr_assert_not_null(strstr(o.reason, "while booting"), "%s", o.reason);
}

Test(vm, passes_on_what_pid_1_said)
{
	struct vm_outcome o = run_under(START_GUEST
		"printf 'flamelab: error cannot mount /newroot\\n' >$console\n" SHUT_DOWN(
			"guest-shutdown"),
		5000);

	cr_expect_end(o, VM_CRASHED, "cannot mount /newroot");
}

Test(vm, says_that_qemu_was_killed)
{
	struct vm_outcome o = run_under(START_GUEST "kill -9 $$\n", 5000);

	cr_expect_end(o, VM_CRASHED, "signal 9");
}

/* The header's crc is over these very bytes: state 2, end 96, one record; state 3, end 64, none. */
#define DONE_HEADER "FLRESULT\\x01\\0\\0\\0\\x02\\0\\0\\0\\x60\\0\\0\\0\\0\\0\\0\\0\\x01\\0\\0\\0"
#define DONE_RECORD "FILE\\x04\\0\\0\\0\\x03\\0\\0\\0\\0\\0\\0\\0"
#define FULL_HEADER "FLRESULT\\x01\\0\\0\\0\\x03\\0\\0\\0\\x40\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"

Test(vm, is_done_only_when_the_result_says_so)
{
	struct vm_outcome o = run_under(START_GUEST
		"put 0 '" DONE_HEADER "\\xb7\\x3e\\x4d\\x19'\n"
		"put 64 '" DONE_RECORD "\\x7d\\x0e\\x16\\xda\\x6a\\x97\\xa2\\xdadoneok\\n'\n"
		"printf 'flamelab: boot 7\\nflamelab: done 99\\n' >$console\n" SHUT_DOWN(
			"guest-shutdown"),
		5000);
	_cleanup_(buf_done) struct buf b = BUF_INIT(16);
	char path[128];

	cr_expect_end(o, VM_OK, "done");
	cr_assert_eq(o.guest_ns, 99);
	cr_assert_str_eq(o.accel, "tcg+icount");
	(void)snprintf(path, sizeof(path), "%s/out/done", dir);
	cr_assert_eq(file_read(path, &b), 0);
	cr_assert_str_eq(buf_str(&b), "ok\n");
	/* A later run in the same directory that dies must not find it. */
	o = run_under(START_GUEST SHUT_DOWN("guest-shutdown"), 5000);
	cr_assert_eq(o.end, VM_CRASHED);
	cr_assert_neq(access(path, F_OK), 0);
}

Test(vm, waits_a_moment_only_for_a_qemu_that_outlives_its_guest)
{
	struct timespec from, to;

	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	struct vm_outcome o = run_under(START_GUEST
		"put 0 '" DONE_HEADER "\\xb7\\x3e\\x4d\\x19'\n"
		"put 64 '" DONE_RECORD "\\x7d\\x0e\\x16\\xda\\x6a\\x97\\xa2\\xdadoneok\\n'\n"
		"printf 'flamelab: boot 7\\nflamelab: done 99\\n' >$console\n"
		"exec sleep 100\n",
		60000);
	(void)clock_gettime(CLOCK_MONOTONIC, &to);

	cr_expect_end(o, VM_OK, "done");
	cr_assert_lt(to.tv_sec - from.tv_sec, 30);
}

Test(vm, says_that_the_result_device_is_full)
{
	struct vm_outcome o = run_under(START_GUEST
		"put 0 '" FULL_HEADER "\\xbb\\x13\\xa8\\x17'\n" SHUT_DOWN("guest-shutdown"),
		5000);

	cr_expect_end(o, VM_NO_SPACE, "result device");
}

Test(vm, leaves_only_the_console_behind)
{
	char path[128];
	struct vm_outcome o = run_under(START_GUEST SHUT_DOWN("guest-reset"), 5000);
	struct dirent *e;
	DIR *d;

	cr_assert_eq(o.end, VM_CRASHED);
	(void)snprintf(path, sizeof(path), "%s/out", dir);
	d = opendir(path);
	cr_assert_not_null(d);
	while ((e = readdir(d)))
		cr_assert(
			e->d_name[0] != '.' || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."),
			"%s", e->d_name);
	(void)closedir(d);
	cr_assert_eq(access(o.console, R_OK), 0);
}

Test(vm, refuses_two_cpus_in_exact_mode)
{
	struct vm_config c = {.mode = VM_EXACT, .cpus = 2, .image_dir = dir, .bin_dir = dir};
	struct job j = {.steps = &step, .step_count = 1};
	struct vm_outcome o;

	cr_assert_eq(vm_run(&c, &j, dir, NULL, NULL, &o), -EINVAL);
}

/* Makes parent/flamelab-shell.NAME as a shell has it. */
static void make_shell_dir(const char *parent, const char *name, char path[256])
{
	struct vm_place place;

	(void)snprintf(path, 256, "%s/%s%s", parent, VM_SHELL_PREFIX, name);
	cr_assert_eq(vm_place_make(path, &place), 0);
	cr_assert_eq(file_write_atomic(place.initrd, "x", 1), 0);
}

Test(vm, what_a_killed_shell_left_goes_and_what_another_uses_stays)
{
	char parent[] = "/tmp/vm_test_shell.XXXXXX", stale[256], used[256], other[256];
	int fd;

	cr_assert_not_null(mkdtemp(parent));
	make_shell_dir(parent, "stale", stale);
	make_shell_dir(parent, "used", used);
	(void)snprintf(other, sizeof(other), "%s/something", parent);
	cr_assert_eq(mkdir(other, 0700), 0);
	fd = open(used, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	vm_shell_clean(parent);
	cr_assert_neq(access(stale, F_OK), 0);
	cr_assert_eq(access(used, F_OK), 0);
	cr_assert_eq(access(other, F_OK), 0);
	(void)close(fd);
	vm_shell_clean(parent);
	cr_assert_neq(access(used, F_OK), 0);
	(void)rmdir(other);
	cr_assert_eq(rmdir(parent), 0);
}

Test(vm, a_programs_debug_file_goes_along_under_its_build_id)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	static const char *const made[] = {"workloads/debug", "workloads/debug/w",
		"workloads/debug/w/.build-id", "workloads/debug/w/.build-id/ab"};
	struct vm_config c = {.mode = VM_EXACT, .image_dir = dir, .bin_dir = dir};
	struct job j = {.steps = &step, .step_count = 1};
	static const char name[] = "payload/debug/.build-id/ab/cdef.debug";
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/initrd", dir);
	cr_assert_eq(vm_initrd_write(&c, &j, path), 0);
	cr_assert_eq(file_read(path, &b), 0);
	cr_assert_null(memmem(b.data, b.size, "payload/debug", 13));
	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		char sub[256];

		(void)snprintf(sub, sizeof(sub), "%s/%s", dir, made[i]);
		cr_assert_eq(mkdir(sub, 0755), 0);
	}
	put_file("workloads/debug/w/.build-id/ab/cdef.debug", "names", 0644);
	cr_assert_eq(vm_initrd_write(&c, &j, path), 0);
	b.size = 0;
	cr_assert_eq(file_read(path, &b), 0);
	cr_assert_not_null(memmem(b.data, b.size, name, sizeof(name)));
}
