/*
 * The walls around the helper process, put up before it reads its first foreign byte. Whoever takes
 * it over through a malformed file holds: descriptors of files that are being profiled, read only;
 * a socket to the agent, which checks every answer; memory up to a limit. No uid of anybody, no
 * capability, no way to open, connect, execute or signal anything.
 *
 * The uid can only be changed while the agent has CAP_SETUID, so a helper that is started anew
 * after the agent dropped it keeps the agent's uid. The other walls stand without privilege.
 *
 * The role "lines" may map files, read only, and what it maps counts against RLIMIT_AS; so the limit
 * of its own memory is RLIMIT_DATA. A file that is cut while it is mapped kills that process, which
 * costs inlined functions and no name (dwarf_names.h).
 */
#include "agent/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/def.h"

/* Debian's nobody and nogroup; owns no files. */
enum {
	HELPER_UID = 65534,
	HELPER_FILES_MAX = 64,
	HELPER_LINES_MAPPED_MB =
		16 << 10, /* files of several GB are common, their pages are not ours */
};

#if defined(__SANITIZE_ADDRESS__)
#define HELPER_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HELPER_HAS_ASAN 1
#endif
#endif
#ifndef HELPER_HAS_ASAN
#define HELPER_HAS_ASAN 0
#endif

static int helper_drop_uid(void)
{
	if (geteuid() != 0)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(HELPER_UID, HELPER_UID, HELPER_UID) < 0 ||
		setresuid(HELPER_UID, HELPER_UID, HELPER_UID) < 0)
		/* No CAP_SETUID any more, or a user namespace without that uid. */
		return errno == EPERM || errno == EINVAL ? 0 : -errno;
	return 0;
}

static int helper_drop_capabilities(void)
{
	cap_t none = cap_init();

	if (!none)
		return -ENOMEM;
	int r = cap_set_proc(none) < 0 ? -errno : 0;

	(void)cap_free(none);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* empty with the others */
	return r;
}

static int helper_limit(int which, rlim_t value)
{
	struct rlimit limit = {value, value};

	return setrlimit((__rlimit_resource_t)which, &limit) < 0 ? -errno : 0;
}

static int helper_limit_all(enum helper_role role, uint32_t memory_mb)
{
	uint64_t size_mb = memory_mb;
	int r = helper_limit(RLIMIT_CORE, 0);

	if (r == 0)
		r = helper_limit(RLIMIT_FSIZE, 0);
	if (r == 0)
		r = helper_limit(RLIMIT_NOFILE, HELPER_FILES_MAX);
	if (r == 0)
		r = helper_limit(RLIMIT_MEMLOCK, 0);
	/* ASan's shadow takes terabytes of address space. */
	if (HELPER_HAS_ASAN)
		return r;
	if (r == 0 && role == HELPER_LINES) {
		r = helper_limit(RLIMIT_DATA, (rlim_t)memory_mb << 20);
		size_mb = HELPER_LINES_MAPPED_MB;
	}
	if (r == 0)
		r = helper_limit(RLIMIT_AS, (rlim_t)size_mb << 20);
	return r;
}

static int helper_add_rules(scmp_filter_ctx ctx, enum helper_role role)
{
	static const int allowed[] = {
		SCMP_SYS(read),
		SCMP_SYS(pread64),
		SCMP_SYS(sendmsg),
		SCMP_SYS(recvmsg),
		SCMP_SYS(fstat),
		SCMP_SYS(lseek),
		SCMP_SYS(munmap),
		SCMP_SYS(mremap),
		SCMP_SYS(madvise),
		SCMP_SYS(brk),
		SCMP_SYS(close),
		SCMP_SYS(exit),
		SCMP_SYS(exit_group),
		SCMP_SYS(rt_sigreturn),
		SCMP_SYS(rt_sigprocmask),
		SCMP_SYS(rt_sigaction),
		SCMP_SYS(futex),
		SCMP_SYS(clock_gettime),
		SCMP_SYS(getrandom),
		SCMP_SYS(restart_syscall),
		SCMP_SYS(sysinfo), /* qsort */
		/* abort() and assert() say why on stderr. */
		SCMP_SYS(write),
		SCMP_SYS(writev),
		SCMP_SYS(gettid),
		SCMP_SYS(getpid),
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(allowed); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	/* libelf asks whether the descriptor is valid. */
	if (r == 0)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_EQ, F_GETFD));
	if (r == 0)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_EQ, F_GETFL));
	/* glibc's fstat; with a path of its own it would be stat, but flags say "no path". */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
			SCMP_A3(SCMP_CMP_EQ, AT_EMPTY_PATH));
	/* Memory, but no file and no code. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
			SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
			SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
			SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* Or a file, to read. */
	if (r == 0 && role == HELPER_LINES)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
			SCMP_A2(SCMP_CMP_EQ, PROT_READ), SCMP_A3(SCMP_CMP_EQ, MAP_PRIVATE));
	/* ASan takes its signal stack down at exit. */
	if (r == 0 && HELPER_HAS_ASAN)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(sigaltstack), 0);
	return r;
}

static int helper_filter_calls(enum helper_role role)
{
	/* Refused rather than killed: a C library that asks for something new (qsort looks at the
	 * amount of memory) then goes on without, and nothing more is allowed either way. */
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));

	if (!ctx)
		return -ENOMEM;
	int r = helper_add_rules(ctx, role);

	if (r == 0)
		r = seccomp_load(ctx); /* sets no_new_privs */
	seccomp_release(ctx);
	return r;
}

int helper_confine(enum helper_role role, uint32_t memory_mb)
{
	pid_t parent = getppid();
	int r = helper_drop_uid();

	if (r == 0)
		r = helper_drop_capabilities();
	if (r == 0)
		r = helper_limit_all(role, memory_mb);
	if (r < 0)
		return r;
	/* A change of uid resets both: other processes of that uid may not trace us, and we do not
	 * outlive the agent. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (getppid() != parent)
		return -ESRCH;
	return helper_filter_calls(role);
}
