/*
 * What the kernel's records about processes cost those who exec and map: the same work with and without the
 * agent's rings (agent/sideband.h), in turn, by the CPU time of this process and its children. Medians
 * of ROUNDS each; and what reading costs the agent, per record.
 */
#include "agent/sideband.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/def.h"
#include "base/loop.h"

enum { ROUNDS = 25, EXECS = 100, MAPPINGS = 20000 };

extern char **environ;

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + 1e-6 * (double)t->tv_usec;
}

static double cpu_s(void)
{
	struct rusage self = {0};
	struct rusage children = {0};

	(void)getrusage(RUSAGE_SELF, &self); /* cannot fail with these arguments */
	(void)getrusage(RUSAGE_CHILDREN, &children);
	return seconds(&self.ru_utime) + seconds(&self.ru_stime) + seconds(&children.ru_utime) +
	       seconds(&children.ru_stime);
}

static void execs(void)
{
	char *argv[] = {(char[]){"/bin/true"}, NULL};

	for (int i = 0; i < EXECS; i++) {
		pid_t pid;

		if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) == 0)
			(void)waitpid(pid, NULL, 0); /* it was made just now */
	}
}

static void map(int prot)
{
	for (int i = 0; i < MAPPINGS; i++) {
		void *at = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at != MAP_FAILED)
			(void)munmap(at, 4096); /* our own */
	}
}

static void code(void)
{
	map(PROT_READ | PROT_EXEC);
}

static void data(void)
{
	map(PROT_READ);
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a;
	const double y = *(const double *)b;

	return (x > y) - (x < y);
}

static int measure(const char *name, void (*run)(void), int count)
{
	double took[2][ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		for (int with = 0; with < 2; with++) {
			_cleanup_(sideband_freep) struct sideband *s = NULL;
			int r = with ? sideband_new(&s) : 0;
			double before = cpu_s();

			if (r < 0)
				return r;
			run();
			took[with][i] = 1e6 * (cpu_s() - before) / count;
		}
	}
	qsort(took[0], ROUNDS, sizeof(took[0][0]), compare);
	qsort(took[1], ROUNDS, sizeof(took[1][0]), compare);
	printf("%-22s %9.2f us without, %9.2f us with the rings, ratio %.3f\n", name,
		took[0][ROUNDS / 2], took[1][ROUNDS / 2],
		took[1][ROUNDS / 2] / took[0][ROUNDS / 2]);
	return 0;
}

static int read_them(void)
{
	_cleanup_(sideband_freep) struct sideband *s = NULL;
	int r = sideband_new(&s);

	if (r < 0)
		return r;
	execs();
	uint64_t start_ns = loop_now_ns();

	(void)sideband_since(s, 1, start_ns);
	printf("%-22s %9.2f us, once for each\n", "the agent reads of one",
		(double)(loop_now_ns() - start_ns) / 1e3 / EXECS);
	return 0;
}

int main(void)
{
	int r = measure("exec of /bin/true", execs, EXECS);

	if (r == 0)
		r = measure("mapping of code", code, MAPPINGS);
	if (r == 0)
		r = measure("mapping of data", data, MAPPINGS);
	if (r == 0)
		r = read_them();
	if (r < 0)
		printf("SKIP: no perf events: %s\n", strerror(-r));
	return 0;
}
