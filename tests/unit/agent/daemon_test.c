/* The daemon's parts that need no daemon: configuration, state directory, windows in time. */
#include <criterion/criterion.h>
#include <errno.h>
#include <unistd.h>

#include "agent/daemon_conf.h"
#include "agent/daemon_jobs.h"
#include "agent/daemon_recorder.h"
#include "agent/daemon_spec.h"
#include "agent/daemon_state.h"
#include "base/child.h"
#include "base/def.h"
#include "base/file.h"

static char dir[] = "/tmp/daemon_test.XXXXXX";

static void set_up(void)
{
	cr_assert_not_null(mkdtemp(dir));
}

static void tear_down(void)
{
	char *argv[] = {(char *)"rm", (char *)"-rf", dir, NULL};

	(void)child_run(argv, NULL, 10000);
}

TestSuite(daemon, .init = set_up, .fini = tear_down);

Test(daemon, the_shipped_config_has_every_option_at_its_default)
{
	struct buf made = BUF_INIT(65536);
	struct buf shipped = BUF_INIT(65536);

	cr_assert_eq(opts_sample_config(daemon_conf_specs, &made), 0);
	cr_assert_eq(file_read("agent/agent.conf", &shipped), 0);
	cr_assert_str_eq(buf_str(&shipped), buf_str(&made));
	buf_done(&made);
	buf_done(&shipped);
}

/* Loads a config file of that text; 0 or the message in why. */
static int load(const char *text, struct daemon_conf *c, struct buf *why)
{
	char path[64];
	char *argv[] = {(char *)"daemon", (char *)"--config", path, NULL};
	struct opts o = {0};
	int r;

	(void)snprintf(path, sizeof(path), "%s/agent.conf", dir);
	cr_assert_eq(file_write_atomic(path, text, strlen(text)), 0);
	r = daemon_conf_load(3, argv, &o, c, why);
	opts_done(&o); /* the test reads numbers and arrays only */
	return r;
}

static void refuses(const char *text, const char *place, const char *word)
{
	struct daemon_conf c = {0};
	struct buf why = BUF_INIT(4096);

	cr_assert_eq(load(text, &c, &why), -EINVAL, "%s", text);
	cr_assert_not_null(strstr(buf_str(&why), place), "%s: %s", text, buf_str(&why));
	cr_assert_not_null(strstr(buf_str(&why), word), "%s: %s", text, buf_str(&why));
	buf_done(&why);
}

Test(daemon, a_wrong_config_is_refused_with_file_and_line)
{
	refuses("\nbackendd = http://127.0.0.1\n", "agent.conf:2:", "did you mean 'backend'");
	refuses("# x\n\ntoken-file = /nonexistent/token\n",
		"agent.conf:3: token-file:", "No such file");
	refuses("ca-file=/nonexistent/ca\n", "agent.conf:1: ca-file:", "No such file");
	refuses("backend = ftp://x\n", "agent.conf:1: backend:", "http[s]");
	refuses("backend = https://u:p@x\n", "agent.conf:1: backend:", "http[s]");
	refuses("frequency = 0\n", "agent.conf:1:", "1..10000");
	refuses("service-rule = comm:a=b\n# x\nservice-rule = nginx=web\n",
		"agent.conf:3: service-rule:", "comm:PATTERN=NAME");
	refuses("state-dir = here\n", "agent.conf:1: state-dir:", "absolute");
}

Test(daemon, profiles_leave_the_host_encrypted_only)
{
	struct daemon_conf c = {0};
	struct buf why = BUF_INIT(4096);

	refuses("backend = http://10.0.0.1:4040\n", "agent.conf:1: backend:", "unencrypted");
	refuses("backend = http://127.0.0.1.example.org\n", "agent.conf:1:", "unencrypted");
	cr_assert_eq(load("backend = http://[::1]:4040\n", &c, &why), 0);
	cr_assert_eq(load("backend = http://localhost\n", &c, &why), 0);
	cr_assert_eq(load("backend = https://profiles.example.org\n", &c, &why), 0);
	buf_done(&why);
}

Test(daemon, a_token_is_one_line_of_printable_text)
{
	struct daemon_conf c = {0};
	struct buf why = BUF_INIT(4096);
	char path[64], conf[128];

	(void)snprintf(path, sizeof(path), "%s/token", dir);
	(void)snprintf(conf, sizeof(conf), "token-file = %s\n", path);
	cr_assert_eq(file_write_atomic(path, "abc-123_\n", 9), 0);
	cr_assert_eq(load(conf, &c, &why), 0);
	cr_assert_str_eq(c.token, "abc-123_");
	cr_assert_eq(file_write_atomic(path, "a\r\nX-Evil: 1\n", 13), 0);
	refuses(conf, "agent.conf:1: token-file:", "one line");
	cr_assert_eq(file_write_atomic(path, "", 0), 0);
	refuses(conf, "agent.conf:1: token-file:", "one line");
	buf_done(&why);
}

Test(daemon, an_option_on_the_command_line_is_named_as_such)
{
	char *argv[] = {
		(char *)"daemon", (char *)"--token-file", (char *)"/nonexistent/token", NULL};
	struct daemon_conf c = {0};
	struct buf why = BUF_INIT(4096);
	struct opts o = {0};

	cr_assert_eq(daemon_conf_load(3, argv, &o, &c, &why), -EINVAL);
	cr_assert_not_null(strstr(buf_str(&why), "option '--token-file'"), "%s", buf_str(&why));
	opts_done(&o);
	buf_done(&why);
}

Test(daemon, an_installation_keeps_its_id)
{
	char a[DAEMON_INSTANCE_SIZE], b[DAEMON_INSTANCE_SIZE];
	char path[64];

	cr_assert_eq(daemon_state_instance(dir, a), 0);
	cr_assert_eq(strlen(a), 36);
	cr_assert_eq(daemon_state_instance(dir, b), 0);
	cr_assert_str_eq(a, b);
	(void)snprintf(path, sizeof(path), "%s/instance", dir);
	cr_assert_eq(file_write_atomic(path, "../../etc/passwd\n", 17), 0);
	cr_assert_eq(daemon_state_instance(dir, b), 0);
	cr_assert_str_neq(a, b, "no id of ours: a new one");
	cr_assert_eq(strlen(b), 36);
}

Test(daemon, a_second_one_is_told_who_has_the_lock)
{
	int fd = -1, fd2 = -1, pid = 0;

	cr_assert_eq(daemon_state_lock(dir, &fd, &pid), 0);
	cr_assert_eq(daemon_state_lock(dir, &fd2, &pid), -EBUSY);
	cr_assert_eq(pid, (int)getpid());
	cr_assert_eq(fd2, -1);
	(void)close(fd);
	cr_assert_eq(daemon_state_lock(dir, &fd2, &pid), 0, "a stale file is harmless");
	(void)close(fd2);
}

Test(daemon, a_change_keeps_who_the_recording_is_and_replaces_what_it_does)
{
	const uint64_t pid = 7;
	const char *const comms[] = {"a"};
	struct command start = {.id = "s1",
		.target = "",
		.view = "cpu",
		.frequency_hz = 99,
		.deadline_unix_ms = 5,
		.filter.sides[FILTER_SIDE_ONLY].texts[FILTER_COMMS] = {comms, 1}};
	struct command change = {.id = "x1",
		.kind = COMMAND_CHANGE,
		.target = "s1",
		.view = "wall",
		.frequency_hz = 7,
		.duration_ns = 9,
		.filter.sides = {
			{.pids = &pid, .pid_count = 1, .texts[FILTER_CONTAINERS] = {comms, 1}},
			{.texts[FILTER_USERS] = {comms, 1}}}};
	struct spec s = {0}, moved = {0};

	cr_assert_eq(spec_change(&start, &change, &s), 0);
	cr_assert_str_eq(s.command.id, "s1");
	cr_assert_eq(s.command.kind, COMMAND_START);
	cr_assert_str_eq(s.command.view, "cpu");
	cr_assert_eq(s.command.deadline_unix_ms, 5);
	cr_assert_str_eq(s.change_id, "x1");
	cr_assert_eq(s.command.frequency_hz, 7);
	cr_assert_eq(s.command.duration_ns, 9);
	cr_assert_eq(s.command.filter.sides[0].pids[0], 7);
	cr_assert_eq(s.command.filter.sides[0].texts[FILTER_COMMS].count, 0);
	cr_assert_str_eq(s.command.filter.sides[0].texts[FILTER_CONTAINERS].at[0], "a");
	cr_assert_str_eq(s.command.filter.sides[FILTER_SIDE_EXCEPT].texts[FILTER_USERS].at[0], "a");
	spec_move(&moved, &s);
	cr_assert(spec_is_set(&moved) && !spec_is_set(&s));
	spec_done(&moved);
}

#define S NSEC_PER_SEC

Test(daemon, windows_on_request_have_their_length_and_end_with_the_recording)
{
	struct jobs_schedule s = {.window_ns = 10 * S, .end_ns = 125 * S};

	cr_assert_eq(jobs_window_end(&s, 100 * S), 110 * S);
	cr_assert_eq(jobs_window_end(&s, 110 * S), 120 * S);
	cr_assert_eq(jobs_window_end(&s, 120 * S), 125 * S);
	s.end_ns = 110 * S + S / 2;
	cr_assert_eq(jobs_window_end(&s, 100 * S), 110 * S + S / 2, "no sliver at the end");
}

Test(daemon, continuous_windows_end_at_full_utc_minutes)
{
	struct jobs_schedule s = {.window_ns = 60 * S,
		.is_aligned = true,
		.end_ns = UINT64_MAX,
		.clock_offset_ns = (int64_t)(1700000000 * S)}; /* 20 s into a minute */

	cr_assert_eq(jobs_window_end(&s, 0), 40 * S);
	cr_assert_eq(jobs_window_end(&s, 40 * S), 100 * S);
	cr_assert_eq(jobs_window_end(&s, 38 * S), 100 * S, "2 s are no window of their own");
	/* The clock was set an hour and 7 s ahead in between: aligned again at once. */
	s.clock_offset_ns += (int64_t)(3607 * S);
	cr_assert_eq(jobs_window_end(&s, 100 * S), 153 * S);
}

Test(daemon, a_recorders_last_error_line_becomes_the_commands_text)
{
	char text[RECORDER_TEXT_MAX];

	cr_assert_str_eq(recorder_error_text("level=error area=window action=start error=\"x\" "
					     "why=\"process 7 does not exist\"",
				 text),
		"process 7 does not exist");
	cr_assert_str_eq(recorder_error_text("level=error area=record action=sample", text),
		"area=record action=sample");
	cr_assert_null(recorder_error_text("level=warn area=record why=\"x\"", text));
}
