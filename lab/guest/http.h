/* The few requests that PID 1 has for the backend: HTTP/1.1 over loopback, a connection each. */
#ifndef LAB_GUEST_HTTP_H
#define LAB_GUEST_HTTP_H

#include <stddef.h>

struct http_reply {
	int status;
	char *body; /* NUL-terminated, inside the caller's buffer */
	size_t size;
};

struct http_call {
	unsigned int port;
	const char *method, *path; /* path with query */
	const char *type;          /* of the body; NULL: there is none */
	const void *body;
	size_t size;
	const char *token; /* NULL: none */
};

/*
 * Sends it and reads the answer into buffer, headers too. 0; -ECONNREFUSED: nobody listens; -EAGAIN:
 * no answer within 20 s; -EBADMSG: no HTTP; -EFBIG: longer than the buffer; -errno.
 */
int http_do(const struct http_call *c, char *buffer, size_t buffer_size, struct http_reply *ret);

/* The parts of it. A socket with deadlines for both ways, or -errno. */
int http_connect(unsigned int port);
int http_send(int fd, const void *data, size_t size); /* all of it: 0 or -errno */
/* Until the peer closes; NUL-terminated. 0; -EFBIG; -errno. */
int http_receive(int fd, char *buffer, size_t buffer_size, size_t *ret);

#endif
