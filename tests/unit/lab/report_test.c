/* Reports: hostile names stay text in every format, and figures are written as they are. */
#include <criterion/criterion.h>

#include "base/def.h"
#include "lab/json.h"
#include "lab/report.h"
#include "lab/report_internal.h"
#include "synthetic.h"

static const char evil[] = "</td><script>alert(1)</script>\"'&;\x01\x1b[2J|`\xff";

static struct scenario scenario;
static struct campaign campaign;
static struct campaign_item item;
static struct plan_boot plan_boot;
static struct boots_item boot;
static struct job_step step = {.name = "made_up.s1"};

static void setup(void)
{
	struct gate *g;

	synthetic_scenario(&scenario);
	item = (struct campaign_item){.plan = {.scenario = &scenario}};
	plan_boot.job = (struct job){.steps = &step, .step_count = 1};
	boot = (struct boots_item){.job = &plan_boot.job, .name = "made_up.0", .ran = true};
	boot.outcome.end = VM_CRASHED;
	(void)snprintf(boot.outcome.reason, sizeof(boot.outcome.reason), "%s", evil);
	item.plan.boots = &plan_boot;
	item.plan.boot_count = 1;
	item.boots = &boot;
	item.infrastructure = 1;
	g = gate_add(&item.gates, GATE_SHARE, "made_up", "", GATE_REQUIRED);
	gate_check_near(g, "%", 70, 10, 1, "%s", evil);
	gate_decide(g);
	g = gate_add(&item.gates, GATE_LOSSES, "made_up", "", GATE_REQUIRED);
	gate_unmeasured(g, "%s", evil);
	gate_decide(g);
	g = gate_add(&item.gates, GATE_SUM, "made_up", "", GATE_REQUIRED);
	gate_check_near(g, "ns", 5, 5, 0, "fine");
	gate_decide(g);
	campaign = (struct campaign){.items = &item, .count = 1};
	campaign.counts = policy_count(&item.gates);
	campaign.counts.infrastructure = 1;
}

static void teardown(void)
{
	gate_list_done(&item.gates);
	scenario_done(&scenario);
}

TestSuite(report, .init = setup, .fini = teardown);

/* Runs a program over the text; 0 means it accepts it. */
static int check_with(const char *command, const struct buf *b)
{
	FILE *p = popen(command, "we");

	cr_assert_not_null(p);
	cr_assert_eq(fwrite(b->data, 1, b->size, p), b->size);
	return pclose(p);
}

Test(report, junit_is_well_formed_with_hostile_names_and_counts_what_happened)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	cr_assert_eq(report_junit(&campaign, &b), 0);
	cr_assert_not_null(strstr(b.data, "tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""));
	cr_assert_null(strstr(b.data, "<script>"));
	cr_assert_not_null(strstr(b.data, "&lt;script&gt;"));
	for (size_t i = 0; i < b.size; i++)
		cr_assert((unsigned char)b.data[i] >= 0x20 || b.data[i] == '\n');
	cr_assert_eq(check_with("xmllint --noout - 2>/dev/null || exit 1", &b), 0);
}

Test(report, junit_messages_are_capped)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	char big[5000];

	memset(big, '<', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	cr_assert_eq(report_xml(&b, big, 100), 0);
	cr_assert_leq(b.size, 100 * strlen("&lt;"));
}

Test(report, html_shows_hostile_names_as_text_and_loads_nothing)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	cr_assert_eq(report_html(&campaign, &b), 0);
	cr_assert_null(strstr(b.data, "<script"));
	cr_assert_null(strstr(b.data, "http:"));
	cr_assert_null(strstr(b.data, "https:"));
	cr_assert_not_null(strstr(b.data, "Content-Security-Policy"));
	cr_assert_not_null(strstr(b.data, "&lt;script&gt;"));
}

Test(report, json_files_parse_and_hold_the_verdicts)
{
	int (*const writers[])(const struct campaign *, struct buf *) = {
		report_results, report_certificate, report_timings};

	for (size_t i = 0; i < ARRAY_SIZE(writers); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
		_cleanup_(json_done) struct json j = {0};

		cr_assert_eq(writers[i](&campaign, &b), 0);
		cr_assert_eq(json_parse(&j, "x", b.data, b.size), 0, "%s", j.message);
	}
}

Test(report, results_have_no_times_of_day_and_no_host_times)
{
	_cleanup_(buf_done) struct buf a = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);

	cr_assert_eq(report_results(&campaign, &a), 0);
	(void)snprintf(campaign.started, sizeof(campaign.started), "2031-01-01T00:00:00Z");
	boot.outcome.host_ns = 123456789;
	cr_assert_eq(report_results(&campaign, &b), 0);
	cr_assert_str_eq(a.data, b.data);
}

Test(report, a_certificate_with_a_red_gate_is_not_valid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	cr_assert_eq(report_certificate(&campaign, &b), 0);
	cr_assert_not_null(strstr(b.data, "\"valid\": false"));
	cr_assert_not_null(strstr(b.data, "real-hardware overhead: unmeasured"));
	cr_assert_not_null(strstr(b.data, "\"signature\": \"unsigned\""));
}

Test(report, markdown_cells_hold_no_markup)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	size_t lines = 0;

	cr_assert_eq(report_markdown(&campaign, &b), 0);
	cr_assert_null(strstr(b.data, "<script"));
	for (size_t i = 0; i < b.size; i++)
		lines += b.data[i] == '\n';
	cr_assert_eq(lines, 4 + 2 + 3);
}

Test(report, failures_are_said_again_and_what_holds_is_not)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	cr_assert_eq(report_failures(&campaign, &b), 0);
	cr_assert_eq(strncmp(b.data, "FAIL: made_up share ", 20), 0);
	cr_assert_not_null(strstr(b.data, "\nunmeasured: made_up losses "));
	cr_assert_null(strstr(b.data, "fine"));
}

Test(report, last_line_counts_unmeasured_and_excused_as_skipped)
{
	struct policy_counts n = {
		.passed = 3, .failed = 1, .unmeasured = 2, .excused = 4, .skipped = 1};
	_cleanup_(buf_done) struct buf b = BUF_INIT(1024);

	cr_assert_eq(report_last_line(&n, &b), 0);
	cr_assert_str_eq(b.data, "3 passed, 1 failed, 7 skipped\n");
}

Test(report, base64_pads_as_rfc_4648)
{
	static const char *const rows[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
		{"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(1024);

		report_base64(&b, rows[i][0], strlen(rows[i][0]));
		cr_assert_str_eq(buf_str(&b), rows[i][1]);
	}
}
