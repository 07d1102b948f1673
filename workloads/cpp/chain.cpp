/* chain: one call chain through every kind of stack frame that a compiler makes.
 *
 *   main -> chain_plain -> chain_wide -> chain_dynamic -> chain_aligned -> chain_saved -> chain_leaf
 *
 *   chain_wide     20 KB of locals: its caller's frame lies far up the stack
 *   chain_dynamic  alloca: the stack pointer says nothing about the frame
 *   chain_aligned  locals aligned to 64 bytes: the frame's address stands in memory
 *   chain_saved    every callee-saved register in use, the frame pointer's among them
 *   chain_leaf     no frame at all
 *
 * Built with and without frame pointers, stripped, and as static PIE (Makefile). */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <alloca.h>

static uint64_t chunks = 450, chunk = 400000, seed = 1;
static const char *truth_path;

/* The compiler must not see that nothing is done with it. */
static inline void keep(void *p)
{
	asm volatile("" : : "r"(p) : "memory");
}

BURN_DEFINE(chain_leaf)

BURN_FUNCTION uint64_t chain_saved(uint64_t x)
{
	uint64_t a = x ^ 1, b = x ^ 2, c = x ^ 3, d = x ^ 4, e = x ^ 5, f = x ^ 6;
	asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
	x = chain_leaf(x, chunk);
	asm volatile("" : : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));
	return x;
}

BURN_FUNCTION uint64_t chain_aligned(uint64_t x)
{
	alignas(64) char line[64];
	keep(line);
	x = chain_saved(x);
	keep(line);
	return x;
}

BURN_FUNCTION uint64_t chain_dynamic(uint64_t x)
{
	void *p = alloca(64 + x % 64);
	keep(p);
	x = chain_aligned(x);
	keep(p);
	return x;
}

BURN_FUNCTION uint64_t chain_wide(uint64_t x)
{
	char room[20480];
	keep(room);
	x = chain_dynamic(x);
	keep(room);
	return x;
}

BURN_FUNCTION uint64_t chain_plain(uint64_t x)
{
	for (uint64_t i = 0; i < chunks; i++)
		x = chain_wide(x);
	return x;
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"chunks", "chunks of work", &chunks, 1, 1000000000, nullptr},
		{"chunk", "iterations of a chunk", &chunk, 1, 1000000000000, nullptr},
		{"seed", "start value of the work", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse(program_invocation_short_name, argc, argv, options);
	truth::record r = {program_invocation_short_name, argc, argv};
	truth::function leaf = {"chain_leaf", {"chain_saved", "chain_aligned", "chain_dynamic",
						      "chain_wide", "chain_plain", "main"}};
	r.seed = seed;
	r.begin();
	truth::meter m;
	r.checksum = chain_plain(burn_seed(seed));
	m.stop(leaf);
	r.end();
	r.functions.push_back(leaf);
	truth::finish(r, truth_path);
}
