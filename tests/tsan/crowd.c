/*
 * crowd SECONDS DIR - writers, readers and the roller on one store, for ThreadSanitizer; Criterion's own threads
 * and forks do not survive it. Exits 0 when every call was answered as it should and the total is what was pushed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backend/store_roll.h"
#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"

enum { WRITERS = 4, READERS = 4, MEMORY = 64 << 20 };

static struct {
	struct store *store;
	int64_t now_ns;
	uint64_t until_ns;
	_Atomic int64_t pushed;
	_Atomic int error;
} crowd;

static bool goes_on(void)
{
	return loop_now_ns() < crowd.until_ns && crowd.error == 0;
}

static void check(int r)
{
	if (r < 0 && r != -EBUSY)
		crowd.error = r;
}

static void push_one(unsigned int writer, unsigned int round)
{
	char host[16];
	struct push_label labels[] = {
		{"__name__", "cpu"}, {"host", host}, {"service_name", "crowd"}};
	struct store_push push = {.labels = labels,
		.label_count = ARRAY_SIZE(labels),
		.window_id = "",
		.received_unix_ns = crowd.now_ns};
	enum store_outcome outcome;
	struct profile *p = NULL;
	struct frame f = {0};
	uint32_t id;
	int64_t one = 1;
	int r = profile_new((size_t)1 << 20, &p);

	if (r < 0) {
		check(r);
		return;
	}
	(void)snprintf(host, sizeof(host), "h%u", writer);
	(void)profile_sample_type(p, "cpu", "nanoseconds");
	profile_set_time(p, crowd.now_ns - (int64_t)(round % 5) * STORE_HOUR_NS, 1000000000);
	f.name = (uint32_t)profile_str(p, host);
	id = (uint32_t)profile_frame(p, &f);
	(void)profile_add(p, &id, 1, NULL, 0, &one);
	push.profile = p;
	r = store_push(crowd.store, &push, 1, 60000, &outcome);
	check(r);
	if (r == 0)
		atomic_fetch_add(&crowd.pushed, 1);
	profile_free(p);
}

static void *writer_main(void *data)
{
	for (unsigned int round = 0; goes_on(); round++)
		push_one((unsigned int)(uintptr_t)data, round);
	return NULL;
}

static int add_total(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	(void)ts_ns, (void)profiles;
	*(int64_t *)data += total;
	return 0;
}

static int64_t ask(void)
{
	struct store_range all = {crowd.now_ns - 6 * STORE_HOUR_NS, crowd.now_ns + STORE_HOUR_NS};
	struct profile *p = NULL;
	int64_t line = 0, total = -1;
	int r = store_flamegraph(crowd.store, NULL, 0, &all, MEMORY, &p);

	check(r);
	if (r == 0 && profile_type_count(p))
		total = profile_total(p, 0);
	profile_free(p);
	check(store_timeline(crowd.store, NULL, 0, &all, STORE_HOUR_NS, add_total, &line, NULL));
	(void)store_stats(crowd.store);
	return total;
}

static void *reader_main(void *data)
{
	while (goes_on()) {
		(void)ask();
		if ((uintptr_t)data == 0)
			check(store_roller_pass(crowd.store, crowd.now_ns, true));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct store_options o = {.commit_interval_ms = 1, .free_min_bytes = 1};
	pthread_t threads[WRITERS + READERS];
	const char *why = "";
	uint64_t seconds;

	if (argc != 3 || str_to_u64(argv[1], 1, 3600, &seconds) < 0)
		return 2;
	crowd.now_ns = (int64_t)time(NULL) * (int64_t)NSEC_PER_SEC;
	if (store_open(argv[2], &o, &why, &crowd.store) < 0) {
		(void)fprintf(stderr, "crowd: %s\n", why);
		return 3;
	}
	crowd.until_ns = loop_now_ns() + seconds * NSEC_PER_SEC;
	for (uintptr_t i = 0; i < ARRAY_SIZE(threads); i++) {
		bool is_writer = i < WRITERS;

		if (pthread_create(&threads[i], NULL, is_writer ? writer_main : reader_main,
			    (void *)(is_writer ? i : i - WRITERS)) != 0) /* NOLINT: a number */
			return 3;
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		(void)pthread_join(threads[i], NULL); /* ours, joined once */
	if (crowd.error == 0 && ask() != crowd.pushed)
		crowd.error = -EUCLEAN;
	(void)printf("crowd: %lld pushes, error %d\n", (long long)crowd.pushed, crowd.error);
	store_close(crowd.store);
	return crowd.error ? 1 : 0;
}
