/*
 * The promises that need a bad day: SIGKILL at any moment, and writers and readers at once.
 *
 * FLAME_STORE_SECONDS=60 makes the crowd stay a minute instead of two seconds.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/def.h"
#include "base/loop.h"
#include "base/rng.h"
#include "base/str.h"
#include "store_fixture.h"

enum { KILLS = 30, PER_PUSH = 3, WINDOWS_MAX = 20000 };

/* Pushes windows from first on, some at a time, and tells each number once it is acknowledged. */
static void pusher(const char *dir, int64_t now_ns, uint32_t first, int fd)
{
	struct store_options o = {.commit_interval_ms = 1, .free_min_bytes = 1};
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "s"}};
	struct store *s = NULL;

	if (store_open(dir, &o, NULL, &s) < 0)
		_exit(10);
	for (uint32_t n = first; n + PER_PUSH < WINDOWS_MAX; n += PER_PUSH) {
		struct store_push pushes[PER_PUSH];
		enum store_outcome outcomes[PER_PUSH];
		char ids[PER_PUSH][16];

		for (uint32_t i = 0; i < PER_PUSH; i++) {
			(void)snprintf(ids[i], sizeof(ids[i]), "w%u", n + i);
			/* Two hours in turn, so that a commit spans files. */
			pushes[i] = (struct store_push){labels, 2,
				fixture_stack(ids[i], 1, now_ns - (n + i) % 2 * FIXTURE_HOUR_NS),
				ids[i], now_ns};
		}
		if (store_push(s, pushes, PER_PUSH, FIXTURE_TIMEOUT_MS, outcomes) < 0)
			_exit(11);
		if (write(fd, &n, sizeof(n)) != sizeof(n))
			_exit(12);
		for (uint32_t i = 0; i < PER_PUSH; i++)
			profile_free((struct profile *)pushes[i].profile);
	}
	_exit(0);
}

/* Starts a pusher, kills it after a random while; the number after the last acknowledged window. */
static uint32_t run_and_kill(struct fixture *f, struct rng *r, uint32_t first)
{
	uint64_t while_ms = rng_between(r, 1, 120);
	uint32_t n, next = first;
	int fds[2], status;
	pid_t pid;

	cr_assert_eq(pipe(fds), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		(void)close(fds[0]);
		pusher(f->dir, f->now_ns, first, fds[1]);
	}
	(void)close(fds[1]);
	/* Nothing to wait for but the time: any moment must do. */
	(void)poll(NULL, 0, (int)while_ms);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status), "the pusher ended by itself: %d", WEXITSTATUS(status));
	while (read(fds[0], &n, sizeof(n)) == sizeof(n))
		next = n + PER_PUSH;
	(void)close(fds[0]);
	return next;
}

Test(store_crash, after_any_kill_each_acknowledged_window_is_there_once, .timeout = 300)
{
	struct rng r = rng_seeded((uint64_t)getpid());
	struct profile *p;
	struct fixture f;
	struct sample s;
	uint32_t next = 0;
	char *seen = calloc(1, WINDOWS_MAX);

	cr_assert(seen);
	fixture_init(&f, NULL);
	store_close(f.store);
	f.store = NULL;
	for (int i = 0; i < KILLS; i++) {
		/* What was not acknowledged comes again, as from a spool. */
		next = run_and_kill(&f, &r, next);
		if (i % 10 == 9)
			(void)fixture_verify(&f);
	}
	cr_assert_gt(next, KILLS, "the pushers got nothing done");
	fixture_reopen(&f, NULL);
	p = fixture_flamegraph(&f, "{}", fixture_all(&f));
	for (size_t i = 0; profile_sample_at(p, i, &s); i++) {
		const char *name = profile_text(p, profile_frame_at(p, s.frames[0])->name);
		uint64_t n;

		cr_assert_eq(
			s.values[0], 1, "%s is there %lld times", name, (long long)s.values[0]);
		cr_assert_eq(str_to_u64(name + 1, 0, WINDOWS_MAX - 1, &n), 0);
		seen[n] = 1;
	}
	for (uint32_t n = 0; n < next; n++)
		cr_assert(seen[n], "acknowledged window %u is lost", n);
	profile_free(p);
	free(seen);
	cr_assert_geq(fixture_verify(&f), next);
	fixture_done(&f);
}

/* Acknowledging early must be told from the real thing by this very test's method. */
Test(store_crash, the_seeded_fault_acknowledges_what_is_not_there)
{
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "s"}};
	struct store_options o = {
		.commit_interval_ms = 60000, .free_min_bytes = 1, .fault_ack_early = true};
	struct fixture f;
	int status;
	pid_t pid;

	fixture_init(&f, NULL);
	store_close(f.store);
	f.store = NULL;
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		struct store_push push = {
			labels, 2, fixture_stack("x", 1, f.now_ns), "w", f.now_ns};
		enum store_outcome outcome;
		struct store *s = NULL;

		if (store_open(f.dir, &o, NULL, &s) < 0 ||
			store_push(s, &push, 1, FIXTURE_TIMEOUT_MS, &outcome) < 0)
			_exit(1);
		(void)raise(SIGKILL);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status));
	fixture_reopen(&f, NULL);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), 0);
	fixture_done(&f);
}

struct crowd {
	struct fixture f;
	uint64_t until_ns;
	_Atomic int64_t acknowledged;
	_Atomic uint64_t pushes, queries, failures;
	_Atomic unsigned int names;
};

static void *crowd_writer(void *data)
{
	struct crowd *c = data;
	unsigned int name = atomic_fetch_add(&c->names, 1);
	struct rng r = rng_seeded(name);
	char service[16], id[32];

	(void)snprintf(service, sizeof(service), "s%u", name);
	for (unsigned int i = 0; loop_now_ns() < c->until_ns; i++) {
		struct profile *p = fixture_profile(rng_u64(&r), 20,
			c->f.now_ns - (int64_t)rng_between(&r, 0, 3) * FIXTURE_HOUR_NS);
		enum store_outcome outcome;

		(void)snprintf(id, sizeof(id), "%u-%u", name, i);
		if (fixture_push(&c->f, service, "h", p, id, &outcome) == 0) {
			atomic_fetch_add(&c->acknowledged, profile_total(p, 0));
			atomic_fetch_add(&c->pushes, 1);
		} else {
			atomic_fetch_add(&c->failures, 1);
		}
		profile_free(p);
	}
	return NULL;
}

static int add_total(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	(void)ts_ns, (void)profiles;
	*(int64_t *)data += total;
	return 0;
}

static int ignore_series(void *data, const struct push_label *labels, size_t count,
	const char *type, const char *unit, int64_t first_ns, int64_t last_ns)
{
	(void)data, (void)labels, (void)count, (void)type, (void)unit, (void)first_ns,
		(void)last_ns;
	return 0;
}

/* Whatever was acknowledged before a query began must be in its answer. */
static void *crowd_reader(void *data)
{
	struct crowd *c = data;
	struct store_range r = fixture_all(&c->f);

	while (loop_now_ns() < c->until_ns) {
		int64_t before = atomic_load(&c->acknowledged), total = 0;
		struct profile *p = NULL;
		int e = store_flamegraph(c->f.store, NULL, 0, &r, FIXTURE_MEMORY, &p);

		if (e < 0 || profile_total(p, 0) < before)
			atomic_fetch_add(&c->failures, 1);
		profile_free(p);
		before = atomic_load(&c->acknowledged);
		e = store_timeline(
			c->f.store, NULL, 0, &r, FIXTURE_HOUR_NS, add_total, &total, NULL);
		if (e < 0 || total < before)
			atomic_fetch_add(&c->failures, 1);
		if (store_series(c->f.store, NULL, 0, &r, ignore_series, NULL) < 0)
			atomic_fetch_add(&c->failures, 1);
		atomic_fetch_add(&c->queries, 3);
	}
	return NULL;
}

Test(store_crash, four_writers_and_four_readers_never_disturb_each_other, .timeout = 300)
{
	const char *seconds = getenv("FLAME_STORE_SECONDS");
	uint64_t span_s = 2;
	pthread_t threads[8];
	struct crowd c = {0};

	if (seconds)
		cr_assert_eq(str_to_u64(seconds, 1, 240, &span_s), 0);
	fixture_init(&c.f, NULL);
	c.until_ns = loop_now_ns() + span_s * NSEC_PER_SEC;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		cr_assert_eq(
			pthread_create(&threads[i], NULL, i % 2 ? crowd_reader : crowd_writer, &c),
			0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
	cr_assert_eq(atomic_load(&c.failures), 0);
	cr_assert_gt(atomic_load(&c.pushes), 50);
	cr_assert_gt(atomic_load(&c.queries), 10);
	cr_assert_eq(fixture_total(&c.f, "{}", fixture_all(&c.f)), atomic_load(&c.acknowledged));
	cr_assert_eq(fixture_verify(&c.f), atomic_load(&c.pushes));
	fixture_done(&c.f);
}
