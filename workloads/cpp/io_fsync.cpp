/* io_fsync: a program that waits for its disk between two pieces of work.
 *
 *   main -> run -> fill         burns --chunk iterations for what is written
 *               -> write_sync   writes a page and waits in fsync
 *
 * Shares are the truth's, not by construction: what fsync costs depends on the file system. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

static uint64_t writes = 400, chunk = 200000, seed = 1;
static const char *truth_path, *dir = "/tmp";

BURN_DEFINE(fill)

BURN_FUNCTION void write_sync(
	int fd, const uint64_t (&page)[512], off_t at, truth::function &account)
{
	truth::meter m;
	if (pwrite(fd, page, sizeof page, at) != (ssize_t)sizeof page)
		truth::fail("write");
	uint64_t t0 = truth::monotonic_ns();
	if (fsync(fd))
		truth::fail("fsync");
	account.waits[0].ns += truth::monotonic_ns() - t0;
	m.stop(account);
}

BURN_FUNCTION uint64_t run(int fd, truth::function &filled, truth::function &written)
{
	uint64_t page[512] = {}, x = burn_seed(seed);
	for (uint64_t i = 0; i < writes; i++) {
		truth::meter m;
		x = fill(x, chunk);
		m.stop(filled);
		page[i % 512] = x;
		write_sync(fd, page, (off_t)(i % 64 * sizeof page), written);
	}
	return x;
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"writes", "writes of a page, each followed by fsync", &writes, 1, 1000000000,
			nullptr},
		{"chunk", "iterations before each", &chunk, 1, 1000000000000, nullptr},
		{"seed", "start value of the work", &seed, 0, UINT64_MAX, nullptr},
		{"dir", "where the file is made", nullptr, 0, 0, &dir},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("io_fsync", argc, argv, options);
	std::string path = std::string(dir) + "/io_fsync.XXXXXX";
	int fd = mkstemp(&path[0]);
	if (fd < 0 || unlink(path.c_str())) /* only its descriptor is used */
		truth::fail(path.c_str());

	truth::record r = {"io_fsync", argc, argv};
	truth::function filled = {"fill", {"run", "main"}};
	truth::function written = {"write_sync", {"run", "main"}, {{"fsync", 0}}};
	r.seed = seed;
	r.begin();
	r.checksum = run(fd, filled, written);
	r.end();
	r.functions = {filled, written};
	truth::finish(r, truth_path);
	return 0;
}
