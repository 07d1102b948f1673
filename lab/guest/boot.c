/*
 * Boot, in the order that DESIGN.md section 6 measured: the root is a pmem device, so that no disk
 * interrupt lets host time into the guest. An aarch64 guest has no pmem: its root came with the
 * initramfs, and the result device is memory behind a PCI device.
 */
#include "lab/guest/boot.h"

#include "lab/guest/result.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/def.h"

#define NEW_ROOT "/newroot"

/* Which of the two pmem devices is which depends on the order of their firmware tables. */
static const char *root_device = "/dev/pmem0";
static const char *result_device = "/dev/pmem1";

static char result_path[PATH_MAX];

static char message[256];

static const char *failed(const char *what, const char *object, int error)
{
	(void)snprintf(
		message, sizeof(message), "cannot %s %.160s: %s", what, object, strerror(error));
	return message;
}

static const char *mount_on(const char *source, const char *dir, const char *type,
	unsigned long flags, const char *data)
{
	if (mkdir(dir, 0755) < 0 && errno != EEXIST && errno != EROFS)
		return failed("make", dir, errno);
	if (mount(source, dir, type, flags, data) < 0)
		return failed("mount", dir, errno);
	return NULL;
}

void boot_console(void)
{
	int fd;

	(void)mkdir("/dev", 0755);
	(void)mount(
		"dev", "/dev", "devtmpfs", MS_NOSUID, NULL); /* else the kernel's own node serves */
	fd = open("/dev/console", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		(void)dup2(fd, i);
	if (fd > 2)
		(void)close(fd);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

static const char *load_modules(void)
{
	struct dirent **names = NULL;
	const char *error = NULL;
	int n = scandir("/modules", &names, not_hidden, by_name);

	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];

		(void)snprintf(path, sizeof(path), "/modules/%s", names[i]->d_name);
		_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (!error && (fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0) &&
			errno != EEXIST)
			error = failed("load", path, errno);
		free(names[i]);
	}
	free(names);
	return n < 0 ? failed("read", "/modules", errno) : error;
}

/* nfit registers its regions in a worker, so the device may appear after the module is loaded. */
static const char *wait_for_device(const char *path)
{
	_cleanup_(closep) int fd = inotify_init1(IN_CLOEXEC);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char events[4096];

	if (fd < 0 || inotify_add_watch(fd, "/dev", IN_CREATE) < 0)
		return failed("watch", "/dev", errno);
	while (access(path, F_OK) < 0) {
		int n = poll(&p, 1, 10000);

		if (n == 0)
			return failed("find", path, ENODEV);
		if (n < 0 || read(fd, events, sizeof(events)) < 0)
			return failed("watch", "/dev", errno);
	}
	return NULL;
}

static const char *find_devices(void)
{
	const char *error = wait_for_device(root_device);
	char magic[sizeof(RESULT_MAGIC) - 1] = "";

	if (!error)
		error = wait_for_device(result_device);
	if (error)
		return error;
	_cleanup_(closep) int fd = open(root_device, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, magic, sizeof(magic)) != (ssize_t)sizeof(magic))
		return failed("read", root_device, errno);
	if (memcmp(magic, RESULT_MAGIC, sizeof(magic)) == 0) {
		result_device = root_device;
		root_device = "/dev/pmem1";
	}
	return NULL;
}

static const char *write_sysctl(const char *path, const char *value)
{
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		return failed("set", path, errno);
	return NULL;
}

static bool read_word(const char *dir, const char *name, char *ret, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", dir, name);
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, size - 1);
	if (n < 0)
		return false;
	ret[n] = 0;
	ret[strcspn(ret, "\n")] = 0;
	return true;
}

static bool is_shared_memory(const struct dirent *d)
{
	char vendor[16], device[16];

	return not_hidden(d) && read_word(d->d_name, "vendor", vendor, sizeof(vendor)) &&
	       read_word(d->d_name, "device", device, sizeof(device)) &&
	       strcmp(vendor, "0x1af4") == 0 && strcmp(device, "0x1110") == 0;
}

/* ivshmem-plain: region 2 is the memory (QEMU, docs/specs/ivshmem-spec.rst). */
static const char *find_shared_memory(void)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	struct dirent *e = NULL;
	char path[PATH_MAX];

	while (d && (e = readdir(d)) && !is_shared_memory(e))
		;
	if (!e) /* PID 1 ends with this message, and the machine with it */
		return failed("find", "the PCI device of the result", ENODEV);
	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/enable", e->d_name);
	/* _wc: as memory, not as registers, which would not take every access. */
	(void)snprintf(result_path, sizeof(result_path), "/sys/bus/pci/devices/%s/resource2_wc",
		e->d_name);
	(void)closedir(d);
	result_device = result_path;
	return write_sysctl(path, "1");
}

const char *boot_result_device(void)
{
	return result_device;
}

const char *boot_root(void)
{
	const char *error;

	if ((error = mount_on("proc", "/proc", "proc", 0, NULL)) ||
		(error = mount_on("sys", "/sys", "sysfs", 0, NULL)) || (error = load_modules()))
		return error;
	if (access("/usr/lib", F_OK) == 0)
		return find_shared_memory();
	if ((error = find_devices()) ||
		(error = mount_on(root_device, NEW_ROOT, "ext4", MS_RDONLY | MS_NOATIME, NULL)) ||
		(error = mount_on("/payload", NEW_ROOT "/payload", NULL, MS_BIND, NULL)))
		return error;
	if (mount("/dev", NEW_ROOT "/dev", NULL, MS_MOVE, NULL) < 0 ||
		mount("/proc", NEW_ROOT "/proc", NULL, MS_MOVE, NULL) < 0 ||
		mount("/sys", NEW_ROOT "/sys", NULL, MS_MOVE, NULL) < 0)
		return failed("move", "/dev, /proc, /sys", errno);
	if (chdir(NEW_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
		chdir("/") < 0)
		return failed("move to", NEW_ROOT, errno);
	return NULL;
}

/* Backend and agent talk over it. */
static const char *loopback_up(void)
{
	_cleanup_(closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq q = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &q) < 0 ? failed("switch on", "lo", errno) : NULL;
}

/* Every entry of dir, kept under kept, again where it was. */
static const char *bind_entries(const char *kept, const char *dir)
{
	struct dirent **names = NULL;
	const char *error = NULL;
	int n = scandir(kept, &names, not_hidden, by_name);

	for (int i = 0; i < n; i++) {
		char from[PATH_MAX], to[PATH_MAX];

		(void)snprintf(from, sizeof(from), "%s/%s", kept, names[i]->d_name);
		(void)snprintf(to, sizeof(to), "%s/%s", dir, names[i]->d_name);
		if (!error)
			error = mount_on(from, to, NULL, MS_BIND, NULL);
		free(names[i]);
	}
	free(names);
	return n < 0 ? failed("read", kept, errno) : error;
}

/*
 * Debug files that came with the job to where debuggers look for them, /usr/lib/debug, which the image lacks and
 * cannot be given: /usr/lib becomes a tmpfs with all that it had.
 */
static const char *debug_files(void)
{
	const char *error;

	if (access("/payload/debug", F_OK) < 0 || access("/usr/lib/debug", F_OK) == 0)
		return NULL;
	if ((error = mount_on("/usr/lib", "/run/usr-lib", NULL, MS_BIND, NULL)) ||
		(error = mount_on("lib", "/usr/lib", "tmpfs", 0, "mode=755")) ||
		(error = bind_entries("/run/usr-lib", "/usr/lib")) ||
		(error = mount_on("/payload/debug", "/usr/lib/debug", NULL, MS_BIND, NULL)))
		return error;
	return umount2("/run/usr-lib", MNT_DETACH) < 0 ? failed("unmount", "/run/usr-lib", errno)
						       : NULL;
}

const char *boot_mounts(void)
{
	const char *error;

	if ((error = mount_on("tmp", "/tmp", "tmpfs", 0, "mode=1777")) ||
		(error = mount_on("run", "/run", "tmpfs", 0, "mode=755")) ||
		(error = mount_on("var", "/var", "tmpfs", 0, "mode=755")) ||
		(error = mount_on("pts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666")) ||
		(error = mount_on("shm", "/dev/shm", "tmpfs", 0, "mode=1777")) ||
		(error = mount_on("cgroup", "/sys/fs/cgroup", "cgroup2", 0, NULL)) ||
		(error = mount_on("trace", "/sys/kernel/tracing", "tracefs", 0, NULL)) ||
		(error = mount_on("bpf", "/sys/fs/bpf", "bpf", 0, NULL)))
		return error;
	/* In this order: once throttling is off (0), the kernel takes no new maximum rate. */
	if ((error = write_sysctl("/proc/sys/kernel/perf_event_max_sample_rate", "100000")) ||
		(error = write_sysctl("/proc/sys/kernel/perf_cpu_time_max_percent", "0")))
		return error;
	return (error = debug_files()) ? error : loopback_up();
}

void boot_argument(const char *name, char *value, size_t size)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/cmdline", "re");
	char line[2048], *save = NULL;
	size_t name_size = strlen(name);

	value[0] = 0;
	if (!f || !fgets(line, sizeof(line), f))
		return;
	for (char *w = strtok_r(line, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
		if (strncmp(w, name, name_size) == 0 && w[name_size] == '=')
			(void)snprintf(value, size, "%s", w + name_size + 1);
}

void boot_power_off(void)
{
	sync();
	(void)reboot(RB_POWER_OFF);
	for (;;)
		(void)pause(); /* only when ACPI did not answer: the host's deadline ends it */
}
