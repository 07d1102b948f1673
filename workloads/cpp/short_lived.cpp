/* short_lived: programs that are over before anybody asks who they were, --rate of them a second.
 *
 *   main -> live -> short_burn    in each: burns --chunk iterations, sleeps until it has lived --live-ms, ends
 *
 * Each is this file, executed anew. It tells its CPU through a pipe as its last act; the truth's functions are their sum
 * over all programs, its cpu_ns what the kernel says that parent and children used in all. Rates are held by absolute
 * deadlines. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t rate = 50, live_ms = 100, chunk = 400000, seconds = 4, is_execed;
static const char *truth_path;

enum { REPORT_FD = 3 };

struct report {
	uint64_t cpu_ns, wall_ns, x;
};

BURN_DEFINE(short_burn)

BURN_FUNCTION void live()
{
	uint64_t end_ns = truth::monotonic_ns() + live_ms * 1000000;
	truth::function account = {"short_burn", {}};
	truth::meter m;
	uint64_t x = short_burn(burn_seed(1), chunk);
	m.stop(account);
	uint64_t now_ns = truth::monotonic_ns();
	if (now_ns < end_ns)
		truth::sleep_ns(end_ns - now_ns);
	report r = {account.cpu_ns, account.wall_ns, x};
	if (write(REPORT_FD, &r, sizeof r) != (ssize_t)sizeof r)
		truth::fail("report");
}

static void spawn(int report_fd)
{
	/* By its own name, so that all have the same: of "/proc/self/exe" the kernel makes "exe". */
	static char self[4096];
	if (!self[0] && readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
		truth::fail("/proc/self/exe");
	char flag[] = "--execed=1";
	std::string size = "--chunk=" + std::to_string(chunk),
		    life = "--live-ms=" + std::to_string(live_ms);
	char *const argv[] = {self, flag, &size[0], &life[0], nullptr};
	char *const envp[] = {nullptr};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	if ((errno = posix_spawn_file_actions_init(&actions)) ||
		(errno = posix_spawn_file_actions_adddup2(&actions, report_fd, REPORT_FD)) ||
		(errno = posix_spawn(&pid, self, &actions, nullptr, argv, envp)))
		truth::fail("posix_spawn");
	(void)posix_spawn_file_actions_destroy(&actions); /* always 0 */
}

/* Takes what ended, and waits for all when there will be no more. */
static void reap(uint64_t &running, bool all)
{
	int status;
	while (running) {
		pid_t pid = waitpid(-1, &status, all ? 0 : WNOHANG);
		if (pid == 0)
			return;
		if (pid < 0 || status)
			truth::fail("waitpid");
		running--;
	}
}

static void run(truth::function &burnt, uint64_t &checksum)
{
	uint64_t start_ns = truth::monotonic_ns(), running = 0;
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		truth::fail("pipe");
	/* A pipe takes 64 KB, and a report is 24 bytes: read as often as programs end. */
	auto read_reports = [&](uint64_t count) {
		report r;
		for (; burnt.count < count; burnt.count++) {
			if (read(fds[0], &r, sizeof r) != (ssize_t)sizeof r)
				truth::fail("report");
			burnt.cpu_ns += r.cpu_ns;
			burnt.wall_ns += r.wall_ns;
			checksum += r.x;
		}
	};
	for (uint64_t i = 0; i < rate * seconds; i++) {
		uint64_t due = start_ns + i * 1000000000 / rate, now = truth::monotonic_ns();
		if (due > now)
			truth::sleep_ns(due - now);
		spawn(fds[1]);
		running++;
		reap(running, false);
		read_reports(i + 1 - running);
	}
	reap(running, true);
	read_reports(rate * seconds);
	close(fds[0]);
	close(fds[1]);
}

static uint64_t children_cpu_ns()
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
		{"rate", "programs a second", &rate, 1, 10000, nullptr},
		{"live-ms", "how long each lives at least", &live_ms, 0, 100000, nullptr},
		{"chunk", "iterations in each", &chunk, 1, 1000000000000, nullptr},
		{"seconds", "how long", &seconds, 1, 1000000, nullptr},
		{"execed", "internal: burn and end", &is_execed, 0, 1, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("short_lived", argc, argv, options);
	if (is_execed) {
		live();
		return 0;
	}
	truth::record r = {"short_lived", argc, argv};
	truth::function burnt = {"short_burn", {"live", "main"}};
	r.begin();
	run(burnt, r.checksum);
	r.end();
	r.cpu_ns += children_cpu_ns();
	r.functions = {burnt};
	truth::finish(r, truth_path);
	return 0;
}
