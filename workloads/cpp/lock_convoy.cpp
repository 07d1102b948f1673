/* lock_convoy: threads queueing on one mutex, with a known CPU part inside and outside of it.
 *
 *   worker -> lock_wait -> pthread_mutex_lock
 *          -> critical_work          holds the mutex and burns --hold-work iterations
 *          -> hold_sleep             holds the mutex asleep for --hold-sleep-us: others wait, no
 * CPU
 *          -> outside_work           burns --outside-work iterations, +-25 % by the seed
 *
 * Outside work comes in pairs that are longer and shorter by the same draw, so its sum is exact for
 * an even
 * --ops. The CPU view must show critical_work and outside_work by the truth and next to nothing
 * under lock_wait; the off-CPU view must show lock_wait. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <pthread.h>
#include <string>
#include <vector>

BURN_DEFINE(critical_work)
BURN_DEFINE(outside_work)

enum { CRITICAL, OUTSIDE, LOCK_WAIT, HOLD_SLEEP, ACCOUNTS, THREADS_MAX = 64 };

static uint64_t threads = 4, ops = 150, hold_work = 200000, outside_iterations = 100000, seed = 1;
static uint64_t hold_sleep_us = 0, stay = 0;
static const char *truth_path;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start, done, leave;

struct convoy_state {
	unsigned index;
	uint64_t random, x;
	std::vector<truth::function> accounts;
	uint64_t start_wait_ns; /* for the threads that were made later */
	truth::thread thread;
};

BURN_FUNCTION void lock_wait(truth::function &account)
{
	truth::meter m;
	uint64_t t0 = truth::monotonic_ns();
	errno = pthread_mutex_lock(&mutex);
	account.waits[0].ns += truth::monotonic_ns() - t0;
	if (errno)
		truth::fail("pthread_mutex_lock");
	m.stop(account);
}

BURN_FUNCTION void hold_sleep(truth::function &account)
{
	truth::meter m;
	account.waits[0].ns += truth::sleep_ns(hold_sleep_us * 1000);
	m.stop(account);
}

BURN_FUNCTION void operation(convoy_state &s, uint64_t outside)
{
	lock_wait(s.accounts[LOCK_WAIT]);
	truth::meter critical;
	s.x = critical_work(s.x, hold_work);
	critical.stop(s.accounts[CRITICAL]);
	if (hold_sleep_us)
		hold_sleep(s.accounts[HOLD_SLEEP]);
	if ((errno = pthread_mutex_unlock(&mutex)))
		truth::fail("pthread_mutex_unlock");
	truth::meter m;
	s.x = outside_work(s.x, outside);
	m.stop(s.accounts[OUTSIDE]);
}

BURN_FUNCTION void *worker(void *arg)
{
	convoy_state &s = *static_cast<convoy_state *>(arg);
	truth::thread_name(s.index);
	s.start_wait_ns = truth::monotonic_ns();
	(void)pthread_barrier_wait(&start); /* fails only when it is misused */
	s.start_wait_ns = truth::monotonic_ns() - s.start_wait_ns;
	uint64_t draw = 0;
	for (uint64_t i = 0; i < ops; i++) {
		bool longer = i % 2 == 0;
		if (longer)
			draw = burn_random(s.random) % (outside_iterations / 4 + 1);
		operation(s, longer ? outside_iterations + draw : outside_iterations - draw);
	}
	s.thread = truth::thread_account();
	if (stay) {
		(void)pthread_barrier_wait(&done);
		(void)pthread_barrier_wait(&leave);
	}
	return nullptr;
}

static convoy_state state_new(unsigned index)
{
	convoy_state s;
	s.index = index;
	s.random = burn_seed(seed * THREADS_MAX + index);
	s.x = burn_seed(~s.random);
	s.accounts.resize(ACCOUNTS);
	s.accounts[CRITICAL] = {"critical_work", {"operation", "worker"}};
	s.accounts[OUTSIDE] = {"outside_work", {"operation", "worker"}};
	s.accounts[LOCK_WAIT] = {"lock_wait", {"operation", "worker"}, {{"lock", 0}}};
	s.accounts[HOLD_SLEEP] = {"hold_sleep", {"operation", "worker"}, {{"sleep", 0}}};
	return s;
}

static void barrier_new(pthread_barrier_t &barrier, size_t threads_waiting)
{
	if ((errno = pthread_barrier_init(&barrier, nullptr, (unsigned)threads_waiting)))
		truth::fail("pthread_barrier_init");
}

/* Keeps the workers asleep until standard input ends; what a sleeping thread has used is final. */
static void stay_until_told(std::vector<convoy_state> &states)
{
	(void)pthread_barrier_wait(&done);
	printf("lock_convoy: staying\n");
	if (fflush(stdout))
		truth::fail("stdout");
	while (getchar() != EOF)
		continue;
	for (convoy_state &s : states) {
		std::string tid = std::to_string(s.thread.tid);
		truth::schedstat_read(("/proc/self/task/" + tid + "/schedstat").c_str(), s.thread);
	}
	(void)pthread_barrier_wait(&leave);
}

static void run_threads(std::vector<convoy_state> &states)
{
	std::vector<pthread_t> ids(states.size());
	barrier_new(start, states.size());
	barrier_new(done, states.size() + 1);
	barrier_new(leave, states.size() + 1);
	for (size_t i = 0; i < states.size(); i++)
		if ((errno = pthread_create(&ids[i], nullptr, worker, &states[i])))
			truth::fail("pthread_create");
	if (stay)
		stay_until_told(states);
	for (pthread_t id : ids)
		if ((errno = pthread_join(id, nullptr)))
			truth::fail("pthread_join");
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"threads", "threads on the mutex", &threads, 1, THREADS_MAX, nullptr},
		{"ops", "operations of each thread", &ops, 1, 1000000000, nullptr},
		{"hold-work", "iterations with the mutex held", &hold_work, 1, 1000000000000,
			nullptr},
		{"outside-work", "iterations without it", &outside_iterations, 1, 1000000000000,
			nullptr},
		{"hold-sleep-us", "sleep with the mutex held; 0 is none", &hold_sleep_us, 0,
			1000000000, nullptr},
		{"seed", "lengths of the outside work", &seed, 0, UINT64_MAX / THREADS_MAX - 1,
			nullptr},
		{"stay", "1: threads stay, asleep, until standard input ends", &stay, 0, 1,
			nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("lock_convoy", argc, argv, options);

	truth::record r = {"lock_convoy", argc, argv};
	r.seed = seed;
	std::vector<convoy_state> states;
	for (unsigned i = 0; i < threads; i++)
		states.push_back(state_new(i));
	r.begin();
	run_threads(states);
	r.end();

	r.functions = states[0].accounts;
	for (size_t t = 0; t < states.size(); t++) {
		for (size_t i = 0; t && i < r.functions.size(); i++)
			r.functions[i].add(states[t].accounts[i]);
		r.checksum += states[t].x;
		r.threads.push_back(states[t].thread);
	}
	r.waits = r.functions[LOCK_WAIT].waits;
	r.waits.push_back({"start", 0});
	for (const convoy_state &s : states)
		r.waits.back().ns += s.start_wait_ns;
	if (hold_sleep_us)
		r.waits.push_back(r.functions[HOLD_SLEEP].waits[0]);
	else
		r.functions.pop_back();
	truth::finish(r, truth_path);
	return 0;
}
