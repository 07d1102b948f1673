/* See daemon_state.h. */
#include "agent/daemon_state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

int daemon_state_path(const char *dir, const char *name, struct buf *ret)
{
	return buf_printf(ret, "%s/%s", dir, name) < 0 ? -ENAMETOOLONG : 0;
}

static int write_pid(int fd)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (ftruncate(fd, 0) < 0)
		return -errno;
	return pwrite(fd, text, (size_t)n, 0) == n ? 0 : -EIO;
}

int daemon_state_lock(const char *dir, int *ret_fd, int *ret_pid)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf text = BUF_INIT(64);
	_cleanup_(closep) int fd = -1;
	int r = file_mkdir_parents(dir);

	if (r == 0)
		r = daemon_state_path(dir, "lock", &path);
	if (r < 0)
		return r;
	fd = open(buf_str(&path), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		r = write_pid(fd);
		if (r == 0)
			*ret_fd = steal_fd(&fd);
		return r;
	}
	if (errno != EWOULDBLOCK)
		return -errno;
	(void)file_read_fd(fd, &text); /* only for the message */
	*ret_pid = (int)strtol(buf_str(&text), NULL, 10);
	return -EBUSY;
}

static bool is_uuid(const char *s, size_t size)
{
	if (size != DAEMON_INSTANCE_SIZE - 1)
		return false;
	for (size_t i = 0; i < size; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (is_dash ? s[i] != '-' : !strchr("0123456789abcdef", s[i]))
			return false;
	}
	return true;
}

/* RFC 9562, version 4. */
static int make_uuid(char ret[DAEMON_INSTANCE_SIZE])
{
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		return -EIO;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	(void)snprintf(ret, DAEMON_INSTANCE_SIZE,
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		b[15]);
	return 0;
}

int daemon_state_instance(const char *dir, char ret[DAEMON_INSTANCE_SIZE])
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf text = BUF_INIT(256);
	char line[DAEMON_INSTANCE_SIZE + 1];
	int r = daemon_state_path(dir, "instance", &path);

	if (r == 0)
		r = file_read_own(buf_str(&path), &text);
	if (r < 0 && r != -ENOENT)
		return r;
	/* One that is no id was not made by us; a new one is better than none. */
	if (r == 0 && is_uuid(buf_str(&text), strcspn(buf_str(&text), "\n"))) {
		memcpy(ret, text.data, DAEMON_INSTANCE_SIZE - 1);
		ret[DAEMON_INSTANCE_SIZE - 1] = '\0';
		return 0;
	}
	r = make_uuid(ret);
	if (r < 0)
		return r;
	(void)snprintf(line, sizeof(line), "%s\n", ret);
	return file_write_atomic(buf_str(&path), line, strlen(line));
}

int daemon_state_write_status(const char *dir, const char *state, const char *text,
	const char *backend, int64_t time_unix_ms)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf out = BUF_INIT(16384);
	int r = daemon_state_path(dir, "status.json", &path);

	(void)buf_printf(
		&out, "{\"schema\":\"flame-agent-status/1\",\"state\":\"%s\",\"text\":", state);
	(void)str_append_json(&out, text);
	(void)buf_append_str(&out, ",\"backend\":");
	(void)str_append_json(&out, backend);
	(void)buf_printf(&out, ",\"time_unix_ms\":%lld}\n", (long long)time_unix_ms);
	if (r == 0)
		r = buf_error(&out);
	return r == 0 ? file_write_atomic(buf_str(&path), out.data, out.size) : r;
}
