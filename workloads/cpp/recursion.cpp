/* recursion: a function that calls itself --depth times before the work begins.
 *
 *   main -> recurse -> ... -> recurse -> recurse_leaf */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

static uint64_t depth = 400, chunks = 450, chunk = 400000, seed = 1;
static const char *truth_path;

BURN_DEFINE(recurse_leaf)

BURN_FUNCTION uint64_t recurse(uint64_t x, uint64_t left)
{
	volatile uint64_t frame[2] = {
		x, left}; /* some room, so that frames are not all alike in size */
	if (left > 1)
		return recurse(x, left - 1) + frame[1] - frame[1];
	for (uint64_t i = 0; i < chunks; i++)
		x = recurse_leaf(x, chunk);
	return x;
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"depth", "calls of recurse in a row", &depth, 1, 100000, nullptr},
		{"chunks", "chunks of work", &chunks, 1, 1000000000, nullptr},
		{"chunk", "iterations of a chunk", &chunk, 1, 1000000000000, nullptr},
		{"seed", "start value of the work", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse(program_invocation_short_name, argc, argv, options);
	truth::record r = {program_invocation_short_name, argc, argv};
	truth::function leaf = {"recurse_leaf", {"recurse", "main"}};
	r.seed = seed;
	r.begin();
	truth::meter m;
	r.checksum = recurse(burn_seed(seed), depth);
	m.stop(leaf);
	r.end();
	r.functions.push_back(leaf);
	truth::finish(r, truth_path);
}
