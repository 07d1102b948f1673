/* What agent daemon and backend left is read strictly, and judged against the agent's own windows. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "lab/judge.h"
#include "prof/pprof.h"
#include "prof/push.h"
#include "tests/unit/lab/synthetic.h"

static const char result[] =
	"{\"schema\":\"flamelab-fleet/1\",\"play\":\"loop\",\"error\":\"\",\"agent_exit\":0,"
	"\"backend_exit\":\"signal 9\",\"bpf_before\":1,\"bpf_dormant_max\":2,"
	"\"bpf_sampling_max\":16,\"bpf_after\":3,\"dormant_ns\":4,\"dormant_cpu_ns\":5,"
	"\"dormant_memory_bytes\":6,\"commands\":7,\"commands_done\":8,\"backend_kills\":9,"
	"\"windows_resent\":10,\"spool_windows_max\":11,\"stored_profiles\":12,"
	"\"verify_faults\":13,\"duplicates\":14,\"spool_limit\":17,\"windows_made\":18,"
	"\"windows_dropped\":19,\"windows_dropped_early\":20,\"windows_dropped_told\":21,"
	"\"pushes_refused\":22,\"pushes_cut\":23,\"pushes_early\":24,\"ingested_profiles\":25,"
	"\"ingest_cpu_ns\":26,\"memory_bytes\":[15,16]}";

Test(fleet, result_is_read_whole)
{
	struct fleet_result f;

	cr_assert_eq(fleet_parse(&f, "f", result, sizeof(result) - 1), 0, "%s", f.doc.message);
	cr_assert_str_eq(f.agent_exit, "0");
	cr_assert_str_eq(f.backend_exit, "signal 9");
	cr_assert_eq(f.bpf_after, 3);
	cr_assert_eq(f.stored, 12);
	cr_assert_eq(f.dropped_told, 21);
	cr_assert_eq(f.ingest_cpu_ns, 26);
	cr_assert_eq(f.memory_count, 2);
	cr_assert_eq(f.memory[1], 16);
	fleet_done(&f);
}

Test(fleet, missing_number_refuses_the_file)
{
	static const char cut[] = "{\"schema\":\"flamelab-fleet/1\",\"bpf_before\":1}";
	struct fleet_result f;

	cr_assert_eq(fleet_parse(&f, "f", cut, sizeof(cut) - 1), -EBADMSG);
	cr_assert_str_eq(f.doc.message, "f: bpf_dormant_max: is missing");
	fleet_done(&f);
}

/* A spool file with the synthetic profile under service "work" and once more under "other". */
static void append_window(struct buf *out, const struct profile *p)
{
	_cleanup_(buf_done) struct buf pprof = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf push = BUF_INIT(1 << 20);
	struct push_label work = {"service_name", "work"}, other = {"service_name", "other"};
	struct push_sample sample = {.id = "x"};
	struct push_series series[] = {
		{&work, 1, &sample, 1},
		{&other, 1, &sample, 1},
	};
	struct push_request q = {series, 2};

	cr_assert_eq(pprof_write(p, &pprof), 0);
	sample.profile = pprof.data;
	sample.profile_size = pprof.size;
	cr_assert_eq(push_write(&q, &push), 0);
	(void)buf_append_str(out, "FLSPOOL1");
	for (unsigned int i = 0; i < 8; i++)
		(void)buf_append_char(out, (char)(push.size >> (8 * i)));
	(void)buf_append(out, "hashhash", 8);
	(void)buf_append(out, push.data, push.size);
	cr_assert_eq(buf_error(out), 0);
}

Test(fleet, windows_are_summed_for_one_service_and_counted_for_all)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	struct fleet_windows w;
	struct evidence e;
	const char *why;

	synthetic_run(&e, 70 * NSEC_PER_MSEC, 30 * NSEC_PER_MSEC, 70, 30, "main");
	append_window(&b, e.profile);
	append_window(&b, e.profile);
	cr_assert_eq(fleet_windows_read(b.data, b.size, "work", &why, &w), 0, "%s", why);
	cr_assert_eq(w.windows, 2);
	cr_assert_eq(w.profiles, 4);
	cr_assert_float_eq(w.weight_ns, 200e6, 0.5);
	cr_assert_float_eq(w.samples, 200, 0.5);
	evidence_done(&e);
}

Test(fleet, cut_windows_are_refused_at_every_length)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	struct fleet_windows w;
	struct evidence e;
	const char *why;

	synthetic_run(&e, 70 * NSEC_PER_MSEC, 30 * NSEC_PER_MSEC, 7, 3, "main");
	append_window(&b, e.profile);
	for (size_t size = 1; size < b.size; size++)
		cr_assert_eq(
			fleet_windows_read(b.data, size, "work", &why, &w), -EBADMSG, "%zu", size);
	evidence_done(&e);
}

/* --- gates */

/* A run in which all went well. */
static void well(struct evidence *e)
{
	synthetic_run(e, 70 * NSEC_PER_MSEC, 30 * NSEC_PER_MSEC, 70, 30, "main");
	e->is_fleet = e->has_fleet = e->has_windows = true;
	e->windows = (struct fleet_windows){.windows = 1,
		.profiles = 6,
		.weight_ns = 100e6,
		.samples = 100,
		.frequency_hz = 1000};
	e->fleet = (struct fleet_result){.error = "",
		.agent_exit = "0",
		.backend_exit = "0",
		.bpf_sampling_max = 16,
		.commands = 1,
		.commands_done = 1,
		.stored = 6};
}

typedef void judge_fn(struct gate *g, const struct evidence *e, size_t count);

static enum gate_status judged(judge_fn *judge, struct evidence *e)
{
	_cleanup_(gate_list_done) struct gate_list l = {0};
	struct gate *g = gate_add(&l, GATE_FLEET, "s", "", GATE_REQUIRED);

	judge(g, e, 1);
	gate_decide(g);
	return g->status;
}

Test(fleet, good_run_passes_all_its_gates)
{
	struct evidence e;

	well(&e);
	cr_assert_eq(judged(judge_fleet, &e), GATE_PASS);
	cr_assert_eq(judged(judge_arrived, &e), GATE_PASS);
	cr_assert_eq(judged(judge_kept, &e), GATE_PASS);
	cr_assert_eq(judged(judge_unloaded, &e), GATE_PASS);
	evidence_done(&e);
}

Test(fleet, lost_profile_and_one_counted_twice_fail)
{
	struct evidence e;

	well(&e);
	e.fleet.stored = 5;
	cr_assert_eq(judged(judge_kept, &e), GATE_FAIL);
	e.fleet.stored = 7;
	cr_assert_eq(judged(judge_kept, &e), GATE_FAIL);
	e.fleet.stored = 6;
	e.fleet.verify_faults = 1;
	cr_assert_eq(judged(judge_kept, &e), GATE_FAIL);
	evidence_done(&e);
}

Test(fleet,
	push_before_retry_after_is_over_fails_and_a_cut_one_that_never_came_again_proves_nothing)
{
	struct evidence e;

	well(&e);
	e.fleet.refused = 2;
	e.fleet.cut = 2;
	e.fleet.duplicates = 12;
	cr_assert_eq(judged(judge_kept, &e), GATE_PASS);
	e.fleet.duplicates = 0;
	cr_assert_eq(judged(judge_kept, &e), GATE_UNMEASURED);
	e.fleet.duplicates = 12;
	e.fleet.early = 1;
	cr_assert_eq(judged(judge_kept, &e), GATE_FAIL);
	evidence_done(&e);
}

/* Of 18 windows with 6 profiles each, the spool kept the last 6 and the agent says so. */
static void bounded(struct evidence *e)
{
	well(e);
	e->windows.windows = 6;
	e->windows.profiles = e->fleet.stored = 36;
	e->fleet.spool_limit = e->fleet.spool_max = 6;
	e->fleet.windows_made = 18;
	e->fleet.dropped = e->fleet.dropped_told = 12;
}

Test(fleet, spool_within_its_limit_that_drops_the_oldest_and_tells_passes)
{
	struct evidence e;

	bounded(&e);
	cr_assert_eq(judged(judge_spool, &e), GATE_PASS);
	e.fleet.spool_max = 7; /* one of them is not taken in yet */
	cr_assert_eq(judged(judge_spool, &e), GATE_PASS);
	evidence_done(&e);
}

Test(fleet, spool_above_its_limit_fails_and_one_that_never_reached_it_proves_nothing)
{
	struct evidence e;

	bounded(&e);
	e.fleet.spool_max = 8;
	cr_assert_eq(judged(judge_spool, &e), GATE_FAIL);
	e.fleet.spool_max = 6;
	e.fleet.windows_made = 6;
	cr_assert_eq(judged(judge_spool, &e), GATE_UNMEASURED);
	e.fleet.spool_limit = 0;
	cr_assert_eq(judged(judge_spool, &e), GATE_UNMEASURED);
	evidence_done(&e);
}

Test(fleet, spool_that_drops_silently_or_a_newer_one_first_fails)
{
	struct evidence e;

	bounded(&e);
	e.fleet.dropped_told = 11;
	cr_assert_eq(judged(judge_spool, &e), GATE_FAIL);
	e.fleet.dropped_told = 12;
	e.fleet.dropped_early = 1;
	cr_assert_eq(judged(judge_spool, &e), GATE_FAIL);
	e.fleet.dropped_early = 0;
	e.fleet.stored = 35;
	cr_assert_eq(judged(judge_spool, &e), GATE_FAIL);
	evidence_done(&e);
}

Test(fleet, ingestion_is_instructions_per_profile_and_needs_500_that_are_stored)
{
	_cleanup_(gate_list_done) struct gate_list l = {0};
	struct gate *g = gate_add(&l, GATE_INGESTION, "s", "", GATE_PLATFORM);
	struct evidence e;
	double cost = 0;

	well(&e);
	e.fleet.ingested = e.fleet.stored = 500;
	e.fleet.ingest_cpu_ns = 1000000;
	cr_assert(judge_ingestion(g, &e, 1, &cost));
	cr_assert_float_eq(cost, 1000, 1e-9, "2 ns an instruction at shift 1");
	cr_assert_eq(g->check_count, 0, "the caller compares it");
	e.fleet.stored = 499;
	cr_assert(judge_ingestion(g, &e, 1, &cost));
	gate_decide(g);
	cr_assert_eq(g->status, GATE_FAIL);
	e.fleet.ingested = 499;
	cr_assert_not(judge_ingestion(g, &e, 1, &cost));
	evidence_done(&e);
}

Test(fleet, answer_that_is_a_nanosecond_off_fails)
{
	struct evidence e;

	well(&e);
	e.windows.weight_ns += 1;
	cr_assert_eq(judged(judge_arrived, &e), GATE_FAIL);
	evidence_done(&e);
}

Test(fleet, failed_play_fails_and_proves_nothing_else)
{
	struct evidence e;

	well(&e);
	e.fleet.error = "waited in vain: the request's end";
	cr_assert_eq(judged(judge_fleet, &e), GATE_FAIL);
	cr_assert_eq(judged(judge_kept, &e), GATE_UNMEASURED);
	evidence_done(&e);
}

Test(fleet, object_that_stays_loaded_fails_and_an_eye_that_saw_none_proves_nothing)
{
	struct evidence e;

	well(&e);
	e.fleet.bpf_after = 1;
	cr_assert_eq(judged(judge_unloaded, &e), GATE_FAIL);
	e.fleet.bpf_after = 0;
	e.fleet.bpf_sampling_max = 0;
	cr_assert_eq(judged(judge_unloaded, &e), GATE_UNMEASURED);
	evidence_done(&e);
}

Test(fleet, dormant_agent_is_held_to_one_percent_and_100_mb)
{
	struct evidence e;

	well(&e);
	cr_assert_eq(judged(judge_dormant, &e), GATE_UNMEASURED);
	e.fleet.dormant_ns = 1000;
	e.fleet.dormant_cpu_ns = 10;
	e.fleet.dormant_memory = 100000000;
	cr_assert_eq(judged(judge_dormant, &e), GATE_PASS);
	e.fleet.dormant_cpu_ns = 11;
	cr_assert_eq(judged(judge_dormant, &e), GATE_FAIL);
	e.fleet.dormant_cpu_ns = 10;
	e.fleet.dormant_memory++;
	cr_assert_eq(judged(judge_dormant, &e), GATE_FAIL);
	e.fleet.dormant_memory = 1;
	e.fleet.bpf_dormant_max = 1;
	cr_assert_eq(judged(judge_unloaded, &e), GATE_FAIL);
	evidence_done(&e);
}

Test(fleet, memory_that_grows_with_the_commands_fails)
{
	struct evidence e;

	well(&e);
	e.fleet.memory_count = 40;
	for (size_t i = 0; i < 40; i++)
		e.fleet.memory[i] = i < 10 ? 100000 * i : 1000000; /* filling caches is allowed */
	cr_assert_eq(judged(judge_unloaded, &e), GATE_PASS);
	for (size_t i = 0; i < 40; i++)
		e.fleet.memory[i] += 4096 * i;
	cr_assert_eq(judged(judge_unloaded, &e), GATE_FAIL);
	evidence_done(&e);
}
