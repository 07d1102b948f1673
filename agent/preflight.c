/* See preflight.h. */
#include "agent/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/def.h"
#include "base/file.h"

#define BTF_PATH "/sys/kernel/btf/vmlinux"

/* The inode of the initial PID namespace, include/linux/proc_ns.h PROC_PID_INIT_INO. */
#define PID_NS_INITIAL 0xEFFFFFFCUL

static int say(struct buf *why, int error, const char *text)
{
	(void)buf_append_str(why, text); /* a full buffer keeps the start */
	return error;
}

static bool has_capability(cap_t caps, cap_value_t cap)
{
	cap_flag_value_t value = CAP_CLEAR;

	return cap_get_flag(caps, cap, CAP_EFFECTIVE, &value) == 0 && value == CAP_SET;
}

static int check_capabilities(struct buf *why)
{
	static const struct {
		cap_value_t cap;
		bool admin; /* CAP_SYS_ADMIN stands for it */
		const char *name;
		const char *use;
	} needed[] = {
		{CAP_BPF, true, "CAP_BPF", "load the sampling programs"},
		{CAP_PERFMON, true, "CAP_PERFMON", "sample all processes"},
		{CAP_SYS_PTRACE, false, "CAP_SYS_PTRACE", "read other processes' mappings"},
		{CAP_DAC_READ_SEARCH, false, "CAP_DAC_READ_SEARCH", "read their files"},
	};
	cap_t caps = cap_get_proc();
	int r = 0;

	if (!caps)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(needed) && r == 0; i++) {
		if (has_capability(caps, needed[i].cap) ||
			(needed[i].admin && has_capability(caps, CAP_SYS_ADMIN)))
			continue;
		(void)buf_printf(why,
			"missing capability %s (to %s): run as root, or give the container "
			"BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH",
			needed[i].name, needed[i].use); /* a full buffer keeps the start */
		r = -EPERM;
	}
	(void)cap_free(caps); /* only frees */
	return r;
}

static int check_btf(struct buf *why)
{
	if (access(BTF_PATH, R_OK) == 0)
		return 0;
	(void)buf_printf(why,
		"no kernel type information in " BTF_PATH " (%s): use a kernel built with "
		"CONFIG_DEBUG_INFO_BTF=y, as Debian's and most distributions' are, and mount /sys",
		strerror(errno)); /* a full buffer keeps the start */
	return -ENOENT;
}

static int check_pid_namespace(struct buf *why)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0)
		return say(
			why, -errno, "/proc is not mounted: mount it (mount -t proc proc /proc)");
	if (st.st_ino != PID_NS_INITIAL)
		return say(why, -EXDEV,
			"this is not the host's PID namespace, so processes could not be named: "
			"start the container with the host's (docker run --pid=host, "
			"hostPID: true)");
	return 0;
}

static int paranoid_level(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64);

	if (file_read("/proc/sys/kernel/perf_event_paranoid", &b) < 0)
		return -1;
	return (int)strtol(buf_str(&b), NULL, 10);
}

static int check_perf(struct buf *why)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = NSEC_PER_SEC,
		.disabled = 1,
	};
	_cleanup_(closep) int cpu0 =
		(int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	int error = errno;

	if (cpu0 >= 0 || error == ENODEV) /* CPU 0 may be offline */
		return 0;
	if (error == ENOSYS || error == ENOENT)
		return say(why, -error,
			"this kernel has no perf events: use one built with CONFIG_PERF_EVENTS=y");
	(void)buf_printf(why,
		"opening the cpu-clock perf event failed (%s): kernel.perf_event_paranoid is %d; "
		"give CAP_PERFMON, and allow perf_event_open in the container's seccomp profile",
		strerror(error), paranoid_level()); /* a full buffer keeps the start */
	return -error;
}

int preflight_system(struct buf *why)
{
	int r = check_capabilities(why);

	if (r == 0)
		r = check_btf(why);
	if (r == 0)
		r = check_pid_namespace(why);
	return r == 0 ? check_perf(why) : r;
}

/* The thread group of a live process or thread, 0 if there is none. */
static uint64_t tgid_of(uint64_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(16384);
	char path[64];
	const char *at;

	(void)snprintf(path, sizeof(path), "/proc/%llu/status", (unsigned long long)pid);
	if (file_read(path, &b) < 0)
		return 0;
	at = strstr(buf_str(&b), "\nTgid:");
	return at ? strtoull(at + strlen("\nTgid:"), NULL, 10) : 0;
}

int preflight_pids(const uint64_t *pids, size_t count, struct buf *why)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t tgid = tgid_of(pids[i]);

		if (tgid == pids[i])
			continue;
		if (tgid == 0)
			(void)buf_printf(why, "process %llu does not exist",
				(unsigned long long)pids[i]); /* fits */
		else
			(void)buf_printf(why, "%llu is a thread of process %llu: give the process",
				(unsigned long long)pids[i], (unsigned long long)tgid); /* fits */
		return -ESRCH;
	}
	return 0;
}

int preflight_output(const char *path, struct buf *why)
{
	_cleanup_(buf_done) struct buf try = BUF_INIT(8192);
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int error = 0;

	if (!*path)
		return say(why, -EINVAL, "the output's name is empty");
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		(void)buf_printf(why, "output %s exists and is not a regular file", path); /* cut */
		return -EEXIST;
	}
	if (buf_printf(&try, "%s.try.%d", path, (int)getpid()) < 0) {
		error = ENAMETOOLONG;
	} else {
		fd = open(buf_str(&try), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		error = fd < 0 ? errno : 0;
	}
	if (error == 0 && unlink(buf_str(&try)) < 0)
		error = errno;
	if (error != 0)
		(void)buf_printf(why, "output %s cannot be written: %s", path,
			strerror(error)); /* a full buffer keeps the start */
	return -error;
}

int preflight_ready_fd(int fd, struct buf *why)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY)
		return 0;
	(void)buf_printf(why,
		"--ready-fd %d is not open for writing: redirect it, as in --ready-fd %d %d>FILE",
		fd, fd, fd); /* fits */
	return -EBADF;
}
