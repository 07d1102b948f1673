/*
 * Starts and stops the HTTP server of http.h: the listening socket, TLS files, libmicrohttpd's
 * daemon, our threads; in this order, and back.
 */
#include "backend/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "backend/http_internal.h"
#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

enum {
	PEM_BYTES_MAX = 1 << 20,
	LISTEN_BACKLOG = 1024,
	IDLE_TIMEOUT_S = 30,
	CONNECTIONS_MAX = 4096,
	HANDLERS = 32,
	BODIES_MAX_BYTES = 512 << 20,
};

static const char TLS_PRIORITIES[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE";

struct tls_files {
	struct buf cert, key, ca;
};

static void tls_files_done(struct tls_files *t)
{
	buf_done(&t->cert);
	if (t->key.data)
		explicit_bzero(t->key.data, t->key.size);
	buf_done(&t->key);
	buf_done(&t->ca);
}

static int pem_read(const char *what, const char *path, struct buf *b, struct buf *why)
{
	int r;

	*b = BUF_INIT(PEM_BYTES_MAX);
	if (!path)
		return 0;
	r = file_read(path, b);
	if (r) {
		(void)buf_printf(why, "%s '%s': %s", what, path, strerror(-r));
		return -EINVAL;
	}
	return 0;
}

static int tls_read(const struct http_options *o, struct tls_files *t, struct buf *why)
{
	int r;

	if (!o->tls_cert != !o->tls_key) {
		(void)buf_append_str(why, "a TLS certificate and its key go together");
		return -EINVAL;
	}
	if (o->tls_client_ca && !o->tls_cert) {
		(void)buf_append_str(why, "a client CA needs a TLS certificate and its key");
		return -EINVAL;
	}
	r = pem_read("TLS certificate", o->tls_cert, &t->cert, why);
	if (!r)
		r = pem_read("TLS key", o->tls_key, &t->key, why);
	if (!r)
		r = pem_read("client CA", o->tls_client_ca, &t->ca, why);
	return r;
}

/* "HOST:PORT" or "[HOST]:PORT" into two strings. */
static int address_split(const char *listen, char host[256], char port[8])
{
	const char *colon = strrchr(listen, ':');
	const char *start = listen;
	const char *end = colon;
	uint64_t number;

	if (!colon || str_to_u64(colon + 1, 0, UINT16_MAX, &number) != 0)
		return -EINVAL;
	if (*listen == '[') {
		start++;
		end--;
		if (end <= start || *end != ']')
			return -EINVAL;
	}
	if (end <= start || end - start >= 256)
		return -EINVAL;
	memcpy(host, start, (size_t)(end - start));
	host[end - start] = '\0';
	(void)snprintf(port, 8, "%u", (unsigned int)number); /* at most 5 digits */
	return 0;
}

static int listen_on(const struct addrinfo *ai)
{
	int one = 1;
	_cleanup_(closep) int fd = socket(
		ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
		return -errno;
	if (ai->ai_family == AF_INET6 &&
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0)
		return -errno;
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

static int server_listen(struct http_server *s, struct buf *why)
{
	const struct addrinfo hints = {
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} own = {0};
	socklen_t size = sizeof(own);
	char host[256];
	char port[8];
	int r = address_split(s->options.listen, host, port);

	if (r == 0 && getaddrinfo(host, port, &hints, &found) != 0)
		r = -EINVAL;
	if (r) {
		(void)buf_printf(why, "'%s' is not ADDRESS:PORT or [ADDRESS]:PORT of this host",
			s->options.listen);
		return r;
	}
	r = listen_on(found);
	freeaddrinfo(found);
	if (r < 0) {
		(void)buf_printf(why, "listen on '%s': %s", s->options.listen, strerror(-r));
		return r;
	}
	s->listen_fd = r;
	if (getsockname(s->listen_fd, &own.any, &size) < 0)
		return -errno;
	s->port = ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
	return 0;
}

static int daemon_start(struct http_server *s, const struct tls_files *t, struct buf *why)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int threads = s->options.threads ? s->options.threads : (unsigned int)MAX(cpus, 1);
	unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, t->cert.data},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, t->key.data},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES},
		{t->ca.data ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, t->ca.data},
		{MHD_OPTION_END, 0, NULL},
	};

	if (s->options.tls_cert)
		flags |= MHD_USE_TLS;
	else
		tls[0] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
	s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, http_serve, s, MHD_OPTION_LISTEN_SOCKET,
		s->listen_fd, MHD_OPTION_NOTIFY_COMPLETED, http_serve_over, s,
		MHD_OPTION_NOTIFY_CONNECTION, http_conns_notify, s, MHD_OPTION_THREAD_POOL_SIZE,
		threads, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY_BYTES,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)s->conns_max,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)(s->idle_timeout_ns / NSEC_PER_SEC),
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (s->daemon)
		return 0;
	(void)buf_append_str(why, s->options.tls_cert ? "the server does not start: do TLS "
							"certificate, key and CA belong together?"
						      : "the server does not start");
	return -EINVAL;
}

static struct http_server *server_new(
	const struct http_options *o, const struct http_route *routes, size_t count)
{
	struct http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->options = *o;
	s->routes = routes;
	s->route_count = count;
	s->listen_fd = -1;
	s->idle_timeout_ns =
		(o->idle_timeout_s ? o->idle_timeout_s : IDLE_TIMEOUT_S) * NSEC_PER_SEC;
	s->conns_max = o->connections_max ? o->connections_max : CONNECTIONS_MAX;
	s->bodies_max_bytes = o->bodies_max_bytes ? o->bodies_max_bytes : BODIES_MAX_BYTES;
	s->queue_tail = &s->queue_head;
	(void)pthread_mutex_init(&s->conns_lock, NULL); /* glibc's cannot fail with NULL */
	(void)pthread_mutex_init(&s->jobs_lock, NULL);
	(void)pthread_cond_init(&s->conns_changed, NULL);
	(void)pthread_cond_init(&s->jobs_changed, NULL);
	(void)pthread_cond_init(&s->requests_over, NULL);
	return s;
}

int http_start(const struct http_options *o, const struct http_route *routes, size_t count,
	struct buf *why, struct http_server **ret)
{
	struct tls_files t = {0};
	struct http_server *s = server_new(o, routes, count);
	int r = s ? tls_read(o, &t, why) : -ENOMEM;

	if (!r)
		r = server_listen(s, why);
	if (!r)
		r = http_conns_start(s);
	if (!r)
		r = http_jobs_start(s, o->handlers ? o->handlers : HANDLERS);
	if (!r)
		r = daemon_start(s, &t, why);
	tls_files_done(&t); /* libmicrohttpd has copies in GnuTLS */
	if (r) {
		http_stop(s);
		return r;
	}
	*ret = s;
	return 0;
}

void http_stop(struct http_server *s)
{
	if (!s)
		return;
	if (s->daemon)
		(void)MHD_quiesce_daemon(s->daemon); /* gives back our own descriptor */
	if (s->handlers)
		http_jobs_wait(s, HTTP_STOP_S);
	http_jobs_stop(s); /* after this nothing is suspended */
	if (s->daemon)
		MHD_stop_daemon(s->daemon);
	http_conns_stop(s);
	if (s->listen_fd >= 0)
		(void)close(s->listen_fd);
	(void)pthread_mutex_destroy(&s->conns_lock);
	(void)pthread_mutex_destroy(&s->jobs_lock);
	(void)pthread_cond_destroy(&s->conns_changed);
	(void)pthread_cond_destroy(&s->jobs_changed);
	(void)pthread_cond_destroy(&s->requests_over);
	free(s);
}

uint16_t http_port(const struct http_server *s)
{
	return s->port;
}

struct http_stats http_stats(const struct http_server *s)
{
	struct http_server *m = (struct http_server *)s; /* only the lock changes */
	struct http_stats r = {
		.requests = s->requests,
		.errors_4xx = s->errors_4xx,
		.errors_5xx = s->errors_5xx,
		.bytes_in = s->bytes_in,
		.bytes_out = s->bytes_out,
		.refused_busy = s->refused_busy,
		.closed_slow = s->closed_slow,
		.evicted_idle = s->evicted_idle,
	};

	pthread_mutex_lock(&m->conns_lock);
	r.connections = s->conn_count;
	pthread_mutex_unlock(&m->conns_lock);
	return r;
}
