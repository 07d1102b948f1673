/*
 * The helper process: confines itself, then answers requests until the socket closes. Who answers
 * what is in helper_serve.h.
 */
#include "agent/helper.h"

#include <errno.h>
#include <sys/socket.h>

#include "agent/helper_cfi.h"
#include "agent/helper_identity.h"
#include "agent/helper_internal.h"
#include "agent/helper_serve.h"
#include "agent/symbolize.h"
#include "base/log.h"
#include "base/str.h"

struct helper_server {
	int socket;
	struct helper_cfi_server *cfi; /* these two: role names */
	struct helper_names_server *names;
	struct helper_lines_server *lines; /* role lines */
};

static void helper_server_done(struct helper_server *s)
{
	helper_cfi_server_free(s->cfi);
	helper_names_free(s->names);
	helper_lines_free(s->lines);
}

static int helper_server_init(struct helper_server *s, int socket, enum helper_role role)
{
	int r = 0;

	*s = (struct helper_server){.socket = socket};
	if (role == HELPER_LINES)
		return helper_lines_new(socket, &s->lines);
	r = helper_cfi_server_new(socket, &s->cfi);
	return r < 0 ? r : helper_names_new(socket, &s->names);
}

/* Size of the request, 0 at the socket's end, -errno. */
static ssize_t helper_server_receive(
	int socket, uint8_t *data, size_t size, int fds[HELPER_FDS_MAX], size_t *ret_fds)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(HELPER_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	do {
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	*ret_fds = 0;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		*ret_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), *ret_fds * sizeof(int));
	}
	return n;
}

/* Moves the descriptors to where the request says they belong. */
static void helper_server_sort(
	uint32_t flags, int fds[HELPER_FDS_MAX], size_t count, struct helper_fds *ret)
{
	size_t at = 0;

	*ret = (struct helper_fds){-1, -1, -1};
	if (at < count)
		ret->file = steal_fd(&fds[at++]);
	if (at < count && (flags & HELPER_WITH_DEBUG))
		ret->debug = steal_fd(&fds[at++]);
	if (at < count && (flags & HELPER_WITH_ALT))
		ret->alt = steal_fd(&fds[at]);
}

static int helper_server_take(struct helper_server *s, const void *data, size_t size,
	int received[HELPER_FDS_MAX], size_t count)
{
	struct helper_request q;
	struct helper_fds fds;
	int r = helper_request_get(data, size, &q);

	if (r < 0)
		return r;
	helper_server_sort(q.flags, received, count, &fds);
	r = s->lines ? helper_lines_serve(s->lines, &q, &fds)
		     : helper_names_serve(s->names, &q, &fds);
	closep(&fds.file);
	closep(&fds.debug);
	closep(&fds.alt);
	return r;
}

int helper_serve(int socket, enum helper_role role)
{
	uint8_t data[HELPER_REQUEST_SIZE_MAX];
	struct helper_server s;
	int r = helper_server_init(&s, socket, role);

	while (r == 0) {
		int fds[HELPER_FDS_MAX] = {-1, -1, -1};
		size_t count = 0;
		ssize_t n = helper_server_receive(socket, data, sizeof(data), fds, &count);

		if (n <= 0) {
			r = (int)n;
			break;
		}
		if (helper_identity_is_request(data, (size_t)n))
			r = helper_identity_serve(socket, data, (size_t)n, fds[0]);
		else
			r = s.cfi && helper_cfi_is_request(data, (size_t)n)
				    ? helper_cfi_serve(s.cfi, data, (size_t)n, &fds[0])
				    : helper_server_take(&s, data, (size_t)n, fds, count);
		for (size_t i = 0; i < HELPER_FDS_MAX; i++)
			closep(&fds[i]);
	}
	helper_server_done(&s);
	return r;
}

int symbolizer_helper_main(int argc, char **argv)
{
	uint64_t memory_mb = 0;
	uint64_t role = 0;

	if (argc != 4 || str_to_u64(argv[2], HELPER_NAMES, HELPER_LINES, &role) < 0 ||
		str_to_u64(argv[3], 1, 1 << 20, &memory_mb) < 0)
		return 2;
	int r = helper_confine((enum helper_role)role, (uint32_t)memory_mb);

	if (r < 0) {
		log_error("helper", "confine", r, "%s", "");
		return 1;
	}
	return helper_serve(STDIN_FILENO, (enum helper_role)role) < 0 ? 1 : 0;
}
