/* cpu_split: three functions at 70/20/10 % of the CPU, under two callers at 60/40 %. The control
 * scenario.
 *
 *   main (or worker, with --threads) -> run -> path_a | path_b -> split_heavy | split_medium |
 * split_light
 *
 * A round is 50 chunks of equal work: each path's share of chunks times each function's, in an
 * order that a seeded generator shuffles anew for every round, so that no sampling period can lock
 * step with it:
 *
 *             split_heavy  split_medium  split_light
 *   path_a        21            6             3
 *   path_b        14            4             2
 *
 * Proportions by work are therefore exact after every round, whatever --rounds or --seconds says.
 */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <algorithm>
#include <pthread.h>
#include <string>
#include <vector>

BURN_DEFINE(split_heavy)
BURN_DEFINE(split_medium)
BURN_DEFINE(split_light)

enum { PATHS = 2, KINDS = 3, PACE = PATHS * KINDS, CHUNKS = 50, THREADS_MAX = 64 };
static const unsigned deck_counts[PATHS][KINDS] = {{21, 6, 3}, {14, 4, 2}};

static uint64_t rounds = 9, chunk = 400000, seed = 1, pace_ms = 0, seconds = 0, threads = 1;
static const char *truth_path;

struct split_state {
	unsigned index;
	uint64_t random, x;
	uint64_t deadline_ns;
	std::vector<truth::function> accounts; /* by path, then kind; then PACE */
	truth::thread thread;
};

/* Both paths are this body in code of their own. The clocks are read here, around a whole chunk. */
#define PATH_DEFINE(NAME)                                                                \
	BURN_FUNCTION void NAME(split_state &s, unsigned kind, truth::function &account) \
	{                                                                                \
		truth::meter m;                                                          \
		if (kind == 0)                                                           \
			s.x = split_heavy(s.x, chunk);                                   \
		else if (kind == 1)                                                      \
			s.x = split_medium(s.x, chunk);                                  \
		else                                                                     \
			s.x = split_light(s.x, chunk);                                   \
		m.stop(account);                                                         \
	}

PATH_DEFINE(path_a)
PATH_DEFINE(path_b)

BURN_FUNCTION void pace(truth::function &account)
{
	truth::meter m;
	account.waits[0].ns += truth::sleep_ns(pace_ms * 1000000);
	m.stop(account);
}

static void shuffle(unsigned (&deck)[CHUNKS], uint64_t &random)
{
	for (unsigned i = CHUNKS - 1; i; i--)
		std::swap(deck[i], deck[burn_random(random) % (i + 1)]);
}

BURN_FUNCTION void run(split_state &s)
{
	unsigned deck[CHUNKS], n = 0;
	for (unsigned p = 0; p < PATHS; p++)
		for (unsigned k = 0; k < KINDS; k++)
			for (unsigned i = 0; i < deck_counts[p][k]; i++)
				deck[n++] = p * KINDS + k;
	for (uint64_t r = 0; s.deadline_ns ? truth::monotonic_ns() < s.deadline_ns : r < rounds;
		r++) {
		if (r && pace_ms)
			pace(s.accounts[PACE]);
		shuffle(deck, s.random);
		for (unsigned card : deck) {
			if (card < KINDS)
				path_a(s, card, s.accounts[card]);
			else
				path_b(s, card - KINDS, s.accounts[card]);
		}
	}
}

static split_state state_new(unsigned index, const char *outer)
{
	static const char *const paths[PATHS] = {"path_a", "path_b"};
	static const char *const kinds[KINDS] = {"split_heavy", "split_medium", "split_light"};
	split_state s;
	s.index = index;
	s.random = burn_seed(seed * THREADS_MAX + index);
	s.x = burn_seed(~s.random);
	s.deadline_ns = seconds ? truth::monotonic_ns() + seconds * 1000000000 : 0;
	for (const char *p : paths)
		for (const char *k : kinds)
			s.accounts.push_back({k, {p, "run", outer}});
	s.accounts.push_back({"pace", {"run", outer}, {{"sleep", 0}}});
	return s;
}

BURN_FUNCTION void *worker(void *arg)
{
	split_state &s = *static_cast<split_state *>(arg);
	truth::thread_name(s.index);
	run(s);
	s.thread = truth::thread_account();
	return nullptr;
}

static void run_threads(std::vector<split_state> &states)
{
	std::vector<pthread_t> ids(states.size());
	for (size_t i = 0; i < states.size(); i++)
		if ((errno = pthread_create(&ids[i], nullptr, worker, &states[i])))
			truth::fail("pthread_create");
	for (pthread_t id : ids)
		if ((errno = pthread_join(id, nullptr)))
			truth::fail("pthread_join");
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"rounds", "rounds of 50 chunks", &rounds, 1, 1000000000, nullptr},
		{"chunk", "iterations of a chunk", &chunk, 1, 1000000000000, nullptr},
		{"seed", "order of the chunks", &seed, 0, UINT64_MAX / THREADS_MAX - 1, nullptr},
		{"pace-ms", "sleep between rounds", &pace_ms, 0, 3600000, nullptr},
		{"seconds", "run whole rounds for so long instead of --rounds; 0 is off", &seconds,
			0, 1000000, nullptr},
		{"threads", "1 runs in main, more in workers", &threads, 1, THREADS_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("cpu_split", argc, argv, options);

	truth::record r = {"cpu_split", argc, argv};
	r.seed = seed;
	std::vector<split_state> states;
	for (unsigned i = 0; i < threads; i++)
		states.push_back(state_new(i, threads == 1 ? "main" : "worker"));
	r.begin();
	if (threads == 1)
		run(states[0]);
	else
		run_threads(states);
	r.end();

	r.functions = states[0].accounts;
	for (size_t t = 0; t < states.size(); t++) {
		for (size_t i = 0; t && i < r.functions.size(); i++)
			r.functions[i].add(states[t].accounts[i]);
		r.checksum += states[t].x;
		if (threads > 1)
			r.threads.push_back(states[t].thread);
	}
	if (pace_ms)
		r.waits = r.functions.back().waits;
	else
		r.functions.pop_back();
	truth::finish(r, truth_path);
	return 0;
}
