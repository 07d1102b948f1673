/*
 * One epoll loop per program: descriptors, timers (timerfd, CLOCK_MONOTONIC) and signals (signalfd)
 * call back on the thread that runs it. Sources may be added and removed from callbacks, also the
 * one that runs. A callback returns 0 to go on or -errno to end loop_run with it.
 */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include <stdint.h>

struct loop;
struct loop_source;

typedef int loop_fn(struct loop *l, uint32_t events, void *data); /* events: EPOLLIN... */

int loop_new(struct loop **ret); /* 0 or -errno */
void loop_free(
	struct loop *l); /* accepts NULL; removes all sources, closes no fd of the caller's */
void loop_freep(struct loop **l);

int loop_add_fd(
	struct loop *l, int fd, uint32_t events, loop_fn *fn, void *data, struct loop_source **ret);
/*
 * First after first_ns (0: at once), then each interval_ns; interval 0 means once. events is the
 * expiration count.
 */
int loop_add_timer(struct loop *l, uint64_t first_ns, uint64_t interval_ns, loop_fn *fn, void *data,
	struct loop_source **ret);
int loop_set_timer(struct loop_source *s, uint64_t first_ns, uint64_t interval_ns);
/* Blocks signo in the calling thread and delivers it here; events is the signal number. */
int loop_add_signal(struct loop *l, int signo, loop_fn *fn, void *data, struct loop_source **ret);
void loop_remove(struct loop_source *s); /* accepts NULL */

/* Runs until loop_stop (0) or a callback's error; -EDEADLK when no source is left to wake it. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);

uint64_t loop_now_ns(void); /* CLOCK_MONOTONIC */

#endif
