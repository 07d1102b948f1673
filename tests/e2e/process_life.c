/*
 * Programs of process_life.sh, one of them a build: HOT names the function that takes the time, which
 * must be found under this program's name and under no other. MODE is argv[1].
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#ifndef HOT
#define HOT hot
#endif

static volatile unsigned long sink;

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((noinline)) void HOT(double seconds)
{
	double end = cpu_now() + seconds;

	while (cpu_now() < end)
		for (int i = 0; i < 2000; i++)
			sink++;
}

#ifndef LIBRARY
static double number(char **argv, int i)
{
	return argv[1] && argv[i] ? strtod(argv[i], NULL) : 0;
}

/* every MS COUNT SECONDS PROGRAM MODE... : COUNT starts, each MS after the last. */
static int every(char **argv)
{
	struct timespec t;
	long step = (long)(1e6 * number(argv, 2));

	clock_gettime(CLOCK_MONOTONIC, &t);
	for (long n = (long)number(argv, 3); n > 0; n--) {
		pid_t pid;

		if (posix_spawn(&pid, argv[4], NULL, NULL, argv + 4, environ) != 0)
			return 1;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		t.tv_nsec += step;
		for (; t.tv_nsec >= 1000000000; t.tv_nsec -= 1000000000)
			t.tv_sec++;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}

/* fork COUNT SECONDS : children that never call exec. */
static int forks(char **argv)
{
	for (long n = (long)number(argv, 2); n > 0; n--) {
		pid_t pid = fork();

		if (pid == 0) {
			HOT(number(argv, 3));
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return 0;
}

static void *worker(void *argv)
{
	HOT(number(argv, 2));
	exit(0);
}

/* orphan SECONDS : its main thread ends first. */
static int orphan(char **argv)
{
	pthread_t t;

	if (pthread_create(&t, NULL, worker, argv) != 0)
		return 1;
	pthread_exit(NULL);
}

static void *next_image(void *argv)
{
	char **a = argv;
	char count[16];

	HOT(number(a, 3));
	(void)snprintf(count, sizeof(count), "%ld", (long)number(a, 2) - 1);
	a[2] = count;
	if (number(a, 2) > 0)
		execv(a[0], a);
	exit(0);
}

/* images COUNT SECONDS : a thread that is not the first calls exec, COUNT times. */
static int images(char **argv)
{
	pthread_t t;

	if (pthread_create(&t, NULL, next_image, argv) != 0)
		return 1;
	pause();
	return 1;
}

/* library SECONDS FILE : works, then loads it and works there. */
static int library(char **argv)
{
	HOT(number(argv, 2));
	void *l = dlopen(argv[3], RTLD_NOW);
	void (*run)(double) = l ? (void (*)(double))dlsym(l, "library_hot") : NULL;

	if (!run)
		return 1;
	run(number(argv, 2));
	return 0;
}

/* reuse ROUNDS SECONDS RED BLUE : one PID, two programs; prints how often that came about. */
static int reuse(char **argv)
{
	int reused = 0;

	for (long n = (long)number(argv, 2); n > 0; n--) {
		pid_t pids[2] = {0, 0};

		for (int i = 0; i < 2; i++) {
			FILE *last = i ? fopen("/proc/sys/kernel/ns_last_pid", "w") : NULL;

			if (last) {
				(void)fprintf(last, "%d", (int)pids[0] - 1);
				(void)fclose(last);
			}
			pids[i] = fork();
			if (pids[i] == 0) {
				execl(argv[4 + i], argv[4 + i], "spin", argv[3], NULL);
				_exit(1);
			}
			waitpid(pids[i], NULL, 0);
		}
		reused += pids[0] == pids[1];
	}
	printf("%d\n", reused);
	return 0;
}

/* sleepers COUNT : prints their PIDs, then waits to be killed; they die with it. */
static int sleepers(char **argv)
{
	for (long n = (long)number(argv, 2); n > 0; n--) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
		printf("%d\n", (int)pid);
	}
	puts("all");
	(void)fflush(stdout);
	pause();
	return 0;
}

/* areas COUNT SECONDS : so many one-page mappings, every second one executable. */
static int areas(char **argv)
{
	for (long n = (long)number(argv, 2); n > 0; n--)
		if (mmap(NULL, 4096, n % 2 ? PROT_READ | PROT_EXEC : PROT_READ,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return 1;
	HOT(number(argv, 3));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(char **argv);
	} modes[] = {{"every", every}, {"fork", forks}, {"orphan", orphan}, {"images", images},
		{"library", library}, {"reuse", reuse}, {"sleepers", sleepers}, {"areas", areas}};

	for (size_t i = 0; argc > 2 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(argv[1], modes[i].name) == 0)
			return modes[i].run(argv);
	HOT(number(argv, 2));
	/* then PROGRAM MODE SECONDS in the same process */
	if (argc > 3)
		execv(argv[3], argv + 3);
	return argc > 3;
}
#endif
