/* libc_calls: the way from the program's own code through an unmodified libc and back.
 *
 *   main -> sort_caller -> [libc: qsort ...] -> compare_work      a callback below libc's frames
 *   main -> read_caller -> [libc: read] -> kernel                 copies out of a file
 *   main -> fsync_caller -> [libc: fsync] -> kernel               and waits for it to be written
 *   worker -> futex_caller -> [libc: pthread_cond_...] -> kernel  two threads hand over to each other
 *
 * What is in brackets is libc's own business; the truth names only our functions, in order. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <cstdlib>
#include <pthread.h>

static uint64_t sorts = 12, chunk = 100000, reads = 400, syncs = 300, turns = 3000, seed = 1;
static const char *truth_path;
static uint64_t compare_x = 1;

BURN_FUNCTION int compare_work(const void *a, const void *b)
{
	BURN_KEEP_FRAME();
	BURN_LOOP(compare_x, chunk);
	unsigned x = *static_cast<const unsigned *>(a), y = *static_cast<const unsigned *>(b);
	return x < y ? -1 : x > y;
}

BURN_FUNCTION void sort_caller(truth::function &f)
{
	truth::meter m;
	uint64_t random = burn_seed(seed);
	unsigned numbers[32];
	for (uint64_t i = 0; i < sorts; i++) {
		for (unsigned &n : numbers)
			n = (unsigned)burn_random(random);
		qsort(numbers, 32, sizeof numbers[0], compare_work);
	}
	m.stop(f);
}

BURN_FUNCTION void read_caller(truth::function &f)
{
	static char room[1 << 20];
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		truth::fail("/dev/zero");
	truth::meter m;
	for (uint64_t i = 0; i < reads; i++)
		if (read(fd, room, sizeof room) != (ssize_t)sizeof room)
			truth::fail("/dev/zero");
	m.stop(f);
	close(fd);
}

BURN_FUNCTION void fsync_caller(truth::function &f)
{
	char path[] = "/tmp/libc_calls.XXXXXX";
	int fd = mkstemp(path);
	if (fd < 0)
		truth::fail(path);
	(void)unlink(path); /* only its descriptor is used */
	truth::meter m;
	for (uint64_t i = 0; i < syncs; i++)
		if (pwrite(fd, path, sizeof path, (off_t)i * 4096) != (ssize_t)sizeof path ||
			fsync(fd))
			truth::fail("fsync");
	m.stop(f);
	close(fd);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t turn;

struct player {
	unsigned index;
	truth::function account = {"futex_caller", {"worker"}};
	truth::thread thread;
};

BURN_FUNCTION void futex_caller(player &p)
{
	truth::meter m;
	(void)pthread_mutex_lock(&mutex); /* fails only when it is misused, like the rest */
	while (turn < turns) {
		if (turn % 2 == p.index) {
			turn++;
			(void)pthread_cond_signal(&changed);
		} else {
			(void)pthread_cond_wait(&changed, &mutex);
		}
	}
	(void)pthread_cond_signal(&changed);
	(void)pthread_mutex_unlock(&mutex);
	m.stop(p.account);
}

BURN_FUNCTION void *worker(void *arg)
{
	player &p = *static_cast<player *>(arg);
	truth::thread_name(p.index);
	futex_caller(p);
	p.thread = truth::thread_account();
	return nullptr;
}

static void hand_over(truth::record &r)
{
	player players[2];
	pthread_t ids[2];
	for (unsigned i = 0; i < 2; i++) {
		players[i].index = i;
		if ((errno = pthread_create(&ids[i], nullptr, worker, &players[i])))
			truth::fail("pthread_create");
	}
	for (pthread_t id : ids)
		if ((errno = pthread_join(id, nullptr)))
			truth::fail("pthread_join");
	players[0].account.add(players[1].account);
	r.functions.push_back(players[0].account);
	for (player &p : players)
		r.threads.push_back(p.thread);
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"sorts", "sorts of 32 numbers", &sorts, 1, 1000000000, nullptr},
		{"chunk", "iterations of a comparison", &chunk, 1, 1000000000000, nullptr},
		{"reads", "reads of 1 MiB", &reads, 0, 1000000000, nullptr},
		{"syncs", "writes of a page, each followed by fsync", &syncs, 0, 1000000, nullptr},
		{"turns", "handings over between two threads", &turns, 0, 1000000000, nullptr},
		{"seed", "order of the numbers", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse(program_invocation_short_name, argc, argv, options);
	truth::record r = {program_invocation_short_name, argc, argv};
	truth::function sort = {"compare_work", {"sort_caller", "main"}};
	truth::function copy = {"read_caller", {"main"}}, sync = {"fsync_caller", {"main"}};
	r.seed = seed;
	r.begin();
	sort_caller(sort);
	read_caller(copy);
	fsync_caller(sync);
	hand_over(r);
	r.end();
	r.functions.insert(r.functions.begin(), {sort, copy, sync});
	r.checksum = compare_x;
	truth::finish(r, truth_path);
}
