/* `flame-agent record`: what may be asked for, what is refused, and the files it writes. See record.h. */
#include <errno.h>
#include <limits.h>
#include <signal.h>

#include "agent/debug_files.h"
#include "agent/debuginfod.h"
#include "agent/events.h"
#include "agent/fault.h"
#include "agent/own.h"
#include "agent/preflight.h"
#include "agent/record_internal.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "prof/folded.h"
#include "prof/pprof.h"
#include "prof/svg.h"

#define PROFILE_BYTES_MAX (256UL << 20)
#define OUTPUT_BYTES_MAX  (512UL << 20)

static const struct opt_spec specs[] = {
	{"duration", 'd', OPT_DURATION, offsetof(struct record_conf, duration_ns), .arg = "TIME",
		.def = "10s", .min = 1e6, .max = 86400e9, .help = "how long to record"},
	{"frequency", 'F', OPT_U64, offsetof(struct record_conf, frequency_hz), .arg = "HZ",
		.def = "99", .min = 1, .max = EVENTS_FREQUENCY_MAX_HZ,
		.help = "samples a second on each CPU"},
	FILTER_OPTION_ROWS(struct record_conf, filter_options),
	{"output", 'o', OPT_STR, offsetof(struct record_conf, output), .arg = "FILE",
		.def = "profile.svg", .help = "ends in .svg, .folded or .pb.gz (pprof)"},
	{"processes", 0, OPT_FLAG, offsetof(struct record_conf, processes_apart), .def = "on",
		.help = "process name as first level of .svg and .folded;\n"
			"--no-processes merges them"},
	{"tid", 0, OPT_FLAG, offsetof(struct record_conf, tid),
		.help = "keep threads apart by their tid"},
	{"jitter-seed", 0, OPT_U64, offsetof(struct record_conf, jitter_seed), .arg = "N",
		.def = "1", .help = "seed of the sampling periods"},
	{"summary", 0, OPT_STR, offsetof(struct record_conf, summary), .arg = "FILE",
		.help = "write counts, losses and each thread's time there as JSON"},
	{"ready-fd", 0, OPT_U64, offsetof(struct record_conf, ready_fd), .arg = "FD", .max = 1023,
		.help = "write one byte there when all CPUs are sampled,\n"
			"in each window of --repeat"},
	{"stacks-max", 0, OPT_U64, offsetof(struct record_conf, stacks_max), .arg = "N",
		.def = "16384", .min = 64, .max = 1048576,
		.help = "distinct stacks that are kept;\n"
			"others become one [lost] bar"},
	{"threads-max", 0, OPT_U64, offsetof(struct record_conf, threads_max), .arg = "N",
		.def = "16384", .min = 64, .max = 1048576, .help = "threads whose time is kept"},
	{"unwind", 0, OPT_ENUM, offsetof(struct record_conf, unwind), .arg = "HOW", .def = "cfi",
		.choices = "cfi|fp",
		.help = "how callers are found: by unwind tables (.eh_frame),\n"
			"or by frame pointers only"},
	{"unwind-table-mb", 0, OPT_U64, offsetof(struct record_conf, unwind_table_mb), .arg = "MB",
		.def = "24", .min = TABLES_BUDGET_MB_MIN, .max = RECORD_UNWIND_TABLE_MB_MAX,
		.help = "kernel memory for unwind tables"},
	{"lines", 0, OPT_ENUM, offsetof(struct record_conf, lines), .arg = "WHICH", .def = "line",
		.choices = "function|line",
		.help = "the line a frame has in pprof: the one that ran, or its\n"
			"function's first; graphs merge by name either way"},
	{"container-runtime", 0, OPT_STR, offsetof(struct record_conf, container_runtime),
		.arg = "HOW", .def = "auto",
		.help = "who names containers: auto (containerd, CRI-O, Docker, Podman),\n"
			"off, or the path of a socket"},
	{"debug-dir", 0, OPT_STR_LIST, offsetof(struct record_conf, debug_dirs), .arg = "DIR",
		.help = "where separate debug files are, in place of /usr/lib/debug"},
	{"debuginfod-url", 0, OPT_STR_LIST, offsetof(struct record_conf, debuginfod_urls),
		.arg = "URL",
		.help = "fetch missing debug files from this server, by build ID,\n"
			"afterwards, for the next recording; into\n"
			"${XDG_CACHE_HOME:-~/.cache}/flame-agent/debug"},
	{"repeat", 0, OPT_U64, offsetof(struct record_conf, repeat), .arg = "N", .def = "1",
		.min = 1, .max = 100000,
		.help = "record N windows, each from loading to unloading;\n"
			"the last one is written"},
	{"quiet", 'q', OPT_FLAG, offsetof(struct record_conf, quiet),
		.help = "no progress, no summary"},
	{0},
};

static const char examples[] =
	"Examples:\n"
	"  flame-agent record -d 30s -o all.svg             open all.svg in a browser\n"
	"  flame-agent record -p 4242 -F 997 -o one.pb.gz   go tool pprof -http=: one.pb.gz\n"
	"  flame-agent record -d 5m -o all.folded           one line a stack, for scripts\n"
	"Needs root or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. Times are\n"
	"CPU time: what waits is not in the graph. Exit: 0 written, 1 failed, 2 wrong usage,\n"
	"3 written, but no process matched the filter.\n";

typedef int write_fn(const struct record_conf *c, const struct profile *p, struct buf *out);

static int write_folded(const struct record_conf *c, const struct profile *p, struct buf *out)
{
	struct folded_options o = {
		.type = profile_default_type(p), .with_comm = c->processes_apart};

	return folded_write(p, &o, out);
}

static int write_pprof(const struct record_conf *c, const struct profile *p, struct buf *out)
{
	(void)c; /* has all labels whatever the options */
	return pprof_write(p, out);
}

static int write_svg(const struct record_conf *c, const struct profile *p, struct buf *out)
{
	_cleanup_(buf_done) struct buf title = BUF_INIT(512);
	struct svg_options o = {.type = profile_default_type(p), .with_comm = c->processes_apart};

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

static int write_profile(const struct record_conf *conf, struct summary *s, const struct profile *p)
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

static int write_summary(const struct record_conf *conf, const struct summary *s)
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
static int one_of(const struct record_conf *conf, struct summary *s, size_t i, bool *ret_last)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	_cleanup_(record_results_done) struct record_results results = {0};
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

/* *ret_matched: the last window saw a process that the filter lets pass, or there is none. */
static int record_all(const struct record_conf *conf, const char *version, const char *fault,
	struct summary_window *windows, bool *ret_matched)
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
		*ret_matched = s.thread_count > 0 || !filter_is_any(&conf->filter);
	}
	return e;
}

/* Where fetched debug files are kept, if they are to be; "" else. */
static int find_fetched_dir(const struct record_conf *conf, char ret[PATH_MAX])
{
	const char *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	bool has_cache = cache && *cache == '/'; /* the XDG specification: others are ignored */
	int n;

	ret[0] = '\0';
	if (conf->debuginfod_urls.count == 0)
		return 0;
	if (!has_cache && (!home || *home != '/'))
		return -ENOENT;
	n = snprintf(ret, PATH_MAX, "%s%s/flame-agent/debug", has_cache ? cache : home,
		has_cache ? "" : "/.cache");
	return n > 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* What the last window missed. The process goes on when we are gone, for half a minute at most. */
static void fetch(const struct record_conf *conf)
{
	struct debuginfod_options o = {.dir = conf->fetched_dir,
		.urls = conf->debuginfod_urls.str,
		.url_count = conf->debuginfod_urls.count};
	struct child child;
	int e = conf->fetched_dir ? debuginfod_start(&o, true, &child) : -ENOENT;

	if (e == 0) {
		closep(&child.pidfd);
		if (!conf->quiet)
			log_info("record", "fetch debug files",
				"dir=%s hint=\"in the background: the next recording has their "
				"names\"",
				o.dir);
	} else if (e != -ENOENT && e != -EBUSY) {
		log_warn("record", "fetch debug files", e, "dir=%s", o.dir);
	}
}

/* Exit code. */
static int record(const struct record_conf *conf, const char *version, const char *fault)
{
	bool matched = true;
	struct summary_window *windows = calloc(conf->repeat, sizeof(*windows));
	int e = windows ? record_all(conf, version, fault, windows, &matched) : -ENOMEM;

	free(windows);
	fetch(conf);
	return e < 0 ? RECORD_EXIT_FAILED : matched ? RECORD_EXIT_OK : RECORD_EXIT_NOTHING;
}

/* What can be refused before anything is loaded. Exit code. */
static int check(const struct record_conf *conf)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(8192);
	struct filter_resolved resolved;
	const char *url;
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
	if (!containers_runtime_is_good(conf->container_runtime, &why)) {
		(void)fprintf(stderr, "flame-agent: --container-runtime: %s\n", buf_str(&why));
		return RECORD_EXIT_USAGE;
	}
	const char *complaint = debug_files_complaint(conf->debug_dirs.str, conf->debug_dirs.count);

	if (complaint) {
		(void)fprintf(stderr, "flame-agent: --debug-dir '%s': %s\n",
			conf->debug_dirs.str[0], complaint);
		return RECORD_EXIT_USAGE;
	}
	complaint =
		debuginfod_complaint(conf->debuginfod_urls.str, conf->debuginfod_urls.count, &url);
	if (complaint) {
		(void)fprintf(stderr, "flame-agent: --debuginfod-url '%s': %s\n", url, complaint);
		return RECORD_EXIT_USAGE;
	}
	e = conf->ready_fd > 0 ? preflight_ready_fd((int)conf->ready_fd, &why) : 0;
	for (size_t s = 0; e == 0 && s < FILTER_SIDES; s++)
		e = preflight_pids(
			conf->filter.sides[s].pids, conf->filter.sides[s].pid_count, &why);
	if (e == 0)
		e = filter_check(&conf->filter, &why);
	if (e == 0)
		e = filter_resolve(&conf->filter, &why, &resolved);
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

int record_help(struct buf *out)
{
	int r = opts_help(specs, out);

	return r < 0 ? r : buf_printf(out, "\n%s", examples);
}

int record_main(int argc, char **argv, const char *version)
{
	_cleanup_(opts_done) struct opts opts = {0};
	_cleanup_(freep) struct record_conf *conf = calloc(1, sizeof(*conf));
	char fetched_dir[PATH_MAX];
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
	conf->filter = filter_of(&conf->filter_options);
	conf->processes = (struct processes_options){.service = "", .max = RECORD_PROCESSES_MAX};
	r = check(conf);
	if (r != RECORD_EXIT_OK)
		return r;
	r = find_fetched_dir(conf, fetched_dir);
	if (r < 0)
		log_warn("record", "find a place for debug files", r,
			"hint=\"set HOME or XDG_CACHE_HOME\"");
	conf->fetched_dir = r == 0 && *fetched_dir ? fetched_dir : NULL;
	return record(conf, version, fault);
}
