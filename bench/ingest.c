/*
 * ingest HOSTS SECONDS DIR - what the store takes and what it costs, without HTTP.
 *
 * Each simulated host has one window under way: a round pushes one profile a host, in calls of up to 500 from
 * two threads, and the next round starts when the last one is acknowledged. Profiles are those of profiles.h, made
 * before the clock starts, 64 of them for all hosts.
 *
 * Prints one JSON object on stdout. CPU is that of the whole process, the pushing threads included.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "backend/store.h"
#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"
#include "bench/profiles.h"

enum { POOL = 64, SAMPLES = BENCH_SAMPLES, CALL_MAX = 500, THREADS = 2 };

struct bench {
	struct store *store;
	struct profile *profiles[POOL];
	uint64_t hosts;
	uint64_t until_ns;
	int64_t start_ns;
};

struct worker {
	struct bench *b;
	uint64_t first, count; /* its hosts */
	uint64_t pushed, samples, latency_max_ns, latency_sum_ns, calls;
	int error;
};

static void push_call(struct worker *w, uint64_t first, uint64_t count, uint64_t round)
{
	struct push_label labels[CALL_MAX][3];
	struct store_push pushes[CALL_MAX];
	enum store_outcome outcomes[CALL_MAX];
	char hosts[CALL_MAX][24], ids[CALL_MAX][48];
	uint64_t before = loop_now_ns();

	for (uint64_t i = 0; i < count; i++) {
		(void)snprintf(hosts[i], sizeof(hosts[i]), "host-%06u", (unsigned int)(first + i));
		(void)snprintf(ids[i], sizeof(ids[i]), "0b1f4c1e-9c1d-4a7e-%08x-%08x",
			(unsigned int)(first + i), (unsigned int)round);
		labels[i][0] = (struct push_label){"__name__", "process_cpu"};
		labels[i][1] = (struct push_label){"host", hosts[i]};
		labels[i][2] = (struct push_label){"service_name", "service"};
		pushes[i] = (struct store_push){labels[i], 3,
			w->b->profiles[(first + i + round) % POOL], ids[i], w->b->start_ns};
	}
	w->error = store_push(w->b->store, pushes, count, 60000, outcomes);
	before = loop_now_ns() - before;
	w->latency_max_ns = MAX(w->latency_max_ns, before);
	w->latency_sum_ns += before;
	w->calls++;
	w->pushed += count;
	w->samples += count * SAMPLES;
}

static void *work(void *data)
{
	struct worker *w = data;

	for (uint64_t round = 0; w->error == 0 && loop_now_ns() < w->b->until_ns; round++) {
		for (uint64_t at = 0; w->error == 0 && at < w->count; at += CALL_MAX)
			push_call(w, w->first + at, MIN(w->count - at, (uint64_t)CALL_MAX), round);
	}
	return NULL;
}

static double cpu_s(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u); /* cannot fail for oneself */
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int count_point(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	(void)ts_ns, (void)total;
	*(uint64_t *)data += profiles;
	return 0;
}

/* One flame graph and one timeline over all, timed, into the output. */
static void print_reads(struct bench *b)
{
	struct store_range r = {b->start_ns - 3600 * (int64_t)NSEC_PER_SEC,
		b->start_ns + 3600 * (int64_t)NSEC_PER_SEC};
	uint64_t profiles = 0, start = loop_now_ns(), middle;
	struct profile *p = NULL;
	int e = store_flamegraph(b->store, NULL, 0, &r, (size_t)1 << 30, &p);

	if (e < 0)
		bench_die("flame graph", e);
	middle = loop_now_ns();
	e = store_timeline(
		b->store, NULL, 0, &r, 60 * (int64_t)NSEC_PER_SEC, count_point, &profiles, NULL);
	if (e < 0)
		bench_die("timeline", e);
	printf("\"profiles_read\":%llu,\"stacks_read\":%zu,\"flamegraph_ms\":%.1f,\"timeline_ms\":%"
	       ".1f}\n",
		(unsigned long long)profiles, profile_sample_count(p),
		(double)(middle - start) / 1e6, (double)(loop_now_ns() - middle) / 1e6);
	profile_free(p);
}

static struct worker run(struct bench *b, uint64_t seconds, double *ret_s)
{
	struct worker workers[THREADS] = {0}, sum = {0};
	uint64_t start = loop_now_ns();
	pthread_t threads[THREADS];

	b->until_ns = start + seconds * NSEC_PER_SEC;
	for (uint64_t i = 0; i < THREADS; i++) {
		workers[i].b = b;
		workers[i].first = b->hosts * i / THREADS;
		workers[i].count = b->hosts * (i + 1) / THREADS - workers[i].first;
		if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
			bench_die("thread", -EAGAIN);
	}
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL); /* ours, joined once */
		if (workers[i].error < 0)
			bench_die("push", workers[i].error);
		sum.pushed += workers[i].pushed;
		sum.samples += workers[i].samples;
		sum.calls += workers[i].calls;
		sum.latency_sum_ns += workers[i].latency_sum_ns;
		sum.latency_max_ns = MAX(sum.latency_max_ns, workers[i].latency_max_ns);
	}
	*ret_s = (double)(loop_now_ns() - start) / 1e9;
	return sum;
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	struct worker sum;
	struct store_stats stats;
	const char *why = "";
	uint64_t seconds;
	double cpu, wall_s;
	int e;

	if (argc != 4 || str_to_u64(argv[1], THREADS, 1000000, &b.hosts) < 0 ||
		str_to_u64(argv[2], 1, 3600, &seconds) < 0)
		bench_die("usage: ingest HOSTS SECONDS DIR", -EINVAL);
	for (uint64_t i = 0; i < POOL; i++)
		b.profiles[i] = bench_profile(i + 1);
	b.start_ns = (int64_t)time(NULL) * (int64_t)NSEC_PER_SEC;
	for (uint64_t i = 0; i < POOL; i++)
		profile_set_time(b.profiles[i], b.start_ns, 10 * (int64_t)NSEC_PER_SEC);
	e = store_open(argv[3], NULL, &why, &b.store);
	if (e < 0)
		bench_die(why, e);
	cpu = cpu_s();
	sum = run(&b, seconds, &wall_s);
	cpu = cpu_s() - cpu;
	stats = store_stats(b.store);
	printf("{\"hosts\":%llu,\"profiles\":%llu,\"seconds\":%.3f,\"profiles_per_s\":%.0f,"
	       "\"samples_per_s\":%.0f,\"profiles_per_cpu_s\":%.0f,\"ack_ms_mean\":%.1f,\"ack_ms_"
	       "max\":%.1f,"
	       "\"commits\":%llu,\"dict_stacks\":%llu,",
		(unsigned long long)b.hosts, (unsigned long long)sum.pushed, wall_s,
		(double)sum.pushed / wall_s, (double)sum.samples / wall_s, (double)sum.pushed / cpu,
		(double)sum.latency_sum_ns / 1e6 / (double)sum.calls,
		(double)sum.latency_max_ns / 1e6, (unsigned long long)stats.commits,
		(unsigned long long)stats.dict_stacks);
	print_reads(&b);
	store_close(b.store);
	for (int i = 0; i < POOL; i++)
		profile_free(b.profiles[i]);
	return stats.pushed == sum.pushed ? 0 : 1;
}
