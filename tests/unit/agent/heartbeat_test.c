/* What a heartbeat says, byte for byte, and how often. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <unistd.h>

#include "agent/heartbeat.h"
#include "agent/own.h"
#include "base/def.h"

static struct heartbeat_identity identity = {.host = "h\"1",
	.instance = "i-1",
	.version = "v1",
	.boot_id = "b-1",
	.kernel = "6.1.0",
	.arch = "x86_64",
	.cpus = 2};

Test(heartbeat, has_every_field_of_its_schema)
{
	struct heartbeat_facts f = {.identity = &identity,
		.time_unix_ms = 1700000000123,
		.state = "error",
		.state_text = "TLS: <no>",
		.can_cpu = "ok",
		.own = {.cpu_ns = 1, .rss_bytes = 2, .kernel_bytes = 3, .uptime_ns = 4},
		.samples_lost = 5,
		.windows_dropped = 6,
		.spool_windows = 7,
		.spool_bytes = 8};
	struct buf out = BUF_INIT(65536);
	struct buf why = BUF_INIT(64);
	struct commands *c;
	uint64_t change;

	cr_assert_eq(commands_open("/nonexistent/x", &why, &c), 0);
	(void)commands_set(c, "c1", COMMAND_DONE, "t", NULL); /* kept, though not on disk */
	cr_assert_eq(heartbeat_write(&f, c, &out, &change), 0);
	cr_assert_str_eq(buf_str(&out),
		"{\"schema\":\"flame-heartbeat/1\",\"host\":\"h\\\"1\",\"instance\":\"i-1\","
		"\"boot_id\":\"b-1\",\"agent_version\":\"v1\",\"kernel\":\"6.1.0\","
		"\"arch\":\"x86_64\",\"cpus\":2,\"time_unix_ms\":1700000000123,"
		"\"state\":\"error\",\"state_text\":\"TLS: \\u003cno\\u003e\","
		"\"can\":{\"cpu\":\"ok\",\"wall\":\"this agent records the view cpu only\"},"
		"\"own\":{\"cpu_ns\":1,\"rss_bytes\":2,\"kernel_bytes\":3,\"uptime_ns\":4},"
		"\"losses\":{\"samples\":5,\"windows_dropped\":6},"
		"\"spool\":{\"windows\":7,\"bytes\":8},"
		"\"acks\":[{\"id\":\"c1\",\"state\":\"done\",\"text\":\"t\"}]}");
	commands_free(c);
	buf_done(&out);
	buf_done(&why);
}

Test(heartbeat, the_interval_is_drawn_within_ten_percent)
{
	struct rng r = rng_seeded(3);
	uint64_t lowest = UINT64_MAX, highest = 0;

	for (int i = 0; i < 1000; i++) {
		uint64_t ns = heartbeat_jittered_ns(30 * NSEC_PER_SEC, &r);

		lowest = MIN(lowest, ns);
		highest = MAX(highest, ns);
	}
	cr_assert_geq(lowest, 27 * NSEC_PER_SEC);
	cr_assert_leq(highest, 33 * NSEC_PER_SEC);
	cr_assert_gt(highest - lowest, 5 * NSEC_PER_SEC);
}

Test(heartbeat, only_a_cgroup_of_the_agents_own_is_taken_as_its_account)
{
	struct buf b = BUF_INIT(4096);

	cr_assert(heartbeat_own_cgroup("0::/system.slice/flame-agent.service\n", &b));
	cr_assert_str_eq(buf_str(&b), "/sys/fs/cgroup/system.slice/flame-agent.service");
	buf_reset(&b);
	cr_assert(heartbeat_own_cgroup("1:name=systemd:/x\n0::/flame-agent@a.service\n", &b));
	cr_assert_not(heartbeat_own_cgroup("0::/user.slice/session-1.scope\n", &b));
	cr_assert_not(heartbeat_own_cgroup("0::/\n", &b));
	cr_assert_not(heartbeat_own_cgroup("", &b));
	buf_done(&b);
}

Test(heartbeat, own_cost_is_this_process_and_grows_with_its_work)
{
	struct heartbeat_own before, after;
	uint64_t until;

	heartbeat_own(NULL, 0, &before);
	until = own_cpu_ns(0) + 30 * NSEC_PER_MSEC;
	while (own_cpu_ns(0) < until)
		;
	heartbeat_own(NULL, 0, &after);
	cr_assert_geq(after.cpu_ns - before.cpu_ns, 30 * NSEC_PER_MSEC);
	cr_assert_gt(after.rss_bytes, 1 << 20);
}

Test(heartbeat, who_we_are_is_read_from_the_kernel)
{
	struct heartbeat_identity id = {.host = "h"};

	heartbeat_identify(&id);
	cr_assert_eq(strlen(id.boot_id), 36);
	cr_assert_gt(strlen(id.kernel), 0);
	cr_assert_gt(strlen(id.arch), 0);
	cr_assert_geq(id.cpus, 1);
}
