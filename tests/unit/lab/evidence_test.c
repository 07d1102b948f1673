/* What agent and guest report: a known field that is missing refuses the file. */
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"
#include "lab/evidence.h"

static const char meters[] =
	"{\"schema\":\"flamelab-meters/1\",\"agent_exit\":\"signal 9\",\"workload_exit\":null,"
	"\"agent_cpu_start_ns\":1,\"agent_cpu_window_ns\":2,\"agent_cpu_flush_ns\":3,"
	"\"window_wall_ns\":4,\"workload_wall_ns\":5,\"workload_cpu_ns\":6,"
	"\"memory_peak_bytes\":7,\"memory_samples\":8,\"oom_kills\":0,\"bpf_run_ns\":9,"
	"\"bpf_run_count\":10,\"timed_out\":false,\"later_field\":1}";

Test(evidence, meters_are_read_and_unknown_fields_allowed)
{
	struct evidence_meters m;

	cr_assert_eq(
		evidence_meters_parse(&m, "m", meters, sizeof(meters) - 1), 0, "%s", m.doc.message);
	cr_assert_str_eq(m.agent_exit, "signal 9");
	cr_assert_str_eq(m.workload_exit, "never ran");
	cr_assert_eq(m.workload_cpu_ns, 6);
	json_done(&m.doc);
}

Test(evidence, missing_meter_refuses_the_file)
{
	static const char cut[] =
		"{\"schema\":\"flamelab-meters/1\",\"agent_exit\":0,\"workload_exit\":0,"
		"\"agent_cpu_start_ns\":1}";
	struct evidence_meters m;

	cr_assert_lt(evidence_meters_parse(&m, "m", cut, sizeof(cut) - 1), 0);
	cr_assert_str_eq(m.doc.message, "m: agent_cpu_window_ns: is missing");
	json_done(&m.doc);
}

Test(evidence, step_without_files_has_reasons_instead)
{
	struct evidence e;

	evidence_load(&e, "/nonexistent", "a.step", true, NULL);
	cr_assert(!e.has_truth && !e.has_agent && !e.has_profile && !e.has_meters);
	cr_assert_str_eq(e.no_truth, "a.step: truth.json: was not written");
	cr_assert_str_eq(e.no_profile, "a.step: profile.pb.gz: was not written");
	evidence_done(&e);
	evidence_load(&e, "/nonexistent", "a.step", true, "VM crashed: panic");
	cr_assert_str_eq(e.no_meters, "VM crashed: panic");
	evidence_done(&e);
}

/* Loads a step of which only meters.json is there, with these ends. */
static void ends(struct evidence *e, const char *agent, const char *workload, bool timed_out)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	char dir[] = "/tmp/flamelab-evidence.XXXXXX", path[128];

	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(
		buf_printf(&b,
			"{\"schema\":\"flamelab-meters/1\",\"agent_exit\":%s,\"workload_exit\":%s,"
			"\"agent_cpu_start_ns\":1,\"agent_cpu_window_ns\":2,\"agent_cpu_flush_ns\":"
			"3,"
			"\"window_wall_ns\":4,\"workload_wall_ns\":5,\"workload_cpu_ns\":6,"
			"\"memory_peak_bytes\":7,\"memory_samples\":8,\"oom_kills\":0,"
			"\"bpf_run_ns\":9,\"bpf_run_count\":10,\"timed_out\":%s}",
			agent, workload, timed_out ? "true" : "false"),
		0);
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	cr_assert_eq(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/s/meters.json", dir);
	cr_assert_eq(file_write_atomic(path, b.data, b.size), 0);
	evidence_load(e, dir, "s", true, NULL);
	cr_assert_eq(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/s", dir);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(rmdir(dir), 0);
}

Test(evidence, missing_files_are_explained_by_who_ended_badly)
{
	static const struct {
		const char *agent, *workload, *text;
		bool timed_out, agent_failed;
	} cases[] = {
		{"7", "null", "s: agent ended with 7, see ", false, true},
		{"\"signal 11\"", "0", "s: agent ended with signal 11, see ", false, true},
		{"\"signal 9\"", "null", "s: deadline passed, agent ended with signal 9, ", true,
			true},
		{"\"signal 9\"", "0", "s: deadline passed, agent ended with signal 9, ", true,
			true},
		{"\"signal 9\"", "\"signal 9\"",
			"s: deadline passed, workload ended with signal 9, ", true, false},
		{"0", "\"signal 4\"", "s: workload ended with signal 4, see ", false, false},
		{"0", "0", "s: truth.json: was not written", false, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct evidence e;

		ends(&e, cases[i].agent, cases[i].workload, cases[i].timed_out);
		cr_assert_eq(strncmp(e.no_truth, cases[i].text, strlen(cases[i].text)), 0, "%s",
			e.no_truth);
		cr_assert_eq(evidence_agent_failed(&e), cases[i].agent_failed, "%s", e.no_truth);
		evidence_done(&e);
	}
}
