/* busy_host: what a host looks like on which an agent waits to be asked. Many processes, most of them
 * asleep; pairs that wake each other through pipes (two context switches a round trip); a process that
 * forks and execs at a steady rate. Nothing burns, so the load is the kernel's work, which is what an
 * agent with hooks left in place would slow down.
 *
 * Rates are held by absolute deadlines: a slow machine catches up rather than doing less, and the truth
 * says how many there were. Switches and execs are the counts of this program's own making. */
#include <cstring>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "args.hpp"
#include "truth.hpp"

static uint64_t processes = 200, switches = 20000, execs = 50, seconds = 10, batches = 100,
		is_execed;
static const char *truth_path;

enum { PAIRS = 4 };

struct counts {
	uint64_t round_trips[PAIRS], execs;
};
static counts *shared;

static void wait_until(uint64_t when_ns)
{
	uint64_t now = truth::monotonic_ns();
	if (when_ns > now)
		truth::sleep_ns(when_ns - now);
}

static pid_t start(void (*body)(unsigned), unsigned index)
{
	pid_t pid = fork();
	if (pid < 0)
		truth::fail("fork");
	if (pid)
		return pid;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		truth::fail("prctl");
	body(index);
	_exit(0);
}

static void sleeper(unsigned)
{
	for (;;)
		(void)poll(nullptr, 0, -1);
}

/* One byte there and back: the partner wakes, answers, sleeps; so do we. */
static void partner(int in, int out)
{
	char c;
	while (read(in, &c, 1) == 1 && write(out, &c, 1) == 1)
		;
	_exit(0);
}

static void pair(unsigned index)
{
	int there[2], back[2];
	if (pipe(there) || pipe(back))
		truth::fail("pipe");
	pid_t pid = fork();
	if (pid < 0)
		truth::fail("fork");
	if (!pid) {
		close(there[1]);
		close(back[0]);
		partner(there[0], back[1]);
	}
	uint64_t start_ns = truth::monotonic_ns(), end = seconds * batches;
	uint64_t done = 0, total = switches * seconds / 2 / PAIRS;
	for (uint64_t b = 1; b <= end; b++) {
		wait_until(start_ns + b * 1000000000 / batches);
		for (uint64_t due = total * b / end; done < due; done++) {
			char c = 1;
			if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
				truth::fail("pipe");
		}
	}
	shared->round_trips[index] = done;
	close(there[1]);
	if (waitpid(pid, nullptr, 0) != pid)
		truth::fail("waitpid");
}

static void execer(unsigned)
{
	char self[] = "/proc/self/exe", flag[] = "--execed=1";
	char *const argv[] = {self, flag, nullptr};
	char *const envp[] = {nullptr};
	uint64_t start_ns = truth::monotonic_ns();
	for (uint64_t i = 1; i <= execs * seconds; i++) {
		wait_until(start_ns + i * 1000000000 / execs);
		pid_t pid;
		int status;
		if ((errno = posix_spawn(&pid, self, nullptr, nullptr, argv, envp)))
			truth::fail("posix_spawn");
		if (waitpid(pid, &status, 0) != pid || status)
			truth::fail("waitpid");
		shared->execs++;
	}
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"processes", "that sleep", &processes, 0, 10000, nullptr},
		{"switches", "context switches a second", &switches, 0, 10000000, nullptr},
		{"execs", "forks and execs a second", &execs, 0, 10000, nullptr},
		{"batches", "that the switches come in, a second", &batches, 1, 1000, nullptr},
		{"seconds", "how long", &seconds, 1, 1000000, nullptr},
		{"execed", "internal: end at once", &is_execed, 0, 1, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("busy_host", argc, argv, options);
	if (is_execed)
		return 0;

	shared = static_cast<counts *>(mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	if (shared == MAP_FAILED)
		truth::fail("mmap");
	truth::record r = {"busy_host", argc, argv};
	std::vector<pid_t> sleepers, workers;
	r.begin();
	for (uint64_t i = 0; i < processes; i++)
		sleepers.push_back(start(sleeper, 0));
	for (unsigned i = 0; i < PAIRS; i++)
		workers.push_back(start(pair, i));
	if (execs)
		workers.push_back(start(execer, 0));
	bool bad = false;
	for (pid_t pid : workers) {
		int status;
		bad |= waitpid(pid, &status, 0) != pid || status;
	}
	for (pid_t pid : sleepers) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, nullptr, 0);
	}
	r.end();
	if (bad) {
		errno = ECHILD;
		truth::fail("a process of the load failed");
	}
	truth::function pairs = {"pair", {"main"}}, spawns = {"execer", {"main"}};
	for (uint64_t n : shared->round_trips)
		pairs.count += 2 * n;
	spawns.count = shared->execs;
	r.functions = {pairs, spawns};
	r.checksum = pairs.count * 1000003 + spawns.count;
	truth::finish(r, truth_path);
	return 0;
}
