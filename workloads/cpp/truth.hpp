/* truth.json: what a workload really did, by its own clocks. The schema stands in ../README.md.
 *
 * Clocks are read around pieces of work of about a millisecond, never inside them: a thread CPU
 * clock read is a system call. Failing to read a clock or to write the file ends the program with
 * exit code 1, because a run without a truth is worth nothing. */
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace truth
{

[[noreturn]] inline void fail(const char *what)
{
	fprintf(stderr, "truth: %s: %s\n", what, strerror(errno));
	_exit(1);
}

inline uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;
	if (clock_gettime(id, &ts))
		fail("clock_gettime");
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

inline uint64_t monotonic_ns()
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Relative sleep that signals do not shorten; returns what it really took, by CLOCK_MONOTONIC. */
inline uint64_t sleep_ns(uint64_t ns)
{
	uint64_t t0 = monotonic_ns();
	struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	int r;
	while ((r = clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts)) == EINTR)
		;
	if (r) {
		errno = r;
		fail("clock_nanosleep");
	}
	return monotonic_ns() - t0;
}

/* Nanoseconds waited, by reason: "lock", "sleep". */
struct wait {
	const char *reason;
	uint64_t ns;
};

/* One function under one chain of callers (direct caller first). Times include what it calls. */
struct function {
	const char *name;
	std::vector<const char *> callers;
	std::vector<wait> waits = {};
	uint64_t cpu_ns = 0, wall_ns = 0, count = 0;
	std::vector<const char *> inlined = {}; /* those of the callers that have no frame */

	void add(const function &other)
	{
		cpu_ns += other.cpu_ns;
		wall_ns += other.wall_ns;
		count += other.count;
		for (size_t i = 0; i < waits.size(); i++)
			waits[i].ns += other.waits[i].ns;
	}
};

/* Adds the thread CPU and wall time of one call to a function's account. */
class meter
{
	uint64_t wall_ns = monotonic_ns();
	uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

      public:
	void stop(function &f)
	{
		f.cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
		f.wall_ns += monotonic_ns() - wall_ns;
		f.count++;
	}
};

/* A thread's /proc schedstat line. */
struct thread {
	long tid = 0;
	std::string name;
	uint64_t cpu_ns = 0, run_delay_ns = 0, slices = 0;
};

/* Names the calling thread worker-INDEX. */
inline void thread_name(unsigned index)
{
	std::string name = "worker-" + std::to_string(index);
	errno = pthread_setname_np(pthread_self(), name.c_str());
	if (errno)
		fail("pthread_setname_np");
}

/* The schedstat file at path, into t. */
inline void schedstat_read(const char *path, thread &t)
{
	char line[128];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
	if (n <= 0)
		fail(path);
	close(fd);
	line[n] = 0;
	unsigned long long cpu, delay, slices;
	if (sscanf(line, "%llu %llu %llu", &cpu, &delay, &slices) != 3) {
		errno = EBADMSG;
		fail(path);
	}
	t.cpu_ns = cpu;
	t.run_delay_ns = delay;
	t.slices = slices;
}

inline thread thread_account_read()
{
	char comm[16];
	if ((errno = pthread_getname_np(pthread_self(), comm, sizeof comm)))
		fail("pthread_getname_np");
	/* schedstat shows the run time as of the last tick; reading the thread CPU clock brings it
	 * up to date (kernel/sched/core.c, task_sched_runtime). */
	(void)clock_ns(CLOCK_THREAD_CPUTIME_ID);
	thread t;
	t.tid = syscall(SYS_gettid);
	t.name = comm;
	schedstat_read("/proc/thread-self/schedstat", t);
	return t;
}

/* The calling thread's account; to be called as its last act. What follows the reading is not in it,
 * so everything is done once before: the page faults and bindings of the first time (measured: 1.4
 * ms at 0.5 instructions a nanosecond) then come before the reading that counts. */
inline thread thread_account()
{
	(void)thread_account_read();
	return thread_account_read();
}

/* Everything one run tells. begin() and end() enclose the measured phase. */
struct record {
	const char *workload;
	int argc;
	char **argv;
	uint64_t seed = 0, checksum = 0;
	uint64_t wall_ns = 0, cpu_ns = 0;
	std::vector<function> functions = {};
	std::vector<thread> threads = {};
	std::vector<wait> waits = {};

	void begin()
	{
		wall_ns = monotonic_ns();
		cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	}
	void end()
	{
		cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
		wall_ns = monotonic_ns() - wall_ns;
	}
};

__attribute__((format(printf, 2, 3))) inline void print(std::string &out, const char *format, ...)
{
	char piece[256];
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(piece, sizeof piece, format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof piece) {
		errno = EOVERFLOW;
		fail("print");
	}
	out.append(piece, (size_t)n);
}

/* A JSON string; bytes outside printable ASCII become \u00XX, so any argument gives valid JSON. */
inline void print_string(std::string &out, const char *s)
{
	out += '"';
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '"' || c == '\\' || c < 0x20 || c >= 0x7f)
			print(out, "\\u%04x", c);
		else
			out += (char)c;
	}
	out += '"';
}

inline void print_waits(std::string &out, const std::vector<wait> &waits)
{
	out += "\"wait_ns\": {";
	for (size_t i = 0; i < waits.size(); i++)
		print(out, "%s\"%s\": %llu", i ? ", " : "", waits[i].reason,
			(unsigned long long)waits[i].ns);
	out += "}";
}

inline void print_names(std::string &out, const std::vector<const char *> &names)
{
	for (size_t i = 0; i < names.size(); i++)
		print(out, "%s\"%s\"", i ? ", " : "", names[i]);
}

inline void print_function(std::string &out, const function &f)
{
	print(out, "    {\"name\": \"%s\", \"callers\": [", f.name);
	print_names(out, f.callers);
	if (!f.inlined.empty()) {
		out += "], \"inlined\": [";
		print_names(out, f.inlined);
	}
	print(out, "], \"cpu_ns\": %llu, \"wall_ns\": %llu, \"count\": %llu, ",
		(unsigned long long)f.cpu_ns, (unsigned long long)f.wall_ns,
		(unsigned long long)f.count);
	print_waits(out, f.waits);
	out += "}";
}

inline std::string json(const record &r)
{
	std::string out = "{\n  \"schema\": \"flame-truth/1\",\n";
	print(out, "  \"workload\": \"%s\",\n  \"argv\": [", r.workload);
	for (int i = 0; i < r.argc; i++) {
		out += i ? ", " : "";
		print_string(out, r.argv[i]);
	}
	print(out, "],\n  \"pid\": %ld,\n  \"seed\": %llu,\n  \"checksum\": \"%016llx\",\n",
		(long)getpid(), (unsigned long long)r.seed, (unsigned long long)r.checksum);
	print(out, "  \"wall_ns\": %llu,\n  \"cpu_ns\": %llu,\n  \"functions\": [\n",
		(unsigned long long)r.wall_ns, (unsigned long long)r.cpu_ns);
	for (const function &f : r.functions) {
		out += &f == &r.functions.front() ? "" : ",\n";
		print_function(out, f);
	}
	out += "\n  ],\n  \"threads\": [\n";
	for (const thread &t : r.threads) {
		out += &t == &r.threads.front() ? "    {" : ",\n    {";
		print(out, "\"tid\": %ld, \"name\": ", t.tid);
		print_string(out, t.name.c_str());
		print(out, ", \"cpu_ns\": %llu, \"run_delay_ns\": %llu, \"slices\": %llu}",
			(unsigned long long)t.cpu_ns, (unsigned long long)t.run_delay_ns,
			(unsigned long long)t.slices);
	}
	out += "\n  ],\n  ";
	print_waits(out, r.waits);
	out += "\n}\n";
	return out;
}

/* Writes the truth to path through a temporary name beside it, unless path is NULL; prints the one
 * line that proves the work. The calling thread's account is read here, so that it is its last act.
 */
inline void finish(record &r, const char *path)
{
	r.threads.insert(r.threads.begin(), thread_account());
	if (path) {
		std::string text = json(r);
		std::string temporary = std::string(path) + "." + std::to_string(getpid()) + ".tmp";
		FILE *f = fopen(temporary.c_str(), "we");
		if (!f)
			fail(temporary.c_str());
		bool bad =
			(fwrite(text.data(), 1, text.size(), f) != text.size()) | (fclose(f) != 0);
		if (bad || rename(temporary.c_str(), path)) {
			int e = errno;
			(void)unlink(temporary.c_str()); /* the first error is the one to tell */
			errno = e;
			fail(path);
		}
	}
	printf("%s checksum=%016llx cpu_ns=%llu wall_ns=%llu\n", r.workload,
		(unsigned long long)r.checksum, (unsigned long long)r.cpu_ns,
		(unsigned long long)r.wall_ns);
	if (fflush(stdout))
		fail("stdout");
}

} // namespace truth
