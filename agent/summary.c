/* See summary.h. */
#include "agent/summary.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <sys/utsname.h>

#include "agent/ledger.h"
#include "base/def.h"
#include "base/str.h"

#define SUMMARY_EVENT "cpu-clock"
/* JSON has no infinity; a deviation without any sampling error is cut to this. */
#define DEVIATION_MAX 1e9

static const char *const loss_names[SAMPLE_LOSS_COUNT] = {
	[SAMPLE_LOSS_RING_FULL] = "ring_full",
	[SAMPLE_LOSS_MAP_FULL] = "map_full",
	[SAMPLE_LOSS_MAP_BUSY] = "map_busy",
	[SAMPLE_LOSS_LEDGER_FULL] = "ledger_full",
	[SAMPLE_LOSS_NESTED] = "nested",
};

static const char *const end_names[SAMPLE_END_COUNT] = {
	[SAMPLE_END_ROOT] = "root",
	[SAMPLE_END_NO_FP] = "no_fp",
	[SAMPLE_END_UNREADABLE] = "unreadable",
	[SAMPLE_END_DEPTH] = "depth",
	[SAMPLE_END_NO_USER] = "no_user",
	[SAMPLE_END_NO_TABLE] = "no_table",
	[SAMPLE_END_NO_MAPPING] = "no_mapping",
	[SAMPLE_END_NO_CFI] = "no_cfi",
	[SAMPLE_END_BROKEN_CFI] = "broken_cfi",
	[SAMPLE_END_TABLE_FULL] = "table_full",
	[SAMPLE_END_UNSUPPORTED] = "unsupported",
	[SAMPLE_END_BAD_CFA] = "bad_cfa",
	[SAMPLE_END_SHORT_COPY] = "short_copy",
};

const char *summary_loss_name(enum sample_loss loss)
{
	return loss_names[loss];
}

static uint64_t all_samples(const struct collect_totals *t)
{
	return t->taken.samples + t->idle.samples + t->filtered.samples;
}

/* CPU time in which samples were taken. */
static uint64_t sampled_time_ns(const struct collect_totals *t)
{
	uint64_t all_ns = t->window_ns * t->cpus;

	return all_ns - MIN(t->idle_withheld_ns, all_ns);
}

static struct ledger_window window_of(const struct summary *s)
{
	const struct collect_totals *t = &s->totals;
	uint64_t samples = all_samples(t);

	return (struct ledger_window){
		.window_ns = t->window_ns,
		.cpus = t->cpus,
		.period_ns = samples ? sampled_time_ns(t) / samples : t->window_ns,
		.tail_us = t->tail_us,
		.tail_sq = t->tail_sq,
	};
}

void summary_judge(struct summary *s)
{
	const struct collect_totals *t = &s->totals;
	struct ledger_window w = window_of(s);
	double seconds = (double)sampled_time_ns(t) / 1e9;
	double d;

	s->ledger_cpu_ns = 0;
	s->ledger_exec_ns = 0;
	for (size_t i = 0; i < s->thread_count; i++) {
		s->ledger_cpu_ns += s->threads[i].value.cpu_ns;
		s->ledger_exec_ns += s->threads[i].value.exec_ns;
	}
	s->frequency_real_hz = seconds > 0 ? (double)all_samples(t) / seconds : 0;
	s->sigma_ns = ledger_sigma_ns(&w, s->ledger_cpu_ns, t->taken_sq);
	d = ledger_deviation(s->profile.weight_ns, s->ledger_cpu_ns, s->sigma_ns);
	s->deviation_sigmas = MAX(MIN(d, DEVIATION_MAX), -DEVIATION_MAX);
}

double summary_thread_sigma_ns(const struct summary *s, size_t i)
{
	const struct ledger_value *v = &s->threads[i].value;
	struct ledger_window w = window_of(s);

	return ledger_sigma_ns(&w, v->cpu_ns, v->sampled_sq);
}

static uint64_t lost_ns(const struct summary *s)
{
	uint64_t ns = 0;

	for (int i = 0; i < SAMPLE_LOSS_COUNT; i++)
		if (i != SAMPLE_LOSS_LEDGER_FULL)
			ns += s->totals.losses[i].weight_ns;
	return ns;
}

int summary_facts(const struct summary *s, struct profile *p)
{
	const struct collect_totals *t = &s->totals;
	struct utsname u;
	int r = 0;

	(void)uname(&u); /* cannot fail with a valid address */
	r |= profile_set_fact(p, "version", s->version);
	r |= profile_set_fact(p, "host", u.nodename);
	r |= profile_set_fact(p, "kernel", u.release);
	r |= profile_set_fact(p, "event", SUMMARY_EVENT);
	r |= profile_set_factf(p, "frequency_hz", "%llu", (unsigned long long)s->frequency_hz);
	r |= profile_set_factf(p, "frequency_real_hz", "%.3f", s->frequency_real_hz);
	r |= profile_set_factf(p, "jitter_seed", "%llu", (unsigned long long)s->jitter_seed);
	r |= profile_set_factf(p, "cpus", "%llu", (unsigned long long)t->cpus);
	r |= profile_set_factf(p, "window_ns", "%llu", (unsigned long long)t->window_ns);
	r |= profile_set_factf(p, "ledger_cpu_ns", "%llu", (unsigned long long)s->ledger_cpu_ns);
	r |= profile_set_factf(p, "sigma_ns", "%.0f", s->sigma_ns);
	r |= profile_set_factf(p, "deviation_sigmas", "%.3f", s->deviation_sigmas);
	r |= profile_set_factf(p, "lost_ns", "%llu", (unsigned long long)lost_ns(s));
	for (int i = 0; i < SAMPLE_LOSS_COUNT; i++) {
		char key[32];

		(void)snprintf(key, sizeof(key), "lost.%s", loss_names[i]); /* fits */
		r |= profile_set_factf(p, key, "%llu", (unsigned long long)t->losses[i].samples);
	}
	r |= profile_set_fact(p, "unwind", t->has_tables ? "cfi" : "fp");
	if (s->symbols.go_unreadable)
		r |= profile_set_factf(
			p, "go_unreadable", "%llu", (unsigned long long)s->symbols.go_unreadable);
	if (s->symbols.debug_unreadable)
		r |= profile_set_factf(p, "debug_unreadable", "%llu",
			(unsigned long long)s->symbols.debug_unreadable);
	if (s->symbols.processes_past)
		r |= profile_set_factf(
			p, "processes_past", "%llu", (unsigned long long)s->symbols.processes_past);
	if (s->symbols.processes_gone)
		r |= profile_set_factf(
			p, "processes_gone", "%llu", (unsigned long long)s->symbols.processes_gone);
	if (s->fault[0])
		r |= profile_set_fact(p, "fault", s->fault);
	return r ? -ENOMEM : 0;
}

/* cJSON numbers are doubles: exact up to 2^53, in ns more than 100 days. */
static void put(cJSON *o, const char *name, uint64_t value)
{
	(void)cJSON_AddNumberToObject(o, name, (double)value); /* a failure shows in printing */
}

static cJSON *json_losses(const struct summary *s)
{
	cJSON *o = cJSON_CreateObject();

	for (int i = 0; i < SAMPLE_LOSS_COUNT; i++) {
		cJSON *loss = cJSON_AddObjectToObject(o, loss_names[i]);

		put(loss, "samples", s->totals.losses[i].samples);
		put(loss, "weight_ns", s->totals.losses[i].weight_ns);
	}
	return o;
}

static cJSON *json_ends(const struct summary *s)
{
	cJSON *o = cJSON_CreateObject();

	for (int i = 0; i < SAMPLE_END_COUNT; i++)
		put(o, end_names[i], s->totals.ends[i]);
	return o;
}

static cJSON *json_tables(const struct collect_totals *t)
{
	const struct tables_stats *y = &t->tables;
	cJSON *o = cJSON_CreateObject();

	put(o, "deferred", t->deferred);
	put(o, "deferred_no_slot", t->deferred_no_slot);
	put(o, "bytes", y->bytes);
	put(o, "budget_bytes", y->budget_bytes);
	put(o, "chunks", y->chunks);
	put(o, "chunks_no_cfi", y->chunks_no_cfi);
	put(o, "chunks_broken", y->chunks_broken);
	put(o, "chunks_full", y->chunks_full);
	put(o, "files", y->files);
	put(o, "files_failed", y->files_failed);
	put(o, "processes", y->processes);
	put(o, "processes_gone", y->processes_gone);
	put(o, "mappings", y->mappings);
	put(o, "evictions", y->evictions);
	put(o, "misses", y->misses);
	put(o, "rows", y->rows);
	put(o, "rules", y->rules);
	return o;
}

static cJSON *json_thread(const struct summary *s, size_t i)
{
	const struct collect_thread *t = &s->threads[i];
	const struct ledger_value *v = &t->value;
	_cleanup_(buf_done) struct buf comm = BUF_INIT(256);
	cJSON *o = cJSON_CreateObject();

	/* Each byte may become three; fits. */
	(void)str_append_utf8(&comm, v->comm, strnlen(v->comm, sizeof(v->comm)), 64);
	put(o, "tid", t->key.tid);
	put(o, "tgid", v->tgid);
	put(o, "start_ns", t->key.start_ns);
	(void)cJSON_AddStringToObject(o, "comm", buf_str(&comm)); /* shows in printing */
	put(o, "cpu_ns", v->cpu_ns);
	put(o, "exec_ns", v->exec_ns);
	put(o, "runnable_ns", v->runnable_ns);
	put(o, "blocked_s_ns", v->blocked_s_ns);
	put(o, "blocked_d_ns", v->blocked_d_ns);
	put(o, "blocked_other_ns", v->blocked_other_ns);
	put(o, "switches_voluntary", v->switches_voluntary);
	put(o, "switches_involuntary", v->switches_involuntary);
	put(o, "samples", v->samples);
	put(o, "sampled_ns", v->sampled_ns);
	put(o, "sigma_ns", (uint64_t)summary_thread_sigma_ns(s, i));
	return o;
}

static cJSON *json_ledger(const struct summary *s)
{
	cJSON *a = cJSON_CreateArray();

	for (size_t i = 0; i < s->thread_count; i++)
		if (ledger_was_active(&s->threads[i].value))
			(void)cJSON_AddItemToArray(a, json_thread(s, i)); /* NULL is refused */
	return a;
}

static cJSON *json_symbols(const struct summary *s)
{
	const struct symbolizer_stats *y = &s->symbols;
	cJSON *o = cJSON_CreateObject();

	put(o, "frames", y->frames);
	put(o, "resolved", y->resolved);
	put(o, "unresolved", y->unresolved);
	put(o, "kernel_frames", y->kernel_frames);
	put(o, "kernel_unresolved", y->kernel_unresolved);
	put(o, "inlined", y->inlined);
	put(o, "files", y->files);
	put(o, "files_failed", y->files_failed);
	put(o, "requests", y->requests);
	put(o, "lines_requests", y->lines_requests);
	put(o, "lines_failed", y->lines_failed);
	put(o, "debug_unreadable", y->debug_unreadable);
	put(o, "go_unreadable", y->go_unreadable);
	put(o, "helper_restarts", y->helper_restarts);
	put(o, "lines_restarts", y->lines_restarts);
	put(o, "processes_gone", y->processes_gone);
	put(o, "processes_past", y->processes_past);
	return o;
}

static cJSON *json_own(const struct summary *s)
{
	cJSON *o = cJSON_CreateObject();

	put(o, "cpu_start_ns", s->own_cpu_start_ns);
	put(o, "cpu_window_ns", s->own_cpu_window_ns);
	put(o, "cpu_flush_ns", s->own_cpu_flush_ns);
	put(o, "rss_peak_bytes", s->own_rss_peak_bytes);
	put(o, "bpf_memory_bytes", s->totals.bpf_memory_bytes);
	put(o, "perf_ring_bytes", s->own_rings_bytes);
	put(o, "bpf_run_ns", s->totals.bpf_run_ns);
	put(o, "bpf_run_count", s->totals.bpf_run_count);
	return o;
}

static cJSON *json_cpus(const struct summary *s)
{
	cJSON *a = cJSON_CreateArray();

	for (size_t i = 0; i < s->cpu_count; i++) {
		cJSON *o = cJSON_CreateObject();

		put(o, "cpu", s->cpus[i].cpu);
		put(o, "samples", s->cpus[i].samples);
		put(o, "gap_max_ns", s->cpus[i].gap_max_ns);
		(void)cJSON_AddItemToArray(a, o); /* NULL is refused */
	}
	return a;
}

static cJSON *json_windows(const struct summary *s)
{
	cJSON *a = cJSON_CreateArray();

	for (size_t i = 0; i < s->window_count; i++) {
		cJSON *o = cJSON_CreateObject();

		put(o, "anon_bytes", s->windows[i].anon_bytes);
		put(o, "heap_bytes", s->windows[i].heap_bytes);
		put(o, "cpu_ns", s->windows[i].cpu_ns);
		(void)cJSON_AddItemToArray(a, o); /* NULL is refused */
	}
	return a;
}

static void fill_json(const struct summary *s, cJSON *o)
{
	const struct collect_totals *t = &s->totals;

	/* Each may fail without memory; then an item is missing, as the lab's reader notices. */
	(void)cJSON_AddStringToObject(o, "schema", "flame-record/1");
	(void)cJSON_AddStringToObject(o, "version", s->version);
	if (s->fault[0])
		(void)cJSON_AddStringToObject(o, "fault", s->fault);
	(void)cJSON_AddStringToObject(o, "event", SUMMARY_EVENT);
	put(o, "frequency_hz", s->frequency_hz);
	(void)cJSON_AddNumberToObject(o, "frequency_real_hz", s->frequency_real_hz);
	put(o, "jitter_seed", s->jitter_seed);
	put(o, "cpus", t->cpus);
	put(o, "window_ns", t->window_ns);
	put(o, "samples", s->profile.samples);
	put(o, "samples_idle", t->idle.samples);
	put(o, "samples_filtered", t->filtered.samples);
	put(o, "weight_ns", s->profile.weight_ns);
	put(o, "weight_idle_ns", t->idle.weight_ns);
	put(o, "idle_withheld_ns", t->idle_withheld_ns);
	put(o, "weight_filtered_ns", t->filtered.weight_ns);
	put(o, "sigma_ns", (uint64_t)s->sigma_ns);
	put(o, "ledger_cpu_ns", s->ledger_cpu_ns);
	put(o, "ledger_exec_ns", s->ledger_exec_ns);
	put(o, "ledger_switches", t->switches);
	put(o, "ledger_lost", t->ledger_lost);
	put(o, "ledger_switches_missed", t->switches_missed);
	put(o, "bpf_run_misses", t->run_misses);
	(void)cJSON_AddNumberToObject(o, "deviation_sigmas", s->deviation_sigmas);
	put(o, "stacks_missing", s->profile.stacks_missing);
	put(o, "records_bad", t->records_bad);
	(void)cJSON_AddItemToObject(o, "losses", json_losses(s));
	(void)cJSON_AddItemToObject(o, "stack_ends", json_ends(s));
	(void)cJSON_AddStringToObject(o, "unwind", t->has_tables ? "cfi" : "fp");
	if (t->has_tables)
		(void)cJSON_AddItemToObject(o, "tables", json_tables(t));
	(void)cJSON_AddItemToObject(o, "ledger", json_ledger(s));
	(void)cJSON_AddItemToObject(o, "symbols", json_symbols(s));
	(void)cJSON_AddItemToObject(o, "own", json_own(s));
	(void)cJSON_AddItemToObject(o, "per_cpu", json_cpus(s));
	(void)cJSON_AddItemToObject(o, "windows", json_windows(s));
	(void)cJSON_AddStringToObject(o, "profile_sha256", s->profile_sha256);
}

int summary_json(const struct summary *s, struct buf *out)
{
	cJSON *o = cJSON_CreateObject();
	char *text;
	int r;

	fill_json(s, o);
	text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	if (!text)
		return -ENOMEM;
	r = buf_append_str(out, text);
	cJSON_free(text);
	return r < 0 ? r : buf_append_char(out, '\n');
}

static void text_losses(const struct summary *s, struct buf *out)
{
	char human[STR_HUMAN_MAX];
	bool any = false;

	(void)buf_append_str(out, "  losses    ");
	for (int i = 0; i < SAMPLE_LOSS_COUNT; i++) {
		const struct sample_count *l = &s->totals.losses[i];

		if (l->samples == 0)
			continue;
		(void)buf_printf(out, " %s %llu samples (%s)", loss_names[i],
			(unsigned long long)l->samples, str_human_ns(l->weight_ns, human));
		any = true;
	}
	if (s->totals.ledger_lost) {
		(void)buf_printf(
			out, " ledger %llu switches", (unsigned long long)s->totals.ledger_lost);
		any = true;
	}
	if (s->profile.stacks_missing) {
		(void)buf_printf(out, " frames of %llu stacks",
			(unsigned long long)s->profile.stacks_missing);
		any = true;
	}
	(void)buf_append_str(out, any ? "\n" : " none\n");
}

/* How many stacks reach down to their thread's first frame, and why the others do not. */
static void text_ends(const struct summary *s, struct buf *out)
{
	static const char *const words[SAMPLE_END_COUNT] = {
		[SAMPLE_END_ROOT] = "complete",
		[SAMPLE_END_NO_FP] = "cut at code without frame pointers",
		[SAMPLE_END_UNREADABLE] = "not readable",
		[SAMPLE_END_DEPTH] = "too deep",
		[SAMPLE_END_NO_USER] = "kernel only",
		[SAMPLE_END_NO_TABLE] = "without a table in time",
		[SAMPLE_END_NO_MAPPING] = "cut at an address in no mapping",
		[SAMPLE_END_NO_CFI] = "cut at code without unwind information",
		[SAMPLE_END_BROKEN_CFI] = "cut at broken unwind information",
		[SAMPLE_END_TABLE_FULL] = "cut for want of table memory",
		[SAMPLE_END_UNSUPPORTED] = "cut at an unsupported rule",
		[SAMPLE_END_BAD_CFA] = "cut where the stack made no sense",
		[SAMPLE_END_SHORT_COPY] = "deeper than was kept",
	};

	(void)buf_append_str(out, "  stacks     ");
	for (int i = 0; i < SAMPLE_END_COUNT; i++)
		if (s->totals.ends[i] || i == SAMPLE_END_ROOT)
			(void)buf_printf(out, "%s%llu %s", i == SAMPLE_END_ROOT ? "" : ", ",
				(unsigned long long)s->totals.ends[i], words[i]);
	(void)buf_append_char(out, '\n');
}

static void text_tables(const struct summary *s, struct buf *out)
{
	const struct collect_totals *t = &s->totals;
	char a[STR_HUMAN_MAX];

	if (!t->has_tables)
		return;
	(void)buf_printf(out, "  unwind     tables of %llu files, %s; %llu samples waited for one",
		(unsigned long long)t->tables.files, str_human_bytes(t->tables.bytes, a),
		(unsigned long long)t->deferred);
	if (t->deferred_no_slot)
		(void)buf_printf(out, ", %llu could not", (unsigned long long)t->deferred_no_slot);
	(void)buf_append_char(out, '\n');
}

/* The profile against the ledger, in words: 4 sigma are what chance does not do. */
static void text_ledger(const struct summary *s, struct buf *out)
{
	int64_t off_ns = (int64_t)(s->profile.weight_ns - s->ledger_cpu_ns);
	char a[STR_HUMAN_MAX];
	char b[STR_HUMAN_MAX];

	(void)buf_printf(out,
		"  ledger     %s on CPU by the scheduler's switches; the profile has %s %s "
		"(%+.1f sigma%s)\n",
		str_human_ns(s->ledger_cpu_ns, a),
		str_human_ns((uint64_t)(off_ns < 0 ? -off_ns : off_ns), b),
		off_ns < 0 ? "less" : "more", s->deviation_sigmas,
		s->totals.ledger_lost                                 ? ": the ledger lacks threads"
		: s->deviation_sigmas > 4 || s->deviation_sigmas < -4 ? ": more than chance"
								      : ", sampling error");
}

static void text_own(const struct summary *s, struct buf *out)
{
	const struct collect_totals *t = &s->totals;
	char a[STR_HUMAN_MAX];
	char b[STR_HUMAN_MAX];
	char c[STR_HUMAN_MAX];

	(void)buf_printf(out, "  own CPU    start %s, window %s, end %s",
		str_human_ns(s->own_cpu_start_ns, a), str_human_ns(s->own_cpu_window_ns, b),
		str_human_ns(s->own_cpu_flush_ns, c));
	if (t->bpf_run_count)
		(void)buf_printf(out, "; BPF %s in %llu runs", str_human_ns(t->bpf_run_ns, a),
			(unsigned long long)t->bpf_run_count);
	(void)buf_printf(out,
		"\n  own memory %s resident at most, %s in the kernel, plus perf rings %s\n",
		str_human_bytes(s->own_rss_peak_bytes, a), str_human_bytes(t->bpf_memory_bytes, b),
		str_human_bytes(s->own_rings_bytes, c));
}

/* The buffer keeps its first error, which summary_text returns. */
int summary_text(const struct summary *s, struct buf *out)
{
	const struct collect_totals *t = &s->totals;
	const struct symbolizer_stats *y = &s->symbols;
	char a[STR_HUMAN_MAX];
	char b[STR_HUMAN_MAX];

	(void)buf_printf(out,
		"  event      " SUMMARY_EVENT " at %llu Hz on %llu CPUs, really %.1f Hz, "
		"for %s\n",
		(unsigned long long)s->frequency_hz, (unsigned long long)t->cpus,
		s->frequency_real_hz, str_human_ns(t->window_ns, a));
	(void)buf_printf(out, "  samples    %llu for %s of CPU time; CPUs idle %s",
		(unsigned long long)s->profile.samples, str_human_ns(s->profile.weight_ns, a),
		str_human_ns(t->idle.weight_ns, b));
	if (t->filtered.samples)
		(void)buf_printf(
			out, "; other processes %s", str_human_ns(t->filtered.weight_ns, a));
	(void)buf_append_char(out, '\n');
	text_ledger(s, out);
	text_losses(s, out);
	text_ends(s, out);
	text_tables(s, out);
	(void)buf_printf(out,
		"  symbols    %llu of %llu user and %llu of %llu kernel frames have names, "
		"from %llu files",
		(unsigned long long)y->resolved, (unsigned long long)y->frames,
		(unsigned long long)(y->kernel_frames - y->kernel_unresolved),
		(unsigned long long)y->kernel_frames, (unsigned long long)y->files);
	if (y->files_failed)
		(void)buf_printf(
			out, "; %llu could not be read", (unsigned long long)y->files_failed);
	if (y->go_unreadable)
		(void)buf_printf(out, "; Go's table of %llu is of no known version",
			(unsigned long long)y->go_unreadable);
	if (y->debug_unreadable)
		(void)buf_printf(out, "; debug information of %llu is unreadable",
			(unsigned long long)y->debug_unreadable);
	(void)buf_append_char(out, '\n');
	text_own(s, out);
	return buf_error(out);
}
