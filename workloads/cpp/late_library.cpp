/* late_library: code that was not mapped when the program was first seen.
 *
 *   main -> early_work                        burns first, so that a profiler meets the program without it
 *   main -> late_caller -> late_work -> late_leaf      in a library loaded then, by dlopen
 *
 * The library is part of the program's own bytes and written to a file to be loaded, so that one file is
 * all there is to copy. It is not unlinked before the end: a loaded file that is gone is another
 * program's subject. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <dlfcn.h>

extern "C" const char late_so_start[], late_so_end[];
asm(".section .rodata\n"
    ".global late_so_start, late_so_end\n"
    "late_so_start: .incbin \"" LATE_SO "\"\n"
    "late_so_end: .byte 0\n"
    ".previous\n");

static uint64_t chunks = 225, chunk = 400000, seed = 1;
static const char *truth_path;

typedef uint64_t late_function(uint64_t, uint64_t, uint64_t);

BURN_DEFINE(early_work)

BURN_FUNCTION uint64_t late_caller(uint64_t x, late_function *late)
{
	return late(x, chunk, chunks) | 1;
}

static void library_write(const char *path, int fd)
{
	size_t size = (size_t)(late_so_end - late_so_start);
	if (fd < 0 || write(fd, late_so_start, size) != (ssize_t)size || close(fd))
		truth::fail(path);
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"chunks", "chunks of work, before and after", &chunks, 1, 1000000000, nullptr},
		{"chunk", "iterations of a chunk", &chunk, 1, 1000000000000, nullptr},
		{"seed", "start value of the work", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse(program_invocation_short_name, argc, argv, options);
	truth::record r = {program_invocation_short_name, argc, argv};
	truth::function early = {"early_work", {"main"}};
	truth::function late = {"late_leaf", {"late_work", "late_caller", "main"}};
	char path[] = "/tmp/late_work.XXXXXX";
	uint64_t x = burn_seed(seed);
	r.seed = seed;
	r.begin();
	truth::meter first;
	for (uint64_t i = 0; i < chunks; i++)
		x = early_work(x, chunk);
	first.stop(early);
	library_write(path, mkstemp(path));
	void *library = dlopen(path, RTLD_NOW);
	void *f = library ? dlsym(library, "late_work") : nullptr;
	if (!f) {
		fprintf(stderr, "late_library: %s\n", dlerror());
		(void)unlink(path);
		return 1;
	}
	truth::meter second;
	r.checksum = late_caller(x, reinterpret_cast<late_function *>(f));
	second.stop(late);
	r.end();
	r.functions = {early, late};
	truth::finish(r, truth_path);
	(void)unlink(path); /* nothing depends on it any more */
}
