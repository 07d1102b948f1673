/*
 * The epoll loop. A removed source may still stand in the batch of events being handed out, so
 * while a batch runs, removal only marks it; the memory goes when the batch is done.
 */
#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/def.h"

#define LOOP_BATCH 32

enum loop_kind { LOOP_FD, LOOP_TIMER, LOOP_SIGNAL };

struct loop_source {
	struct loop *loop;
	struct loop_source *prev, *next; /* in loop->sources, or next in loop->removed */
	enum loop_kind kind;
	int fd; /* ours to close unless kind is LOOP_FD */
	loop_fn *fn;
	void *data;
	bool is_removed;
};

struct loop {
	int epoll_fd;
	struct loop_source *sources;
	struct loop_source *removed; /* to be freed after the batch */
	bool is_running;
	bool is_stopped;
};

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0) {
		r = -errno;
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void loop_free_removed(struct loop *l)
{
	while (l->removed) {
		struct loop_source *s = l->removed;

		l->removed = s->next;
		free(s);
	}
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	assert(!l->is_running);
	while (l->sources)
		loop_remove(l->sources);
	closep(&l->epoll_fd);
	free(l);
}

void loop_freep(struct loop **l)
{
	loop_free(*l);
}

/* Takes fd over for timers and signals, also when it fails. */
static int loop_add(
	struct loop *l, struct loop_source init, uint32_t events, struct loop_source **ret)
{
	struct epoll_event ev = {.events = events};
	struct loop_source *s = malloc(sizeof(*s));
	int r = 0;

	if (s) {
		*s = init;
		s->loop = l;
		ev.data.ptr = s;
		if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
			r = -errno;
	} else {
		r = -ENOMEM;
	}
	if (r < 0) {
		if (init.kind != LOOP_FD)
			closep(&init.fd);
		free(s);
		return r;
	}
	s->next = l->sources;
	if (s->next)
		s->next->prev = s;
	l->sources = s;
	if (ret)
		*ret = s;
	return 0;
}

int loop_add_fd(
	struct loop *l, int fd, uint32_t events, loop_fn *fn, void *data, struct loop_source **ret)
{
	struct loop_source init = {.kind = LOOP_FD, .fd = fd, .fn = fn, .data = data};

	return loop_add(l, init, events, ret);
}

static struct timespec loop_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};
}

static int loop_arm(int fd, uint64_t first_ns, uint64_t interval_ns)
{
	/* 0 would disarm the timer; the caller means at once. */
	struct itimerspec its = {.it_value = loop_timespec(MAX(first_ns, 1ULL)),
		.it_interval = loop_timespec(interval_ns)};

	return timerfd_settime(fd, 0, &its, NULL) < 0 ? -errno : 0;
}

int loop_add_timer(struct loop *l, uint64_t first_ns, uint64_t interval_ns, loop_fn *fn, void *data,
	struct loop_source **ret)
{
	struct loop_source init = {.kind = LOOP_TIMER, .fn = fn, .data = data};
	int r;

	init.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (init.fd < 0)
		return -errno;
	r = loop_arm(init.fd, first_ns, interval_ns);
	if (r < 0) {
		closep(&init.fd);
		return r;
	}
	return loop_add(l, init, EPOLLIN, ret);
}

int loop_set_timer(struct loop_source *s, uint64_t first_ns, uint64_t interval_ns)
{
	assert(s->kind == LOOP_TIMER);
	if (s->is_removed)
		return -ENOENT;
	return loop_arm(s->fd, first_ns, interval_ns);
}

int loop_add_signal(struct loop *l, int signo, loop_fn *fn, void *data, struct loop_source **ret)
{
	struct loop_source init = {.kind = LOOP_SIGNAL, .fn = fn, .data = data};
	sigset_t set;
	int r;

	sigemptyset(&set);
	if (sigaddset(&set, signo) < 0)
		return -errno;
	r = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r != 0)
		return -r;
	init.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (init.fd < 0)
		return -errno;
	return loop_add(l, init, EPOLLIN, ret);
}

void loop_remove(struct loop_source *s)
{
	struct loop *l;

	if (!s || s->is_removed)
		return;
	l = s->loop;
	/* Fails when the caller has closed its fd already, which removed it too. */
	(void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	if (s->kind != LOOP_FD)
		closep(&s->fd);
	if (s->prev)
		s->prev->next = s->next;
	else
		l->sources = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->is_removed = true;
	s->next = l->removed;
	l->removed = s;
	if (!l->is_running)
		loop_free_removed(l);
}

static int loop_dispatch(struct loop_source *s, uint32_t events)
{
	struct signalfd_siginfo info;
	uint64_t count;

	switch (s->kind) {
	case LOOP_FD:
		return s->fn(s->loop, events, s->data);
	case LOOP_TIMER:
		/* Nothing to read when a callback before us in this batch set the timer anew. */
		if (read(s->fd, &count, sizeof(count)) != sizeof(count))
			return 0;
		return s->fn(s->loop, (uint32_t)MIN(count, UINT32_MAX), s->data);
	case LOOP_SIGNAL:
		if (read(s->fd, &info, sizeof(info)) != sizeof(info))
			return 0;
		return s->fn(s->loop, info.ssi_signo, s->data);
	}
	return 0;
}

static int loop_run_batch(struct loop *l)
{
	struct epoll_event events[LOOP_BATCH];
	int n, r = 0;

	if (!l->sources)
		return -EDEADLK;
	/* No timeout: whoever needs one adds a timer, which is an event here. */
	n = epoll_wait(l->epoll_fd, events, LOOP_BATCH, -1);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n && r >= 0 && !l->is_stopped; i++) {
		struct loop_source *s = events[i].data.ptr;

		if (!s->is_removed)
			r = loop_dispatch(s, events[i].events);
	}
	loop_free_removed(l);
	return MIN(r, 0);
}

int loop_run(struct loop *l)
{
	int r = 0;

	assert(!l->is_running);
	l->is_running = true;
	while (r == 0 && !l->is_stopped)
		r = loop_run_batch(l);
	l->is_running = false;
	l->is_stopped = false;
	return r;
}

void loop_stop(struct loop *l)
{
	l->is_stopped = true;
}

uint64_t loop_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}
