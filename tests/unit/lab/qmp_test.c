/* qmp: messages as QEMU 7.2 sends them, and the conversation up to a guest's death. */
#include "lab/qmp.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/socket.h>

#include "base/def.h"

static struct qmp_message parsed(const char *line)
{
	struct qmp_message m;

	cr_assert_eq(qmp_parse(line, strlen(line), &m), 0, "%s", line);
	return m;
}

Test(qmp, tells_messages_apart)
{
	struct qmp_message m = parsed("{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}");

	cr_assert_eq(m.kind, QMP_GREETING);
	cr_assert_eq(parsed("{\"return\": {}, \"id\": \"cont\"}").kind, QMP_RETURN);
	cr_assert_eq(parsed("{\"x\": 1}").kind, QMP_OTHER);
	m = parsed("{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no such\"}}");
	cr_assert_eq(m.kind, QMP_ERROR);
	cr_assert_str_eq(m.name, "CommandNotFound");
	cr_assert_str_eq(m.reason, "no such");
}

Test(qmp, takes_the_reason_of_a_shutdown)
{
	struct qmp_message m = parsed(
		"{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"SHUTDOWN\", "
		"\"data\": {\"guest\": true, \"reason\": \"guest-reset\"}}");

	cr_assert_eq(m.kind, QMP_EVENT);
	cr_assert_str_eq(m.name, "SHUTDOWN");
	cr_assert_str_eq(m.reason, "guest-reset");
}

Test(qmp, survives_fields_of_another_type)
{
	struct qmp_message m = parsed("{\"event\": 7, \"data\": []}");

	cr_assert_eq(m.kind, QMP_EVENT);
	cr_assert_str_eq(m.name, "");
	m = parsed("{\"error\": \"text\"}");
	cr_assert_str_eq(m.reason, "");
}

Test(qmp, refuses_what_is_not_an_object)
{
	static const char *const bad[] = {"", "[]", "{", "1", "nonsense", "{\"event\": }"};
	struct qmp_message m;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(qmp_parse(bad[i], strlen(bad[i]), &m), -EBADMSG, "%s", bad[i]);
}

static void send_text(int fd, const char *text)
{
	cr_assert_eq(send(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void expect_command(int fd, const char *name)
{
	char text[128];
	ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	cr_assert_gt(n, 0, "%s was not sent", name);
	text[n] = 0;
	cr_assert_not_null(strstr(text, name));
}

Test(qmp, greets_runs_and_notes_how_the_guest_died)
{
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	_cleanup_(closep) int ours = fds[0];
	_cleanup_(qmp_done) struct qmp q;
	qmp_init(&q, ours);
	cr_assert_eq(qmp_pump(&q), 0);
	send_text(fds[1], "{\"QMP\": {}}\r\n");
	cr_assert_eq(qmp_pump(&q), 0);
	expect_command(fds[1], "\"qmp_capabilities\"");
	cr_assert_not(q.is_running);
	send_text(fds[1], "{\"return\": {}, \"id\": \"qmp_capabilities\"}\r\n");
	cr_assert_eq(qmp_pump(&q), 0);
	expect_command(fds[1], "\"cont\"");
	cr_assert_not(q.is_running);
	/* A line may come in pieces. */
	send_text(fds[1], "{\"return\": {}, \"id\":");
	cr_assert_eq(qmp_pump(&q), 0);
	cr_assert_not(q.is_running);
	send_text(fds[1], " \"cont\"}\r\n{\"event\": \"GUEST_PANICKED\"}\r\n");
	cr_assert_eq(qmp_pump(&q), 0);
	cr_assert(q.is_running);
	cr_assert(q.panicked);
	send_text(fds[1], "{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"guest-panic\"}}\n");
	(void)close(fds[1]);
	cr_assert_eq(qmp_pump(&q), 1);
	cr_assert_str_eq(q.shutdown, "guest-panic");
}

Test(qmp, gives_up_on_a_line_without_end)
{
	char junk[4096];
	int fds[2], err = 0;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	_cleanup_(closep) int ours = fds[0];
	_cleanup_(closep) int theirs = fds[1];
	_cleanup_(qmp_done) struct qmp q;
	qmp_init(&q, ours);
	memset(junk, 'x', sizeof(junk));
	for (int i = 0; i < 17 && err == 0; i++) {
		cr_assert_eq(send(theirs, junk, sizeof(junk), 0), (ssize_t)sizeof(junk));
		err = qmp_pump(&q);
	}
	cr_assert_eq(err, -ENOBUFS);
}
