/* The judged numbers and the JSON that programs read. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>

#include "agent/summary.h"

static struct collect_thread threads[] = {
	{.key = {.tid = 10, .start_ns = 1234567890123456},
		.value = {.cpu_ns = 4000000000,
			.exec_ns = 3990000000,
			.tgid = 9,
			.samples = 400,
			.sampled_ns = 4100000000,
			.sampled_sq = 400ULL * 10000 * 10000,
			.switches_voluntary = 2,
			.comm = "<a>\xff"}},
	{.key = {.tid = 11}, .value = {.blocked_s_ns = 5, .state = 1}},
};

static struct summary_window windows[] = {{.anon_bytes = 1, .heap_bytes = 2, .cpu_ns = 3}};

static struct summary fixture(void)
{
	struct summary s = {
		.version = "v1",
		.fault = "",
		.frequency_hz = 100,
		.jitter_seed = 3,
		.totals = {.window_ns = 10000000000,
			.cpus = 1,
			.taken = {410, 4100000000},
			.idle = {580, 5800000000},
			.filtered = {10, 100000000},
			.taken_sq = 410ULL * 10000 * 10000,
			.switches_missed = 4},
		.profile = {.samples = 410, .weight_ns = 4100000000},
		.threads = threads,
		.thread_count = 2,
		.windows = windows,
		.window_count = 1,
	};

	s.totals.losses[SAMPLE_LOSS_RING_FULL] = (struct sample_count){7, 70};
	s.totals.ends[SAMPLE_END_NO_FP] = 12;
	summary_judge(&s);
	return s;
}

Test(summary, judges_rate_ledger_and_deviation)
{
	struct summary s = fixture();

	cr_assert_float_eq(s.frequency_real_hz, 100, 1e-9);
	cr_assert_eq(s.ledger_cpu_ns, 4000000000);
	cr_assert_eq(s.ledger_exec_ns, 3990000000);
	/* sqrt(0.6 * 410) samples of 10 ms. */
	cr_assert_float_eq(s.sigma_ns, 1e7 * 15.684, 1e5);
	cr_assert_float_eq(s.deviation_sigmas, 1e8 / s.sigma_ns, 1e-6);
}

Test(summary, an_empty_recording_judges_to_zero)
{
	struct summary s = {.version = "", .fault = "", .frequency_hz = 1};

	summary_judge(&s);
	cr_assert_eq(s.frequency_real_hz, 0);
	cr_assert_eq(s.deviation_sigmas, 0);
}

static double number(const cJSON *o, const char *name)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, name);

	cr_assert(cJSON_IsNumber(n), "%s", name);
	return n->valuedouble;
}

Test(summary, json_has_what_the_lab_reads)
{
	struct summary s = fixture();
	struct buf out = BUF_INIT(1 << 20);
	cJSON *o, *row, *ledger;

	cr_assert_eq(summary_json(&s, &out), 0);
	o = cJSON_Parse(buf_str(&out));
	cr_assert_not_null(o);
	cr_assert_str_eq(cJSON_GetObjectItem(o, "schema")->valuestring, "flame-record/1");
	cr_assert_str_eq(cJSON_GetObjectItem(o, "event")->valuestring, "cpu-clock");
	cr_assert_null(cJSON_GetObjectItem(o, "fault"));
	cr_assert_eq(number(o, "samples"), 410);
	cr_assert_eq(number(o, "samples_idle"), 580);
	cr_assert_eq(number(o, "weight_ns"), 4100000000);
	cr_assert_eq(number(o, "ledger_switches_missed"), 4);
	cr_assert_eq(number(cJSON_GetObjectItem(cJSON_GetObjectItem(o, "losses"), "ring_full"),
			     "samples"),
		7);
	cr_assert_eq(number(cJSON_GetObjectItem(o, "stack_ends"), "no_fp"), 12);
	cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(o, "stack_ends")), SAMPLE_END_COUNT);
	cr_assert_str_eq(cJSON_GetObjectItem(o, "unwind")->valuestring, "fp");
	cr_assert_null(cJSON_GetObjectItem(o, "tables"));
	ledger = cJSON_GetObjectItem(o, "ledger");
	cr_assert_eq(cJSON_GetArraySize(ledger), 1, "a thread that only slept is left out");
	row = cJSON_GetArrayItem(ledger, 0);
	cr_assert_eq(number(row, "tid"), 10);
	cr_assert_eq(number(row, "cpu_ns"), 4000000000);
	cr_assert_eq(number(row, "exec_ns"), 3990000000);
	cr_assert_str_eq(cJSON_GetObjectItem(row, "comm")->valuestring, "<a>\xef\xbf\xbd");
	cr_assert_not_null(strstr(buf_str(&out), "\"start_ns\":1234567890123456,"), "exact");
	cr_assert_eq(
		number(cJSON_GetArrayItem(cJSON_GetObjectItem(o, "windows"), 0), "heap_bytes"), 2);
	cJSON_Delete(o);
	buf_done(&out);
}

Test(summary, text_tells_of_losses_by_reason)
{
	struct summary s = fixture();
	struct buf out = BUF_INIT(65536);

	cr_assert_eq(summary_text(&s, &out), 0);
	cr_assert_not_null(strstr(buf_str(&out), "ring_full 7 samples"));
	cr_assert_not_null(strstr(buf_str(&out), "cpu-clock at 100 Hz"));
	buf_done(&out);
}

Test(summary, text_says_how_far_the_profile_is_from_the_ledger)
{
	struct summary s = fixture();
	struct buf out = BUF_INIT(65536);

	cr_assert_eq(summary_text(&s, &out), 0);
	cr_assert_not_null(strstr(buf_str(&out), "the profile has 100 ms more (+0.6 sigma, "), "%s",
		buf_str(&out));
	cr_assert_not_null(strstr(buf_str(&out), "12 cut at code without frame pointers"));
	cr_assert_null(strstr(buf_str(&out), "too deep"), "what did not happen is left out");
	s.profile.weight_ns = 1000000000;
	summary_judge(&s);
	buf_done(&out);
	out = (struct buf)BUF_INIT(65536);
	cr_assert_eq(summary_text(&s, &out), 0);
	cr_assert_not_null(strstr(buf_str(&out), " less ("), "%s", buf_str(&out));
	cr_assert_not_null(strstr(buf_str(&out), "more than chance"));
	buf_done(&out);
	s.totals.ledger_lost = 1;
	out = (struct buf)BUF_INIT(65536);
	cr_assert_eq(summary_text(&s, &out), 0);
	cr_assert_not_null(strstr(buf_str(&out), "the ledger lacks threads"));
	buf_done(&out);
}

Test(summary, facts_travel_in_the_profile)
{
	struct summary s = fixture();
	struct profile *p;

	s.fault = "swap";
	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(summary_facts(&s, p), 0);
	cr_assert_str_eq(profile_fact(p, "event"), "cpu-clock");
	cr_assert_str_eq(profile_fact(p, "version"), "v1");
	cr_assert_str_eq(profile_fact(p, "lost.ring_full"), "7");
	cr_assert_str_eq(profile_fact(p, "lost_ns"), "70");
	cr_assert_str_eq(profile_fact(p, "fault"), "swap");
	profile_free(p);
}

Test(summary, tables_are_told_when_there_are_some)
{
	struct summary s = fixture();
	struct buf out = BUF_INIT(1 << 20);
	cJSON *o;

	s.totals.has_tables = true;
	s.totals.deferred = 31;
	s.totals.deferred_no_slot = 3;
	s.totals.tables.bytes = 4096;
	cr_assert_eq(summary_json(&s, &out), 0);
	o = cJSON_Parse(buf_str(&out));
	cr_assert_not_null(o);
	cr_assert_str_eq(cJSON_GetObjectItem(o, "unwind")->valuestring, "cfi");
	cr_assert_eq(number(cJSON_GetObjectItem(o, "tables"), "deferred"), 31);
	cr_assert_eq(number(cJSON_GetObjectItem(o, "tables"), "deferred_no_slot"), 3);
	cr_assert_eq(number(cJSON_GetObjectItem(o, "tables"), "bytes"), 4096);
	cJSON_Delete(o);
	buf_done(&out);
}
