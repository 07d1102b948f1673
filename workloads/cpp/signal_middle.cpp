/* signal_middle: work in a signal handler, on top of the work that the signal interrupted.
 *
 *   main -> interrupted_caller -> interrupted_work
 *                                      <signal frame> -> on_signal -> handler_work
 *
 * SIGPROF comes every --interval-us of CPU time, by the tick; it is blocked but for interrupted_work. The handler must
 * be shorter than the interval, or nothing else runs. */
#include "args.hpp"
#include "burn.hpp"
#include "truth.hpp"

#include <csignal>
#include <sys/time.h>

static uint64_t chunks = 300, chunk = 400000, handler_chunk = 200000, interval_us = 20000, seed = 1;
static const char *truth_path;
static uint64_t handler_x = 1;
static volatile sig_atomic_t interruptible;
static truth::function in_handler = {
	"handler_work", {"on_signal", "interrupted_work", "interrupted_caller", "main"}};

BURN_DEFINE(interrupted_work)
BURN_DEFINE(handler_work)

BURN_FUNCTION void on_signal(int)
{
	if (!interruptible)
		return;
	truth::meter m;
	handler_x = handler_work(handler_x, handler_chunk);
	m.stop(in_handler);
}

BURN_FUNCTION uint64_t interrupted_caller(uint64_t x, truth::function &f)
{
	const timespec none = {};
	sigset_t prof;
	sigemptyset(&prof);
	sigaddset(&prof, SIGPROF);
	for (uint64_t i = 0; i < chunks; i++) {
		truth::meter m;
		/* One that came meanwhile would be taken in pthread_sigmask, and one that comes there is. */
		(void)sigtimedwait(&prof, nullptr, &none);          /* mostly there is none */
		(void)pthread_sigmask(SIG_UNBLOCK, &prof, nullptr); /* cannot fail with this how */
		interruptible = 1;
		x = interrupted_work(x, chunk);
		interruptible = 0;
		(void)pthread_sigmask(SIG_BLOCK, &prof, nullptr);
		m.stop(f);
	}
	return x;
}

static void start_signals()
{
	struct sigaction action = {};
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART;
	sigset_t prof;
	sigemptyset(&prof);
	sigaddset(&prof, SIGPROF);
	itimerval every = {};
	every.it_interval.tv_usec = every.it_value.tv_usec = (suseconds_t)interval_us;
	if ((errno = pthread_sigmask(SIG_BLOCK, &prof, nullptr)))
		truth::fail("pthread_sigmask");
	if (sigaction(SIGPROF, &action, nullptr) || setitimer(ITIMER_PROF, &every, nullptr))
		truth::fail("setitimer");
}

int main(int argc, char **argv)
{
	const args::option options[] = {
		{"chunks", "chunks of interrupted work", &chunks, 1, 1000000000, nullptr},
		{"chunk", "iterations of a chunk", &chunk, 1, 1000000000000, nullptr},
		{"handler-chunk", "iterations in the handler", &handler_chunk, 1, 1000000000000,
			nullptr},
		{"interval-us", "CPU time between signals", &interval_us, 1000, 999999, nullptr},
		{"seed", "start value of the work", &seed, 0, UINT64_MAX, nullptr},
		{"truth", "file for truth.json", nullptr, 0, 0, &truth_path},
	};
	args::parse(program_invocation_short_name, argc, argv, options);
	truth::record r = {program_invocation_short_name, argc, argv};
	truth::function f = {"interrupted_work", {"interrupted_caller", "main"}};
	r.seed = seed;
	start_signals();
	r.begin();
	r.checksum = interrupted_caller(burn_seed(seed), f);
	r.end();
	/* The meter around the interrupted work saw the handler, too; entries do not overlap. */
	f.cpu_ns -= in_handler.cpu_ns < f.cpu_ns ? in_handler.cpu_ns : f.cpu_ns;
	f.wall_ns -= in_handler.wall_ns < f.wall_ns ? in_handler.wall_ns : f.wall_ns;
	r.functions = {f, in_handler};
	truth::finish(r, truth_path);
}
