/*
 * What naming costs: starts a program, waits for its first output, and has the symbolizer name stacks
 * of addresses all over its text, first seen and seen before. The helper processes are this program
 * under another argv[1]; a thread watches their anonymous memory meanwhile.
 *
 *	names LABEL PROGRAM [ARG]...
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "agent/symbolize.h"
#include "base/child.h"
#include "base/def.h"
#include "base/loop.h"
#include "base/rng.h"

enum { STACK_DEPTH = 64, WINDOW_STACKS = 64, WATCH_US = 1000, FRAMES_MAX = 64 * STACK_DEPTH };

struct watch {
	atomic_int pid;
	atomic_long peak_kb;
};

static struct watch watches[2]; /* names, lines */
static atomic_bool is_over;

static long anon_kb(pid_t pid)
{
	char path[64], line[256];
	long kb = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	_cleanup_(fclosep) FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kb) == 1)
			break;
	return kb;
}

static void watch_once(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(watches); i++) {
		int pid = atomic_load(&watches[i].pid);
		long kb = pid > 0 ? anon_kb(pid) : 0;

		if (kb > atomic_load(&watches[i].peak_kb))
			atomic_store(&watches[i].peak_kb, kb);
	}
}

static void *watch_run(void *unused)
{
	const struct timespec pause = {.tv_nsec = WATCH_US * 1000L};

	(void)unused;
	while (!atomic_load(&is_over)) {
		watch_once();
		(void)nanosleep(&pause, NULL); /* the period of sampling, nothing is waited for */
	}
	return NULL;
}

/* The executable mapping of most bytes. */
static void find_text(pid_t pid, uint64_t *ret_start, uint64_t *ret_end)
{
	char path[64], line[4096], rights[8];
	uint64_t start, end;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	_cleanup_(fclosep) FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &start, &end, rights) == 3 &&
			rights[2] == 'x' && strchr(line, '/') &&
			end - start > *ret_end - *ret_start) {
			*ret_start = start;
			*ret_end = end;
		}
}

struct bench {
	const char *label;
	struct symbolizer *s;
	struct profile *profile;
	struct symbolizer_process process;
	uint64_t pcs[WINDOW_STACKS][STACK_DEPTH];
	uint32_t frames[FRAMES_MAX];
};

/* Names count stacks as a window does. */
static int name_stacks(struct bench *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		symbolizer_user_prepare(b->s, &b->process, b->pcs[i], STACK_DEPTH, false);
	symbolizer_flush_prepare(b->s);
	atomic_store(&watches[0].pid, symbolizer_helper_pid(b->s));
	atomic_store(&watches[1].pid, symbolizer_lines_pid(b->s));
	watch_once();
	for (size_t i = 0; i < count; i++) {
		int n = symbolizer_user(b->s, b->profile, &b->process, b->pcs[i], STACK_DEPTH,
			false, FRAMES_MAX, b->frames);

		if (n < 0)
			return n;
	}
	return 0;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t = {0};

	(void)clock_gettime(clock, &t); /* 0 for a process that is gone */
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Of this thread and the helpers. */
static uint64_t cpu_ns(const struct bench *b)
{
	pid_t pids[] = {symbolizer_helper_pid(b->s), symbolizer_lines_pid(b->s)};
	uint64_t ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	clockid_t clock;

	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		if (pids[i] > 0 && clock_getcpuclockid(pids[i], &clock) == 0)
			ns += clock_ns(clock);
	return ns;
}

static int measure(struct bench *b, const char *what, size_t count)
{
	struct symbolizer_stats before = symbolizer_stats(b->s);
	uint64_t start_cpu_ns = cpu_ns(b);
	uint64_t start_ns = loop_now_ns();
	int r = name_stacks(b, count);
	uint64_t ns = loop_now_ns() - start_ns;
	uint64_t spent_ns = cpu_ns(b) - start_cpu_ns;
	struct symbolizer_stats after = symbolizer_stats(b->s);

	if (r < 0)
		return r;
	(void)printf("%-10s %-34s %9.2f ms  CPU %8.2f ms  requests %" PRIu64 "+%" PRIu64
		     "  named %" PRIu64 " of %" PRIu64 "  inlined %" PRIu64 "\n",
		b->label, what, (double)ns / 1e6, (double)spent_ns / 1e6,
		after.requests - before.requests, after.lines_requests - before.lines_requests,
		after.resolved - before.resolved, after.frames - before.frames,
		after.inlined - before.inlined);
	return 0;
}

static int run(struct bench *b, pid_t pid)
{
	const struct symbolizer_options o = {.lines = SYMBOLIZER_LINES_LINE};
	struct rng rng = rng_seeded(1);
	uint64_t start = 0;
	uint64_t end = 0;

	find_text(pid, &start, &end);
	if (end == start)
		return -ENOENT;
	for (size_t i = 0; i < WINDOW_STACKS; i++)
		for (size_t k = 0; k < STACK_DEPTH; k++)
			b->pcs[i][k] = rng_between(&rng, start, end - 1);
	b->process.tgid = (uint32_t)pid;
	int r = symbolizer_new(&o, &b->s);

	if (r == 0)
		r = profile_new(256U << 20U, &b->profile);
	atomic_store(&watches[0].pid, r == 0 ? symbolizer_helper_pid(b->s) : 0);
	if (r == 0)
		r = measure(b, "first stack, 64 frames", 1);
	if (r == 0)
		r = measure(b, "the same again", 1);
	if (r == 0)
		r = measure(b, "63 further stacks", WINDOW_STACKS);
	if (r == 0)
		r = measure(b, "all 64 again", WINDOW_STACKS);
	return r;
}

static void report(const struct bench *b)
{
	struct symbolizer_stats s = symbolizer_stats(b->s);

	(void)printf("%-10s anonymous memory at most: helper for names %ld kB (limit 512 MB of "
		     "address space), for lines %ld kB (limit 64 MB of data); failed %" PRIu64
		     "+%" PRIu64 ", restarts %" PRIu64 "+%" PRIu64 "\n",
		b->label, atomic_load(&watches[0].peak_kb), atomic_load(&watches[1].peak_kb),
		s.files_failed, s.lines_failed, s.helper_restarts, s.lines_restarts);
}

int main(int argc, char **argv)
{
	static struct bench b;
	struct child child = {.pidfd = -1};
	pthread_t watcher;
	int ends[2];
	char byte;

	if (argc > 1 && strcmp(argv[1], SYMBOLIZER_HELPER_ARG) == 0)
		return symbolizer_helper_main(argc, argv);
	if (argc < 3 || pipe(ends) < 0)
		return 2;
	struct child_io io = {.in = -1, .out = ends[1], .err = -1};

	b.label = argv[1];
	if (child_start(&child, argv + 2, &io) < 0 || read(ends[0], &byte, 1) != 1)
		return 1;
	if (pthread_create(&watcher, NULL, watch_run, NULL) != 0)
		return 1;
	int r = run(&b, child.pid);

	atomic_store(&is_over, true);
	(void)pthread_join(watcher, NULL); /* it runs */
	if (r == 0)
		report(&b);
	else
		(void)fprintf(stderr, "%s: %s\n", b.label, strerror(-r));
	symbolizer_free(b.s);
	profile_free(b.profile);
	child_end(&child, 0);
	return r < 0;
}
