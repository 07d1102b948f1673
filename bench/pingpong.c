/* pingpong ROUNDS [CPU] - two threads on one CPU that pass a byte to and fro, so that nearly all
 * they do is switch.
 *
 * Prints "SWITCHES NANOSECONDS": context switches by getrusage and CPU time of both threads, which other load on the
 * machine stretches less than wall time. bench/record.sh runs it with and without the agent to see what a
 * switch costs. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct side {
	int in, out;
	uint64_t rounds;
};

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *play(void *arg)
{
	const struct side *s = arg;
	char byte;

	for (uint64_t i = 0; i < s->rounds; i++) {
		if (read(s->in, &byte, 1) != 1)
			fail("read");
		if (write(s->out, &byte, 1) != 1)
			fail("write");
	}
	return NULL;
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts))
		fail("clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t switches(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		fail("getrusage");
	return (uint64_t)u.ru_nvcsw + (uint64_t)u.ru_nivcsw;
}

static uint64_t number(const char *text, uint64_t max)
{
	char *end;

	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v > max) {
		fprintf(stderr, "pingpong: %s: not a number up to %llu\n", text,
			(unsigned long long)max);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	int to[2], fro[2];
	cpu_set_t cpus;
	pthread_t other;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: pingpong ROUNDS [CPU]\n");
		return 2;
	}
	uint64_t rounds = number(argv[1], 1000000000);
	if (!rounds)
		rounds = 1;
	CPU_ZERO(&cpus);
	CPU_SET(argc == 3 ? number(argv[2], CPU_SETSIZE - 1) : 0, &cpus);
	if (sched_setaffinity(0, sizeof cpus, &cpus))
		fail("sched_setaffinity");
	if (pipe(to) || pipe(fro))
		fail("pipe");
	struct side here = {.in = fro[0], .out = to[1], .rounds = rounds};
	struct side there = {.in = to[0], .out = fro[1], .rounds = rounds};
	if ((errno = pthread_create(&other, NULL, play, &there)))
		fail("pthread_create");
	uint64_t n0 = switches(), t0 = cpu_ns();
	if (write(to[1], "x", 1) != 1)
		fail("write");
	here.rounds--;
	play(&here);
	uint64_t t1 = cpu_ns(), n1 = switches();
	/* The last byte lies in the pipe back to here. */
	if ((errno = pthread_join(other, NULL)))
		fail("pthread_join");
	printf("%llu %llu\n", (unsigned long long)(n1 - n0), (unsigned long long)(t1 - t0));
	return 0;
}
