/*
 * The threads that run handlers. A push waits up to a commit interval for the disk and a query may take
 * seconds; on libmicrohttpd's own threads each would hold up every connection of that thread. So the
 * connection is suspended, the request queued, and one of a fixed number of threads runs it.
 */
#include <errno.h>

#include "backend/http_internal.h"
#include "base/def.h"

enum { HANDLER_STACK_BYTES = 1 << 20 };

static struct http_request *jobs_take(struct http_server *s)
{
	struct http_request *q;

	pthread_mutex_lock(&s->jobs_lock);
	while (!s->queue_head && !s->jobs_quit)
		pthread_cond_wait(&s->jobs_changed, &s->jobs_lock);
	q = s->queue_head;
	if (q) {
		s->queue_head = q->next;
		if (!s->queue_head)
			s->queue_tail = &s->queue_head;
		s->queue_count--;
	}
	pthread_mutex_unlock(&s->jobs_lock);
	return q;
}

static void *jobs_run(void *arg)
{
	struct http_server *s = arg;

	for (struct http_request *q = jobs_take(s); q; q = jobs_take(s)) {
		struct MHD_Connection *connection = q->connection;

		q->route->handler(s->options.app, q, &q->response);
		q->state = HTTP_DONE;
		MHD_resume_connection(connection); /* q belongs to its thread again */
	}
	return NULL;
}

int http_jobs_start(struct http_server *s, size_t handlers)
{
	pthread_attr_t attr;
	int r = pthread_attr_init(&attr);

	if (r)
		return -r;
	s->queue_tail = &s->queue_head;
	s->handlers = calloc(handlers, sizeof(*s->handlers));
	if (!s->handlers)
		r = ENOMEM;
	if (!r)
		r = pthread_attr_setstacksize(&attr, HANDLER_STACK_BYTES);
	while (!r && s->handler_count < handlers) {
		r = pthread_create(&s->handlers[s->handler_count], &attr, jobs_run, s);
		if (!r)
			s->handler_count++;
	}
	(void)pthread_attr_destroy(&attr);
	return -r;
}

void http_jobs_stop(struct http_server *s)
{
	pthread_mutex_lock(&s->jobs_lock);
	s->draining = true;
	s->jobs_quit = true;
	pthread_cond_broadcast(&s->jobs_changed);
	pthread_mutex_unlock(&s->jobs_lock);
	for (size_t i = 0; i < s->handler_count; i++)
		(void)pthread_join(s->handlers[i], NULL); /* started by us, joined once */
	s->handler_count = 0;
	free(s->handlers);
	s->handlers = NULL;
}

int http_jobs_put(struct http_server *s, struct http_request *q)
{
	int r = 0;

	pthread_mutex_lock(&s->jobs_lock);
	if (s->draining) {
		r = -ESHUTDOWN;
	} else if (s->queue_count >= HTTP_QUEUE_MAX) {
		r = -EBUSY;
	} else {
		MHD_suspend_connection(q->connection);
		q->state = HTTP_QUEUED;
		q->next = NULL;
		*s->queue_tail = q;
		s->queue_tail = &q->next;
		s->queue_count++;
		pthread_cond_signal(&s->jobs_changed);
	}
	pthread_mutex_unlock(&s->jobs_lock);
	return r;
}

void http_jobs_begin(struct http_server *s)
{
	pthread_mutex_lock(&s->jobs_lock);
	s->active++;
	pthread_mutex_unlock(&s->jobs_lock);
}

void http_jobs_end(struct http_server *s)
{
	pthread_mutex_lock(&s->jobs_lock);
	s->active--;
	if (s->active == 0)
		pthread_cond_broadcast(&s->requests_over);
	pthread_mutex_unlock(&s->jobs_lock);
}

void http_jobs_wait(struct http_server *s, unsigned int timeout_s)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until); /* cannot fail */
	until.tv_sec += timeout_s;
	pthread_mutex_lock(&s->jobs_lock);
	s->draining = true;
	while (s->active > 0)
		if (pthread_cond_timedwait(&s->requests_over, &s->jobs_lock, &until) != 0)
			break;
	pthread_mutex_unlock(&s->jobs_lock);
}
