/* cache_miss: the same list walked twice, as it lies in memory and shuffled. The instructions are equal, so a machine
 * with caches shows the difference as time and as misses, and one that counts instructions shows none.
 *
 *   main -> run -> walk_in_order | walk_shuffled     --steps nodes each in a chunk
 *        -> prepare                                  makes both lists */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <numeric>

/* A cache line each. */
struct alignas(64) node {
	node *next;
	uint64_t n;
};

static uint64_t nodes = 1 << 17, steps = 400000, chunks = 100, seed = 1;
static const char *truth_path;

/* Both walks are this body in code of their own. */
#define WALK_DEFINE(NAME)                                             \
	BURN_FUNCTION node *NAME(node *at, uint64_t n, uint64_t &sum) \
	{                                                             \
		BURN_KEEP_FRAME();                                    \
		uint64_t s = sum;                                     \
		do {                                                  \
			s += at->n;                                   \
			at = at->next;                                \
			asm volatile("" : "+r"(at), "+r"(s));         \
		} while (--n);                                        \
		sum = s;                                              \
		return at;                                            \
	}

WALK_DEFINE(walk_in_order)
WALK_DEFINE(walk_shuffled)

/* Links the nodes in one circle each: as they lie, and in an order without a pattern. */
BURN_FUNCTION void prepare(std::vector<node> &ordered, std::vector<node> &shuffled)
{
	std::vector<uint32_t> order(shuffled.size());
	uint64_t random = burn_seed(seed);
	std::iota(order.begin(), order.end(), 0);
	for (size_t i = order.size() - 1; i; i--)
		std::swap(order[i], order[burn_random(random) % (i + 1)]);
	for (size_t i = 0; i < order.size(); i++) {
		size_t k = i + 1 < order.size() ? i + 1 : 0;
		ordered[i] = {&ordered[k], i};
		shuffled[order[i]] = {&shuffled[order[k]], i};
	}
}

BURN_FUNCTION uint64_t run(node *a, node *b, truth::function &in_order, truth::function &shuffled)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < chunks; i++) {
		truth::meter m;
		a = walk_in_order(a, steps, sum);
		m.stop(in_order);
		truth::meter n;
		b = walk_shuffled(b, steps, sum);
		n.stop(shuffled);
	}
	return sum + a->n + b->n;
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"nodes", "nodes of each list, 64 bytes each", &nodes, 2, 1 << 26, nullptr},
		{"steps", "nodes in a chunk", &steps, 1, 1000000000000, nullptr},
		{"chunks", "chunks on each list", &chunks, 1, 1000000000, nullptr},
		{"seed", "order of the shuffled list", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("cache_miss", argc, argv, options);
	truth::record r = {"cache_miss", argc, argv};
	truth::function in_order = {"walk_in_order", {"run", "main"}};
	truth::function shuffled = {"walk_shuffled", {"run", "main"}};
	truth::function prepared = {"prepare", {"main"}};
	std::vector<node> a(nodes), b(nodes);
	r.seed = seed;
	r.begin();
	truth::meter m;
	prepare(a, b);
	m.stop(prepared);
	r.checksum = run(a.data(), b.data(), in_order, shuffled);
	r.end();
	r.functions = {in_order, shuffled, prepared};
	truth::finish(r, truth_path);
	return 0;
}
