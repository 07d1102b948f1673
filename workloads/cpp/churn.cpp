/* churn: programs and libraries that come and go, which is what an agent that keeps something of every file or
 * process that it has met would grow by.
 *
 *   main -> churn_exec                     in a process that is spawned, burns and ends, --execs a second
 *   main -> churn_caller -> late_work -> late_leaf      in a copy of a library that nobody has seen before,
 *                                                       --loads a second; the oldest of --kept is closed
 *
 * Each copy is a file of its own with a build ID of its own. Rates are held by absolute deadlines: a slow machine
 * catches up rather than doing less. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <deque>
#include <dlfcn.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>

extern "C" const char late_so_start[], late_so_end[];
asm(".section .rodata\n"
    ".balign 8\n"
    ".global late_so_start, late_so_end\n"
    "late_so_start: .incbin \"" LATE_SO "\"\n"
    "late_so_end: .byte 0\n"
    ".previous\n");

static uint64_t execs = 50, loads = 50, kept = 16, chunk = 400000, seconds = 10, is_execed;
static const char *truth_path;

typedef uint64_t late_function(uint64_t, uint64_t, uint64_t);

struct library {
	std::string path;
	void *handle;
};

BURN_DEFINE(churn_exec)

BURN_FUNCTION uint64_t churn_caller(uint64_t x, late_function *late)
{
	return late(x, chunk, 1) | 1;
}

/* The library's bytes, and where in them its build ID begins. */
static std::vector<char> image;
static size_t id_offset;

static void image_take()
{
	image.assign(late_so_start, late_so_end);
	const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(image.data());
	const auto *ph = reinterpret_cast<const ElfW(Phdr) *>(image.data() + header->e_phoff);
	for (unsigned i = 0; i < header->e_phnum; i++)
		for (size_t at = ph[i].p_offset;
			ph[i].p_type == PT_NOTE && at < ph[i].p_offset + ph[i].p_filesz;) {
			const auto *note = reinterpret_cast<const ElfW(Nhdr) *>(image.data() + at);
			size_t body = at + sizeof *note + (note->n_namesz + 3U) / 4 * 4;
			if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz >= 8)
				id_offset = body;
			at = body + (note->n_descsz + 3U) / 4 * 4;
		}
	if (!id_offset) {
		errno = ENOEXEC;
		truth::fail("the library's build ID");
	}
}

static library load(uint64_t number)
{
	char path[] = "/tmp/churn.XXXXXX";
	int fd = mkstemp(path);
	memcpy(image.data() + id_offset, &number, sizeof number);
	if (fd < 0 || write(fd, image.data(), image.size()) != (ssize_t)image.size() || close(fd))
		truth::fail(path);
	void *handle = dlopen(path, RTLD_NOW);
	if (!handle) {
		fprintf(stderr, "churn: %s\n", dlerror());
		(void)unlink(path);
		_exit(1);
	}
	return {path, handle};
}

static void unload(std::deque<library> &libraries)
{
	if (dlclose(libraries.front().handle) || unlink(libraries.front().path.c_str()))
		truth::fail(libraries.front().path.c_str());
	libraries.pop_front();
}

static void spawn()
{
	char self[] = "/proc/self/exe", flag[] = "--execed=1";
	std::string size = "--chunk=" + std::to_string(chunk);
	char *const argv[] = {self, flag, &size[0], nullptr};
	char *const envp[] = {nullptr};
	pid_t pid;
	int status;
	if ((errno = posix_spawn(&pid, self, nullptr, nullptr, argv, envp)))
		truth::fail("posix_spawn");
	if (waitpid(pid, &status, 0) != pid || status)
		truth::fail("waitpid");
}

/* Both kinds spread evenly over the second. */
static void run(truth::function &spawned, truth::function &loaded)
{
	std::deque<library> libraries;
	uint64_t start_ns = truth::monotonic_ns(), a_second = execs + loads, x = burn_seed(1);
	for (uint64_t i = 1; i <= a_second * seconds; i++) {
		uint64_t due = start_ns + i * 1000000000 / a_second, now = truth::monotonic_ns();
		if (due > now)
			truth::sleep_ns(due - now);
		if (i * execs / a_second != (i - 1) * execs / a_second) {
			spawn();
			spawned.count++;
			continue;
		}
		if (libraries.size() >= kept)
			unload(libraries);
		libraries.push_back(load(i));
		void *f = dlsym(libraries.back().handle, "late_work");
		if (!f)
			truth::fail("late_work");
		truth::meter m;
		x = churn_caller(x, reinterpret_cast<late_function *>(f));
		m.stop(loaded);
	}
	while (!libraries.empty())
		unload(libraries);
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"execs", "programs a second", &execs, 0, 10000, nullptr},
		{"loads", "libraries a second", &loads, 0, 10000, nullptr},
		{"kept", "libraries that stay loaded", &kept, 1, 1000, nullptr},
		{"chunk", "iterations in each", &chunk, 1, 1000000000000, nullptr},
		{"seconds", "how long", &seconds, 1, 1000000, nullptr},
		{"execed", "internal: burn and end", &is_execed, 0, 1, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse("churn", argc, argv, options);
	if (is_execed)
		return churn_exec(burn_seed(1), chunk) == 0;
	if (execs + loads == 0) {
		errno = EINVAL;
		truth::fail("nothing to do");
	}
	image_take();
	truth::record r = {"churn", argc, argv};
	truth::function spawned = {"churn_exec", {"main"}};
	truth::function loaded = {"late_leaf", {"late_work", "churn_caller", "main"}};
	r.begin();
	run(spawned, loaded);
	r.end();
	r.functions = {spawned, loaded};
	r.checksum = spawned.count * 1000003 + loaded.count;
	truth::finish(r, truth_path);
	return 0;
}
