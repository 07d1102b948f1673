/* What agent and guest report: a known field that is missing refuses the file. */
#include <criterion/criterion.h>

#include "base/def.h"
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
	static const char cut[] = "{\"schema\":\"flamelab-meters/1\",\"agent_cpu_start_ns\":1}";
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
