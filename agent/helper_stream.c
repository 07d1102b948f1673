/* Answers of the helper process, in as many packets as they take: see helper_serve.h. */
#include <errno.h>
#include <sys/socket.h>

#include "agent/helper_serve.h"
#include "base/def.h"

void helper_stream_init(struct helper_stream *s, int socket)
{
	*s = (struct helper_stream){.socket = socket};
	buf_init(&s->out, HELPER_PACKET_SIZE_MAX);
}

void helper_stream_done(struct helper_stream *s)
{
	buf_done(&s->out);
}

static int helper_stream_send(struct helper_stream *s)
{
	struct iovec iov = {.iov_base = s->out.data, .iov_len = s->out.size};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (buf_error(&s->out))
		return buf_error(&s->out);
	do {
		n = sendmsg(s->socket, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

void helper_stream_begin(struct helper_stream *s, uint32_t sequence, uint32_t file_flags)
{
	s->sequence = sequence;
	s->file_flags = file_flags;
	s->first = 0;
	s->count = 0;
	buf_reset(&s->out);
	(void)helper_answer_open(&s->out, sequence, HELPER_OK); /* buf keeps the error */
}

int helper_stream_put(struct helper_stream *s, const struct helper_answer *a)
{
	if (s->out.size + helper_answer_size(a) > s->out.size_max) {
		helper_answer_close(&s->out, s->first, s->count, false, s->file_flags);
		int r = helper_stream_send(s);

		if (r < 0)
			return r;
		buf_reset(&s->out);
		(void)helper_answer_open(&s->out, s->sequence, HELPER_OK);
		s->first += s->count;
		s->count = 0;
	}
	s->count++;
	return helper_answer_put(&s->out, a);
}

int helper_stream_end(struct helper_stream *s)
{
	helper_answer_close(&s->out, s->first, s->count, true, s->file_flags);
	return helper_stream_send(s);
}

int helper_stream_refuse(
	struct helper_stream *s, uint32_t sequence, uint32_t file_flags, const char *why)
{
	buf_reset(&s->out);
	(void)helper_answer_open(&s->out, sequence, HELPER_REFUSED); /* buf keeps the error */
	(void)buf_append_str(&s->out, why ? why : "unknown");
	helper_answer_close(&s->out, 0, 0, true, file_flags);
	return helper_stream_send(s);
}
