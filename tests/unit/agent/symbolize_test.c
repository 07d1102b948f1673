/*
 * symbolize: addresses of real processes to frames, and that neither files, processes nor the
 * helper can do more harm than a label. The helper is this test program under another argv[1].
 */
#include "agent/symbolize.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/str.h"

/* Before Criterion's main sees the arguments. */
__attribute__((constructor)) static void become_helper(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], SYMBOLIZER_HELPER_ARG) == 0)
		_exit(symbolizer_helper_main(argc, argv));
}

/* Hard case B1: a call that does not return is the caller's last instruction, so the return
 * address is the next function's first byte. */
__asm__(".text\n"
	".globl symtest_caller\n"
	".type symtest_caller, @function\n"
	"symtest_caller: call abort\n"
	".size symtest_caller, . - symtest_caller\n"
	".globl symtest_innocent\n"
	".type symtest_innocent, @function\n"
	"symtest_innocent: nop; nop; ret\n"
	".size symtest_innocent, . - symtest_innocent\n");
void symtest_caller(void);
void symtest_innocent(void);

enum { FRAMES_MAX = 32 };

struct setting {
	struct symbolizer *s;
	struct profile *profile;
	struct symbolizer_process self;
	uint32_t frames[FRAMES_MAX];
};

static void setting_done(struct setting *t)
{
	symbolizer_free(t->s);
	profile_free(t->profile);
}

static void setting_init(struct setting *t, const struct symbolizer_options *o)
{
	*t = (struct setting){.self = {.tgid = (uint32_t)getpid()}};
	cr_assert_eq(symbolizer_new(o, &t->s), 0);
	cr_assert_eq(profile_new(16 << 20, &t->profile), 0);
}

static const struct frame *frame_at(const struct setting *t, int i)
{
	const struct frame *f = profile_frame_at(t->profile, t->frames[i]);

	cr_assert_not_null(f);
	return f;
}

static const char *name_at(const struct setting *t, int i)
{
	return profile_text(t->profile, frame_at(t, i)->name);
}

static const char *module_at(const struct setting *t, int i)
{
	return profile_text(t->profile, frame_at(t, i)->module);
}

/* The name of one interrupted (not called) address of our own process. */
static const char *name_of(struct setting *t, uint64_t pc)
{
	cr_assert_eq(
		symbolizer_user(t->s, t->profile, &t->self, &pc, 1, false, FRAMES_MAX, t->frames),
		1);
	return name_at(t, 0);
}

static uint64_t address(void (*function)(void))
{
	return (uint64_t)(uintptr_t)function;
}

Test(symbolize, looks_at_the_call_for_return_addresses_only)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[] = {address(symtest_innocent), address(symtest_innocent)};

	setting_init(&t, &o);
	cr_assert_eq(
		symbolizer_user(t.s, t.profile, &t.self, pcs, 2, false, FRAMES_MAX, t.frames), 2);
	cr_assert_str_eq(name_at(&t, 0), "symtest_innocent");
	cr_assert_str_eq(name_at(&t, 1), "symtest_caller");
	cr_assert_eq(
		symbolizer_user(t.s, t.profile, &t.self, pcs, 1, true, FRAMES_MAX, t.frames), 1);
	cr_assert_str_eq(name_at(&t, 0), "symtest_caller");
	cr_assert_eq(symbolizer_stats(t.s).resolved, 3);
}

Test(symbolize, seeded_fault_blames_the_next_function)
{
	const struct symbolizer_options o = {.keep_pc = true};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[] = {address(symtest_innocent), address(symtest_innocent)};

	setting_init(&t, &o);
	cr_assert_eq(
		symbolizer_user(t.s, t.profile, &t.self, pcs, 2, false, FRAMES_MAX, t.frames), 2);
	cr_assert_str_eq(name_at(&t, 1), "symtest_innocent");
}

Test(symbolize, frames_of_one_function_are_one_frame)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[] = {address(symtest_innocent), address(symtest_innocent) + 2};

	setting_init(&t, &o);
	cr_assert_eq(
		symbolizer_user(t.s, t.profile, &t.self, pcs, 2, false, FRAMES_MAX, t.frames), 2);
	cr_assert_eq(frame_at(&t, 0)->kind, FRAME_NATIVE);
	(void)name_of(&t, pcs[0]);
	uint32_t first = t.frames[0];
	(void)name_of(&t, pcs[0] + 1);
	cr_assert_eq(t.frames[0], first);
}

Test(symbolize, an_address_in_no_mapping_is_unknown_and_has_no_module)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[] = {address(symtest_innocent), 12, UINT64_MAX, 0};

	setting_init(&t, &o);
	cr_assert_eq(
		symbolizer_user(t.s, t.profile, &t.self, pcs, 4, false, FRAMES_MAX, t.frames), 4);
	for (int i = 1; i < 4; i++) {
		cr_assert_str_eq(name_at(&t, i), "[unknown]");
		cr_assert_str_eq(module_at(&t, i), "");
	}
	cr_assert_eq(symbolizer_stats(t.s).unresolved, 3);
}

Test(symbolize, generated_code_is_anonymous)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	void *m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	setting_init(&t, &o);
	cr_assert_neq(m, MAP_FAILED);
	cr_assert_str_eq(name_of(&t, (uint64_t)(uintptr_t)m + 5), "[anon]");
}

Test(symbolize, names_the_vdso)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	void *vdso = dlopen("linux-vdso.so.1", RTLD_NOLOAD | RTLD_NOW);

	if (!vdso)
		cr_skip_test("SKIP: this process has no vDSO");
	setting_init(&t, &o);
	uint64_t pc = (uint64_t)(uintptr_t)dlsym(vdso, "__vdso_clock_gettime");
	cr_assert_str_eq(name_of(&t, pc), "clock_gettime");
	cr_assert_str_eq(module_at(&t, 0), "[vdso]");
}

/* Maps a copy of a fixture at path for execution. */
static uint64_t map_copy(const char *from, const char *path)
{
	cr_assert_eq(file_copy(from, path, 0755), 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	cr_assert_neq(m, MAP_FAILED);
	(void)close(fd);
	return (uint64_t)(uintptr_t)m;
}

static void temporary(char *dir, size_t size)
{
	(void)snprintf(dir, size, "/tmp/symbolize-test.XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
}

Test(symbolize, outside_every_symbol_shows_file_and_vaddr)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	char dir[64], path[128];

	temporary(dir, sizeof(dir));
	(void)snprintf(path, sizeof(path), "%s/sp ace.so", dir);
	uint64_t m = map_copy("fixtures/elf/lld.so", path);
	setting_init(&t, &o);
	cr_assert_str_eq(name_of(&t, m + 0x36d), "split_second");
	cr_assert_str_eq(module_at(&t, 0), path);
	cr_assert_eq(frame_at(&t, 0)->address, 0x136d);
	cr_assert_str_eq(name_of(&t, m + 0x3a0), "split_first@plt");
	cr_assert_str_eq(name_of(&t, m + 0x392), "[sp ace.so+0x1392]");
	(void)unlink(path);
	(void)rmdir(dir);
}

Test(symbolize, reads_the_mapped_file_and_not_what_now_has_its_name)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	char dir[64], path[128], other[128];

	temporary(dir, sizeof(dir));
	(void)snprintf(path, sizeof(path), "%s/lib.so (deleted)", dir);
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	uint64_t m = map_copy("fixtures/elf/bfd.so", path);
	setting_init(&t, &o);
	cr_assert_str_eq(name_of(&t, m + 0x300), "split_first");
	cr_assert_str_eq(module_at(&t, 0), path, "part of the name: %s", module_at(&t, 0));
	setting_done(&t);

	cr_assert_eq(file_copy("fixtures/elf/asm.so", other, 0755), 0);
	cr_assert_eq(rename(other, path), 0);
	setting_init(&t, &o);
	cr_assert_str_eq(name_of(&t, m + 0x300), "split_first");
	cr_assert_str_eq(module_at(&t, 0), path, "the kernel's mark: %s", module_at(&t, 0));
	(void)unlink(path);
	(void)rmdir(dir);
}

Test(symbolize, a_file_truncated_under_us_costs_its_names_only)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	char dir[64], path[128];

	temporary(dir, sizeof(dir));
	(void)snprintf(path, sizeof(path), "%s/lib.so", dir);
	uint64_t m = map_copy("fixtures/elf/bfd.so", path);
	setting_init(&t, &o);
	cr_assert_str_eq(name_of(&t, m + 0x300), "split_first");
	cr_assert_eq(truncate(path, 100), 0);
	cr_assert_str_eq(name_of(&t, m + 0x317), "[lib.so+0x317]");
	cr_assert_str_eq(name_of(&t, m + 0x300), "split_first", "known from before");
	cr_assert_str_eq(name_of(&t, address(symtest_innocent)), "symtest_innocent");
	cr_assert_eq(symbolizer_stats(t.s).helper_restarts, 0);
	(void)unlink(path);
	(void)rmdir(dir);
}

Test(symbolize, a_file_that_is_no_elf_is_labelled_and_counted)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o);
	int fd = open("fixtures/elf/README.md", O_RDONLY | O_CLOEXEC);
	void *m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	cr_assert_neq(m, MAP_FAILED);
	(void)close(fd);
	cr_assert_str_eq(name_of(&t, (uint64_t)(uintptr_t)m + 8), "[README.md+0x8]");
	cr_assert_eq(symbolizer_stats(t.s).files_failed, 1);
	cr_assert_eq(symbolizer_stats(t.s).helper_restarts, 0);
}

/* A child that waits to be killed. */
static pid_t start_child(void)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			(void)pause();
		_exit(0);
	}
	cr_assert_gt(pid, 0);
	return pid;
}

static void end_child(pid_t pid)
{
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

Test(symbolize, names_a_process_that_is_gone_if_it_was_seen)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pc = address(symtest_innocent);

	setting_init(&t, &o);
	pid_t child = start_child();
	struct symbolizer_process p = {.tgid = (uint32_t)child, .exec_id = 1};
	symbolizer_see(t.s, &p, &pc, 1);
	end_child(child);
	cr_assert_eq(symbolizer_user(t.s, t.profile, &p, &pc, 1, false, FRAMES_MAX, t.frames), 1);
	cr_assert_str_eq(name_at(&t, 0), "symtest_innocent");
	cr_assert_eq(symbolizer_stats(t.s).processes_gone, 0);
}

Test(symbolize, counts_a_process_that_was_gone_before_it_was_seen)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pc = address(symtest_innocent);

	setting_init(&t, &o);
	pid_t child = start_child();
	end_child(child);
	struct symbolizer_process p = {.tgid = (uint32_t)child};
	symbolizer_see(t.s, &p, &pc, 1);
	cr_assert_eq(symbolizer_user(t.s, t.profile, &p, &pc, 1, false, FRAMES_MAX, t.frames), 1);
	cr_assert_str_eq(name_at(&t, 0), "[exited]");
	cr_assert_eq(symbolizer_stats(t.s).processes_gone, 1);
}

Test(symbolize, a_reused_pid_is_another_process)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pc = address(symtest_innocent);

	setting_init(&t, &o);
	/* One second after boot: certainly not when this test started. */
	struct symbolizer_process p = {.tgid = t.self.tgid, .start_ns = 1000000000};
	cr_assert_eq(symbolizer_user(t.s, t.profile, &p, &pc, 1, false, FRAMES_MAX, t.frames), 1);
	cr_assert_str_eq(name_at(&t, 0), "[exited]");
	cr_assert_eq(symbolizer_stats(t.s).processes_gone, 1);
}

static void has_status(const char *status, const char *line)
{
	cr_assert_not_null(strstr(status, line), "no \"%s\" in:\n%s", line, status);
}

Test(symbolize, helper_has_no_rights)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	_cleanup_(buf_done) struct buf status = BUF_INIT(1 << 16);
	char path[64];

	if (geteuid() != 0)
		cr_skip_test("SKIP: needs root to see the helper's uid change");
	setting_init(&t, &o);
	(void)name_of(&t, address(symtest_innocent)); /* it answers, so it is confined */
	(void)snprintf(path, sizeof(path), "/proc/%d/status", symbolizer_helper_pid(t.s));
	cr_assert_eq(file_read(path, &status), 0);
	has_status(buf_str(&status), "Uid:\t65534\t65534\t65534\t65534\n");
	has_status(buf_str(&status), "Gid:\t65534\t65534\t65534\t65534\n");
	has_status(buf_str(&status), "Groups:\t \n");
	has_status(buf_str(&status), "CapPrm:\t0000000000000000\n");
	has_status(buf_str(&status), "CapEff:\t0000000000000000\n");
	has_status(buf_str(&status), "NoNewPrivs:\t1\n");
	has_status(buf_str(&status), "Seccomp:\t2\n");
}

Test(symbolize, a_helper_killed_while_idle_costs_a_restart_and_no_name)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o);
	cr_assert_str_eq(name_of(&t, address(symtest_innocent)), "symtest_innocent");
	pid_t first = symbolizer_helper_pid(t.s);
	cr_assert_eq(kill(first, SIGKILL), 0);
	siginfo_t info;
	cr_assert_eq(waitid(P_PID, (id_t)first, &info, WEXITED | WNOWAIT), 0);
	cr_assert_str_eq(name_of(&t, address(symtest_caller)), "symtest_caller");
	cr_assert_eq(symbolizer_stats(t.s).helper_restarts, 1);
	cr_assert_eq(symbolizer_stats(t.s).files_failed, 0);
	cr_assert_neq(symbolizer_helper_pid(t.s), first);
}

Test(symbolize, a_helper_that_hangs_costs_one_file_and_a_restart)
{
	const struct symbolizer_options o = {.helper_timeout_ms = 300};
	_cleanup_(setting_done) struct setting t;
	uint64_t qsort_pc = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "qsort");

	setting_init(&t, &o);
	cr_assert_eq(kill(symbolizer_helper_pid(t.s), SIGSTOP), 0);
	cr_assert_eq(strncmp(name_of(&t, address(symtest_innocent)), "[unit-agent+0x", 14), 0);
	cr_assert_eq(symbolizer_stats(t.s).files_failed, 1);
	cr_assert_str_eq(name_of(&t, qsort_pc), "qsort");
	cr_assert_eq(symbolizer_stats(t.s).helper_restarts, 1);
}

Test(symbolize, prepared_addresses_need_no_further_question)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[] = {address(symtest_innocent), address(symtest_innocent)};

	setting_init(&t, &o);
	symbolizer_user_prepare(t.s, &t.self, pcs, 2, false);
	symbolizer_flush_prepare(t.s);
	cr_assert_eq(kill(symbolizer_helper_pid(t.s), SIGKILL), 0);
	cr_assert_eq(
		symbolizer_user(t.s, t.profile, &t.self, pcs, 2, false, FRAMES_MAX, t.frames), 2);
	cr_assert_str_eq(name_at(&t, 0), "symtest_innocent");
	cr_assert_str_eq(name_at(&t, 1), "symtest_caller");
	cr_assert_eq(symbolizer_stats(t.s).helper_restarts, 0);
}

Test(symbolize, names_kernel_addresses)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	_cleanup_(fclosep) FILE *f = fopen("/proc/kallsyms", "re");
	unsigned long long at = 0;
	char line[512], name[512];

	cr_assert_not_null(f);
	while (at == 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx %*c %511s", &at, name) == 2 && strcmp(name, "schedule") != 0)
			at = 0;
	if (at == 0)
		cr_skip_test("SKIP: kernel addresses are hidden here");
	setting_init(&t, &o);
	uint64_t pcs[] = {at + 1, at + 8, 4096};
	cr_assert_eq(symbolizer_kernel(t.s, t.profile, pcs, 3, t.frames), 3);
	cr_assert_str_eq(name_at(&t, 0), "schedule");
	cr_assert_str_eq(name_at(&t, 1), "schedule");
	cr_assert_str_eq(name_at(&t, 2), "[kernel]");
	cr_assert_eq(frame_at(&t, 0)->kind, FRAME_KERNEL);
	cr_assert_eq(symbolizer_stats(t.s).kernel_frames, 3);
	cr_assert_eq(symbolizer_stats(t.s).kernel_unresolved, 1);
	cr_assert_not(symbolizer_stats(t.s).kernel_hidden);
}
