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
#include "base/map.h"
#include "base/opts.h"
#include "base/str.h"

#define PROFILE_BYTES_MAX (128UL << 20)
#define PIDS_MAX          65536
#define PF_KTHREAD        0x00200000UL /* include/linux/sched.h; field 9 of /proc/PID/stat */

struct conf {
	const char *spool_file;
	uint64_t start_ns, duration_ns;
	uint64_t frequency_hz, jitter_seed;
	const char *service;
	struct window_labels labels;
	struct opt_list pids, comms, cgroups;
};

static const struct opt_spec specs[] = {
	{"spool-file", 0, OPT_STR, offsetof(struct conf, spool_file), .arg = "FILE",
		.help = "internal"},
	{"start-ns", 0, OPT_U64, offsetof(struct conf, start_ns), .arg = "NS", .help = "internal"},
	{"duration-ns", 0, OPT_U64, offsetof(struct conf, duration_ns), .arg = "NS", .min = 1e6,
		.max = 86400e9, .help = "internal"},
	{"frequency", 0, OPT_U64, offsetof(struct conf, frequency_hz), .arg = "HZ", .min = 1,
		.max = EVENTS_FREQUENCY_MAX_HZ, .help = "internal"},
	{"jitter-seed", 0, OPT_U64, offsetof(struct conf, jitter_seed), .arg = "N",
		.help = "internal"},
	{"service", 0, OPT_STR, offsetof(struct conf, service), .arg = "NAME", .help = "internal"},
	{"instance", 0, OPT_STR, offsetof(struct conf, labels.instance), .arg = "ID",
		.help = "internal"},
	{"host", 0, OPT_STR, offsetof(struct conf, labels.host), .arg = "NAME", .help = "internal"},
	{"view", 0, OPT_STR, offsetof(struct conf, labels.view), .arg = "VIEW", .help = "internal"},
	{"recording", 0, OPT_STR, offsetof(struct conf, labels.recording), .arg = "ID",
		.help = "internal"},
	{"pid", 0, OPT_U64_LIST, offsetof(struct conf, pids), .arg = "PID", .help = "internal"},
	{"comm", 0, OPT_STR_LIST, offsetof(struct conf, comms), .arg = "COMM", .help = "internal"},
	{"cgroup", 0, OPT_STR_LIST, offsetof(struct conf, cgroups), .arg = "PATH",
		.help = "internal"},
	{0},
};

enum process_kind { PROCESS_UNKNOWN, PROCESS_USER, PROCESS_KERNEL, PROCESS_EXCLUDED };

/* Who a sample belongs to; a pid is looked up once. */
struct services {
	const struct conf *conf;
	struct map *kinds; /* pid -> enum process_kind */
};

static bool is_kernel_thread(int64_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	char path[64];
	const char *at;

	(void)snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
	if (file_read(path, &b) < 0)
		return false; /* it is gone: kernel threads stay */
	at = strrchr(buf_str(&b), ')');
	for (int field = 2; at && field < 9; field++)
		at = strchr(at + 1, ' ');
	return at && (strtoul(at, NULL, 10) & PF_KTHREAD);
}

/* The cgroup is one of those asked for, or below one. */
static bool is_in_cgroups(const struct opt_list *cgroups, int64_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(16384);
	char path[64];
	char *at;

	(void)snprintf(path, sizeof(path), "/proc/%lld/cgroup", (long long)pid);
	if (file_read(path, &b) < 0)
		return false;
	at = strstr(buf_str(&b), "0::/");
	if (!at)
		return false;
	at += 3;
	at[strcspn(at, "\n")] = '\0';
	for (size_t i = 0; i < cgroups->count; i++) {
		size_t n = strlen(cgroups->str[i]);

		if (strncmp(at, cgroups->str[i], n) == 0 &&
			(at[n] == '\0' || at[n] == '/' || (n > 0 && at[n - 1] == '/')))
			return true;
	}
	return false;
}

static enum process_kind look_up(const struct conf *conf, int64_t pid)
{
	if (conf->cgroups.count > 0 && !is_in_cgroups(&conf->cgroups, pid))
		return PROCESS_EXCLUDED;
	return is_kernel_thread(pid) ? PROCESS_KERNEL : PROCESS_USER;
}

static bool is_wanted_comm(const struct opt_list *comms, const char *comm)
{
	for (size_t i = 0; i < comms->count; i++)
		if (strcmp(comms->str[i], comm) == 0)
			return true;
	return comms->count == 0;
}

/*
 * The service is the configured one, else the process's name; kernel threads, of which each has a
 * name of its own, are the service "kernel".
 */
static const char *service_of(int64_t pid, const char *comm, void *data)
{
	struct services *s = data;
	uint64_t *kind;

	if (!is_wanted_comm(&s->conf->comms, comm))
		return NULL;
	kind = map_put(s->kinds, &pid, sizeof(pid), NULL);
	if (kind && *kind == PROCESS_UNKNOWN)
		*kind = look_up(s->conf, pid);
	if (kind && *kind == PROCESS_EXCLUDED)
		return NULL;
	if (*s->conf->service)
		return s->conf->service;
	if (kind && *kind == PROCESS_KERNEL)
		return "kernel";
	return *comm ? comm : "unknown";
}

static int check(const struct conf *conf)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(8192);
	int r = preflight_pids(conf->pids.u64, conf->pids.count, &why);

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
	_cleanup_(map_freep) struct map *kinds = map_new(PIDS_MAX);
	struct services services = {.conf = conf, .kinds = kinds};
	int r = kinds ? window_encode(p, &conf->labels, service_of, &services, &out, ret) : -ENOMEM;

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
		.pids = conf->pids.u64,
		.pid_count = conf->pids.count,
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
	result.kernel_bytes = s.totals.bpf_memory_bytes;
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
