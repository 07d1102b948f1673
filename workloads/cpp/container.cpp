/* container: one path, two files. Outside of a container this program runs as /run/app/container, inside its neighbour
 * container_inside has that path:
 *
 *   main -> outside_run -> outside_heavy | outside_light                   60 and 40 % of its CPU
 *   main -> inside_run -> inside_step -> inside_heavy | inside_light       75 and 25 %, in the container
 *
 * The container is made of namespaces and a cgroup, no engine: a root of its own (an overlay where the kernel has it, else a
 * tmpfs) that it was moved into by pivot_root, with its own PIDs and /tmp, in a cgroup as Docker names it. Its libraries
 * are absolute links into /run/app/lib, where outside another file has each one's path. Needs root; what it makes
 * is below /run/app and /run/container-top, mounts only for the container itself. */
#include "args.hpp"
#include "container.hpp"

#include <algorithm>
#include <climits>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define APP     "/run/app"
#define PROGRAM "/run/app/container"
#define TOP     "/run/container-top"
#define GROUP   "docker-c0ffee5eed00c0ffee5eed00c0ffee5eed00c0ffee5eed00c0ffee5eed00c0ff.scope"

static uint64_t rounds = 150, chunk = 200000, is_execed;
static const char *truth_path;

static truth::function burnt[truth::CONTAINER_FUNCTIONS] = {
	{"outside_heavy", {}}, {"outside_light", {}}};

BURN_DEFINE(outside_heavy)
BURN_DEFINE(outside_light)

BURN_FUNCTION uint64_t outside_run()
{
	uint64_t x = burn_seed(2);
	for (uint64_t i = 0; i < rounds; i++) {
		truth::meter heavy;
		x = outside_heavy(x, 3 * chunk);
		heavy.stop(burnt[0]);
		truth::meter light;
		x = outside_light(x, 2 * chunk);
		light.stop(burnt[1]);
	}
	return x;
}

static void setup_dirs(const std::string &path)
{
	for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
		if (mkdir(path.substr(0, at).c_str(), 0755) && errno != EEXIST)
			truth::fail(path.c_str());
		if (at == std::string::npos)
			return;
	}
}

static void setup_copy(const std::string &from, const std::string &to)
{
	static char block[1 << 16];
	int in = open(from.c_str(), O_RDONLY | O_CLOEXEC);
	int out = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	if (in < 0 || out < 0)
		truth::fail((in < 0 ? from : to).c_str());
	for (ssize_t n; (n = read(in, block, sizeof block)) != 0;)
		if (n < 0 || write(out, block, (size_t)n) != n)
			truth::fail(to.c_str());
	close(in);
	if (close(out))
		truth::fail(to.c_str());
}

static std::string setup_self()
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0)
		truth::fail("/proc/self/exe");
	return std::string(self, (size_t)n);
}

static void setup_link(const std::string &to, const std::string &path)
{
	if (symlink(to.c_str(), path.c_str()) && errno != EEXIST)
		truth::fail(path.c_str());
}

/* The files of this process's libraries: path and name. */
static std::vector<std::pair<std::string, std::string>> setup_libraries(const std::string &self)
{
	std::vector<std::pair<std::string, std::string>> found;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128];
	if (!maps)
		truth::fail("/proc/self/maps");
	while (fgets(line, sizeof line, maps)) {
		const char *path = strchr(line, '/');
		line[strcspn(line, "\n")] = 0;
		if (path && self != path && strstr(line, " 00000000 "))
			found.push_back({path, strrchr(path, '/') + 1});
	}
	fclose(maps);
	return found;
}

/* Outside: this program, and at the path of each library of the container a file that is none. */
static void setup_outside(const std::string &self)
{
	setup_dirs(APP "/lib");
	setup_copy(self, PROGRAM);
	for (const auto &l : setup_libraries(self))
		setup_copy(self, APP "/lib/" + l.second);
}

static void setup_clean(const std::string &self)
{
	for (const auto &l : setup_libraries(self))
		(void)unlink(
			(APP "/lib/" + l.second).c_str()); /* what is left fails the next run */
	(void)unlink(PROGRAM);
	(void)rmdir(APP "/lib");
	(void)rmdir(APP);
	(void)rmdir(TOP);
}

static void setup_mount(
	const char *from, const char *to, const char *type, unsigned long flags, const char *data)
{
	if (mount(from, to, type, flags, data))
		truth::fail(to);
}

/* Libraries in APP/lib; where the linker looks for them are links. */
static void setup_lower(const std::string &lower, const std::string &self)
{
	static const char *const places[] = {"/lib64/", "/lib/", "/usr/lib/x86_64-linux-gnu/"};
	for (const char *dir : places)
		setup_dirs(lower + std::string(dir, strlen(dir) - 1));
	for (const char *dir : {APP "/lib", "/tmp", "/old"})
		setup_dirs(lower + dir);
	for (const auto &l : setup_libraries(self)) {
		std::string there = APP "/lib/" + l.second, soname = l.second;
		setup_copy(l.first, lower + there);
		size_t version = soname.find(".so.");
		if (version != std::string::npos)
			soname.resize(std::min(soname.find('.', version + 4), soname.size()));
		for (const char *dir : places)
			setup_link(there, lower + dir + soname);
	}
}

/* The container's root: the outside's program in the lower layer, the inside's in the upper one. */
static const char *setup_root(const std::string &self)
{
	static const char merged[] = TOP "/merged", lower[] = TOP "/lower";
	std::string inside = self.substr(0, self.rfind('/') + 1) + "container_inside";
	setup_mount("container", TOP, "tmpfs", 0, "mode=755");
	for (const char *dir : {TOP "/upper" APP, TOP "/work", merged})
		setup_dirs(dir);
	setup_lower(lower, self);
	setup_copy(inside, TOP "/upper" PROGRAM);
	setup_copy(self, TOP "/lower" PROGRAM);
	if (!mount("container", merged, "overlay", 0,
		    "lowerdir=" TOP "/lower,upperdir=" TOP "/upper,workdir=" TOP "/work"))
		return merged;
	if (errno != ENODEV)
		truth::fail("overlay");
	fprintf(stderr, "container: this kernel has no overlay: the root is a tmpfs\n");
	if (unlink(TOP "/lower" PROGRAM))
		truth::fail(PROGRAM);
	setup_copy(inside, TOP "/lower" PROGRAM);
	return lower;
}

/* The cgroup we are in, by a mount of our own, since hosts differ in where it is. */
static int setup_group()
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];
	std::string path;
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "0::", 3))
			path = TOP "/cgroup" + std::string(line + 3, strcspn(line + 3, "\n"));
	if (!f)
		truth::fail("/proc/self/cgroup");
	fclose(f);
	setup_dirs(TOP "/cgroup");
	setup_mount("cgroup", TOP "/cgroup", "cgroup2", 0, nullptr);
	int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || mkdirat(fd, GROUP, 0755))
		truth::fail(path.c_str());
	return fd;
}

static void setup_exec(const std::vector<std::string> &words)
{
	std::vector<char *> argv;
	for (const std::string &w : words)
		argv.push_back(const_cast<char *>(w.c_str()));
	argv.push_back(nullptr);
	execv(PROGRAM, argv.data());
	truth::fail(PROGRAM);
}

/* As process 1 of the container. */
static void setup_inside(int group, const char *root)
{
	int fd = openat(group, GROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1 || close(fd) || unshare(CLONE_NEWCGROUP))
		truth::fail("cgroup.procs");
	setup_mount(root, root, nullptr, MS_BIND, nullptr);
	if (chdir(root) || syscall(SYS_pivot_root, ".", "old") || chdir("/") ||
		umount2("/old", MNT_DETACH))
		truth::fail("pivot_root");
	setup_mount("tmp", "/tmp", "tmpfs", 0, nullptr);
	setup_exec({PROGRAM, std::to_string(rounds), std::to_string(chunk)});
}

/* Its mounts are its own and go with it. */
[[noreturn]] static void setup_container(const std::string &self)
{
	int status = 1;
	if (unshare(CLONE_NEWNS | CLONE_NEWPID))
		truth::fail("unshare");
	setup_mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
	const char *root = setup_root(self);
	int group = setup_group();
	pid_t pid = fork();
	if (pid == 0)
		setup_inside(group, root);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		truth::fail("process 1");
	if (unlinkat(group, GROUP, AT_REMOVEDIR))
		truth::fail(GROUP);
	_exit(status != 0);
}

/* Starts one side; its report comes through the descriptor. */
static void setup_start(bool in_container, const std::string &self, int *ret_fd)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		truth::fail("pipe");
	pid_t pid = fork();
	if (pid < 0)
		truth::fail("fork");
	*ret_fd = fds[0];
	if (pid) {
		close(fds[1]);
		return;
	}
	if (fds[1] != truth::CONTAINER_FD && dup2(fds[1], truth::CONTAINER_FD) < 0)
		truth::fail("dup2");
	if (fcntl(truth::CONTAINER_FD, F_SETFD, 0))
		truth::fail("fcntl");
	if (in_container)
		setup_container(self);
	setup_exec({PROGRAM, "--execed=1", "--rounds=" + std::to_string(rounds),
		"--chunk=" + std::to_string(chunk)});
}

static void setup_take(int fd, std::vector<truth::function> &functions, uint64_t &checksum)
{
	truth::container_report r;
	if (read(fd, &r, sizeof r) != (ssize_t)sizeof r)
		truth::fail("report");
	for (int i = 0; i < truth::CONTAINER_FUNCTIONS; i++) {
		truth::function &f = functions[functions.size() - truth::CONTAINER_FUNCTIONS + i];
		f.cpu_ns = r.cpu_ns[i];
		f.wall_ns = r.wall_ns[i];
		f.count = r.count[i];
	}
	checksum = checksum * 1000003 + r.x;
}

static uint64_t setup_children_ns()
{
	struct rusage u;
	if (getrusage(RUSAGE_CHILDREN, &u))
		truth::fail("getrusage");
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"rounds", "of each program", &rounds, 1, 1000000, nullptr},
		{"chunk", "iterations of a fifth of a round outside, of a quarter inside", &chunk,
			1, 1000000000, nullptr},
		{"execed", "internal: burn outside and end", &is_execed, 0, 1, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("container", argc, argv, options);
	if (is_execed) {
		truth::container_tell(burnt, outside_run());
		return 0;
	}
	truth::record r = {"container", argc, argv};
	int fds[2], status, failed = 0;
	std::string self = setup_self();
	setup_dirs(TOP);
	setup_outside(self);
	r.begin();
	setup_start(false, self, &fds[0]);
	setup_start(true, self, &fds[1]);
	r.functions.push_back({"outside_heavy", {"outside_run", "main"}});
	r.functions.push_back({"outside_light", {"outside_run", "main"}});
	setup_take(fds[0], r.functions, r.checksum);
	r.functions.push_back({"inside_heavy", {"inside_step", "inside_run", "main"}});
	r.functions.push_back({"inside_light", {"inside_step", "inside_run", "main"}});
	setup_take(fds[1], r.functions, r.checksum);
	while (wait(&status) > 0)
		failed |= status;
	r.end();
	r.cpu_ns += setup_children_ns();
	setup_clean(self);
	if (failed)
		truth::fail("a program");
	truth::finish(r, truth_path);
	return 0;
}
