/* crowd: hundreds of processes of several programs, all of which run, so that each of them is sampled and what an
 * agent keeps by process and by program is there at the same time.
 *
 * The programs are the workloads beside this one, with and without frame pointers, static and dynamic. They never come to
 * their end; when the time is over they are killed. This process comes first when it wants to run, or starting them
 * all would take as long as their number squared. */
#include "args.hpp"
#include "truth.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t processes = 500, seconds = 60;
static const char *truth_path;

static const char *const programs[] = {"chain", "chain_nofp", "chain_stripped", "chain_static_pie",
	"recursion", "inline_three", "signal_middle", "tail_noreturn_nofp"};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static std::string directory()
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0)
		truth::fail("/proc/self/exe");
	self[n] = 0;
	return std::string(self, strrchr(self, '/') + 1);
}

static void become(const char *path)
{
	int null = open("/dev/null", O_RDWR);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || setpriority(PRIO_PROCESS, 0, 0) || null < 0 ||
		dup2(null, 1) < 0)
		truth::fail(path);
	execl(path, path, "--chunks", "1000000000", static_cast<char *>(nullptr));
	truth::fail(path);
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"processes", "that burn", &processes, 1, 10000, nullptr},
		{"seconds", "how long, once all are started", &seconds, 1, 1000000, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("crowd", argc, argv, options);
	if (setpriority(PRIO_PROCESS, 0, -20))
		truth::fail("setpriority");
	truth::record r = {"crowd", argc, argv};
	truth::function members[PROGRAMS];
	std::string dir = directory();
	std::vector<pid_t> pids;
	r.begin();
	for (uint64_t i = 0; i < processes; i++) {
		std::string path = dir + programs[i % PROGRAMS];
		pid_t pid = fork();
		if (pid < 0)
			truth::fail("fork");
		if (!pid)
			become(path.c_str());
		pids.push_back(pid);
		members[i % PROGRAMS].count++;
	}
	truth::sleep_ns(seconds * 1000000000);
	int status;
	pid_t early = waitpid(-1, &status, WNOHANG);
	for (pid_t pid : pids)
		(void)kill(pid, SIGKILL); /* one that has ended is in early */
	while (waitpid(-1, &status, 0) > 0)
		;
	r.end();
	if (early) {
		errno = ECHILD;
		truth::fail("a process of the crowd ended");
	}
	for (unsigned i = 0; i < PROGRAMS; i++) {
		members[i].name = programs[i];
		r.functions.push_back(members[i]);
		r.checksum = r.checksum * 1000003 + members[i].count;
	}
	truth::finish(r, truth_path);
	return 0;
}
