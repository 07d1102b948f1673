/*
 * The agent's end of the helper process. One request is under way at a time. Whatever goes wrong
 * with a request kills the helper: a new one costs a few milliseconds, a half-understood one could
 * answer the next question with this one's names.
 */
#include "agent/helper_internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "agent/helper_cfi.h"
#include "agent/symbolize.h"
#include "base/log.h"
#include "base/loop.h"

enum {
	HELPER_MEMORY_MB = 512,
	HELPER_LINES_MEMORY_MB = 64,
	HELPER_TIMEOUT_MS = 5000,
	/* Between two starts of a helper that cannot be started at all. */
	HELPER_START_WAIT_MS = 1000,
};

void helper_stop(struct helper *h)
{
	closep(&h->socket);
	h->socket = -1;
	child_end(&h->child, 0);
	child_done(&h->child);
	h->child = (struct child){.pidfd = -1};
}

static int helper_start(struct helper *h)
{
	char program[] = "/proc/self/exe";
	char command[] = SYMBOLIZER_HELPER_ARG;
	char role[16];
	char memory[16];
	char *argv[] = {program, command, role, memory, NULL};
	/* Nothing of our environment: no DEBUGINFOD_URLS, no LD_PRELOAD, no locale. */
	char *envp[] = {NULL};
	int ends[2];

	(void)snprintf(role, sizeof(role), "%u", (unsigned int)h->options.role); /* fit */
	(void)snprintf(memory, sizeof(memory), "%u", h->options.memory_mb);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	_cleanup_(closep) int ours = ends[0];
	_cleanup_(closep) int theirs = ends[1];
	struct child_io io = {.in = theirs, .out = -1, .err = STDERR_FILENO, .envp = envp};
	int r = child_start(&h->child, argv, &io);

	if (r < 0) {
		h->child = (struct child){.pidfd = -1};
		return r;
	}
	h->socket = steal_fd(&ours);
	return 0;
}

static int helper_restart(struct helper *h)
{
	uint64_t now_ns = loop_now_ns();

	if (h->start_failed_ns != 0 &&
		now_ns - h->start_failed_ns < HELPER_START_WAIT_MS * NSEC_PER_MSEC)
		return -EAGAIN;
	helper_stop(h);
	h->restarts++;
	int r = helper_start(h);

	h->start_failed_ns = r < 0 ? now_ns : 0;
	if (r < 0)
		log_warn("symbolize", "start helper", r, "restarts=%llu",
			(unsigned long long)h->restarts);
	return r;
}

int helper_new(const struct helper_options *o, struct helper **ret)
{
	struct helper *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->options = *o;
	if (h->options.memory_mb == 0)
		h->options.memory_mb =
			o->role == HELPER_LINES ? HELPER_LINES_MEMORY_MB : HELPER_MEMORY_MB;
	if (h->options.timeout_ms == 0)
		h->options.timeout_ms = HELPER_TIMEOUT_MS;
	h->socket = -1;
	h->child.pidfd = -1;
	buf_init(&h->request, HELPER_REQUEST_SIZE_MAX);
	buf_init(&h->body, HELPER_CFI_BODY_MAX);
	int r = helper_start(h);

	if (r < 0) {
		helper_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void helper_free(struct helper *h)
{
	if (!h)
		return;
	helper_stop(h);
	buf_done(&h->request);
	buf_done(&h->body);
	free(h);
}

/* 0 or -errno; -EPIPE when it is not there. */
static int helper_send(struct helper *h, const int *fds, size_t fd_count)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(HELPER_FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = h->request.data, .iov_len = h->request.size};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(fd_count * sizeof(*fds)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(fd_count * sizeof(*fds));
	memcpy(CMSG_DATA(c), fds, fd_count * sizeof(*fds));
	if (h->socket < 0)
		return -EPIPE;
	/* One request is under way at a time, so the socket's buffer is empty: never waits. */
	if (sendmsg(h->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

ssize_t helper_receive(struct helper *h, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = h->socket, .events = POLLIN};
		uint64_t now_ns = loop_now_ns();

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		int wait_ms = (int)((deadline_ns - now_ns) / NSEC_PER_MSEC) + 1;
		int n = poll(&p, 1, wait_ms);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			continue;
		ssize_t size = recv(h->socket, h->packet, sizeof(h->packet), MSG_DONTWAIT);

		if (size > 0)
			return size;
		if (size == 0 || errno == ECONNRESET)
			return -EPIPE;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
}

int helper_begin(struct helper *h, const int *fds, size_t fd_count, uint64_t *ret_deadline_ns)
{
	int r = helper_send(h, fds, fd_count);

	if (r == -EPIPE) { /* it died while nothing was asked: nobody's fault */
		r = helper_restart(h);
		if (r == 0)
			r = helper_send(h, fds, fd_count);
	}
	*ret_deadline_ns = loop_now_ns() + h->options.timeout_ms * NSEC_PER_MSEC;
	return r;
}

void helper_take_reason(const struct helper_packet *p, char reason[HELPER_REASON_MAX])
{
	size_t size = MIN(cursor_left(&p->rest), (size_t)HELPER_REASON_MAX - 1);

	for (size_t i = 0; i < size; i++) {
		char c = (char)p->rest.pos[i];

		reason[i] = c >= ' ' && c <= '~' ? c : '?';
	}
	reason[size] = '\0';
}

/* The request under way and how far its answer has come. */
struct helper_question {
	size_t count, done;
	bool is_last;
	helper_answer_fn *fn;
	void *data;
	char *reason;
	uint32_t file_flags;
};

/* Gives one packet's answers to q->fn. */
static int helper_take_packet(struct helper *h, size_t size, struct helper_question *q)
{
	struct helper_packet p;
	struct helper_answer a;
	int r = helper_answer_get(h->packet, size, &p);

	if (r < 0)
		return r;
	if (p.sequence != h->sequence || p.first != q->done || p.count > q->count - q->done)
		return -EBADMSG;
	q->file_flags = p.file_flags;
	if (p.status != HELPER_OK) {
		helper_take_reason(&p, q->reason);
		return -ENOEXEC;
	}
	if (p.count == 0 && !p.is_last)
		return -EBADMSG; /* or it could go on for ever */
	q->is_last = p.is_last;
	while (helper_answer_next(&p, &a))
		q->fn(q->data, q->done++, &a);
	r = helper_packet_error(&p);
	if (r == 0 && p.is_last && q->done != q->count)
		r = -EBADMSG;
	return r;
}

static int helper_send_question(struct helper *h, const struct helper_file *f, uint32_t flags,
	const uint64_t *addresses, size_t count, uint64_t *ret_deadline_ns)
{
	int fds[HELPER_FDS_MAX] = {f->fd};
	size_t fd_count = 1;
	struct helper_request q = {
		.sequence = ++h->sequence, .file = f->id, .count = (uint32_t)count, .flags = flags};

	if (count > HELPER_BATCH_MAX)
		return -EINVAL;
	if (f->debug_fd >= 0) {
		fds[fd_count++] = f->debug_fd;
		q.flags |= HELPER_WITH_DEBUG;
	}
	if (f->alt_fd >= 0) {
		fds[fd_count++] = f->alt_fd;
		q.flags |= HELPER_WITH_ALT;
	}
	buf_reset(&h->request);
	int r = helper_request_put(&h->request, &q, addresses);

	return r < 0 ? r : helper_begin(h, fds, fd_count, ret_deadline_ns);
}

int helper_ask(struct helper *h, const struct helper_file *f, uint32_t flags,
	const uint64_t *addresses, size_t count, helper_answer_fn *fn, void *data, char *reason,
	uint32_t *ret_flags)
{
	struct helper_question q = {.count = count, .fn = fn, .data = data, .reason = reason};
	uint64_t deadline_ns = 0;

	reason[0] = '\0';
	int r = helper_send_question(h, f, flags, addresses, count, &deadline_ns);

	while (r == 0 && !q.is_last) {
		ssize_t size = helper_receive(h, deadline_ns);

		r = size < 0 ? (int)size : helper_take_packet(h, (size_t)size, &q);
	}
	if (r < 0 && r != -ENOEXEC)
		helper_stop(h); /* the next request starts another */
	if (r == 0 || r == -ENOEXEC)
		*ret_flags = q.file_flags;
	return r;
}

pid_t helper_pid(const struct helper *h)
{
	return !h || h->socket < 0 ? 0 : h->child.pid;
}

uint64_t helper_restarts(const struct helper *h)
{
	return h ? h->restarts : 0;
}
