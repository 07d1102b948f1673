/* Truths: read strictly, falsified only as the selftest asks. */
#include <criterion/criterion.h>

#include "base/buf.h"
#include "base/def.h"
#include "lab/truth.h"

static const char good[] =
	"{\"schema\":\"flame-truth/1\",\"workload\":\"w\",\"argv\":[\"w\"],\"pid\":7,\"seed\":1,"
	"\"checksum\":\"00ff\",\"wall_ns\":20,\"cpu_ns\":10,\"functions\":["
	"{\"name\":\"a\",\"callers\":[\"p\",\"main\"],\"cpu_ns\":70,\"wall_ns\":9,\"count\":1,"
	"\"wait_ns\":{\"lock\":3,\"sleep\":4}},"
	"{\"name\":\"b\",\"callers\":[],\"cpu_ns\":30,\"wall_ns\":9,\"count\":1,\"wait_ns\":{}}],"
	"\"threads\":[{\"tid\":7,\"name\":\"w\",\"cpu_ns\":100,\"run_delay_ns\":0,\"slices\":1}],"
	"\"wait_ns\":{}}";

Test(truth, good_file_is_read_whole)
{
	struct truth t;

	cr_assert_eq(truth_parse(&t, "t.json", good, sizeof(good) - 1), 0, "%s", t.doc.message);
	cr_assert_eq(t.pid, 7);
	cr_assert_eq(t.function_count, 2);
	cr_assert_str_eq(t.functions[0].callers[1], "main");
	cr_assert_eq(t.functions[0].wait_ns, 7);
	cr_assert_eq(t.threads[0].cpu_ns, 100);
	cr_assert_eq(truth_process_cpu_ns(&t), 100);
	truth_done(&t);
}

static void refuses(const char *from, const char *to, const char *message)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8192);
	const char *at = strstr(good, from);
	struct truth t;

	cr_assert_not_null(at);
	cr_assert_eq(buf_append(&b, good, (size_t)(at - good)), 0);
	cr_assert_eq(buf_append_str(&b, to), 0);
	cr_assert_eq(buf_append_str(&b, at + strlen(from)), 0);
	cr_assert_lt(truth_parse(&t, "t.json", b.data, b.size), 0, "%s", message);
	cr_expect_str_eq(t.doc.message, message);
	truth_done(&t);
}

Test(truth, refusals_name_file_field_and_reason)
{
	refuses("flame-truth/1", "flame-truth/2",
		"t.json: schema: \"flame-truth/2\" is not one of flame-truth/1");
	refuses("\"cpu_ns\":70", "\"cpu_ns\":-70",
		"t.json: functions[0].cpu_ns: -70 is not in 0..9007199254740992");
	refuses("\"cpu_ns\":70", "\"cpu_ns\":1e300",
		"t.json: functions[0].cpu_ns: 1e+300 is not in 0..9007199254740992");
	refuses("\"cpu_ns\":70", "\"cpu_ns\":101",
		"t.json: functions: \"a\" has more CPU than the whole process");
	refuses("\"pid\":7,", "", "t.json: pid: is missing");
	refuses("\"lock\":3", "\"lock\":\"3\"",
		"t.json: functions[0].wait_ns.lock: must be a whole number");
	refuses("\"slices\":1", "\"slices\":1,\"more\":1",
		"t.json: threads[0].more: unknown field");
	refuses("\"threads\":[{", "\"threads\":[1,{", "t.json: threads[0]: must be an object");
}

Test(truth, a_thread_may_say_that_it_went_on)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8192);
	const char *at = strstr(good, "\"run_delay_ns\":0");
	struct truth t;

	cr_assert_eq(buf_append(&b, good, (size_t)(at - good)), 0);
	cr_assert_eq(buf_append_str(&b, "\"alive\":true,"), 0);
	cr_assert_eq(buf_append_str(&b, at), 0);
	cr_assert_eq(truth_parse(&t, "t.json", b.data, b.size), 0, "%s", t.doc.message);
	cr_assert(t.threads[0].is_alive);
	truth_done(&t);
	cr_assert_eq(truth_parse(&t, "t.json", good, sizeof(good) - 1), 0);
	cr_assert(!t.threads[0].is_alive);
	truth_done(&t);
}

Test(truth, inlined_callers_are_marked_and_must_be_callers)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8192);
	const char *at = strstr(good, "\"cpu_ns\":70");
	struct truth t;

	cr_assert_eq(buf_append(&b, good, (size_t)(at - good)), 0);
	cr_assert_eq(buf_append_str(&b, "\"inlined\":[\"p\"],"), 0);
	cr_assert_eq(buf_append_str(&b, at), 0);
	cr_assert_eq(truth_parse(&t, "t.json", b.data, b.size), 0, "%s", t.doc.message);
	cr_assert(t.functions[0].inlined[0]);
	cr_assert(!t.functions[0].inlined[1]);
	truth_done(&t);
	refuses("\"cpu_ns\":70", "\"inlined\":[\"q\"],\"cpu_ns\":70",
		"t.json: functions[0].inlined[0]: \"q\" is none of the callers");
	refuses("\"cpu_ns\":70", "\"inlined\":[\"main\"],\"cpu_ns\":70",
		"t.json: functions[0].inlined: the outermost caller has a frame");
}

Test(truth, falsified_truth_moves_points_and_keeps_the_sum)
{
	struct truth t;

	cr_assert_eq(truth_parse(&t, "t.json", good, sizeof(good) - 1), 0);
	cr_assert_eq(truth_falsify(&t, 3), 3);
	cr_assert_eq(t.functions[0].cpu_ns, 67);
	cr_assert_eq(t.functions[1].cpu_ns, 33);
	truth_done(&t);
}

Test(truth, falsified_function_loses_under_all_its_callers)
{
	static const char text[] =
		"{\"schema\":\"flame-truth/1\",\"workload\":\"w\",\"argv\":[],\"pid\":7,\"seed\":1,"
		"\"checksum\":\"00ff\",\"wall_ns\":20,\"cpu_ns\":10,\"functions\":["
		"{\"name\":\"a\",\"callers\":[\"p\"],\"cpu_ns\":4000,\"wall_ns\":9,\"count\":1,"
		"\"wait_ns\":{}},{\"name\":\"a\",\"callers\":[\"q\"],\"cpu_ns\":2000,\"wall_ns\":9,"
		"\"count\":1,\"wait_ns\":{}},{\"name\":\"b\",\"callers\":[],\"cpu_ns\":4000,"
		"\"wall_ns\":9,\"count\":1,\"wait_ns\":{}}],\"threads\":[{\"tid\":7,\"name\":\"w\","
		"\"cpu_ns\":10000,\"run_delay_ns\":0,\"slices\":1}],\"wait_ns\":{}}";
	struct truth t;

	cr_assert_eq(truth_parse(&t, "t.json", text, sizeof(text) - 1), 0, "%s", t.doc.message);
	cr_assert_eq(truth_falsify(&t, 3), 300);
	cr_assert_eq(t.functions[0].cpu_ns, 3800);
	cr_assert_eq(t.functions[1].cpu_ns, 1900);
	cr_assert_eq(t.functions[2].cpu_ns, 4300);
	truth_done(&t);
}
