/* Commands: what is taken, what is refused with which words, and that none is ever forgotten. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/commands.h"
#include "base/def.h"
#include "base/file.h"

#define HEAD "{\"schema\":\"flame-heartbeat-reply/1\",\"commands\":["

static struct arena *arena;
static char dir[] = "/tmp/commands_test.XXXXXX";
static char path[64];

static void set_up(void)
{
	arena = arena_new(8 << 20);
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/commands.json", dir);
}

static void tear_down(void)
{
	arena_free(arena);
	(void)unlink(path);
	(void)rmdir(dir);
}

TestSuite(commands, .init = set_up, .fini = tear_down);

static struct commands_reply must_read(const char *json)
{
	struct commands_reply r;
	const char *why = NULL;

	cr_assert_eq(commands_read_reply(json, strlen(json), arena, &why, &r), 0, "%s", why);
	return r;
}

static const char *problem_of(const char *members)
{
	struct buf json = BUF_INIT(65536);
	struct commands_reply r;

	(void)buf_printf(&json, HEAD "{\"id\":\"a\",%s}]}", members);
	r = must_read(buf_str(&json));
	buf_done(&json);
	cr_assert_eq(r.count, 1);
	return r.commands[0].problem;
}

Test(commands, a_whole_start_command_is_read)
{
	struct commands_reply r = must_read("{\"schema\":\"flame-heartbeat-reply/1\","
					    "\"time_unix_ms\":1700000000123,\"interval_s\":15,"
					    "\"wanted_version\":\"v2\",\"commands\":["
					    "{\"id\":\"c-1\",\"kind\":\"start\",\"view\":\"cpu\","
					    "\"frequency_hz\":199,\"duration_s\":60,"
					    "\"pids\":[1,4194304],\"comms\":[\"a b\"],"
					    "\"cgroups\":[\"/x.slice\"],"
					    "\"deadline_unix_ms\":1700000009999}]}");
	const struct command *c = &r.commands[0];

	cr_assert_eq(r.time_unix_ms, 1700000000123);
	cr_assert_eq(r.interval_ns, 15 * NSEC_PER_SEC);
	cr_assert_str_eq(r.wanted_version, "v2");
	cr_assert_eq(r.count, 1);
	cr_assert_null(c->problem);
	cr_assert_str_eq(c->id, "c-1");
	cr_assert_eq(c->kind, COMMAND_START);
	cr_assert_eq(c->frequency_hz, 199);
	cr_assert_eq(c->duration_ns, 60 * NSEC_PER_SEC);
	cr_assert_eq(c->filter.sides[0].pid_count, 2);
	cr_assert_eq(c->filter.sides[0].pids[1], 4194304);
	cr_assert_str_eq(c->filter.sides[0].texts[FILTER_COMMS].at[0], "a b");
	cr_assert_str_eq(c->filter.sides[0].texts[FILTER_CGROUPS].at[0], "/x.slice");
	cr_assert_eq(c->deadline_unix_ms, 1700000009999);
}

Test(commands, a_stop_command_needs_a_target)
{
	struct commands_reply r =
		must_read(HEAD "{\"id\":\"s\",\"kind\":\"stop\",\"target\":\"c-1\"}]}");

	cr_assert_eq(r.commands[0].kind, COMMAND_STOP);
	cr_assert_str_eq(r.commands[0].target, "c-1");
	cr_assert_null(r.commands[0].problem);
	cr_assert_not_null(problem_of("\"kind\":\"stop\""));
	cr_assert_not_null(problem_of("\"kind\":\"stop\",\"target\":\"../x\""));
}

Test(commands, a_change_has_a_target_and_everything_a_start_has)
{
	struct commands_reply r =
		must_read(HEAD "{\"id\":\"x\",\"kind\":\"change\",\"target\":\"c-1\","
			       "\"frequency_hz\":7,\"duration_s\":0,"
			       "\"containers\":[\"0123ab\"],"
			       "\"users\":[\"www\"],\"exclude_comms\":[\"sh\"],"
			       "\"exclude_pids\":[3]}]}");
	const struct command *c = &r.commands[0];
	struct buf json = BUF_INIT(4096);
	struct command again;
	const char *why;

	cr_assert_null(c->problem);
	cr_assert_eq(c->kind, COMMAND_CHANGE);
	cr_assert_str_eq(c->target, "c-1");
	cr_assert_eq(c->frequency_hz, 7);
	cr_assert_eq(c->duration_ns, 0);
	cr_assert_eq(commands_write_one(c, &json), 0);
	cr_assert_eq(commands_read_one(json.data, json.size, arena, &why, &again), 0);
	cr_assert_eq(again.kind, COMMAND_CHANGE);
	cr_assert_str_eq(again.target, "c-1");
	cr_assert_eq(again.filter.sides[0].texts[FILTER_CONTAINERS].count, 1);
	cr_assert_str_eq(again.filter.sides[0].texts[FILTER_CONTAINERS].at[0], "0123ab");
	cr_assert_str_eq(again.filter.sides[0].texts[FILTER_USERS].at[0], "www");
	cr_assert_str_eq(again.filter.sides[1].texts[FILTER_COMMS].at[0], "sh");
	cr_assert_eq(again.filter.sides[1].pid_count, 1);
	cr_assert_eq(again.filter.sides[1].pids[0], 3);
	cr_assert_not_null(problem_of("\"kind\":\"change\""));
	buf_done(&json);
}

Test(commands, absurd_parameters_are_refused_by_name)
{
	static const struct {
		const char *members, *word;
	} cases[] = {
		{"\"kind\":\"start\",\"frequency_hz\":1000000", "frequency_hz"},
		{"\"kind\":\"start\",\"frequency_hz\":-1", "frequency_hz"},
		{"\"kind\":\"start\",\"frequency_hz\":\"99\"", "frequency_hz"},
		{"\"kind\":\"start\",\"duration_s\":1e300", "duration_s"},
		{"\"kind\":\"start\",\"pids\":[0]", "pid"},
		{"\"kind\":\"start\",\"pids\":[\"1; reboot\"]", "pid"},
		{"\"kind\":\"start\",\"pids\":{}", "pids"},
		{"\"kind\":\"start\",\"comms\":[\"a name of 16 byt\"]", "comms"},
		{"\"kind\":\"start\",\"comms\":[7]", "comms"},
		{"\"kind\":\"start\",\"view\":\"wall\"", "view"},
		{"\"kind\":\"start\",\"deadline_unix_ms\":1e99", "deadline"},
		{"\"kind\":\"start\",\"containers\":[7]", "containers"},
		{"\"kind\":\"change\",\"target\":\"a\",\"frequency_hz\":-1", "frequency_hz"},
		{"\"kind\":\"reboot\"", "kind"},
		{"\"view\":\"cpu\"", "kind"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *problem = problem_of(cases[i].members);

		cr_assert_not_null(problem, "%s", cases[i].members);
		cr_assert_not_null(
			strstr(problem, cases[i].word), "%s: %s", cases[i].members, problem);
	}
}

Test(commands, a_command_without_a_usable_id_is_counted_and_the_others_are_read)
{
	struct commands_reply r = must_read(HEAD "{\"kind\":\"start\"},7,"
						 "{\"id\":\"../../x\",\"kind\":\"start\"},"
						 "{\"id\":\"ok\",\"kind\":\"start\"}]}");

	cr_assert_eq(r.refused, 3);
	cr_assert_eq(r.count, 1);
	cr_assert_str_eq(r.commands[0].id, "ok");
}

Test(commands, an_answer_of_another_kind_is_refused)
{
	static const char *const cases[] = {"", "null", "[]", "<html>", "{\"commands\":[]}",
		"{\"schema\":\"flame-heartbeat-reply/1\",\"commands\":{}}",
		"{\"schema\":\"flame-heartbeat-reply/1\",\"interval_s\":0.001}",
		"{\"schema\":\"flame-heartbeat-reply/1\",\"wanted_version\":3}"};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct commands_reply r;
		const char *why = NULL;

		cr_assert_eq(commands_read_reply(cases[i], strlen(cases[i]), arena, &why, &r),
			-EBADMSG, "%s", cases[i]);
		cr_assert_not_null(why);
	}
}

Test(commands, more_than_64_commands_are_refused)
{
	struct buf json = BUF_INIT(65536);
	struct commands_reply r;
	const char *why;

	(void)buf_append_str(&json, HEAD);
	for (int i = 0; i < COMMANDS_PER_REPLY_MAX + 1; i++)
		(void)buf_printf(&json, "%s{\"id\":\"c%d\",\"kind\":\"start\"}", i ? "," : "", i);
	(void)buf_append_str(&json, "]}");
	cr_assert_eq(commands_read_reply(json.data, json.size, arena, &why, &r), -EBADMSG);
	buf_done(&json);
}

static struct commands *must_open(void)
{
	struct buf why = BUF_INIT(256);
	struct commands *c;

	cr_assert_eq(commands_open(path, &why, &c), 0);
	cr_assert_eq(why.size, 0, "%s", buf_str(&why));
	buf_done(&why);
	return c;
}

Test(commands, what_was_done_is_known_after_a_restart)
{
	struct commands *c = must_open();
	const struct commands_entry *e;

	cr_assert_eq(commands_set(c, "c1", COMMAND_DONE, "6 \"windows\"", NULL), 0);
	cr_assert_eq(commands_set(c, "c2", COMMAND_FAILED, "no", NULL), 0);
	commands_free(c);
	c = must_open();
	e = commands_find(c, "c1");
	cr_assert_not_null(e);
	cr_assert_eq(e->state, COMMAND_DONE);
	cr_assert_str_eq(e->text, "6 \"windows\"");
	cr_assert_eq(commands_find(c, "c2")->state, COMMAND_FAILED);
	cr_assert_null(commands_find(c, "c3"));
	commands_free(c);
}

Test(commands, a_running_command_is_kept_whole_for_the_next_start)
{
	const char *json = HEAD "{\"id\":\"r\",\"kind\":\"start\",\"frequency_hz\":19,\"pids\":[7],"
				"\"comms\":[\"x\"],\"cgroups\":[\"/y\"]}]}";
	struct commands_reply r = must_read(json);
	struct commands *c = must_open();
	struct command again;
	const char *why;

	cr_assert_eq(commands_set(c, "r", COMMAND_RUNNING, "", &r.commands[0]), 0);
	commands_free(c);
	c = must_open();
	cr_assert_not_null(commands_find(c, "r")->spec);
	cr_assert_eq(commands_read_one(commands_find(c, "r")->spec,
			     strlen(commands_find(c, "r")->spec), arena, &why, &again),
		0);
	cr_assert_eq(again.frequency_hz, 19);
	cr_assert_eq(again.duration_ns, 0);
	cr_assert_eq(again.filter.sides[0].pids[0], 7);
	cr_assert_str_eq(again.filter.sides[0].texts[FILTER_COMMS].at[0], "x");
	cr_assert_str_eq(again.filter.sides[0].texts[FILTER_CGROUPS].at[0], "/y");
	cr_assert_eq(commands_set(c, "r", COMMAND_DONE, "", NULL), 0);
	cr_assert_null(commands_find(c, "r")->spec);
	commands_free(c);
}

Test(commands, an_acknowledgement_stands_in_heartbeats_until_it_was_told)
{
	struct commands *c = must_open();
	struct buf acks = BUF_INIT(4096);
	uint64_t change;

	(void)commands_set(c, "a", COMMAND_RUNNING, "", NULL);
	cr_assert_eq(commands_write_acks(c, &acks, &change), 0);
	cr_assert_str_eq(buf_str(&acks), "[{\"id\":\"a\",\"state\":\"running\",\"text\":\"\"}]");
	/* It ends while the heartbeat is under way: that is not told by it. */
	(void)commands_set(c, "a", COMMAND_DONE, "x", NULL);
	cr_assert_eq(commands_told(c, change), 0);
	buf_reset(&acks);
	(void)commands_write_acks(c, &acks, &change);
	cr_assert_str_eq(buf_str(&acks), "[{\"id\":\"a\",\"state\":\"done\",\"text\":\"x\"}]");
	cr_assert_eq(commands_told(c, change), 0);
	buf_reset(&acks);
	(void)commands_write_acks(c, &acks, &change);
	cr_assert_str_eq(buf_str(&acks), "[]");
	commands_tell_again(c, "a");
	buf_reset(&acks);
	(void)commands_write_acks(c, &acks, &change);
	cr_assert_str_eq(buf_str(&acks), "[{\"id\":\"a\",\"state\":\"done\",\"text\":\"x\"}]");
	buf_done(&acks);
	commands_free(c);
}

Test(commands, the_oldest_told_one_makes_room_and_a_running_one_never_does)
{
	struct commands *c = must_open();
	struct buf acks = BUF_INIT(1 << 20);
	uint64_t change;
	char id[16];

	(void)commands_set(c, "run", COMMAND_RUNNING, "", NULL);
	for (int i = 1; i < COMMANDS_KEPT_MAX; i++) {
		(void)snprintf(id, sizeof(id), "c%d", i);
		cr_assert_eq(commands_set(c, id, COMMAND_DONE, "", NULL), 0);
	}
	(void)commands_write_acks(c, &acks, &change);
	(void)commands_told(c, change);
	commands_tell_again(c, "c1");
	cr_assert_eq(commands_set(c, "new", COMMAND_DONE, "", NULL), 0);
	cr_assert_not_null(commands_find(c, "run"));
	cr_assert_not_null(commands_find(c, "c1"), "it was not told yet");
	cr_assert_null(commands_find(c, "c2"));
	cr_assert_not_null(commands_find(c, "new"));
	buf_done(&acks);
	commands_free(c);
}

Test(commands, a_damaged_file_is_said_and_replaced)
{
	struct buf why = BUF_INIT(256);
	struct commands *c;

	cr_assert_eq(file_write_atomic(path, "{\"schema\":\"fla", 14), 0);
	cr_assert_eq(commands_open(path, &why, &c), 0);
	cr_assert_not_null(strstr(buf_str(&why), "damaged"));
	cr_assert_null(commands_at(c, 0));
	cr_assert_eq(commands_set(c, "a", COMMAND_DONE, "", NULL), 0);
	commands_free(c);
	c = must_open();
	cr_assert_not_null(commands_find(c, "a"));
	commands_free(c);
	buf_done(&why);
}
