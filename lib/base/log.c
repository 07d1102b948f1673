/*
 * Log lines. The rate limit keeps a small fixed table of area+action pairs; when it is full, the
 * pair whose minute began first makes room. Whatever a peer put into a value, a line stays one line
 * of valid UTF-8. Any thread may log: one mutex holds the state.
 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/str.h"

#define LOG_LINE_MAX   4096
#define LOG_PAIRS_MAX  64
#define LOG_PER_MINUTE 10
#define LOG_MINUTE_NS  (60 * NSEC_PER_SEC)

struct log_pair {
	char name[64]; /* "area action", cut; "" is free */
	uint64_t since_ns;
	uint32_t lines;
	uint64_t suppressed;
};

/* The one state a program has for its one stderr. */
static struct {
	pthread_mutex_t mutex;
	enum log_level level;
	int fd;
	uint64_t (*now_ns)(void);
	struct log_pair pairs[LOG_PAIRS_MAX];
} log_state = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.level = LOG_LEVEL_INFO,
	.fd = STDERR_FILENO,
	.now_ns = loop_now_ns,
};

void log_set_level(enum log_level level)
{
	log_state.level = level;
}

void log_set_fd(int fd)
{
	log_state.fd = fd;
}

void log_set_clock(uint64_t (*now_ns)(void))
{
	log_state.now_ns = now_ns ? now_ns : loop_now_ns;
}

static struct log_pair *log_find_pair(const char *name, uint64_t now_ns)
{
	struct log_pair *oldest = &log_state.pairs[0];

	for (size_t i = 0; i < LOG_PAIRS_MAX; i++) {
		struct log_pair *p = &log_state.pairs[i];

		if (strcmp(p->name, name) == 0)
			return p;
		if (p->name[0] == '\0') {
			oldest = p; /* the pairs in use come first */
			break;
		}
		if (p->since_ns < oldest->since_ns)
			oldest = p;
	}
	*oldest = (struct log_pair){.since_ns = now_ns};
	(void)snprintf(oldest->name, sizeof(oldest->name), "%s", name); /* it is as long at most */
	return oldest;
}

/* Whether the line may be written, and how many before it were not. */
static bool log_may_pass(const char *area, const char *action, uint64_t *suppressed)
{
	uint64_t now_ns = log_state.now_ns();
	char name[sizeof(log_state.pairs[0].name)];
	struct log_pair *p;

	(void)snprintf(name, sizeof(name), "%s %s", area, action); /* cut pairs share a limit */
	p = log_find_pair(name, now_ns);
	if (now_ns - p->since_ns >= LOG_MINUTE_NS) {
		p->since_ns = now_ns;
		p->lines = 0;
	}
	if (p->lines >= LOG_PER_MINUTE) {
		p->suppressed++;
		return false;
	}
	p->lines++;
	*suppressed = p->suppressed;
	p->suppressed = 0;
	return true;
}

static bool log_is_plain(const char *s)
{
	for (const char *p = s; *p; p++) {
		if ((unsigned char)*p <= ' ' || *p == '"' || *p == '=' || *p == '\\')
			return false;
	}
	return *s != '\0';
}

static void log_append_pair(struct buf *b, const char *key, const char *value)
{
	(void)buf_printf(b, "%s=", key);
	if (log_is_plain(value)) {
		(void)buf_append_str(b, value);
		return;
	}
	(void)buf_append_char(b, '"');
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			(void)buf_append_char(b, '\\');
		(void)buf_append_char(b, *value);
	}
	(void)buf_append_char(b, '"');
}

static const char *log_level_name(enum log_level level)
{
	static const char *const names[] = {
		[LOG_LEVEL_ERROR] = "error",
		[LOG_LEVEL_WARN] = "warn",
		[LOG_LEVEL_INFO] = "info",
		[LOG_LEVEL_DEBUG] = "debug",
	};

	return names[level];
}

static void log_write(const struct buf *raw, uint64_t suppressed)
{
	/* Room for the count and the newline. */
	_cleanup_(buf_done) struct buf line = BUF_INIT(LOG_LINE_MAX + 64);

	(void)str_append_utf8(&line, buf_str(raw), raw->size, LOG_LINE_MAX);
	if (suppressed > 0)
		(void)buf_printf(&line, " suppressed=%llu", (unsigned long long)suppressed);
	(void)buf_append_char(&line, '\n');
	/* There is nobody to tell that stderr is gone. */
	if (write(log_state.fd, buf_str(&line), line.size) < 0)
		return;
}

void log_line(
	enum log_level level, const char *area, const char *action, int error, const char *fmt, ...)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(2 * LOG_LINE_MAX);
	_cleanup_(freep) char *pairs = NULL;
	uint64_t suppressed = 0;
	const char *text;
	va_list ap;
	int n;

	if (level > log_state.level)
		return;
	(void)pthread_mutex_lock(&log_state.mutex); /* a default mutex does not fail */
	if (log_may_pass(area, action, &suppressed)) {
		(void)buf_printf(&raw, "level=%s ", log_level_name(level));
		log_append_pair(&raw, "area", area);
		(void)buf_append_char(&raw, ' ');
		log_append_pair(&raw, "action", action);
		if (error != 0) {
			text = strerrordesc_np(error < 0 ? -error : error);
			(void)buf_append_char(&raw, ' ');
			log_append_pair(&raw, "error", text ? text : "unknown error");
		}
		va_start(ap, fmt);
		n = vasprintf(&pairs, fmt, ap);
		va_end(ap);
		if (n < 0)
			pairs = NULL; /* the line goes out without its pairs */
		if (n > 0) {
			(void)buf_append_char(&raw, ' ');
			(void)buf_append(&raw, pairs, (size_t)n);
		}
		log_write(&raw, suppressed);
	}
	(void)pthread_mutex_unlock(&log_state.mutex);
}
