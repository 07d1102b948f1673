/*
 * QMP: JSON objects, one a line. The conversation is short and fixed: QEMU greets, we ask for
 * capabilities, then for "cont" (QEMU was started with -S, so that no byte of ours arrives in a
 * guest that runs), then it sends events until it goes away.
 */
#include "lab/qmp.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <sys/socket.h>

#include "base/def.h"

enum { LINE_MAX_BYTES = 64 << 10 };

static void copy_text(char *out, size_t size, const cJSON *item)
{
	const char *s = cJSON_GetStringValue(item);

	(void)snprintf(out, size, "%s", s ? s : "");
}

static void cjson_done(cJSON **j)
{
	cJSON_Delete(*j);
}

int qmp_parse(const char *line, size_t size, struct qmp_message *ret)
{
	_cleanup_(cjson_done) cJSON *root = cJSON_ParseWithLength(line, size);
	struct qmp_message m = {.kind = QMP_OTHER};
	const cJSON *item;

	if (!cJSON_IsObject(root))
		return -EBADMSG;
	if (cJSON_GetObjectItemCaseSensitive(root, "QMP")) {
		m.kind = QMP_GREETING;
	} else if (cJSON_GetObjectItemCaseSensitive(root, "return")) {
		m.kind = QMP_RETURN;
	} else if ((item = cJSON_GetObjectItemCaseSensitive(root, "error"))) {
		m.kind = QMP_ERROR;
		copy_text(m.name, sizeof(m.name), cJSON_GetObjectItemCaseSensitive(item, "class"));
		copy_text(
			m.reason, sizeof(m.reason), cJSON_GetObjectItemCaseSensitive(item, "desc"));
	} else if ((item = cJSON_GetObjectItemCaseSensitive(root, "event"))) {
		m.kind = QMP_EVENT;
		copy_text(m.name, sizeof(m.name), item);
		item = cJSON_GetObjectItemCaseSensitive(root, "data");
		copy_text(m.reason, sizeof(m.reason),
			cJSON_GetObjectItemCaseSensitive(item, "reason"));
	}
	*ret = m;
	return 0;
}

void qmp_init(struct qmp *q, int fd)
{
	*q = (struct qmp){.fd = fd, .in = BUF_INIT(LINE_MAX_BYTES)};
}

void qmp_done(struct qmp *q)
{
	buf_done(&q->in);
}

static int send_command(struct qmp *q, const char *command)
{
	char text[128];
	int n = snprintf(
		text, sizeof(text), "{\"execute\":\"%s\",\"id\":\"%s\"}\n", command, command);

	return send(q->fd, text, (size_t)n, MSG_NOSIGNAL) == n ? 0 : -EIO;
}

/* The first "return" answers qmp_capabilities, the second "cont". */
static int take_return(struct qmp *q, const char *line, size_t size)
{
	if (memmem(line, size, "qmp_capabilities", strlen("qmp_capabilities")))
		return send_command(q, "cont");
	q->is_running = true;
	return 0;
}

static int take_line(struct qmp *q, const char *line, size_t size)
{
	struct qmp_message m;
	int err = qmp_parse(line, size, &m);

	if (err < 0)
		return err;
	switch (m.kind) {
	case QMP_GREETING:
		return send_command(q, "qmp_capabilities");
	case QMP_RETURN:
		return take_return(q, line, size);
	case QMP_ERROR:
		(void)snprintf(q->error, sizeof(q->error), "%s", m.reason);
		return 0;
	case QMP_EVENT:
		if (strcmp(m.name, "SHUTDOWN") == 0)
			(void)snprintf(q->shutdown, sizeof(q->shutdown), "%s", m.reason);
		else if (strcmp(m.name, "GUEST_PANICKED") == 0)
			q->panicked = true;
		return 0;
	case QMP_OTHER:
		return 0;
	}
	return 0;
}

static int take_lines(struct qmp *q)
{
	size_t start = 0;
	int err = 0;

	while (err == 0) {
		char *end = memchr(q->in.data + start, '\n', q->in.size - start);

		if (!end)
			break;
		err = take_line(q, q->in.data + start, (size_t)(end - q->in.data) - start);
		start = (size_t)(end - q->in.data) + 1;
	}
	memmove(q->in.data, q->in.data + start, q->in.size - start);
	q->in.size -= start;
	return err;
}

int qmp_pump(struct qmp *q)
{
	char bytes[4096];

	for (;;) {
		ssize_t n = recv(q->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		int err;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : errno == ECONNRESET ? 1 : -errno;
		if (n == 0)
			return 1;
		if ((err = buf_append(&q->in, bytes, (size_t)n)) < 0 || (err = take_lines(q)) < 0)
			return err;
	}
}
