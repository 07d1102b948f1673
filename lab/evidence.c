/*
 * See evidence.h. agent.json and meters.json are read by field: unknown fields are allowed, so that
 * agent and guest can report more than this lab knows, but a known field that is missing or of
 * another type refuses the file, because a gate would then compare with zero.
 */
#include "lab/evidence.h"

#include <errno.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"
#include "prof/pprof.h"

static const uint64_t evidence_max = 1ULL << 53;
static const size_t evidence_profile_max = 256U << 20;

static uint64_t evidence_u64(const struct json_at *parent, const char *name)
{
	struct json_at at = json_need(parent, name);

	return json_u64(&at, 0, 0, evidence_max);
}

static int64_t evidence_i64(const struct json_at *parent, const char *name)
{
	struct json_at at = json_need(parent, name);

	return json_i64(&at, 0, -(int64_t)evidence_max, (int64_t)evidence_max);
}

static void evidence_read_losses(const struct json_at *root, struct evidence_agent *a)
{
	struct json_at at = json_need(root, "losses"), field;
	const char *name;
	size_t i = 0;

	while (json_next_field(&at, &i, &field, &name)) {
		struct evidence_loss *l = &a->losses[a->loss_count];

		if (a->loss_count == EVIDENCE_LOSSES_MAX) {
			json_fail(&at, "has more than %d reasons", EVIDENCE_LOSSES_MAX);
			return;
		}
		l->reason = name;
		l->samples = evidence_u64(&field, "samples");
		l->weight_ns = evidence_u64(&field, "weight_ns");
		a->loss_count++;
	}
}

static void evidence_read_thread(const struct json_at *at, struct evidence_thread *t)
{
	static const char *const times[] = {"cpu_ns", "runnable_ns", "blocked_s_ns", "blocked_d_ns",
		"blocked_other_ns", "sampled_ns", "sigma_ns"};
	int64_t v[ARRAY_SIZE(times)];
	struct json_at field;

	t->tid = (uint32_t)evidence_u64(at, "tid");
	t->tgid = (uint32_t)evidence_u64(at, "tgid");
	field = json_need(at, "comm");
	t->comm = json_text(&field, "", 0, 256);
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		v[i] = evidence_i64(at, times[i]);
		t->time_min_ns = i ? MIN(t->time_min_ns, v[i]) : v[i];
	}
	t->cpu_ns = v[0];
	t->exec_ns = evidence_i64(at, "exec_ns");
	t->time_min_ns = MIN(t->time_min_ns, t->exec_ns);
	t->blocked_s_ns = v[2];
	t->switches = evidence_u64(at, "switches_voluntary");
	t->switches += evidence_u64(at, "switches_involuntary");
	t->runnable_ns = v[1];
	t->blocked_ns = v[2] + v[3] + v[4];
	t->sampled_ns = v[5];
	t->sigma_ns = v[6];
}

static int evidence_read_lists(const struct json_at *root, struct evidence_agent *a)
{
	struct json_at at = json_need(root, "ledger"), item;
	size_t n = json_array(&at, 0, EVIDENCE_LEDGER_MAX);

	a->ledger = calloc(n + 1, sizeof(*a->ledger));
	if (!a->ledger)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		item = json_item(&at, i);
		evidence_read_thread(&item, &a->ledger[i]);
	}
	a->ledger_count = n;
	at = json_field(root, "windows");
	n = json_array(&at, 0, EVIDENCE_WINDOWS_MAX);
	a->window_memory = calloc(n + 1, sizeof(*a->window_memory));
	if (!a->window_memory)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		item = json_item(&at, i);
		a->window_memory[i] = evidence_u64(&item, "heap_bytes");
	}
	a->window_count = n;
	return 0;
}

static void evidence_read_own(const struct json_at *root, struct evidence_agent *a)
{
	struct json_at at = json_need(root, "symbols");

	a->frames = evidence_u64(&at, "frames");
	a->unresolved = evidence_u64(&at, "unresolved");
	a->kernel_frames = evidence_u64(&at, "kernel_frames");
	a->kernel_unresolved = evidence_u64(&at, "kernel_unresolved");
	a->files_failed = evidence_u64(&at, "files_failed");
	a->helper_restarts = evidence_u64(&at, "helper_restarts");
	at = json_need(root, "own");
	a->cpu_start_ns = evidence_u64(&at, "cpu_start_ns");
	a->cpu_window_ns = evidence_u64(&at, "cpu_window_ns");
	a->cpu_flush_ns = evidence_u64(&at, "cpu_flush_ns");
	a->rss_peak = evidence_u64(&at, "rss_peak_bytes");
	a->bpf_memory = evidence_u64(&at, "bpf_memory_bytes");
	a->perf_rings = evidence_u64(&at, "perf_ring_bytes");
	a->bpf_run_ns = evidence_u64(&at, "bpf_run_ns");
	a->bpf_run_count = evidence_u64(&at, "bpf_run_count");
}

static int evidence_agent_finish(struct evidence_agent *a)
{
	static const char *const schemas[] = {"flame-record/1", NULL};
	struct json_at root = json_root(&a->doc), field;
	int r;

	if (!json_open_object(&root))
		return -EBADMSG;
	field = json_need(&root, "schema");
	(void)json_choice(&field, 0, schemas); /* only the failure counts */
	field = json_need(&root, "event");
	a->event = json_text(&field, "", 1, 128);
	field = json_need(&root, "version");
	a->version = json_text(&field, "", 0, 128);
	field = json_need(&root, "profile_sha256");
	a->profile_sha256 = json_text(&field, "", 64, 64);
	field = json_need(&root, "frequency_real_hz");
	a->frequency_real_hz = json_f64(&field, 0, 0, 1e9);
	field = json_need(&root, "deviation_sigmas");
	a->deviation_sigmas = json_f64(&field, 0, -1e9, 1e9);
	a->frequency_hz = evidence_u64(&root, "frequency_hz");
	a->cpus = evidence_u64(&root, "cpus");
	a->window_ns = evidence_u64(&root, "window_ns");
	a->samples = evidence_u64(&root, "samples");
	a->weight_ns = evidence_u64(&root, "weight_ns");
	a->weight_idle_ns = evidence_u64(&root, "weight_idle_ns");
	a->weight_filtered_ns = evidence_u64(&root, "weight_filtered_ns");
	a->sigma_ns = evidence_u64(&root, "sigma_ns");
	a->ledger_cpu_ns = evidence_u64(&root, "ledger_cpu_ns");
	evidence_read_losses(&root, a);
	evidence_read_own(&root, a);
	r = evidence_read_lists(&root, a);
	if (r < 0)
		json_fail(&root, "%s", strerror(-r));
	return json_failed(&a->doc) ? -EBADMSG : 0;
}

int evidence_agent_parse(struct evidence_agent *a, const char *file, const void *data, size_t size)
{
	int r;

	*a = (struct evidence_agent){0};
	r = json_parse(&a->doc, file, data, size);
	return r < 0 ? r : evidence_agent_finish(a);
}

void evidence_agent_done(struct evidence_agent *a)
{
	json_done(&a->doc);
	free(a->ledger);
	free(a->window_memory);
	*a = (struct evidence_agent){0};
}

static int evidence_read_series(const struct json_at *root, struct evidence_meters *m)
{
	struct json_at at = json_field(root, "memory_series_bytes"), item;
	size_t n = json_array(&at, 0, EVIDENCE_SERIES_MAX);

	m->memory_series = calloc(n + 1, sizeof(*m->memory_series));
	if (!m->memory_series)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		item = json_item(&at, i);
		m->memory_series[i] = json_u64(&item, 0, 0, evidence_max);
	}
	m->memory_series_count = n;
	return 0;
}

void evidence_meters_done(struct evidence_meters *m)
{
	json_done(&m->doc);
	free(m->memory_series);
	*m = (struct evidence_meters){0};
}

static int evidence_meters_finish(struct evidence_meters *m)
{
	static const char *const schemas[] = {"flamelab-meters/1", NULL};
	struct json_at root = json_root(&m->doc), field;

	if (!json_open_object(&root))
		return -EBADMSG;
	field = json_need(&root, "schema");
	(void)json_choice(&field, 0, schemas); /* only the failure counts */
	json_exit(&root, "agent_exit", m->agent_exit);
	json_exit(&root, "workload_exit", m->workload_exit);
	m->agent_start_ns = evidence_u64(&root, "agent_cpu_start_ns");
	m->agent_window_ns = evidence_u64(&root, "agent_cpu_window_ns");
	m->agent_flush_ns = evidence_u64(&root, "agent_cpu_flush_ns");
	m->window_wall_ns = evidence_u64(&root, "window_wall_ns");
	m->workload_wall_ns = evidence_u64(&root, "workload_wall_ns");
	m->workload_cpu_ns = evidence_u64(&root, "workload_cpu_ns");
	m->memory_peak = evidence_u64(&root, "memory_peak_bytes");
	m->memory_samples = evidence_u64(&root, "memory_samples");
	m->oom_kills = evidence_u64(&root, "oom_kills");
	m->bpf_run_ns = evidence_u64(&root, "bpf_run_ns");
	m->bpf_run_count = evidence_u64(&root, "bpf_run_count");
	field = json_field(&root, "sample_run_ns");
	m->sample_run_ns = json_u64(&field, 0, 0, evidence_max);
	field = json_field(&root, "sample_run_count");
	m->sample_run_count = json_u64(&field, 0, 0, evidence_max);
	field = json_need(&root, "timed_out");
	m->timed_out = json_bool(&field, false);
	if (evidence_read_series(&root, m) < 0)
		json_fail(&root, "out of memory");
	return json_failed(&m->doc) ? -EBADMSG : 0;
}

int evidence_meters_parse(
	struct evidence_meters *m, const char *file, const void *data, size_t size)
{
	int r;

	*m = (struct evidence_meters){0};
	r = json_parse(&m->doc, file, data, size);
	return r < 0 ? r : evidence_meters_finish(m);
}

/* Reads dir/name into b, or fills reason. */
static bool evidence_file(
	const struct evidence *e, const char *name, struct buf *b, char reason[EVIDENCE_REASON_MAX])
{
	char path[1024];
	int r;

	(void)snprintf(path, sizeof(path), "%s/%s", e->dir, name);
	r = file_read(path, b);
	if (r == 0)
		return true;
	(void)snprintf(reason, EVIDENCE_REASON_MAX, "%.90s: %.40s: %s", e->step, name,
		r == -ENOENT ? "was not written" : strerror(-r));
	return false;
}

static void evidence_load_profile(struct evidence *e)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(evidence_profile_max);
	const char *why = NULL;
	int r;

	if (!evidence_file(e, "profile.pb.gz", &b, e->no_profile))
		return;
	r = pprof_read(b.data, b.size, evidence_profile_max, &why, &e->profile);
	if (r == 0)
		r = file_sha256_mem(b.data, b.size, e->profile_sha256);
	e->has_profile = r == 0;
	if (r < 0)
		(void)snprintf(e->no_profile, sizeof(e->no_profile),
			"%.90s: profile.pb.gz: %s%s%.200s", e->step, strerror(-r), why ? ": " : "",
			why ? why : "");
}

static void evidence_load_agent(struct evidence *e)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(JSON_SIZE_MAX);
	char file[128];

	if (!evidence_file(e, "agent.json", &b, e->no_agent))
		return;
	(void)snprintf(file, sizeof(file), "%s/agent.json", e->step);
	e->has_agent = evidence_agent_parse(&e->agent, file, buf_str(&b), b.size) == 0;
	if (!e->has_agent)
		(void)snprintf(e->no_agent, sizeof(e->no_agent), "%.390s", e->agent.doc.message);
}

bool evidence_agent_failed(const struct evidence *e)
{
	const struct evidence_meters *m = &e->meters;
	bool ran = strcmp(m->workload_exit, "never ran") != 0;

	if (!e->has_meters || strcmp(m->agent_exit, "never ran") == 0)
		return false;
	/* At a deadline the agent is killed, too; its fault unless the workload was the one to hang. */
	return strcmp(m->agent_exit, "0") != 0 &&
	       !(m->timed_out && ran && strcmp(m->workload_exit, "0") != 0);
}

/* Only some steps leave it; its gate says so where it is missing. */
static void evidence_load_verifier(struct evidence *e)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(VERIFIER_LOG_MAX);
	int r;

	if (!evidence_file(e, "verifier.log", &b, e->no_verifier))
		return;
	r = verifier_parse(&e->verifier, buf_str(&b));
	e->has_verifier = r == 0;
	if (r < 0)
		(void)snprintf(e->no_verifier, sizeof(e->no_verifier),
			"%.90s: verifier.log does not come to an end", e->step);
}

/* What lies behind a missing file: the end of the one that should have written it. */
static void evidence_explain(struct evidence *e)
{
	const struct evidence_meters *m = &e->meters;
	char why[EVIDENCE_REASON_MAX];
	char *const all[] = {e->no_truth, e->no_agent, e->no_profile};
	const bool has[] = {e->has_truth, e->has_agent, e->has_profile};
	const char *late = m->timed_out ? "deadline passed, " : "";

	if (!e->has_meters)
		return;
	if (evidence_agent_failed(e))
		(void)snprintf(why, sizeof(why),
			"%.90s: %sagent ended with %.20s, see %.200s/agent.log", e->step, late,
			m->agent_exit, e->dir);
	else if (strcmp(m->workload_exit, "0") != 0)
		(void)snprintf(why, sizeof(why),
			"%.90s: %sworkload ended with %.20s, see %.200s/workload.log", e->step,
			late, m->workload_exit, e->dir);
	else
		return;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!has[i])
			(void)snprintf(all[i], EVIDENCE_REASON_MAX, "%s", why);
}

void evidence_load(struct evidence *e, const char *dir, const char *step, bool with_agent,
	const char *why_none)
{
	_cleanup_(buf_done) struct buf truth = BUF_INIT(JSON_SIZE_MAX);
	_cleanup_(buf_done) struct buf meters = BUF_INIT(JSON_SIZE_MAX);
	char file[128];

	*e = (struct evidence){0};
	(void)snprintf(e->step, sizeof(e->step), "%s", step);
	(void)snprintf(e->dir, sizeof(e->dir), "%.600s/%.90s", dir, step);
	if (why_none) {
		char *const all[] = {
			e->no_truth, e->no_agent, e->no_profile, e->no_meters, e->no_verifier};

		for (size_t i = 0; i < ARRAY_SIZE(all); i++)
			(void)snprintf(all[i], EVIDENCE_REASON_MAX, "%.390s", why_none);
		return;
	}
	if (evidence_file(e, "truth.json", &truth, e->no_truth)) {
		(void)snprintf(file, sizeof(file), "%s/truth.json", step);
		e->has_truth = truth_parse(&e->truth, file, buf_str(&truth), truth.size) == 0;
		if (!e->has_truth)
			(void)snprintf(
				e->no_truth, sizeof(e->no_truth), "%.390s", e->truth.doc.message);
	}
	if (evidence_file(e, "meters.json", &meters, e->no_meters)) {
		(void)snprintf(file, sizeof(file), "%s/meters.json", step);
		e->has_meters =
			evidence_meters_parse(&e->meters, file, buf_str(&meters), meters.size) == 0;
		if (!e->has_meters)
			(void)snprintf(e->no_meters, sizeof(e->no_meters), "%.390s",
				e->meters.doc.message);
	}
	/* A workload that failed may have written its truth before it did. */
	if (e->has_meters && strcmp(e->meters.workload_exit, "0") != 0)
		e->has_truth = false;
	if (with_agent) {
		evidence_load_agent(e);
		evidence_load_profile(e);
	}
	evidence_load_verifier(e);
	evidence_explain(e);
	if (with_agent)
		return;
	(void)snprintf(e->no_agent, sizeof(e->no_agent), "step has no agent");
	(void)snprintf(e->no_profile, sizeof(e->no_profile), "step has no agent");
}

static void evidence_load_windows(struct evidence *e, const char *service)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(evidence_profile_max);
	const char *why = "";
	int r;

	if (!evidence_file(e, "windows.spool", &b, e->no_windows))
		return;
	r = fleet_windows_read(b.data, b.size, service, &why, &e->windows);
	e->has_windows = r == 0;
	if (r < 0)
		(void)snprintf(e->no_windows, sizeof(e->no_windows),
			"%.90s: windows.spool: %s: %.200s", e->step, strerror(-r), why);
}

/* Only play power_cut leaves it; its gate says so where it is missing. */
static void evidence_load_power(struct evidence *e)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(JSON_SIZE_MAX);
	char file[128];

	if (!evidence_file(e, "power.json", &b, e->no_power))
		return;
	(void)snprintf(file, sizeof(file), "%s/power.json", e->step);
	e->has_power = power_parse(&e->power, file, buf_str(&b), b.size) == 0;
	if (!e->has_power)
		(void)snprintf(e->no_power, sizeof(e->no_power), "%.390s", e->power.doc.message);
}

void evidence_load_fleet(struct evidence *e, const char *dir, const char *step, const char *service,
	const char *why_none)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(JSON_SIZE_MAX);
	char file[128];

	evidence_load(e, dir, step, false, why_none);
	e->is_fleet = true;
	if (why_none) {
		(void)snprintf(e->no_fleet, sizeof(e->no_fleet), "%.390s", why_none);
		(void)snprintf(e->no_windows, sizeof(e->no_windows), "%.390s", why_none);
		(void)snprintf(e->no_power, sizeof(e->no_power), "%.390s", why_none);
		return;
	}
	evidence_load_power(e);
	(void)snprintf(e->no_agent, sizeof(e->no_agent), "a daemon writes no agent.json");
	evidence_load_profile(e);
	evidence_load_windows(e, service);
	if (!evidence_file(e, "fleet.json", &b, e->no_fleet))
		return;
	(void)snprintf(file, sizeof(file), "%s/fleet.json", step);
	e->has_fleet = fleet_parse(&e->fleet, file, buf_str(&b), b.size) == 0;
	if (!e->has_fleet)
		(void)snprintf(e->no_fleet, sizeof(e->no_fleet), "%.390s", e->fleet.doc.message);
}

void evidence_done(struct evidence *e)
{
	if (!e)
		return;
	truth_done(&e->truth);
	evidence_agent_done(&e->agent);
	evidence_meters_done(&e->meters);
	fleet_done(&e->fleet);
	power_done(&e->power);
	profile_free(e->profile);
	*e = (struct evidence){0};
}
