/* loop: order of timers, descriptors, signals, removal from callbacks, ends. */
#include "base/loop.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>

#include "base/def.h"

struct trace {
	char text[64];
	size_t size;
	size_t stop_at;
	struct loop_source *victim;
	uint32_t events;
};

static void note(struct loop *l, struct trace *t, char c)
{
	t->text[t->size++] = c;
	if (t->size >= t->stop_at)
		loop_stop(l);
}

static int on_a(struct loop *l, uint32_t events, void *data)
{
	struct trace *t = data;

	t->events = events;
	note(l, t, 'a');
	return 0;
}

static int on_b(struct loop *l, uint32_t events, void *data)
{
	(void)events;
	note(l, data, 'b');
	return 0;
}

static int on_c(struct loop *l, uint32_t events, void *data)
{
	(void)events;
	note(l, data, 'c');
	return 0;
}

static int on_remove_victim(struct loop *l, uint32_t events, void *data)
{
	struct trace *t = data;

	(void)events;
	loop_remove(t->victim);
	t->victim = NULL;
	note(l, t, 'r');
	return 0;
}

static int on_error(struct loop *l, uint32_t events, void *data)
{
	(void)l;
	(void)events;
	(void)data;
	return -EPROTO;
}

static int on_give_up(struct loop *l, uint32_t events, void *data)
{
	(void)l;
	(void)events;
	(void)data;
	return -ETIMEDOUT;
}

static struct loop *make_loop(void)
{
	struct loop *l = NULL;

	cr_assert_eq(loop_new(&l), 0);
	/* No test may wait for ever. */
	cr_assert_eq(loop_add_timer(l, 10 * NSEC_PER_SEC, 0, on_give_up, NULL, NULL), 0);
	return l;
}

Test(loop, timers_fire_in_the_order_of_their_time_not_of_their_making)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace t = {.stop_at = 3};
	uint64_t begin = loop_now_ns();

	cr_assert_eq(loop_add_timer(l, 30 * NSEC_PER_MSEC, 0, on_c, &t, NULL), 0);
	cr_assert_eq(loop_add_timer(l, 0, 0, on_a, &t, NULL), 0);
	cr_assert_eq(loop_add_timer(l, 15 * NSEC_PER_MSEC, 0, on_b, &t, NULL), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_str_eq(t.text, "abc");
	cr_assert_geq(loop_now_ns() - begin, 30 * NSEC_PER_MSEC);
}

Test(loop, interval_timer_repeats_until_it_is_removed_in_its_own_callback)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace a = {.stop_at = 4}, r = {.stop_at = 99};

	cr_assert_eq(loop_add_timer(
			     l, NSEC_PER_MSEC, 2 * NSEC_PER_MSEC, on_remove_victim, &r, &r.victim),
		0);
	cr_assert_eq(loop_add_timer(l, NSEC_PER_MSEC, 5 * NSEC_PER_MSEC, on_a, &a, NULL), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_str_eq(a.text, "aaaa");
	cr_assert_str_eq(r.text, "r", "once, then it was gone");
}

Test(loop, set_timer_moves_the_next_firing)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace t = {.stop_at = 2};
	struct loop_source *late = NULL;

	cr_assert_eq(loop_add_timer(l, 9 * NSEC_PER_SEC, 0, on_a, &t, &late), 0);
	cr_assert_eq(loop_add_timer(l, 20 * NSEC_PER_MSEC, 0, on_b, &t, NULL), 0);
	cr_assert_eq(loop_set_timer(late, NSEC_PER_MSEC, 0), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_str_eq(t.text, "ab");
}

Test(loop, a_source_removed_by_an_earlier_callback_of_the_batch_does_not_run)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace one = {.stop_at = 60}, two = {.stop_at = 60};
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(write(ends[1], "x", 1), 1);
	int twin = dup(ends[0]);

	/* Both are ready at once; whichever is first removes the other and goes on alone. */
	cr_assert_eq(loop_add_fd(l, ends[0], EPOLLIN, on_remove_victim, &one, &two.victim), 0);
	cr_assert_eq(loop_add_fd(l, twin, EPOLLIN, on_remove_victim, &two, &one.victim), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(one.size + two.size, 60);
	cr_assert(one.size == 0 || two.size == 0, "%zu %zu", one.size, two.size);
}

Test(loop, fd_events_arrive_with_their_mask)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace t = {.stop_at = 1};
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(loop_add_fd(l, ends[0], EPOLLIN, on_a, &t, NULL), 0);
	cr_assert_eq(close(ends[1]), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert(t.events & EPOLLHUP);
}

Test(loop, signal_arrives_as_its_number)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace t = {.stop_at = 1};

	cr_assert_eq(loop_add_signal(l, SIGUSR1, on_a, &t, NULL), 0);
	cr_assert_eq(kill(getpid(), SIGUSR1), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(t.events, SIGUSR1);
	cr_assert_eq(loop_add_signal(l, 9999, on_a, &t, NULL), -EINVAL);
}

Test(loop, run_ends_with_a_callbacks_error_and_may_run_again)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct trace t = {.stop_at = 1};
	struct loop_source *s = NULL;

	cr_assert_eq(loop_add_timer(l, 0, 0, on_error, NULL, &s), 0);
	cr_assert_eq(loop_run(l), -EPROTO);
	loop_remove(s);
	cr_assert_eq(loop_add_timer(l, 0, 0, on_a, &t, NULL), 0);
	cr_assert_eq(loop_run(l), 0);
	cr_assert_eq(t.size, 1);
}

Test(loop, stop_before_run_ends_it_at_once)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();

	loop_stop(l);
	cr_assert_eq(loop_run(l), 0);
}

Test(loop, run_without_any_source_is_refused)
{
	_cleanup_(loop_freep) struct loop *l = NULL;

	cr_assert_eq(loop_new(&l), 0);
	cr_assert_eq(loop_run(l), -EDEADLK);
	loop_free(NULL);
	loop_remove(NULL);
}

Test(loop, a_descriptor_that_epoll_refuses_is_an_error)
{
	_cleanup_(loop_freep) struct loop *l = make_loop();
	struct loop_source *s = NULL;

	cr_assert_eq(loop_add_fd(l, 9999, EPOLLIN, on_a, NULL, &s), -EBADF);
	cr_assert_null(s);
}
