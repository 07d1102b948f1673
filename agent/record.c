/*
 * See record.h: one window. It is: check, load, sample, stop, name, write, unload. Whatever it made is
 * gone when record_window returns, so --repeat can show that memory does not grow.
 */
#include "agent/record_internal.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/assemble.h"
#include "agent/collect.h"
#include "agent/containers.h"
#include "agent/debuginfod.h"
#include "agent/events.h"
#include "agent/fault.h"
#include "agent/filter.h"
#include "agent/ledger.h"
#include "agent/own.h"
#include "agent/preflight.h"
#include "agent/processes.h"
#include "agent/sideband.h"
#include "agent/stacks.h"
#include "agent/summary.h"
#include "agent/symbolize.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/str.h"

#define RECORDS_BYTES_MAX (64UL << 20)
#define PROGRESS_NS       (500 * NSEC_PER_MSEC)

enum { RECORD_NICE = -10 };

struct recording {
	const struct record_conf *conf;
	struct loop *loop;
	struct sideband *sideband; /* NULL: the kernel gives none */
	struct symbolizer *symbolizer;
	struct stacks *stacks;
	struct collector *collector;
	struct containers *containers;
	struct processes *processes;
	uint64_t start_ns;
	uint64_t samples_shown;
	uint64_t stacks_dropped; /* records for which there was no room */
	bool interrupted;
};

void record_results_done(struct record_results *r)
{
	free(r->threads);
	free(r->cpus);
}

static void recording_done(struct recording *r)
{
	collector_free(r->collector);
	symbolizer_free(r->symbolizer);
	sideband_free(r->sideband);
	stacks_free(r->stacks);
	processes_free(r->processes);
	containers_free(r->containers);
	loop_free(r->loop);
}

static int on_stack(const struct stack_record *s, void *data)
{
	struct recording *r = data;
	struct symbolizer_process process = {.tgid = s->key.tgid,
		.start_ns = s->key.start_ns,
		.exec_id = s->key.exec_id,
		.seen_ns = s->seen_ns};
	uint64_t pcs[SAMPLE_USER_FRAMES_MAX];

	for (uint32_t i = 0; i < s->user_count; i++)
		pcs[i] = s->frames[s->kernel_count + i];
	processes_see(r->processes, s);
	if (s->user_count > 0)
		symbolizer_see(r->symbolizer, &process, pcs, s->user_count);
	if (stacks_add(r->stacks, s) < 0)
		r->stacks_dropped++; /* shows as [stack lost] in the profile */
	return 0;
}

static int on_ring(struct loop *l, uint32_t events, void *data)
{
	struct recording *r = data;
	int error = collector_drain(r->collector);

	(void)l;
	(void)events;
	fault_slow();
	return error;
}

static int on_tick(struct loop *l, uint32_t events, void *data)
{
	struct recording *r = data;
	int error = collector_tick(r->collector);

	return error < 0 ? error : on_ring(l, events, data);
}

static int on_end(struct loop *l, uint32_t events, void *data)
{
	(void)events;
	(void)data;
	loop_stop(l);
	return 0;
}

static int on_signal(struct loop *l, uint32_t events, void *data)
{
	struct recording *r = data;

	(void)events;
	r->interrupted = true;
	loop_stop(l);
	return 0;
}

static int on_progress(struct loop *l, uint32_t events, void *data)
{
	struct recording *r = data;
	double s = (double)(loop_now_ns() - r->start_ns) / 1e9;

	(void)l;
	(void)events;
	(void)fprintf(stderr,
		"\r\033[Krecording %.1f of %.1f s, %llu samples, %zu stacks (^C ends it and "
		"writes)",
		s, (double)r->conf->duration_ns / 1e9,
		(unsigned long long)collector_samples(r->collector), stacks_count(r->stacks));
	return 0;
}

static int add_sources(struct recording *r)
{
	uint64_t tick_ns = collector_tick_ns(r->collector);
	/* A window that was to start at a given time ends when it was to end, however late it began. */
	uint64_t late_ns =
		r->conf->start_ns > 0 ? r->start_ns - MIN(r->start_ns, r->conf->start_ns) : 0;
	uint64_t duration_ns = r->conf->duration_ns - MIN(r->conf->duration_ns, late_ns);
	struct loop_source *source; /* the loop owns them all */
	int e = loop_add_fd(r->loop, collector_fd(r->collector), EPOLLIN, on_ring, r, &source);

	if (e == 0)
		e = loop_add_timer(r->loop, tick_ns, tick_ns, on_tick, r, &source);
	if (e == 0)
		e = loop_add_timer(r->loop, duration_ns, 0, on_end, r, &source);
	if (e == 0 && !r->conf->quiet && isatty(STDERR_FILENO))
		e = loop_add_timer(r->loop, PROGRESS_NS, PROGRESS_NS, on_progress, r, &source);
	return e;
}

/* A closed terminal ends the window as ^C does; under nohup it is to go on. */
static int add_hangup(struct recording *r)
{
	struct loop_source *source;
	struct sigaction now;

	if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
		return 0;
	return loop_add_signal(r->loop, SIGHUP, on_signal, r, &source);
}

static int add_signals(struct recording *r)
{
	struct loop_source *source;
	int e = loop_add_signal(r->loop, SIGINT, on_signal, r, &source);

	if (e == 0)
		e = loop_add_signal(r->loop, SIGTERM, on_signal, r, &source);
	return e == 0 ? add_hangup(r) : e;
}

static int load(struct recording *r)
{
	const struct record_conf *conf = r->conf;
	_cleanup_(buf_done) struct buf why = BUF_INIT(4096);
	_cleanup_(freep) struct filter_resolved *resolved = calloc(1, sizeof(*resolved));
	struct collect_options collect = {
		.frequency_hz = conf->frequency_hz,
		.jitter_seed = conf->jitter_seed,
		.filter = &conf->filter,
		.resolved = resolved,
		.key_tids = conf->tid,
		.stacks_max = (uint32_t)conf->stacks_max,
		.ledger_max = (uint32_t)conf->threads_max,
		.unwind_fp = conf->unwind == RECORD_UNWIND_FP,
		.unwind_table_mb = (uint32_t)conf->unwind_table_mb,
		.tables_file = conf->tables_file,
		.helper = symbolizer_helper(r->symbolizer),
		.sideband = r->sideband,
		.on_stack = on_stack,
		.data = r,
	};
	int e = resolved ? filter_resolve(&conf->filter, &why, resolved) : -ENOMEM;

	if (e < 0) {
		log_error("record", "find what to record", e, "why=\"%s\"", buf_str(&why));
		return e;
	}
	e = collector_new(&collect, &why, &r->collector);
	if (e < 0)
		log_error("record", "load the sampling programs", e, "why=\"%s\"", buf_str(&why));
	return e;
}

/*
 * Samples wait in a bounded number of slots until their tables are built. On a machine with five busy
 * threads a CPU each turn of agent and helper came too late, and one sample in six went without.
 * The helper inherits it. Who chose another priority keeps it; without CAP_SYS_NICE it stays as it is.
 */
static void hurry(const struct record_conf *conf)
{
	if (conf->unwind == RECORD_UNWIND_CFI && getpriority(PRIO_PROCESS, 0) == 0)
		(void)setpriority(PRIO_PROCESS, 0, RECORD_NICE);
}

/* Processes that end before their maps were read are known by the kernel's events. */
static void watch(struct recording *r)
{
	int e = sideband_new(&r->sideband);

	if (e < 0)
		log_warn("record", "watch processes begin and map code", e,
			"hint=\"what ends within milliseconds has no names\"");
}

/* Everything up to the first sample. Signals are blocked from here on, so none is missed. */
static int prepare(struct recording *r)
{
	const struct record_conf *conf = r->conf;
	struct symbolizer_options symbolizer = {.keep_pc = fault_keep_pc(),
		.lines = (enum symbolizer_lines)conf->lines,
		.debug_dirs = conf->debug_dirs.str,
		.debug_dir_count = conf->debug_dirs.count,
		.fetched_dir = conf->fetched_dir};
	struct processes_options processes = conf->processes;
	int e = loop_new(&r->loop);

	hurry(conf);
	watch(r);
	symbolizer.sideband = r->sideband;
	if (e == 0)
		e = add_signals(r);
	if (e == 0)
		e = stacks_new(conf->stacks_max * 2, RECORDS_BYTES_MAX, &r->stacks);
	if (e == 0)
		e = containers_new(&(struct containers_options){.loop = r->loop,
					   .runtime = conf->container_runtime,
					   .cache_file = conf->containers_file},
			&r->containers);
	processes.containers = r->containers;
	if (e == 0)
		e = processes_new(&processes, &r->processes);
	if (e == 0)
		e = symbolizer_new(&symbolizer, &r->symbolizer);
	if (e == 0)
		return load(r);
	log_error("record", "prepare", e, "stacks_max=%llu", (unsigned long long)conf->stacks_max);
	return e;
}

static int say_ready(const struct record_conf *conf)
{
	if (conf->ready_fd == 0)
		return 0;
	return file_write_all((int)conf->ready_fd, "R", 1);
}

/* Everything is loaded; the window opens when its time has come, or never if a signal comes first. */
static int wait_for_start(struct recording *r)
{
	uint64_t now_ns = loop_now_ns();
	struct loop_source *timer;
	int e;

	if (r->conf->start_ns <= now_ns)
		return 0;
	e = loop_add_timer(r->loop, r->conf->start_ns - now_ns, 0, on_end, r, &timer);
	if (e < 0)
		return e;
	e = loop_run(r->loop);
	loop_remove(timer);
	if (e == 0 && r->interrupted)
		e = -ECANCELED;
	return e;
}

static int sample(struct recording *r)
{
	int e = wait_for_start(r);

	if (e == 0)
		e = collector_start(r->collector);
	r->start_ns = loop_now_ns();
	if (e == 0 && r->conf->start_ns > 0 &&
		r->start_ns >= r->conf->start_ns + r->conf->duration_ns)
		e = -ETIME;
	if (e == 0)
		e = say_ready(r->conf);
	if (e == 0)
		e = add_sources(r);
	if (e == 0)
		e = loop_run(r->loop);
	if (!r->conf->quiet && isatty(STDERR_FILENO))
		(void)fprintf(stderr, "\r\033[K"); /* only looks */
	if (e == 0)
		e = collector_stop(r->collector);
	if (e == -ETIME)
		log_error(
			"record", "sample", e, "why=\"loading took longer than the window lasts\"");
	else if (e < 0 && e != -ECANCELED)
		log_error("record", "sample", e, "frequency_hz=%llu",
			(unsigned long long)r->conf->frequency_hz);
	return e;
}

/* Seeded fault double_cpu: one CPU's share of all weight, once more. */
static void double_one_cpu(
	const struct recording *r, const struct summary *s, struct collect_stack *list, size_t n)
{
	size_t cpu;
	double more;

	if (!fault_double_cpu(&cpu) || s->totals.taken.weight_ns == 0)
		return;
	more = (double)collector_cpu_weight(r->collector, cpu) / (double)s->totals.taken.weight_ns;
	for (size_t i = 0; i < n; i++)
		list[i].value.weight_ns += (uint64_t)((double)list[i].value.weight_ns * more);
}

/* CLOCK_MONOTONIC to CLOCK_BOOTTIME, which also counts suspends. */
static uint64_t boot_ns(uint64_t monotonic_ns)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now); /* the clock exists */
	return monotonic_ns + (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec -
	       loop_now_ns();
}

/* Counts and ledger out of the kernel, names for the stacks. s points into *ret. */
static int collect_results(
	struct recording *r, struct summary *s, struct profile *p, struct record_results *ret)
{
	_cleanup_(freep) struct collect_stack *list = NULL;
	_cleanup_(kernel_names_freep) struct kernel_names *names = NULL;
	size_t n = 0;
	int e;

	collector_totals(r->collector, &s->totals);
	e = collector_stacks(r->collector, &list, &n);
	if (e == 0)
		e = collector_ledger(r->collector, &ret->threads, &s->thread_count);
	if (e == 0)
		e = collector_cpus(r->collector, &ret->cpus, &s->cpu_count);
	if (e < 0)
		return e;
	s->threads = ret->threads;
	s->cpus = ret->cpus;
	double_one_cpu(r, s, list, n);
	processes_settle(r->processes);
	if (!filter_is_any(&r->conf->filter))
		processes_pool(
			r->processes, list, n, boot_ns(s->totals.start_ns), s->totals.window_ns);
	e = kernel_names_new(r->collector, &names);
	if (e == 0)
		e = assemble_profile(p,
			&(struct assemble_input){
				.records = r->stacks,
				.counted = list,
				.count = n,
				.symbolizer = r->symbolizer,
				.kernel_names = names,
				.processes = r->processes,
				.losses = s->totals.losses,
				.with_tid = r->conf->tid,
			},
			&s->profile);
	s->symbols = symbolizer_stats(r->symbolizer);
	s->own_rings_bytes = sideband_bytes(r->sideband);
	s->symbols.kernel_frames += s->profile.kernel_frames;
	return e;
}

static int set_filter_fact(const struct filter *f, struct profile *p)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(FILTER_TEXT_MAX);
	int e = filter_describe(f, &text);

	return e == 0 && text.size > 0 ? profile_set_fact(p, "filter", buf_str(&text)) : e;
}

static int finish_profile(
	const struct record_conf *conf, const struct summary *s, struct profile *p)
{
	struct timespec now;
	int e = set_filter_fact(&conf->filter, p);

	(void)clock_gettime(CLOCK_REALTIME, &now); /* the clock exists */
	/* The start in wall time: now less what CLOCK_MONOTONIC says has passed since. */
	profile_set_time(p,
		(int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec -
			(int64_t)(loop_now_ns() - s->totals.start_ns),
		(int64_t)s->totals.window_ns);
	profile_set_period(p, "cpu", "nanoseconds", (int64_t)(NSEC_PER_SEC / s->frequency_hz));
	return e == 0 ? summary_facts(s, p) : e;
}

static void warn_of_losses(const struct recording *r, const struct summary *s)
{
	const struct sample_count *losses = s->totals.losses;

	if (losses[SAMPLE_LOSS_MAP_FULL].samples)
		log_warn("record", "keep stacks", 0,
			"lost_samples=%llu hint=\"there were more distinct stacks than "
			"--stacks-max=%llu: raise it, or record shorter\"",
			(unsigned long long)losses[SAMPLE_LOSS_MAP_FULL].samples,
			(unsigned long long)r->conf->stacks_max);
	if (losses[SAMPLE_LOSS_RING_FULL].samples)
		log_warn("record", "keep stacks", 0,
			"lost_samples=%llu hint=\"the agent did not run often enough to fetch "
			"them: the machine is overloaded, or lower --frequency\"",
			(unsigned long long)losses[SAMPLE_LOSS_RING_FULL].samples);
	if (s->totals.ledger_lost)
		log_warn("record", "keep threads", 0,
			"lost_switches=%llu hint=\"there were more threads than "
			"--threads-max=%llu: their time is missing in the ledger, not in the "
			"profile\"",
			(unsigned long long)s->totals.ledger_lost,
			(unsigned long long)r->conf->threads_max);
	if (r->stacks_dropped)
		log_warn("record", "keep stacks", -ENOBUFS, "stacks=%llu",
			(unsigned long long)r->stacks_dropped);
}

static void warn_of_trouble(const struct recording *r, const struct summary *s)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (s->frequency_real_hz < 0.8 * (double)s->frequency_hz &&
		s->totals.window_ns > 20 * NSEC_PER_SEC / s->frequency_hz)
		log_warn("record", "keep the rate", 0,
			"wanted_hz=%llu real_hz=%.1f hint=\"the kernel throttled sampling "
			"(kernel.perf_event_max_sample_rate) or the CPUs were not scheduled\"",
			(unsigned long long)s->frequency_hz, s->frequency_real_hz);
	if (online > 0 && (uint64_t)online != s->totals.cpus)
		log_warn("record", "sample all CPUs", 0,
			"sampled=%llu online=%ld hint=\"CPUs came or went while recording: what "
			"ran on those that came is missing\"",
			(unsigned long long)s->totals.cpus, online);
	if (s->profile.samples == 0 && !r->interrupted)
		log_warn("record", "find samples", 0, "hint=\"%s\"",
			!filter_is_any(&r->conf->filter) ? "nothing ran on the sampled CPUs"
			: s->thread_count == 0           ? "no process matched the filter"
							 : "what matched the filter did not run");
	warn_of_losses(r, s);
	if (r->interrupted && !r->conf->quiet)
		log_info("record", "end early", "reason=signal");
}

/* For whoever fetches debug files once this window is written. */
static void note_missing(const struct recording *r)
{
	_cleanup_(buf_done) struct buf ids = BUF_INIT(DEBUGINFOD_WANTED_BYTES_MAX);
	const char *dir = r->conf->fetched_dir;
	int e = dir ? symbolizer_missing(r->symbolizer, &ids) : 0;

	if (e == 0 && ids.size > 0)
		e = debuginfod_want(dir, &ids);
	if (e < 0)
		log_warn("record", "note missing debug files", e, "dir=%s", dir);
}

/* One window into p and s; nothing else of it is left afterwards. */
int record_window(const struct record_conf *conf, struct summary *s, struct profile *p,
	struct record_results *ret, bool *ret_interrupted)
{
	_cleanup_(recording_done) struct recording r = {.conf = conf};
	uint64_t cpu_ns = own_cpu_ns(0);
	uint64_t ready_ns;
	int e = prepare(&r);

	if (e < 0)
		return e;
	ready_ns = own_cpu_ns(symbolizer_helper_pid(r.symbolizer));
	s->own_cpu_start_ns = ready_ns - cpu_ns;
	e = sample(&r);
	if (e < 0)
		return e;
	s->own_cpu_window_ns = own_cpu_ns(symbolizer_helper_pid(r.symbolizer)) - ready_ns;
	e = collect_results(&r, s, p, ret);
	if (e < 0) {
		log_error("record", "build the profile", e, "stacks=%zu", stacks_count(r.stacks));
		return e;
	}
	note_missing(&r);
	summary_judge(s);
	warn_of_trouble(&r, s);
	*ret_interrupted = r.interrupted;
	return finish_profile(conf, s, p);
}

int record_profile(
	const struct record_request *q, const char *version, struct profile *p, struct summary *s)
{
	_cleanup_(record_results_done) struct record_results results = {0};
	_cleanup_(freep) struct record_conf *conf = calloc(1, sizeof(*conf));
	bool interrupted;
	int e;

	if (!conf)
		return -ENOMEM;
	conf->start_ns = q->start_ns;
	conf->duration_ns = q->duration_ns;
	conf->frequency_hz = q->frequency_hz;
	conf->jitter_seed = q->jitter_seed;
	conf->stacks_max = RECORD_STACKS_MAX;
	conf->threads_max = RECORD_THREADS_MAX;
	conf->unwind = q->unwind;
	conf->unwind_table_mb = q->unwind_table_mb;
	conf->lines = (int)q->lines;
	if (q->debug_dirs)
		conf->debug_dirs = *q->debug_dirs;
	conf->fetched_dir = q->fetched_dir;
	conf->tables_file = q->tables_file;
	conf->container_runtime = q->container_runtime;
	conf->containers_file = q->containers_file;
	conf->quiet = true;
	conf->filter = q->filter;
	conf->processes = q->processes;
	conf->processes.max = RECORD_PROCESSES_MAX;
	*s = (struct summary){
		.version = version,
		.fault = "",
		.frequency_hz = q->frequency_hz,
		.jitter_seed = q->jitter_seed,
	};
	e = record_window(conf, s, p, &results, &interrupted);
	/* What they point at goes with the results. */
	s->threads = NULL;
	s->thread_count = 0;
	s->cpus = NULL;
	s->cpu_count = 0;
	return e;
}
