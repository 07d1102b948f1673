/* Tokens, heartbeats and requests of backend/control: states move by acknowledgement, nothing runs twice. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sqlite3.h>

#include "backend/control.h"
#include "backend/control_internal.h"
#include "base/def.h"

static char dir[] = "/tmp/control-test-XXXXXX";
static char path[64];
static struct control *c;
static struct buf out, why;

static const int64_t NOW_NS = 1700000000LL * 1000000000;
static const int64_t SECOND_NS = 1000000000;

static void setup(void)
{
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/catalog.db", dir);
	cr_assert_eq(control_open(path, &c), 0);
	out = BUF_INIT(1 << 20);
	why = BUF_INIT(4096);
}

static void teardown(void)
{
	static const char *const suffixes[] = {"", "-wal", "-shm"};

	control_close(c);
	buf_done(&out);
	buf_done(&why);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		char file[96];

		(void)snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
		(void)unlink(file); /* may not be there */
	}
	(void)rmdir(dir);
}

TestSuite(control, .init = setup, .fini = teardown);

static int beat(const char *host, const char *instance, const char *acks, int64_t now_ns)
{
	char json[2048];

	(void)snprintf(json, sizeof(json),
		"{\"schema\":\"flame-heartbeat/"
		"1\",\"host\":\"%s\",\"instance\":\"%s\",\"arch\":\"x86_64\","
		"\"kernel\":\"6.1\",\"agent_version\":\"1\",\"cpus\":2,\"state\":\"dormant\","
		"\"time_unix_ms\":%lld,\"can\":{\"cpu\":\"ok\"},\"own\":{\"cpu_ns\":7},\"acks\":[%"
		"s]}",
		host, instance, (long long)(NOW_NS / 1000000), acks);
	buf_reset(&out);
	buf_reset(&why);
	return control_heartbeat(c, json, strlen(json), now_ns, &out, &why);
}

static int ask(const char *json, int64_t now_ns)
{
	buf_reset(&out);
	buf_reset(&why);
	return control_request_create(c, json, strlen(json), now_ns, &out, &why);
}

static bool says(const char *text)
{
	return strstr(buf_str(&out), text) != NULL;
}

/* The first "id":"..." of the commands in out. */
static void command_id(char id[CONTROL_ID_MAX + 1])
{
	const char *at = strstr(buf_str(&out), "\"commands\":[{\"id\":\"");

	cr_assert_not_null(at, "%s", buf_str(&out));
	cr_assert_eq(sscanf(at + 19, "%64[^\"]", id), 1);
}

static void state_is(const char *request, const char *state, int64_t now_ns)
{
	char text[64];

	buf_reset(&out);
	cr_assert_eq(control_request_get(c, request, now_ns, &out), 0);
	(void)snprintf(text, sizeof(text), "\"id\":\"%s\",\"state\":\"%s\"", request, state);
	cr_assert(says(text), "wanted %s in %s", text, buf_str(&out));
}

Test(control, a_token_allows_its_scope_and_nothing_else)
{
	struct buf token = BUF_INIT(100);

	cr_assert_not(control_has_tokens(c));
	cr_assert_eq(control_token_create(c, SCOPE_INGEST, "agents", &token), 0);
	cr_assert(control_has_tokens(c));
	cr_assert_eq(token.size, 43, "base64url of 32 bytes");
	cr_assert(control_token_allows(c, token.data, SCOPE_INGEST));
	cr_assert(control_token_allows(c, token.data, SCOPE_NONE));
	cr_assert_not(control_token_allows(c, token.data, SCOPE_READ));
	cr_assert_not(control_token_allows(c, token.data, SCOPE_CONTROL));
	cr_assert_not(control_token_allows(c, token.data, SCOPE_ADMIN));
	cr_assert_not(control_token_allows(c, "", SCOPE_NONE));
	cr_assert_not(control_token_allows(c, NULL, SCOPE_NONE));
	token.data[5] ^= 1;
	cr_assert_not(control_token_allows(c, token.data, SCOPE_INGEST));
	buf_done(&token);
}

Test(control, an_admin_token_covers_every_scope_and_revoking_ends_it)
{
	struct buf token = BUF_INIT(100);

	cr_assert_eq(control_token_create(c, SCOPE_ADMIN, "root", &token), 0);
	cr_assert_eq(control_token_create(c, SCOPE_READ, "root", &out), -EEXIST);
	cr_assert_eq(control_token_create(c, SCOPE_READ, "a name", &out), -EINVAL);
	for (enum http_scope s = SCOPE_INGEST; s < SCOPE_COUNT; s++)
		cr_assert(control_token_allows(c, token.data, s));
	cr_assert_eq(control_token_revoke(c, "root"), 0);
	cr_assert_eq(control_token_revoke(c, "root"), -ENOENT);
	cr_assert_not(control_token_allows(c, token.data, SCOPE_NONE));
	buf_done(&token);
}

Test(control, sending_a_command_leases_it_and_only_acks_move_it)
{
	char id[CONTROL_ID_MAX + 1];
	char acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"commands\":[]"));
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"duration_s\":5}", NOW_NS), 0);
	command_id(id);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says(id));
	state_is("r", "sent", NOW_NS);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS + 59 * SECOND_NS), 0);
	cr_assert_not(says(id), "leased for two intervals");
	cr_assert_eq(beat("h1", "i1", "", NOW_NS + 61 * SECOND_NS), 0);
	cr_assert(says(id), "the lease is over without an ack: the same id again");
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"running\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS + 62 * SECOND_NS), 0);
	state_is("r", "running", NOW_NS + 62 * SECOND_NS);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS + 200 * SECOND_NS), 0);
	cr_assert_not(says(id), "what runs is not sent again");
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"done\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS + 201 * SECOND_NS), 0);
	state_is("r", "done", NOW_NS + 201 * SECOND_NS);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"failed\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS + 202 * SECOND_NS), 0);
	state_is("r", "done", NOW_NS + 202 * SECOND_NS);
}

Test(control, another_host_cannot_acknowledge_a_command)
{
	char id[CONTROL_ID_MAX + 1];
	char acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	command_id(id);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"done\"}", id);
	cr_assert_eq(beat("h2", "i2", acks, NOW_NS), 0);
	state_is("r", "pending", NOW_NS);
}

Test(control, a_command_expires_at_its_deadline_and_a_late_report_still_counts)
{
	char id[CONTROL_ID_MAX + 1];
	char acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"deadline_s\":100}", NOW_NS), 0);
	command_id(id);
	state_is("r", "pending", NOW_NS + 100 * SECOND_NS);
	state_is("r", "expired", NOW_NS + 101 * SECOND_NS);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS + 102 * SECOND_NS), 0);
	cr_assert_not(says(id), "expired commands are not sent");
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"done\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS + 103 * SECOND_NS), 0);
	state_is("r", "done", NOW_NS + 103 * SECOND_NS);
}

Test(control, what_runs_without_end_expires_some_time_after_its_duration)
{
	char id[CONTROL_ID_MAX + 1];
	char acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"duration_s\":10}", NOW_NS), 0);
	command_id(id);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"running\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
	state_is("r", "running", NOW_NS + 310 * SECOND_NS);
	state_is("r", "expired", NOW_NS + 311 * SECOND_NS);
}

Test(control, cancelling_ends_what_was_not_sent_and_stops_what_was)
{
	char id[CONTROL_ID_MAX + 1];
	char text[128];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"a\"}", NOW_NS), 0);
	cr_assert_eq(control_request_cancel(c, "a", NOW_NS, &out), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"commands\":[]"), "%s", buf_str(&out));

	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"b\"}", NOW_NS), 0);
	command_id(id);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(control_request_cancel(c, "b", NOW_NS, &out), 0);
	cr_assert_eq(control_request_cancel(c, "b", NOW_NS, &out), 0, "twice is once");
	cr_assert_eq(beat("h1", "i1", "", NOW_NS + 100 * SECOND_NS), 0);
	(void)snprintf(text, sizeof(text), "\"kind\":\"stop\",\"target\":\"%s\"", id);
	cr_assert(says(text), "%s", buf_str(&out));
	cr_assert_not(says("\"kind\":\"start\""), "a cancelled start is not sent again");
	cr_assert_eq(control_request_cancel(c, "nothing", NOW_NS, &out), -ENOENT);
}

/* The id of the change command in out. */
static void change_id(char id[CONTROL_ID_MAX + 1])
{
	const char *at = strstr(buf_str(&out), "\"kind\":\"change\"");

	cr_assert_not_null(at, "%s", buf_str(&out));
	while (strncmp(at, "{\"id\":\"", 7) != 0)
		at--;
	cr_assert_eq(sscanf(at + 7, "%64[^\"]", id), 1);
}

/* Request r on h1, running as the command in id. */
static void run_one(char id[CONTROL_ID_MAX + 1])
{
	char acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(
		ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"duration_s\":0,\"comms\":[\"a\"]}", NOW_NS),
		0);
	command_id(id);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"running\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
}

Test(control, a_change_keeps_what_it_does_not_mention_and_goes_to_the_host_once)
{
	char id[CONTROL_ID_MAX + 1], change[CONTROL_ID_MAX + 1], text[512];

	run_one(id);
	for (int i = 0; i < 2; i++) { /* asked twice is asked once */
		cr_assert_eq(ask("{\"change\":\"r\",\"frequency_hz\":199,\"containers\":[\"ab\"]}",
				     NOW_NS),
			0);
		cr_assert(
			says("\"frequency_hz\":199,\"duration_s\":0,\"pids\":[],\"comms\":[\"a\"],"
			     "\"cgroups\":[],\"containers\":[\"ab\"]"),
			"%s", buf_str(&out));
	}
	change_id(change);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	(void)snprintf(text, sizeof(text),
		"[{\"id\":\"%s\",\"kind\":\"change\",\"target\":\"%s\",\"view\":\"cpu\","
		"\"frequency_hz\":199,\"duration_s\":0,\"pids\":[],\"comms\":[\"a\"],\"cgroups\":[]"
		","
		"\"containers\":[\"ab\"]",
		change, id);
	cr_assert(says(text), "wanted %s in %s", text, buf_str(&out));
	(void)snprintf(text, sizeof(text), "{\"id\":\"%s\",\"state\":\"done\"}", change);
	cr_assert_eq(beat("h1", "i1", text, NOW_NS), 0);
	cr_assert(says("\"commands\":[]"), "%s", buf_str(&out));
	state_is("r", "running", NOW_NS);
	cr_assert(says("\"kind\":\"change\",\"instance\":\"i1\",\"state\":\"done\""), "%s",
		buf_str(&out));
}

Test(control, an_empty_list_ends_a_filter)
{
	char id[CONTROL_ID_MAX + 1];

	run_one(id);
	cr_assert_eq(ask("{\"change\":\"r\",\"users\":[\"www\"],\"exclude_pids\":[7],"
			 "\"exclude_comms\":[\"sh\"]}",
			     NOW_NS),
		0);
	cr_assert(says("\"comms\":[\"a\"]") && says("\"users\":[\"www\"]") &&
			  says("\"exclude_pids\":[7]") && says("\"exclude_comms\":[\"sh\"]"),
		"%s", buf_str(&out));
	cr_assert_eq(ask("{\"change\":\"r\",\"comms\":[]}", NOW_NS), 0);
	cr_assert(says("\"comms\":[]"), "%s", buf_str(&out));
}

Test(control, a_start_that_was_not_sent_goes_out_as_it_was_changed)
{
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	cr_assert_eq(ask("{\"change\":\"r\",\"duration_s\":7}", NOW_NS), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"kind\":\"start\"") && says("\"duration_s\":7") && !says("change"), "%s",
		buf_str(&out));
}

Test(control, a_change_waits_until_its_recording_is_known_to_run)
{
	char id[CONTROL_ID_MAX + 1], acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	command_id(id);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"change\":\"r\",\"frequency_hz\":7}", NOW_NS), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"commands\":[]"), "%s", buf_str(&out));
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"running\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
	cr_assert(says("\"kind\":\"change\""), "%s", buf_str(&out));
}

Test(control, a_change_that_comes_too_late_has_failed)
{
	char id[CONTROL_ID_MAX + 1], acks[256];

	run_one(id);
	cr_assert_eq(ask("{\"change\":\"r\",\"frequency_hz\":7}", NOW_NS), 0);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"done\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
	cr_assert(says("\"commands\":[]"), "%s", buf_str(&out));
	state_is("r", "done", NOW_NS);
	cr_assert(says("\"state\":\"failed\"") && says("the recording ended first"), "%s",
		buf_str(&out));
	cr_assert_eq(ask("{\"change\":\"r\",\"frequency_hz\":8}", NOW_NS), -EINVAL);
	cr_assert_eq(ask("{\"change\":\"none\",\"frequency_hz\":8}", NOW_NS), -ENOENT);
	cr_assert(why.size > 0);
}

Test(control, a_longer_duration_moves_the_end_that_is_waited_for)
{
	char id[CONTROL_ID_MAX + 1], acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"duration_s\":10}", NOW_NS), 0);
	command_id(id);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"running\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
	cr_assert_eq(ask("{\"change\":\"r\",\"duration_s\":1000}", NOW_NS), 0);
	state_is("r", "running", NOW_NS + 1299 * SECOND_NS);
	state_is("r", "expired", NOW_NS + 1301 * SECOND_NS);
}

Test(control, a_changed_recording_can_be_cancelled)
{
	char id[CONTROL_ID_MAX + 1];

	run_one(id);
	cr_assert_eq(ask("{\"change\":\"r\",\"frequency_hz\":7}", NOW_NS), 0);
	buf_reset(&out);
	cr_assert_eq(control_request_cancel(c, "r", NOW_NS, &out), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"kind\":\"stop\"") && !says("\"kind\":\"change\""), "%s", buf_str(&out));
}

Test(control, a_database_from_before_containers_gets_their_column)
{
	sqlite3 *db;

	control_close(c);
	c = NULL;
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(sqlite3_exec(db, "ALTER TABLE ctl_requests DROP COLUMN containers", NULL, NULL,
			     NULL),
		SQLITE_OK);
	(void)sqlite3_close(db);
	cr_assert_eq(control_open(path, &c), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"containers\":[\"ab\"]}", NOW_NS), 0);
	cr_assert(says("\"containers\":[\"ab\"]"), "%s", buf_str(&out));
}

Test(control, cancelling_what_is_over_changes_nothing)
{
	char id[CONTROL_ID_MAX + 1];
	char acks[256];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	command_id(id);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"done\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
	cr_assert_eq(control_request_cancel(c, "r", NOW_NS, &out), 0);
	state_is("r", "done", NOW_NS);
}

Test(control, requests_find_hosts_by_service_name_and_matcher)
{
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(beat("h2", "i2", "", NOW_NS), 0);
	cr_assert_eq(beat("silent", "i3", "", NOW_NS - 601 * SECOND_NS), 0);
	cr_assert_eq(control_host_seen_service(c, "h2", "shop", NOW_NS), 0);
	cr_assert_eq(control_host_seen_service(c, "silent", "shop", NOW_NS), 0);

	cr_assert_eq(ask("{\"services\":[\"shop\"],\"dry_run\":true}", NOW_NS), 0);
	cr_assert(says("\"h2\"") && !says("\"h1\"") && !says("\"silent\""), "%s", buf_str(&out));
	cr_assert_eq(
		ask("{\"match\":\"{service_name!=\\\"shop\\\"}\",\"dry_run\":true}", NOW_NS), 0);
	cr_assert(says("\"h1\"") && !says("\"h2\""), "%s", buf_str(&out));
	cr_assert_eq(ask("{\"match\":\"{host=~\\\"h[0-9]\\\"}\",\"dry_run\":true}", NOW_NS), 0);
	cr_assert(says("\"h1\"") && says("\"h2\"") && !says("\"silent\""), "%s", buf_str(&out));
	cr_assert_eq(ask("{\"hosts\":[\"silent\"],\"dry_run\":true}", NOW_NS), 0);
	cr_assert(says("\"silent\""), "a host by its name may be silent");
	cr_assert_eq(ask("{\"hosts\":[\"nobody\"]}", NOW_NS), -ENOENT);
	cr_assert_eq(ask("{\"match\":\"{}\",\"max_hosts\":1}", NOW_NS), -EINVAL);
	cr_assert_str_eq(buf_str(&why), "2 hosts match, max_hosts is 1");
}

Test(control, a_dry_run_leaves_no_request_and_no_command)
{
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"dry_run\":true}", NOW_NS), 0);
	buf_reset(&out);
	cr_assert_eq(control_request_list(c, NOW_NS, &out), 0);
	cr_assert_str_eq(buf_str(&out), "{\"requests\":[]}\n");
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"commands\":[]"));
}

Test(control, the_same_request_id_makes_one_request)
{
	char first[CONTROL_ID_MAX + 1];
	char second[CONTROL_ID_MAX + 1];

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	command_id(first);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	command_id(second);
	cr_assert_str_eq(first, second);
}

Test(control, absurd_requests_are_refused_with_a_reason)
{
	static const char *const wrong[] = {
		"[]",
		"{}",
		"{\"hosts\":[]}",
		"{\"hosts\":[1]}",
		"{\"hosts\":[\"h1\"],\"frequency_hz\":1000000}",
		"{\"hosts\":[\"h1\"],\"frequency_hz\":0}",
		"{\"hosts\":[\"h1\"],\"frequency_hz\":1.5}",
		"{\"hosts\":[\"h1\"],\"duration_s\":-1}",
		"{\"hosts\":[\"h1\"],\"duration_s\":1e300}",
		"{\"hosts\":[\"h1\"],\"max_hosts\":100000}",
		/* A misspelt filter would record everything. */
		"{\"hosts\":[\"h1\"],\"comm\":[\"nginx\"]}",
		"{\"hosts\":[\"h1\"],\"filter\":{\"comms\":[\"nginx\"]}}",
		"{\"hosts\":[\"h1\"],\"view\":\"--output=/etc/x\\n\"}",
		"{\"hosts\":[\"h1\"],\"view\":\"a b\"}",
		"{\"hosts\":[\"h1\"],\"pids\":[-1]}",
		"{\"hosts\":[\"h1\"],\"pids\":[\"1\"]}",
		"{\"hosts\":[\"h1\"],\"comms\":[\"\"]}",
		"{\"hosts\":[\"h1\"],\"exclude_comms\":[\"a name of 16 byt\"]}",
		"{\"hosts\":[\"h1\"],\"users\":[7]}",
		"{\"hosts\":[\"h1\"],\"exclude_pids\":[0]}",
		"{\"hosts\":[\"h1\"],\"comms\":[\"a name of 16 byt\"]}",
		"{\"hosts\":[\"h1\"],\"containers\":[7]}",
		"{\"change\":\"r\",\"id\":\"x\"}",
		"{\"change\":\"r\",\"view\":\"wall\"}",
		"{\"change\":7}",
		"{\"hosts\":[\"h1\"],\"dry_run\":1}",
		"{\"hosts\":[\"h1\"],\"id\":\"../x\"}",
		"{\"match\":\"{nothing=\\\"1\\\"}\"}",
		"{\"match\":\"{host=~\\\"(\\\"}\"}",
	};

	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		cr_assert_eq(ask(wrong[i], NOW_NS), -EINVAL, "%s", wrong[i]);
		cr_assert(why.size > 0 && !strchr(why.data, '\n'), "%s", wrong[i]);
	}
}

Test(control, a_refused_heartbeat_changes_nothing)
{
	static const char *const wrong[] = {
		"{\"schema\":\"x\"}",
		"{\"schema\":\"flame-heartbeat/1\",\"host\":\"h\",\"instance\":\"a/"
		"b\",\"state\":\"dormant\"}",
		"{\"schema\":\"flame-heartbeat/"
		"1\",\"host\":\"\",\"instance\":\"i\",\"state\":\"dormant\"}",
		"{\"schema\":\"flame-heartbeat/"
		"1\",\"host\":\"h\",\"instance\":\"i\",\"state\":\"x\"}",
		"{\"schema\":\"flame-heartbeat/"
		"1\",\"host\":\"h\",\"instance\":\"i\",\"state\":\"dormant\","
		"\"acks\":[{\"id\":\"1\",\"state\":\"odd\"}]}",
		"{\"schema\":\"flame-heartbeat/"
		"1\",\"host\":\"h\",\"instance\":\"i\",\"state\":\"dormant\","
		"\"can\":{\"cpu\":1}}",
		"{\"schema\":\"flame-heartbeat/"
		"1\",\"host\":\"h\",\"instance\":\"i\",\"state\":\"dormant\","
		"\"own\":{\"cpu_ns\":-5}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		buf_reset(&out);
		buf_reset(&why);
		cr_assert_eq(control_heartbeat(c, wrong[i], strlen(wrong[i]), NOW_NS, &out, &why),
			-EINVAL, "%s", wrong[i]);
		cr_assert(why.size > 0, "%s", wrong[i]);
	}
	buf_reset(&out);
	cr_assert_eq(control_hosts(c, NOW_NS, "", 0, &out), 0);
	cr_assert_str_eq(buf_str(&out), "[]\n");
}

Test(control, skew_and_life_are_by_the_servers_clock)
{
	cr_assert_eq(beat("h1", "i1", "", NOW_NS + 7200 * SECOND_NS), 0);
	buf_reset(&out);
	cr_assert_eq(control_hosts(c, NOW_NS + 7201 * SECOND_NS, "", 0, &out), 0);
	cr_assert(says("\"skew_ms\":7200000") && says("\"age_ms\":1000") && says("\"alive\":true"),
		"%s", buf_str(&out));
	buf_reset(&out);
	cr_assert_eq(control_hosts(c, NOW_NS + (7200 + 91) * SECOND_NS, "", 0, &out), 0);
	cr_assert(says("\"alive\":false"));
}

Test(control, everything_is_there_after_reopening)
{
	struct buf token = BUF_INIT(100);
	char id[CONTROL_ID_MAX + 1];

	cr_assert_eq(control_token_create(c, SCOPE_READ, "t", &token), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\"}", NOW_NS), 0);
	command_id(id);
	control_close(c);
	c = NULL;
	cr_assert_eq(control_open(path, &c), 0);
	cr_assert(control_token_allows(c, token.data, SCOPE_READ));
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says(id));
	buf_done(&token);
}

/* So that the next ones may wait: known, and nothing to be written. */
static void quiet_beats(const char *host, const char *instance, int count, int64_t now_ns)
{
	for (int i = 0; i < count; i++) {
		cr_assert_eq(beat(host, instance, "", now_ns), 0);
		cr_assert(says("\"commands\":[]}"), "%s", buf_str(&out));
	}
}

Test(control, a_quiet_host_is_told_of_a_new_command_and_of_its_end_at_once)
{
	char id[CONTROL_ID_MAX + 1];

	quiet_beats("h1", "i1", 3, NOW_NS);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"duration_s\":5}", NOW_NS), 0);
	command_id(id);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says(id));
	quiet_beats("h1", "i1", 3, NOW_NS);
	buf_reset(&out);
	cr_assert_eq(control_request_cancel(c, "r", NOW_NS, &out), 0);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	cr_assert(says("\"kind\":\"stop\""), "%s", buf_str(&out));
}

Test(control, an_acknowledgement_is_on_disk_before_it_is_answered)
{
	char id[CONTROL_ID_MAX + 1];
	char acks[256];
	struct control *other, *first = c;

	quiet_beats("h1", "i1", 3, NOW_NS);
	cr_assert_eq(ask("{\"hosts\":[\"h1\"],\"id\":\"r\",\"duration_s\":5}", NOW_NS), 0);
	command_id(id);
	cr_assert_eq(beat("h1", "i1", "", NOW_NS), 0);
	quiet_beats("h2", "i2", 3, NOW_NS);
	(void)snprintf(acks, sizeof(acks), "{\"id\":\"%s\",\"state\":\"done\"}", id);
	cr_assert_eq(beat("h1", "i1", acks, NOW_NS), 0);
	cr_assert_eq(control_open(path, &other), 0);
	c = other; /* sees what a process sees that starts after a SIGKILL of the first */
	state_is("r", "done", NOW_NS);
	control_close(other);
	c = first;
}

Test(control, numbers_of_quiet_hosts_are_shown_and_kept_at_the_end)
{
	int64_t later_ns = NOW_NS + 40 * SECOND_NS;

	quiet_beats("h1", "i1", 3, NOW_NS);
	quiet_beats("h1", "i1", 1, later_ns);
	buf_reset(&out);
	cr_assert_eq(control_hosts(c, later_ns + SECOND_NS, "", 0, &out), 0);
	cr_assert(says("\"age_ms\":1000,"), "%s", buf_str(&out));
	control_close(c);
	cr_assert_eq(control_open(path, &c), 0);
	buf_reset(&out);
	cr_assert_eq(control_hosts(c, later_ns + SECOND_NS, "", 0, &out), 0);
	cr_assert(says("\"age_ms\":1000,"), "%s", buf_str(&out));
}

Test(control, a_host_with_another_name_is_shown_by_it_and_once)
{
	quiet_beats("h1", "i1", 3, NOW_NS);
	quiet_beats("h1-renamed", "i1", 2, NOW_NS + 1000000);
	buf_reset(&out);
	cr_assert_eq(control_hosts(c, NOW_NS, "", 0, &out), 0);
	cr_assert(says("\"host\":\"h1-renamed\"") && !says("\"host\":\"h1\""), "%s", buf_str(&out));
	cr_assert_eq(ask("{\"hosts\":[\"h1-renamed\"],\"dry_run\":true}", NOW_NS), 0);
}

Test(control, rows_of_quiet_hosts_are_written_every_few_minutes)
{
	sqlite3 *db;
	sqlite3_stmt *s;

	for (int64_t i = 0; i <= 10; i++)
		quiet_beats("h1", "i1", 1, NOW_NS + i * 30 * SECOND_NS);
	cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
	cr_assert_eq(
		sqlite3_prepare_v2(db, "SELECT last_ms FROM ctl_hosts", -1, &s, NULL), SQLITE_OK);
	cr_assert_eq(sqlite3_step(s), SQLITE_ROW);
	cr_assert_geq(sqlite3_column_int64(s, 0), NOW_NS / 1000000 + 150000);
	(void)sqlite3_finalize(s);
	(void)sqlite3_close(db);
}
