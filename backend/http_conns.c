/*
 * Connections and their deadlines. libmicrohttpd closes what was silent for a while, but a peer that
 * sends a byte now and then is never silent, and one that reads a byte now and then neither. So each
 * connection has a deadline that its bytes push back only at a fair rate; a thread that wakes once a second
 * ends those that missed theirs. libmicrohttpd 1.x has no such deadline either; with one, this file goes.
 *
 * When three quarters of all connections are taken, each new one ends the longest idle one, so that idle
 * peers, however many, never keep a push out.
 *
 * Ending is shutdown(2): libmicrohttpd sees the end of input and closes. It tells us before it closes a
 * descriptor, and conns_lock makes sure that we never shut down a number that was given away again.
 */
#include <errno.h>
#include <sys/socket.h>

#include "backend/http_internal.h"
#include "base/def.h"
#include "base/loop.h"

static void conn_end(struct http_conn *c)
{
	(void)shutdown(c->fd, SHUT_RDWR); /* fails when the peer was faster */
	c->idle = false;
	c->deadline_ns = 0;
}

static void conns_sweep(struct http_server *s, uint64_t now_ns)
{
	for (struct http_conn *c = s->conns; c; c = c->next)
		if (c->deadline_ns && c->deadline_ns <= now_ns) {
			s->closed_slow++; /* first, so that who sees the end sees the count */
			conn_end(c);
		}
}

static void *conns_run(void *arg)
{
	struct http_server *s = arg;

	pthread_mutex_lock(&s->conns_lock);
	while (!s->conns_quit) {
		struct timespec until;

		if (!s->conns) {
			pthread_cond_wait(&s->conns_changed, &s->conns_lock);
			continue;
		}
		(void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail */
		until.tv_sec++;
		if (pthread_cond_timedwait(&s->conns_changed, &s->conns_lock, &until) == ETIMEDOUT)
			conns_sweep(s, loop_now_ns());
	}
	pthread_mutex_unlock(&s->conns_lock);
	return NULL;
}

int http_conns_start(struct http_server *s)
{
	int r = pthread_create(&s->conns_thread, NULL, conns_run, s);

	s->conns_running = r == 0;
	return -r;
}

void http_conns_stop(struct http_server *s)
{
	if (!s->conns_running)
		return;
	pthread_mutex_lock(&s->conns_lock);
	s->conns_quit = true;
	pthread_cond_signal(&s->conns_changed);
	pthread_mutex_unlock(&s->conns_lock);
	(void)pthread_join(s->conns_thread, NULL); /* started by us, joined once */
	s->conns_running = false;
}

static void conns_evict(struct http_server *s)
{
	struct http_conn *oldest = NULL;

	if (s->conn_count <= s->conns_max / 4 * 3)
		return;
	for (struct http_conn *c = s->conns; c; c = c->next)
		if (c->idle && (!oldest || c->since_ns < oldest->since_ns))
			oldest = c;
	if (oldest) {
		s->evicted_idle++;
		conn_end(oldest);
	}
}

static void conn_opened(struct http_server *s, struct MHD_Connection *connection, void **ctx)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_conn *c = calloc(1, sizeof(*c));
	uint64_t now_ns = loop_now_ns();

	*ctx = c; /* without one, http_serve refuses */
	if (!c || !info) {
		free(c);
		*ctx = NULL;
		return;
	}
	c->fd = info->connect_fd;
	c->idle = true;
	c->since_ns = now_ns;
	c->deadline_ns = now_ns + s->idle_timeout_ns;
	pthread_mutex_lock(&s->conns_lock);
	conns_evict(s);
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	else
		pthread_cond_signal(&s->conns_changed);
	s->conns = c;
	s->conn_count++;
	pthread_mutex_unlock(&s->conns_lock);
}

static void conn_closed(struct http_server *s, void **ctx)
{
	struct http_conn *c = *ctx;

	if (!c)
		return;
	pthread_mutex_lock(&s->conns_lock);
	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	s->conn_count--;
	pthread_mutex_unlock(&s->conns_lock);
	free(c);
	*ctx = NULL;
}

void http_conns_notify(void *cls, struct MHD_Connection *connection, void **ctx,
	enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		conn_opened(cls, connection, ctx);
	else
		conn_closed(cls, ctx);
}

void http_conn_idle(struct http_server *s, struct http_conn *c)
{
	uint64_t now_ns = loop_now_ns();

	if (!c)
		return;
	pthread_mutex_lock(&s->conns_lock);
	c->idle = true;
	c->since_ns = now_ns;
	c->deadline_ns = now_ns + s->idle_timeout_ns;
	pthread_mutex_unlock(&s->conns_lock);
}

void http_conn_busy(struct http_server *s, struct http_conn *c, uint64_t deadline_ns)
{
	if (!c)
		return;
	pthread_mutex_lock(&s->conns_lock);
	c->idle = false;
	c->deadline_ns = deadline_ns;
	pthread_mutex_unlock(&s->conns_lock);
}
