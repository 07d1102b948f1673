/* tail_noreturn: a call that is the last instruction of its function, so its return address is the
 * first byte of the next one. A profiler that looks up return addresses as they are, not one byte
 * before, names innocent_next.
 *
 *   main -> real_caller -> burn_noreturn
 *
 * burn_noreturn burns, writes the truth and exits; nothing ever calls innocent_next. The two lie
 * together in one section, in this order and without padding; a build where that does not hold
 * refuses to run. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

/* innocent_next must begin right behind real_caller. An attribute cannot lower a function's
 * alignment. */
#pragma GCC optimize("align-functions=1")
#define TAIL_FUNCTION extern "C" __attribute__((noipa, no_reorder, used, section(".text.tail")))

static uint64_t chunks = 450, chunk = 400000, seconds = 0, seed = 1;
static const char *truth_path;
static truth::record *result;

BURN_FUNCTION __attribute__((noreturn)) void burn_noreturn();

TAIL_FUNCTION void real_caller()
{
	burn_noreturn();
}

TAIL_FUNCTION uint64_t innocent_next(uint64_t x)
{
	BURN_KEEP_FRAME();
	BURN_LOOP(x, chunk);
	return x;
}

BURN_FUNCTION __attribute__((noreturn)) void burn_noreturn()
{
	if (__builtin_return_address(0) != reinterpret_cast<void *>(innocent_next)) {
		fprintf(stderr, "tail_noreturn: innocent_next is not right behind real_caller\n");
		_exit(1);
	}
	truth::record &r = *result;
	truth::function f = {"burn_noreturn", {"real_caller", "main"}};
	uint64_t x = burn_seed(seed);
	r.begin();
	uint64_t deadline_ns = seconds ? truth::monotonic_ns() + seconds * 1000000000 : 0;
	truth::meter m;
	for (uint64_t i = 0; deadline_ns ? truth::monotonic_ns() < deadline_ns : i < chunks; i++)
		BURN_LOOP(x, chunk);
	m.stop(f);
	r.end();
	r.checksum = x;
	r.functions.push_back(f);
	truth::finish(r, truth_path);
	_exit(0);
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"chunks", "chunks of work", &chunks, 1, 1000000000, nullptr},
		{"chunk", "iterations of a chunk", &chunk, 1, 1000000000000, nullptr},
		{"seconds", "run chunks for so long instead of --chunks; 0 is off", &seconds, 0,
			1000000, nullptr},
		{"seed", "start value of the work", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse(program_invocation_short_name, argc, argv, options);
	truth::record r = {program_invocation_short_name, argc, argv};
	r.seed = seed;
	result = &r;
	real_caller();
}
