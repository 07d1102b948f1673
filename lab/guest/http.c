/*
 * See http.h. "Connection: close" makes the end of the body the end of the connection, so neither
 * chunks nor lengths are parsed; a length that was announced is compared.
 */
#include "lab/guest/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/def.h"

enum { WAIT_S = 20, HEAD_MAX = 2048 };

int http_connect(unsigned int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval wait = {.tv_sec = WAIT_S}; /* a commit takes well below a second */
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0 &&
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) == 0 &&
		connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	err = -errno;
	(void)close(fd);
	return err;
}

int http_send(int fd, const void *bytes, size_t size)
{
	const char *data = bytes;

	while (size > 0) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

int http_receive(int fd, char *buffer, size_t buffer_size, size_t *ret)
{
	size_t size = 0;

	for (;;) {
		ssize_t n = recv(fd, buffer + size, buffer_size - 1 - size, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		size += (size_t)n;
		if (size == buffer_size - 1)
			return -EFBIG;
	}
	buffer[size] = 0;
	*ret = size;
	return 0;
}

static int parse(char *text, size_t size, struct http_reply *ret)
{
	static const char version[] = "HTTP/1.1 ", field[] = "\r\nContent-Length: ";
	char *end = memmem(text, size, "\r\n\r\n", 4);
	const char *length;

	if (!end || strncmp(text, version, strlen(version)) != 0)
		return -EBADMSG;
	*end = 0;
	ret->body = end + 4;
	ret->size = size - (size_t)(ret->body - text);
	ret->status = (int)strtol(text + strlen(version), NULL, 10);
	length = strcasestr(text, field);
	if (length && strtoull(length + strlen(field), NULL, 10) != ret->size)
		return -EBADMSG;
	return 0;
}

int http_do(const struct http_call *c, char *buffer, size_t buffer_size, struct http_reply *ret)
{
	_cleanup_(closep) int fd = http_connect(c->port);
	char head[HEAD_MAX];
	size_t size = 0;
	int n, err = fd;

	if (fd < 0)
		return err;
	n = snprintf(head, sizeof(head),
		"%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n"
		"Content-Length: %zu\r\n%s%s%s%s%s%s\r\n",
		c->method, c->path, c->port, c->type ? c->size : 0, c->type ? "Content-Type: " : "",
		c->type ? c->type : "", c->type ? "\r\n" : "",
		c->token ? "Authorization: Bearer " : "", c->token ? c->token : "",
		c->token ? "\r\n" : "");
	if (n >= (int)sizeof(head))
		return -ENAMETOOLONG;
	err = http_send(fd, head, (size_t)n);
	if (err == 0 && c->type)
		err = http_send(fd, c->body, c->size);
	if (err == 0)
		err = http_receive(fd, buffer, buffer_size, &size);
	return err < 0 ? err : parse(buffer, size, ret);
}
