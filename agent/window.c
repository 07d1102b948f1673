/*
 * See window.h: the process that makes one window. What a command asked for comes in as arguments,
 * one each, never through a shell.
 */
#include "agent/window.h"

#include <errno.h>

#include "agent/events.h"
#include "agent/own.h"
#include "agent/preflight.h"
#include "agent/record.h"
#include "agent/spool.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/opts.h"

#define PROFILE_BYTES_MAX (128UL << 20)

struct conf {
	const char *spool_file, *tables_file;
	uint64_t start_ns, duration_ns;
	uint64_t frequency_hz, jitter_seed;
	int unwind; /* enum record_unwind */
	uint64_t unwind_table_mb;
	int lines; /* enum symbolizer_lines */
	struct opt_list debug_dirs;
	const char *fetched_dir;
	const char *service;
	struct window_labels labels;
	const char *container_runtime, *containers_file;
	struct filter_options filter_options;
	struct opt_list service_rules;
	struct service_rule rules[SERVICE_RULES_MAX]; /* parsed */
};

static const struct opt_spec specs[] = {
	{"spool-file", 0, OPT_STR, offsetof(struct conf, spool_file), .arg = "FILE",
		.help = "internal"},
	{"tables-file", 0, OPT_STR, offsetof(struct conf, tables_file), .arg = "FILE",
		.help = "internal"},
	{"start-ns", 0, OPT_U64, offsetof(struct conf, start_ns), .arg = "NS", .help = "internal"},
	{"duration-ns", 0, OPT_U64, offsetof(struct conf, duration_ns), .arg = "NS", .min = 1e6,
		.max = 86400e9, .help = "internal"},
	{"frequency", 0, OPT_U64, offsetof(struct conf, frequency_hz), .arg = "HZ", .min = 1,
		.max = EVENTS_FREQUENCY_MAX_HZ, .help = "internal"},
	{"jitter-seed", 0, OPT_U64, offsetof(struct conf, jitter_seed), .arg = "N",
		.help = "internal"},
	{"unwind", 0, OPT_ENUM, offsetof(struct conf, unwind), .arg = "HOW", .def = "cfi",
		.choices = "cfi|fp", .help = "internal"},
	{"unwind-table-mb", 0, OPT_U64, offsetof(struct conf, unwind_table_mb), .arg = "MB",
		.def = "24", .min = TABLES_BUDGET_MB_MIN, .max = RECORD_UNWIND_TABLE_MB_MAX,
		.help = "internal"},
	{"lines", 0, OPT_ENUM, offsetof(struct conf, lines), .arg = "WHICH", .def = "function",
		.choices = "function|line", .help = "internal"},
	{"service", 0, OPT_STR, offsetof(struct conf, service), .arg = "NAME", .help = "internal"},
	{"instance", 0, OPT_STR, offsetof(struct conf, labels.instance), .arg = "ID",
		.help = "internal"},
	{"host", 0, OPT_STR, offsetof(struct conf, labels.host), .arg = "NAME", .help = "internal"},
	{"view", 0, OPT_STR, offsetof(struct conf, labels.view), .arg = "VIEW", .help = "internal"},
	{"recording", 0, OPT_STR, offsetof(struct conf, labels.recording), .arg = "ID",
		.help = "internal"},
	{"container-runtime", 0, OPT_STR, offsetof(struct conf, container_runtime), .arg = "HOW",
		.def = "off", .help = "internal"},
	{"containers-file", 0, OPT_STR, offsetof(struct conf, containers_file), .arg = "FILE",
		.help = "internal"},
	FILTER_OPTION_ROWS(struct conf, filter_options),
	{"debug-dir", 0, OPT_STR_LIST, offsetof(struct conf, debug_dirs), .arg = "DIR",
		.help = "where separate debug files are"},
	{"fetched-dir", 0, OPT_STR, offsetof(struct conf, fetched_dir), .arg = "DIR",
		.help = "internal"},
	{"service-rule", 0, OPT_STR_LIST, offsetof(struct conf, service_rules), .arg = "RULE",
		.help = "internal"},
	{0},
};

static int check(struct conf *conf)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(8192);
	int r = conf->service_rules.count > SERVICE_RULES_MAX ? -E2BIG : 0;

	for (size_t i = 0; r == 0 && i < conf->service_rules.count; i++)
		r = service_rule_parse(conf->service_rules.str[i], &why, &conf->rules[i]);
	for (size_t s = 0; r == 0 && s < FILTER_SIDES; s++)
		r = preflight_pids(
			conf->filter_options.pids[s].u64, conf->filter_options.pids[s].count, &why);
	if (r == 0)
		r = preflight_system(&why);
	if (r < 0)
		log_error("window", "start", r, "why=\"%s\"", buf_str(&why));
	return r;
}

static int encode_and_store(
	const struct conf *conf, const struct profile *p, struct window_result *ret)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(SPOOL_WINDOW_BYTES_MAX);
	int r = window_encode(p, &conf->labels, &out, ret);

	if (r < 0) {
		log_error("window", "encode", r, "samples=%zu", profile_sample_count(p));
		return r;
	}
	if (ret->series == 0)
		return 0;
	r = spool_write(conf->spool_file, out.data, out.size);
	if (r < 0)
		log_error("window", "write spool file", r, "file=%s", conf->spool_file);
	return r;
}

static int make(const struct conf *conf, const char *version)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct record_request q = {
		.start_ns = conf->start_ns,
		.duration_ns = conf->duration_ns,
		.frequency_hz = conf->frequency_hz,
		.jitter_seed = conf->jitter_seed,
		.unwind = (enum record_unwind)conf->unwind,
		.unwind_table_mb = conf->unwind_table_mb,
		.lines = (enum symbolizer_lines)conf->lines,
		.debug_dirs = &conf->debug_dirs,
		.fetched_dir = conf->fetched_dir,
		.tables_file = conf->tables_file,
		.container_runtime = conf->container_runtime,
		.containers_file = conf->containers_file,
		.filter = filter_of(&conf->filter_options),
		.processes = {.service = conf->service,
			.rules = conf->rules,
			.rule_count = conf->service_rules.count},
	};
	struct window_result result = {.magic = WINDOW_RESULT_MAGIC};
	struct summary s = {0};
	int r = profile_new(PROFILE_BYTES_MAX, &p);

	if (r == 0)
		r = record_profile(&q, version, p, &s);
	if (r == -ECANCELED)
		return file_write_all(STDOUT_FILENO, &result, sizeof(result));
	if (r == 0)
		r = encode_and_store(conf, p, &result);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(s.totals.losses); i++)
		result.samples_lost += s.totals.losses[i].samples;
	result.cpu_ns = own_cpu_ns(0);
	result.rss_peak_bytes = own_rss_peak_bytes();
	result.kernel_bytes = s.totals.bpf_memory_bytes + s.own_rings_bytes;
	return file_write_all(STDOUT_FILENO, &result, sizeof(result));
}

int window_main(int argc, char **argv, const char *version)
{
	_cleanup_(opts_done) struct opts opts = {0};
	_cleanup_(freep) struct conf *conf = calloc(1, sizeof(*conf));
	int operands = argc;
	int r = conf ? opts_init(&opts, specs, conf) : -ENOMEM;

	if (r == 0)
		r = opts_parse_argv(&opts, argc, argv, &operands);
	if (r == 0 &&
		(operands < argc || !conf->spool_file || !conf->service || !conf->labels.instance ||
			!conf->labels.host || !conf->labels.view || !conf->labels.recording ||
			conf->duration_ns == 0 || conf->frequency_hz == 0))
		r = -EINVAL;
	if (r != 0) {
		log_error("window", "read arguments", r, "why=\"%s\"", buf_str(&opts.message));
		return RECORD_EXIT_USAGE;
	}
	r = check(conf);
	if (r == 0)
		r = make(conf, version);
	return r < 0 ? RECORD_EXIT_FAILED : RECORD_EXIT_OK;
}
