/*
 * See proxy.h. One connection after the other, one request each: an agent has two at most, and a heartbeat
 * that waits half a second for a push's commit does no harm. "Connection: close" both ways, so that the end
 * of an answer is the end of its connection.
 */
#include "lab/guest/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/def.h"
#include "lab/guest/http.h"

enum { BUFFER = 4 << 20, BACKLOG = 16, WAIT_S = 20 };

struct worker {
	struct proxy_shared *shared;
	unsigned int backend_port;
	int listen_fd;
	uint64_t not_before_ns; /* of the next push, by the Retry-After that was given */
	char request[BUFFER], answer[BUFFER];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail with this clock */
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* A whole request with its body. 0; -EBADMSG: the peer ended or sent no HTTP; -EFBIG; -errno. */
static int read_request(int fd, char *buffer, size_t *ret)
{
	static const char length_field[] = "\r\nContent-Length: ", expect[] = "\r\nExpect: 100";
	const char *end = NULL, *field;
	size_t size = 0, whole = SIZE_MAX;

	while (size < whole) {
		ssize_t n = recv(fd, buffer + size, BUFFER - 1 - size, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		size += (size_t)n;
		buffer[size] = 0;
		if (size == BUFFER - 1)
			return -EFBIG;
		if (end || !(end = memmem(buffer, size, "\r\n\r\n", 4)))
			continue;
		field = strcasestr(buffer, length_field);
		whole = (size_t)(end + 4 - buffer);
		if (field && field < end)
			whole += strtoull(field + strlen(length_field), NULL, 10);
		field = strcasestr(buffer, expect);
		if (field && field < end && size < whole)
			(void)http_send(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25); /* recv tells */
	}
	*ret = size;
	return 0;
}

/* Passes it on and reads the answer. The status; 502: the backend gave none. */
static int ask_backend(struct worker *w, size_t size, size_t *ret_answer)
{
	static const char close_field[] = "\r\nConnection: close", version[] = "HTTP/1.1 ";
	size_t line = strcspn(w->request, "\r");
	_cleanup_(closep) int fd = http_connect(w->backend_port);
	int err = fd < 0 ? fd : http_send(fd, w->request, line);

	if (err == 0)
		err = http_send(fd, close_field, strlen(close_field));
	if (err == 0)
		err = http_send(fd, w->request + line, size - line);
	if (err == 0)
		err = http_receive(fd, w->answer, BUFFER, ret_answer);
	if (err < 0 || strncmp(w->answer, version, strlen(version)) != 0)
		return 502;
	return (int)strtol(w->answer + strlen(version), NULL, 10);
}

static void say(int fd, const char *status, const char *more)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
		"HTTP/1.1 %s\r\nConnection: close\r\n%sContent-Length: 4\r\n\r\nlab\n", status,
		more);

	(void)http_send(fd, text, (size_t)n); /* a peer that is gone tries again */
}

static void serve_push(struct worker *w, int fd, size_t size)
{
	static const char start[] = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{";
	struct proxy_shared *s = w->shared;
	uint32_t mode = atomic_load(&s->mode);
	size_t answer_size = 0;
	char more[64];
	int status;

	if (now_ns() < w->not_before_ns)
		(void)atomic_fetch_add(&s->early, 1); /* only counted */
	w->not_before_ns = 0;
	if (mode == PROXY_500) {
		say(fd, "500 Internal Server Error", "");
		(void)atomic_fetch_add(&s->refused_500, 1);
		return;
	}
	if (mode == PROXY_429) {
		(void)snprintf(more, sizeof(more), "Retry-After: %d\r\n", PROXY_RETRY_AFTER_S);
		w->not_before_ns = now_ns() + PROXY_RETRY_AFTER_S * NSEC_PER_SEC;
		say(fd, "429 Too Many Requests", more);
		(void)atomic_fetch_add(&s->refused_429, 1);
		return;
	}
	status = ask_backend(w, size, &answer_size);
	if (status == 502) {
		say(fd, "502 Bad Gateway", "");
	} else if (mode == PROXY_CUT && status == 200) {
		(void)http_send(fd, start, strlen(start)); /* a peer that is gone got less */
		(void)atomic_fetch_add(&s->cut, 1);
	} else {
		(void)http_send(fd, w->answer, answer_size); /* a peer that is gone tries again */
		(void)atomic_fetch_add(&s->passed, status == 200);
	}
}

static void serve(struct worker *w, int fd)
{
	static const char push[] = "POST /push.v1.PusherService/Push ";
	struct timeval wait = {.tv_sec = WAIT_S}; /* longer than any answer of ours takes */
	size_t size = 0, answer_size = 0;

	(void)setsockopt(
		fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)); /* else it waits longer */
	if (read_request(fd, w->request, &size) < 0)
		return;
	if (strncmp(w->request, push, strlen(push)) == 0)
		serve_push(w, fd, size);
	else if (ask_backend(w, size, &answer_size) == 502)
		say(fd, "502 Bad Gateway", "");
	else
		(void)http_send(fd, w->answer, answer_size); /* a peer that is gone tries again */
}

static _Noreturn void work(struct worker *w)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a killed lab-init */
	for (;;) {
		_cleanup_(closep) int fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			serve(w, fd);
		else if (errno != EINTR && errno != ECONNABORTED)
			_exit(1);
	}
}

static int listen_on(unsigned int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, err;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	err = -errno;
	(void)close(fd);
	return err;
}

int proxy_start(struct proxy *p, unsigned int port, unsigned int backend_port)
{
	_cleanup_(closep) int fd = listen_on(port);
	struct worker *w;
	void *shared;
	pid_t pid;

	if (fd < 0)
		return fd;
	shared = mmap(NULL, sizeof(*p->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	if (shared == MAP_FAILED)
		return -errno;
	p->shared = shared; /* zero: PROXY_PASS */
	w = malloc(sizeof(*w));
	pid = w ? fork() : -1;
	if (pid == 0) {
		w->shared = p->shared;
		w->backend_port = backend_port;
		w->listen_fd = fd;
		w->not_before_ns = 0;
		work(w);
	}
	free(w);
	if (pid < 0) {
		(void)munmap(shared, sizeof(*p->shared)); /* it was mapped like this */
		p->shared = NULL;
		return -ENOMEM;
	}
	p->pid = pid;
	return 0;
}

void proxy_end(struct proxy *p)
{
	if (p->pid > 0) {
		(void)kill(p->pid, SIGKILL);
		(void)waitpid(p->pid, NULL, 0);
	}
	if (p->shared)
		(void)munmap(p->shared, sizeof(*p->shared)); /* it was mapped like this */
	*p = (struct proxy){0};
}
