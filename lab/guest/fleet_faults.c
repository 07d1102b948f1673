/*
 * The plays in which something goes wrong between agent and backend. Windows are short, so that many go
 * through; a play waits for what it needs and fails when that does not come.
 *
 *	faults	windows of 3 s; the backend is killed once when it has just acknowledged a window, once while
 *		one is being sent, stays down for five, comes back; then a window that it has is sent again,
 *		as an agent does that never saw the answer
 *	answers	windows of 3 s; a proxy (proxy.h) answers pushes with 500, then with 429, then it takes away
 *		the end of the backend's own answer
 *	spool	windows of 1 s, a spool of FLEET_SPOOL_LIMIT; the backend is down while more are made, and
 *		comes back when they are made
 */
#include "lab/guest/fleet_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	DOWN_WINDOWS = 5,
	FAULTS_S = 39,
	ANSWERS_S = 30,
	SPOOL_S = 18,
	REFUSALS = 2, /* of each kind */
	SPOOL_WINDOWS_MIN = 2 * FLEET_SPOOL_LIMIT,
	SPOOL_HEADER = 24,
};

#define PUSH     "/push.v1.PusherService/Push"
#define QUIET_NS (4 * NSEC_PER_SEC) /* windows come every second, a second or two late */

static int has_window(struct fleet *f)
{
	return f->spool_now > 0;
}

static int has_none(struct fleet *f)
{
	return f->spool_now == 0;
}

static int has_five(struct fleet *f)
{
	return f->spool_now >= DOWN_WINDOWS;
}

static int kill_backend(struct fleet *f)
{
	f->kills++;
	return fleet_end_backend(f, SIGKILL);
}

/* What the agent sent first, once more; the backend must say that it has it. */
static int send_again(struct fleet *f)
{
	struct http_call c = {
		.port = FLEET_PORT, .method = "POST", .path = PUSH, .type = "application/proto"};
	struct http_reply reply = {0};
	static char data[1 << 20];
	char path[PATH_MAX];
	ssize_t n;
	int err = fleet_first_copy(f, path);

	if (err < 0)
		return err;
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, data, sizeof(data));
	if (n <= SPOOL_HEADER || n == (ssize_t)sizeof(data))
		return fleet_fail(f, "cannot read %s", path);
	c.body = data + SPOOL_HEADER;
	c.size = (size_t)n - SPOOL_HEADER;
	err = http_do(&c, f->buffer, FLEET_BUFFER, &reply);
	if (err < 0 || reply.status != 200)
		return fleet_fail(
			f, "a window sent again: status %d, %s", reply.status, strerror(-err));
	f->resent++;
	return 0;
}

/* From a dormant agent to a workload that is being sampled. */
static int begin(struct fleet *f, unsigned int duration_s)
{
	int err = fleet_request(f, 1, duration_s);

	if (err == 0)
		err = fleet_wait(f, fleet_is_running, "the command to run");
	f->run->workload_start_ns = step_now_ns();
	if (err == 0 && step_start_workload(f->run) < 0)
		err = fleet_fail(f, "cannot start the workload");
	if (err == 0)
		err = fleet_wait(f, fleet_is_sampling, "BPF objects of the command");
	if (err == 0)
		err = fleet_wait(f, has_window, "the first window");
	return err == 0 ? fleet_wait(f, has_none, "the first window's acknowledgement") : err;
}

/* The workload to its end, and the request's. */
static int finish(struct fleet *f)
{
	int err = 0;

	while (err == 0 && f->run->workload.pidfd >= 0)
		err = fleet_tick(f, FLEET_TICK_NS);
	f->run->workload_end_ns = step_now_ns();
	if (err == 0)
		err = fleet_wait(f, fleet_is_over, "the request's end");
	f->commands_done += err == 0;
	return err;
}

int fleet_play_faults(struct fleet *f)
{
	int err = begin(f, FAULTS_S);

	if (err == 0)
		err = kill_backend(f);
	if (err == 0)
		err = fleet_start_backend(f);
	if (err == 0)
		err = fleet_wait(f, has_none, "the windows after the first kill");
	if (err == 0)
		err = fleet_wait(f, has_window, "a window to interrupt");
	if (err == 0)
		err = fleet_pause(f, 5 * FLEET_TICK_NS); /* it is sent, and not committed yet */
	if (err == 0)
		err = kill_backend(f);
	if (err == 0)
		err = fleet_wait(f, has_five, "five windows in the spool");
	if (err == 0)
		err = fleet_start_backend(f);
	if (err == 0)
		err = finish(f);
	return err == 0 ? send_again(f) : err;
}

/* --- answers */

static int has_500(struct fleet *f)
{
	return atomic_load(&f->proxy.shared->refused_500) >= REFUSALS;
}

static int has_429(struct fleet *f)
{
	return atomic_load(&f->proxy.shared->refused_429) >= REFUSALS;
}

static int has_cut(struct fleet *f)
{
	return atomic_load(&f->proxy.shared->cut) >= REFUSALS;
}

/* Windows pile up behind one that is answered like this; then they go through. */
static int answer(
	struct fleet *f, enum proxy_mode mode, fleet_condition *is_enough, const char *what)
{
	int err;

	atomic_store(&f->proxy.shared->mode, mode);
	err = fleet_wait(f, is_enough, what);
	atomic_store(&f->proxy.shared->mode, PROXY_PASS);
	return err == 0 ? fleet_wait(f, has_none, "the windows to go through") : err;
}

int fleet_play_answers(struct fleet *f)
{
	struct proxy_shared *s = f->proxy.shared;
	int err = begin(f, ANSWERS_S);

	if (err == 0)
		err = answer(f, PROXY_500, has_500, "pushes answered 500");
	if (err == 0)
		err = answer(f, PROXY_429, has_429, "pushes answered 429");
	if (err == 0)
		err = answer(f, PROXY_CUT, has_cut, "pushes whose answer was cut");
	if (err == 0)
		err = finish(f);
	f->refused = atomic_load(&s->refused_500) + atomic_load(&s->refused_429);
	f->cut = atomic_load(&s->cut);
	f->early = atomic_load(&s->early);
	return err;
}

/* --- spool */

/* So many have been made, and it is over with new ones. */
static int is_recorded(struct fleet *f)
{
	return f->windows >= SPOOL_WINDOWS_MIN && step_now_ns() > f->spool_changed_ns + QUIET_NS;
}

/* Of the heartbeat in which the agent said that its command is done. */
static int read_dropped(struct fleet *f)
{
	static const char name[] = "\"windows_dropped\":";
	struct http_reply reply = {0};
	int err = fleet_call(f, "GET", "/api/v1/hosts", NULL, &reply);
	const char *at = err == 0 ? strstr(reply.body, name) : NULL;

	if (err == 0 && !at)
		return fleet_fail(f, "the host has no windows_dropped");
	if (at)
		f->dropped_told = strtoull(at + strlen(name), NULL, 10);
	return err;
}

int fleet_play_spool(struct fleet *f)
{
	int err = begin(f, SPOOL_S);

	if (err == 0)
		err = fleet_end_backend(f, SIGTERM);
	f->is_watching = true;
	if (err == 0)
		err = fleet_wait(f, is_recorded, "the windows of a backend that is down");
	fleet_look(f);
	f->is_watching = false;
	if (err == 0)
		err = fleet_start_backend(f);
	if (err == 0)
		err = finish(f);
	return err == 0 ? read_dropped(f) : err;
}
