/* inline_three: three functions that the compiler puts into their caller at -O3.
 *
 *   main -> inline_host (holds inline_outer, inline_middle, inline_inner) -> inline_leaf
 *
 * The truth names all of them, and says which three have no frame: who unfolds inlined calls finds them between
 * inline_leaf and inline_host, innermost first. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#define INLINE_FUNCTION static inline __attribute__((always_inline))

static uint64_t chunks = 450, chunk = 400000, seed = 1;
static const char *truth_path;

BURN_DEFINE(inline_leaf)

INLINE_FUNCTION uint64_t inline_inner(uint64_t x)
{
	return inline_leaf(x, chunk) ^ 0x3;
}

INLINE_FUNCTION uint64_t inline_middle(uint64_t x)
{
	return inline_inner(x) ^ 0x5;
}

INLINE_FUNCTION uint64_t inline_outer(uint64_t x)
{
	return inline_middle(x) | 1;
}

BURN_FUNCTION uint64_t inline_host(uint64_t x)
{
	for (uint64_t i = 0; i < chunks; i++)
		x = inline_outer(x);
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
	truth::function leaf = {"inline_leaf",
		{"inline_inner", "inline_middle", "inline_outer", "inline_host", "main"}};
	leaf.inlined = {"inline_inner", "inline_middle", "inline_outer"};
	r.seed = seed;
	r.begin();
	truth::meter m;
	r.checksum = inline_host(burn_seed(seed));
	m.stop(leaf);
	r.end();
	r.functions.push_back(leaf);
	truth::finish(r, truth_path);
}
