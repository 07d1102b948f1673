/*
 * query SERIES HOURS DIR - what a flame graph of many hours takes, with and without roll-ups.
 *
 * Each series is a host of one service with a window a minute, the last one now; profiles are those of
 * profiles.h. Filled, then asked before there are roll-ups, then with them: all of it up to now, which begins in
 * the middle of a step, the last six hours, the last hour, and the timeline of all.
 *
 * Prints one JSON object on stdout; times are the best of three.
 */
#include <errno.h>

#include "backend/store_roll.h"
#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"
#include "bench/profiles.h"

enum { POOL = 64, MINUTE_S = 60, ROUNDS = 3 };

struct bench {
	struct store *store;
	struct profile *profiles[POOL];
	uint64_t series, hours;
	int64_t now_ns;
};

static void push_minute(struct bench *b, int64_t ts_ns, uint64_t minute)
{
	for (uint64_t at = 0; at < b->series; at += POOL) {
		struct push_label labels[POOL][3];
		struct store_push pushes[POOL];
		enum store_outcome outcomes[POOL];
		char hosts[POOL][24];
		size_t count = (size_t)MIN(b->series - at, (uint64_t)POOL);
		int r;

		for (size_t i = 0; i < count; i++) {
			struct profile *p = b->profiles[(i + minute) % POOL];

			profile_set_time(p, ts_ns, MINUTE_S * (int64_t)NSEC_PER_SEC);
			(void)snprintf(
				hosts[i], sizeof(hosts[i]), "host-%06u", (unsigned int)(at + i));
			labels[i][0] = (struct push_label){"__name__", "process_cpu"};
			labels[i][1] = (struct push_label){"host", hosts[i]};
			labels[i][2] = (struct push_label){"service_name", "service"};
			pushes[i] = (struct store_push){labels[i], 3, p, "", b->now_ns};
		}
		r = store_push(b->store, pushes, count, 60000, outcomes);
		if (r < 0)
			bench_die("push", r);
	}
}

static int count_point(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	(void)ts_ns, (void)profiles;
	*(int64_t *)data += total;
	return 0;
}

/* The best time of a flame graph of the last so many hours, in ms; its total. */
static double ask(struct bench *b, uint64_t hours, int64_t *ret_total)
{
	struct store_range r = {b->now_ns - (int64_t)hours * STORE_HOUR_NS, b->now_ns + 1};
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = loop_now_ns();
		struct profile *p = NULL;
		int e = store_flamegraph(b->store, NULL, 0, &r, (size_t)1 << 30, &p);

		if (e < 0)
			bench_die("flame graph", e);
		best_ns = MIN(best_ns, loop_now_ns() - start);
		*ret_total = profile_total(p, 0);
		profile_free(p);
	}
	return (double)best_ns / 1e6;
}

static double ask_timeline(struct bench *b, int64_t *ret_total)
{
	struct store_range r = {b->now_ns - (int64_t)b->hours * STORE_HOUR_NS, b->now_ns + 1};
	uint64_t start = loop_now_ns();
	int e;

	*ret_total = 0;
	e = store_timeline(
		b->store, NULL, 0, &r, 600 * (int64_t)NSEC_PER_SEC, count_point, ret_total, NULL);
	if (e < 0)
		bench_die("timeline", e);
	return (double)(loop_now_ns() - start) / 1e6;
}

static void print(struct bench *b)
{
	int64_t before, after, part, line;
	double raw_ms = ask(b, b->hours, &before), pass_s, rolled_ms, line_ms;
	uint64_t start = loop_now_ns();
	int e = store_roller_pass(b->store, b->now_ns, true);

	if (e < 0)
		bench_die("roll-ups", e);
	pass_s = (double)(loop_now_ns() - start) / 1e9;
	rolled_ms = ask(b, b->hours, &after);
	line_ms = ask_timeline(b, &line);
	if (before != after || before != line)
		bench_die("totals differ", -EBADMSG);
	printf("{\"series\":%llu,\"hours\":%llu,\"flamegraph_ms_data\":%.1f,"
	       "\"flamegraph_ms\":%.1f,\"rollups_s\":%.2f,\"timeline_ms\":%.1f,",
		(unsigned long long)b->series, (unsigned long long)b->hours, raw_ms, rolled_ms,
		pass_s, line_ms);
	printf("\"flamegraph_6h_ms\":%.1f,\"flamegraph_1h_ms\":%.1f}\n", ask(b, 6, &part),
		ask(b, 1, &part));
}

int main(int argc, char **argv)
{
	struct store_options o = {.commit_interval_ms = 1};
	struct bench b = {0};
	const char *why = "";
	int e;

	if (argc != 4 || str_to_u64(argv[1], 1, 100000, &b.series) < 0 ||
		str_to_u64(argv[2], 1, 160, &b.hours) < 0)
		bench_die("usage: query SERIES HOURS DIR", -EINVAL);
	for (uint64_t i = 0; i < POOL; i++)
		b.profiles[i] = bench_profile(i + 1);
	b.now_ns = (int64_t)time(NULL) * (int64_t)NSEC_PER_SEC;
	e = store_open(argv[3], &o, &why, &b.store);
	if (e < 0)
		bench_die(why, e);
	for (uint64_t minute = b.hours * 60; minute-- > 0;)
		push_minute(&b, b.now_ns - (int64_t)(minute * MINUTE_S) * (int64_t)NSEC_PER_SEC,
			minute);
	print(&b);
	store_close(b.store);
	for (int i = 0; i < POOL; i++)
		profile_free(b.profiles[i]);
	return 0;
}
