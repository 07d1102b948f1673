/*
 * See record.h. One window is: check, load, sample, stop, name, write, unload. Whatever it made is
 * gone when record_window returns, so --repeat can show that memory does not grow.
 */
#include "agent/record.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#include "agent/assemble.h"
#include "agent/collect.h"
#include "agent/events.h"
#include "agent/fault.h"
#include "agent/ledger.h"
#include "agent/own.h"
#include "agent/preflight.h"
#include "agent/stacks.h"
#include "agent/summary.h"
#include "agent/symbolize.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/opts.h"
#include "base/str.h"
#include "prof/folded.h"
#include "prof/pprof.h"
#include "prof/svg.h"

#define PROFILE_BYTES_MAX (256UL << 20)
#define RECORDS_BYTES_MAX (64UL << 20)
#define OUTPUT_BYTES_MAX  (512UL << 20)
#define PROGRESS_NS       (500 * NSEC_PER_MSEC)

struct conf {
	uint64_t duration_ns;
	uint64_t frequency_hz;
	struct opt_list pids;
	const char *output;
	uint64_t jitter_seed;
	uint64_t ready_fd; /* 0: none */
	uint64_t start_ns; /* CLOCK_MONOTONIC; 0: at once */
	const char *summary;
	uint64_t stacks_max;
	uint64_t threads_max;
	uint64_t repeat;
	bool quiet;
	bool comm;
	bool tid;
};

static const struct opt_spec specs[] = {
	{"duration", 'd', OPT_DURATION, offsetof(struct conf, duration_ns), .arg = "TIME",
		.def = "10s", .min = 1e6, .max = 86400e9, .help = "how long to record"},
	{"frequency", 'F', OPT_U64, offsetof(struct conf, frequency_hz), .arg = "HZ", .def = "99",
		.min = 1, .max = EVENTS_FREQUENCY_MAX_HZ, .help = "samples a second on each CPU"},
	{"pid", 'p', OPT_U64_LIST, offsetof(struct conf, pids), .arg = "PID", .min = 1,
		.max = 4194304, .help = "only this process; without it, all of them"},
	{"output", 'o', OPT_STR, offsetof(struct conf, output), .arg = "FILE", .def = "profile.svg",
		.help = "ends in .svg, .folded or .pb.gz (pprof)"},
	{"comm", 0, OPT_FLAG, offsetof(struct conf, comm), .def = "on",
		.help = "process name as first level of .svg and .folded;\n"
			"--no-comm merges processes"},
	{"tid", 0, OPT_FLAG, offsetof(struct conf, tid), .help = "keep threads apart by their tid"},
	{"jitter-seed", 0, OPT_U64, offsetof(struct conf, jitter_seed), .arg = "N", .def = "1",
		.help = "seed of the sampling periods"},
	{"summary", 0, OPT_STR, offsetof(struct conf, summary), .arg = "FILE",
		.help = "write counts, losses and each thread's time there as JSON"},
	{"ready-fd", 0, OPT_U64, offsetof(struct conf, ready_fd), .arg = "FD", .max = 1023,
		.help = "write one byte there when all CPUs are sampled,\n"
			"in each window of --repeat"},
	{"stacks-max", 0, OPT_U64, offsetof(struct conf, stacks_max), .arg = "N", .def = "16384",
		.min = 64, .max = 1048576,
		.help = "distinct stacks that are kept;\n"
			"others become one [lost] bar"},
	{"threads-max", 0, OPT_U64, offsetof(struct conf, threads_max), .arg = "N", .def = "16384",
		.min = 64, .max = 1048576, .help = "threads whose time is kept"},
	{"repeat", 0, OPT_U64, offsetof(struct conf, repeat), .arg = "N", .def = "1", .min = 1,
		.max = 100000,
		.help = "record N windows, each from loading to unloading;\n"
			"the last one is written"},
	{"quiet", 'q', OPT_FLAG, offsetof(struct conf, quiet), .help = "no progress, no summary"},
	{0},
};

static const char examples[] =
	"Examples:\n"
	"  flame-agent record -d 30s -o all.svg             open all.svg in a browser\n"
	"  flame-agent record -p 4242 -F 997 -o one.pb.gz   go tool pprof -http=: one.pb.gz\n"
	"  flame-agent record -d 5m -o all.folded           one line a stack, for scripts\n"
	"Needs root or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. Times are\n"
	"CPU time: what waits is not in the graph. Exit: 0 written, 1 failed, 2 wrong usage.\n";

typedef int write_fn(const struct conf *c, const struct profile *p, struct buf *out);

struct recording {
	const struct conf *conf;
	struct loop *loop;
	struct symbolizer *symbolizer;
	struct stacks *stacks;
	struct collector *collector;
	uint64_t start_ns;
	uint64_t samples_shown;
	uint64_t stacks_dropped; /* records for which there was no room */
	bool interrupted;
};

/* What a window leaves behind for the summary. */
struct results {
	struct collect_thread *threads;
	struct collect_cpu *cpus;
};

static void results_done(struct results *r)
{
	free(r->threads);
	free(r->cpus);
}

static void recording_done(struct recording *r)
{
	collector_free(r->collector);
	symbolizer_free(r->symbolizer);
	stacks_free(r->stacks);
	loop_free(r->loop);
}

static int write_folded(const struct conf *c, const struct profile *p, struct buf *out)
{
	struct folded_options o = {.type = profile_default_type(p), .with_comm = c->comm};

	return folded_write(p, &o, out);
}

static int write_pprof(const struct conf *c, const struct profile *p, struct buf *out)
{
	(void)c; /* has all labels whatever the options */
	return pprof_write(p, out);
}

static int write_svg(const struct conf *c, const struct profile *p, struct buf *out)
{
	_cleanup_(buf_done) struct buf title = BUF_INIT(512);
	struct svg_options o = {.type = profile_default_type(p), .with_comm = c->comm};

	/* Cut if the host's name is absurd. */
	(void)buf_printf(&title, "%s at %s Hz on %s CPUs of %s, kernel %s",
		profile_fact(p, "event"), profile_fact(p, "frequency_hz"), profile_fact(p, "cpus"),
		profile_fact(p, "host"), profile_fact(p, "kernel"));
	o.title = "CPU flame graph";
	o.subtitle = buf_str(&title);
	return svg_write(p, &o, out);
}

static write_fn *writer_for(const char *path)
{
	static const struct {
		const char *suffix;
		write_fn *write;
	} writers[] = {{".svg", write_svg}, {".folded", write_folded}, {".pb.gz", write_pprof}};

	for (size_t i = 0; i < ARRAY_SIZE(writers); i++)
		if (str_has_suffix(path, writers[i].suffix))
			return writers[i].write;
	return NULL;
}

static int on_stack(const struct stack_record *s, void *data)
{
	struct recording *r = data;
	struct symbolizer_process process = {
		.tgid = s->key.tgid, .start_ns = s->key.start_ns, .exec_id = s->key.exec_id};
	uint64_t pcs[SAMPLE_USER_FRAMES_MAX];

	for (uint32_t i = 0; i < s->user_count; i++)
		pcs[i] = s->frames[s->kernel_count + i];
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

/* Everything up to the first sample. Signals are blocked from here on, so none is missed. */
static int prepare(struct recording *r)
{
	const struct conf *conf = r->conf;
	_cleanup_(buf_done) struct buf why = BUF_INIT(4096);
	struct symbolizer_options symbolizer = {.keep_pc = fault_keep_pc()};
	struct collect_options collect = {
		.frequency_hz = conf->frequency_hz,
		.jitter_seed = conf->jitter_seed,
		.filter = {.tgids = conf->pids.u64, .tgid_count = conf->pids.count},
		.key_tids = conf->tid,
		.stacks_max = (uint32_t)conf->stacks_max,
		.ledger_max = (uint32_t)conf->threads_max,
		.on_stack = on_stack,
		.data = r,
	};
	struct loop_source *source;
	int e = loop_new(&r->loop);

	if (e == 0)
		e = loop_add_signal(r->loop, SIGINT, on_signal, r, &source);
	if (e == 0)
		e = loop_add_signal(r->loop, SIGTERM, on_signal, r, &source);
	if (e == 0)
		e = add_hangup(r);
	if (e == 0)
		e = stacks_new(conf->stacks_max * 2, RECORDS_BYTES_MAX, &r->stacks);
	if (e == 0)
		e = symbolizer_new(&symbolizer, &r->symbolizer);
	if (e < 0) {
		log_error("record", "prepare", e, "stacks_max=%llu",
			(unsigned long long)conf->stacks_max);
		return e;
	}
	e = collector_new(&collect, &why, &r->collector);
	if (e < 0)
		log_error("record", "load the sampling programs", e, "why=\"%s\"", buf_str(&why));
	return e;
}

static int say_ready(const struct conf *conf)
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

/* Counts and ledger out of the kernel, names for the stacks. s points into *ret. */
static int collect_results(
	struct recording *r, struct summary *s, struct profile *p, struct results *ret)
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
	e = kernel_names_new(r->collector, &names);
	if (e == 0)
		e = assemble_profile(p,
			&(struct assemble_input){
				.records = r->stacks,
				.counted = list,
				.count = n,
				.symbolizer = r->symbolizer,
				.kernel_names = names,
				.losses = s->totals.losses,
				.with_tid = r->conf->tid,
			},
			&s->profile);
	s->symbols = symbolizer_stats(r->symbolizer);
	s->symbols.kernel_frames += s->profile.kernel_frames;
	return e;
}

static int finish_profile(const struct summary *s, struct profile *p)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* the clock exists */
	/* The start in wall time: now less what CLOCK_MONOTONIC says has passed since. */
	profile_set_time(p,
		(int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec -
			(int64_t)(loop_now_ns() - s->totals.start_ns),
		(int64_t)s->totals.window_ns);
	profile_set_period(p, "cpu", "nanoseconds", (int64_t)(NSEC_PER_SEC / s->frequency_hz));
	return summary_facts(s, p);
}

static int write_profile(const struct conf *conf, struct summary *s, const struct profile *p)
{
	_cleanup_(buf_done) struct buf folded = BUF_INIT(OUTPUT_BYTES_MAX);
	_cleanup_(buf_done) struct buf out = BUF_INIT(OUTPUT_BYTES_MAX);
	int e = write_folded(conf, p, &folded);

	if (e == 0)
		e = file_sha256_mem(folded.data ? folded.data : "", folded.size, s->profile_sha256);
	if (e == 0)
		e = writer_for(conf->output)(conf, p, &out);
	if (e == 0)
		e = file_write_atomic(conf->output, out.data, out.size);
	if (e < 0)
		log_error("record", "write profile", e, "file=%s", conf->output);
	return e;
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
			r->conf->pids.count > 0 ? "the processes of --pid have ended or did not run"
						: "nothing ran on the sampled CPUs");
	warn_of_losses(r, s);
	if (r->interrupted && !r->conf->quiet)
		log_info("record", "end early", "reason=signal");
}

/* One window into p and s; nothing else of it is left afterwards. */
static int record_window(const struct conf *conf, struct summary *s, struct profile *p,
	struct results *ret, bool *ret_interrupted)
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
	summary_judge(s);
	warn_of_trouble(&r, s);
	*ret_interrupted = r.interrupted;
	return finish_profile(s, p);
}

static int write_summary(const struct conf *conf, const struct summary *s)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(65536);
	_cleanup_(buf_done) struct buf json = BUF_INIT(OUTPUT_BYTES_MAX);
	int e = 0;

	if (conf->summary) {
		e = summary_json(s, &json);
		if (e == 0)
			e = file_write_atomic(conf->summary, json.data, json.size);
		if (e < 0)
			log_error("record", "write summary", e, "file=%s", conf->summary);
	}
	/* The files are written: who closed stdout did not want this. */
	if (!conf->quiet && summary_text(s, &text) == 0 &&
		(printf("%s  written    %s\n", buf_str(&text), conf->output) < 0 ||
			fflush(stdout) != 0))
		log_warn("record", "print the summary", -errno, "written=%s", conf->output);
	return e;
}

/* A window from nothing to nothing; writes when it is the last. *ret_last: no further one. */
static int one_of(const struct conf *conf, struct summary *s, size_t i, bool *ret_last)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	_cleanup_(results_done) struct results results = {0};
	uint64_t cpu_ns = own_cpu_ns(0);
	int e = profile_new(PROFILE_BYTES_MAX, &p);

	if (e == 0)
		e = record_window(conf, s, p, &results, ret_last);
	if (e < 0)
		return e;
	*ret_last = *ret_last || i + 1 == conf->repeat;
	if (*ret_last)
		e = write_profile(conf, s, p);
	fault_leak();
	s->own_cpu_flush_ns = own_cpu_ns(0) - cpu_ns - s->own_cpu_start_ns - s->own_cpu_window_ns;
	s->own_rss_peak_bytes = own_rss_peak_bytes();
	profile_free(steal_ptr(&p));
	s->windows[i] = (struct summary_window){.anon_bytes = own_anon_bytes(),
		.heap_bytes = own_heap_bytes(),
		.cpu_ns = own_cpu_ns(0) - cpu_ns};
	s->window_count = i + 1;
	if (e == 0 && *ret_last)
		e = write_summary(conf, s);
	return e;
}

static int record_all(const struct conf *conf, const char *version, const char *fault,
	struct summary_window *windows)
{
	bool last = false;
	int e = 0;

	for (size_t i = 0; e == 0 && !last; i++) {
		struct summary s = {
			.version = version,
			.fault = fault,
			.frequency_hz = conf->frequency_hz,
			.jitter_seed = conf->jitter_seed,
			.windows = windows,
		};

		e = one_of(conf, &s, i, &last);
	}
	return e;
}

static int record(const struct conf *conf, const char *version, const char *fault)
{
	struct summary_window *windows = calloc(conf->repeat, sizeof(*windows));
	int e = windows ? record_all(conf, version, fault, windows) : -ENOMEM;

	free(windows);
	return e;
}

/* What can be refused before anything is loaded. Exit code. */
static int check(const struct conf *conf)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(8192);
	int e;

	if (!writer_for(conf->output)) {
		(void)fprintf(stderr,
			"flame-agent: output '%s' must end in .svg, .folded or .pb.gz\n",
			conf->output);
		return RECORD_EXIT_USAGE;
	}
	if (conf->summary && strcmp(conf->summary, conf->output) == 0) {
		(void)fprintf(stderr,
			"flame-agent: --output and --summary are both '%s': give two files\n",
			conf->output);
		return RECORD_EXIT_USAGE;
	}
	e = conf->ready_fd > 0 ? preflight_ready_fd((int)conf->ready_fd, &why) : 0;
	if (e == 0)
		e = preflight_pids(conf->pids.u64, conf->pids.count, &why);
	if (e == 0)
		e = preflight_output(conf->output, &why);
	if (e == 0 && conf->summary)
		e = preflight_output(conf->summary, &why);
	if (e == 0)
		e = preflight_system(&why);
	if (e == 0)
		return RECORD_EXIT_OK;
	(void)fprintf(stderr, "flame-agent: %s\n", buf_str(&why));
	return RECORD_EXIT_FAILED;
}

int record_profile(
	const struct record_request *q, const char *version, struct profile *p, struct summary *s)
{
	_cleanup_(results_done) struct results results = {0};
	_cleanup_(freep) struct conf *conf = calloc(1, sizeof(*conf));
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
	conf->quiet = true;
	conf->pids.count = MIN(q->pid_count, (size_t)OPT_LIST_MAX);
	if (conf->pids.count > 0)
		memcpy(conf->pids.u64, q->pids, conf->pids.count * sizeof(*q->pids));
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

int record_help(struct buf *out)
{
	int r = opts_help(specs, out);

	return r < 0 ? r : buf_printf(out, "\n%s", examples);
}

int record_main(int argc, char **argv, const char *version)
{
	_cleanup_(opts_done) struct opts opts = {0};
	_cleanup_(freep) struct conf *conf = calloc(1, sizeof(*conf));
	const char *fault;
	int operands = argc;
	int r = conf ? opts_init(&opts, specs, conf) : -ENOMEM;

	if (r == 0)
		r = opts_parse_argv(&opts, argc, argv, &operands);
	if (r == 1) {
		_cleanup_(buf_done) struct buf help = BUF_INIT(65536);

		(void)record_help(&help); /* fits */
		(void)printf("Usage: flame-agent record [OPTION]...   profile this machine into a "
			     "file\n\n%s",
			buf_str(&help));
		return RECORD_EXIT_OK;
	}
	if (r < 0) {
		(void)fprintf(stderr, "flame-agent: %s\n", buf_str(&opts.message));
		return RECORD_EXIT_USAGE;
	}
	if (operands < argc) {
		(void)fprintf(
			stderr, "flame-agent: record takes no operand '%s'\n", argv[operands]);
		return RECORD_EXIT_USAGE;
	}
	/* A reader that went away and a limit on files are errors to be told, not our end. */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	if (fault_init(&fault) < 0) {
		(void)fprintf(stderr, "flame-agent: FLAME_FAULT names no fault\n");
		return RECORD_EXIT_USAGE;
	}
	r = check(conf);
	if (r != RECORD_EXIT_OK)
		return r;
	return record(conf, version, fault) < 0 ? RECORD_EXIT_FAILED : RECORD_EXIT_OK;
}
