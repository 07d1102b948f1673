/*
 * See boots.h. A worker reports through a pipe, one record per step and a last one with the
 * outcome; the end of the pipe without that record means that the worker died.
 */
#include "lab/boots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"

struct boots_record {
	bool last;
	int error;
	unsigned int done, total;
	char step[96];
	struct vm_outcome outcome;
};
_Static_assert(sizeof(struct boots_record) <= PIPE_BUF, "records are written at once");

struct boots_worker {
	struct boots_item *item; /* NULL: free */
	pid_t pid;
	int fd;
	bool reported;
	struct boots_record last;
};

struct boots_state {
	const struct boots_options *o;
	struct boots_worker workers[BOOTS_AT_ONCE_MAX];
	unsigned int at_once;
	size_t count, done;
	uint64_t start_ns;
	bool tty;
};

static void boots_step(void *data, const char *step, unsigned int done, unsigned int total)
{
	int fd = *(const int *)data;
	struct boots_record r = {.done = done, .total = total};

	(void)snprintf(r.step, sizeof(r.step), "%s", step);
	(void)!write(fd, &r, sizeof(r)); /* the parent may be gone; then we go, too */
}

/* The worker: one VM, to its end. */
static _Noreturn void boots_worker_main(struct boots_item *i, int fd, pid_t parent)
{
	struct boots_record r = {.last = true};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
	if (getppid() != parent)
		_exit(1);
	r.error = vm_run(&i->config, i->job, i->dir, boots_step, &fd, &r.outcome);
	_exit(write(fd, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : 1);
}

static int boots_start(struct boots_worker *w, struct boots_item *i)
{
	pid_t parent = getpid();
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	(void)fflush(NULL); /* so that the worker has nothing of ours to print */
	*w = (struct boots_worker){.item = i, .fd = fds[0]};
	w->pid = fork();
	if (w->pid == 0) {
		(void)close(fds[0]);
		boots_worker_main(i, fds[1], parent);
	}
	r = w->pid < 0 ? -errno : 0;
	(void)close(fds[1]);
	if (r < 0) {
		(void)close(fds[0]);
		w->item = NULL;
	}
	return r;
}

static void boots_say(struct boots_state *s)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1024);
	unsigned long long seconds = (loop_now_ns() - s->start_ns) / NSEC_PER_SEC;

	if (s->o->quiet || !s->tty)
		return;
	(void)buf_printf(&b, "\r\033[K%zu/%zu VMs, %llu:%02llu", s->done, s->count, seconds / 60,
		seconds % 60);
	for (unsigned int k = 0; k < s->at_once; k++)
		if (s->workers[k].item)
			(void)buf_printf(&b, "  %.40s %u/%u", s->workers[k].item->name,
				s->workers[k].last.done, s->workers[k].last.total);
	(void)!write(s->o->fd, buf_str(&b), b.size); /* progress only */
}

static _printf_(2, 3) void boots_line(const struct boots_state *s, const char *fmt, ...)
{
	char text[700];
	va_list ap;
	int n;

	if (s->o->quiet)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	n = n < 0 ? 0 : MIN(n, (int)sizeof(text) - 2);
	text[n] = '\n';
	if (s->tty)
		(void)!write(s->o->fd, "\r\033[K", 4); /* progress only */
	(void)!write(s->o->fd, text, (size_t)n + 1);   /* progress only */
}

/* One record, or the end of the worker. True when it is free again. */
static bool boots_take(struct boots_state *s, struct boots_worker *w)
{
	struct boots_record r;
	ssize_t n = read(w->fd, &r, sizeof(r));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return false;
	if (n == (ssize_t)sizeof(r)) {
		w->reported |= r.last;
		if (!s->tty && !r.last && r.done != w->last.done)
			boots_line(s, "%s: %u/%u steps", w->item->name, r.done, r.total);
		w->last = r;
		return false;
	}
	(void)close(w->fd);
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		;
	w->item->ran = true;
	w->item->error = w->reported ? w->last.error : -ECHILD;
	if (w->reported)
		w->item->outcome = w->last.outcome;
	else
		(void)snprintf(w->item->outcome.reason, sizeof(w->item->outcome.reason),
			"the worker died");
	return true;
}

/* An infrastructure failure gets one more try; what the guest did to itself does not. */
static bool boots_worth_retry(const struct boots_item *i)
{
	return i->retries == 0 &&
	       (i->error == -ECHILD || (i->error == 0 && i->outcome.end == VM_HUNG));
}

static int boots_finish(struct boots_state *s, struct boots_worker *w)
{
	struct boots_item *i = w->item;
	char text[400], time[STR_HUMAN_MAX];
	const char *failure = boots_failure(i, text);

	w->item = NULL;
	if (failure && boots_worth_retry(i)) {
		i->retries++;
		boots_line(s, "%s: %s; once more", i->name, failure);
		return boots_start(w, i);
	}
	s->done++;
	boots_line(s, "%s: %s (%s)", i->name, failure ? failure : "done",
		str_human_ns(i->outcome.host_ns, time));
	(void)boots_save(i); /* only `report` reads it, and it says what is missing */
	return 0;
}

static int boots_by_cost(const void *a, const void *b)
{
	const struct boots_item *const *x = a, *const *y = b;

	if ((*x)->cost_s != (*y)->cost_s)
		return (*x)->cost_s < (*y)->cost_s ? 1 : -1;
	return strcmp((*x)->name, (*y)->name);
}

static int boots_wait(struct boots_state *s)
{
	struct pollfd fds[BOOTS_AT_ONCE_MAX];
	int r = 0;

	for (unsigned int k = 0; k < s->at_once; k++)
		fds[k] = (struct pollfd){
			.fd = s->workers[k].item ? s->workers[k].fd : -1, .events = POLLIN};
	/* A second, so that the clock on the terminal moves; deadlines are vm_run's own. */
	if (poll(fds, s->at_once, 1000) < 0 && errno != EINTR)
		return -errno;
	for (unsigned int k = 0; k < s->at_once && r == 0; k++)
		if (s->workers[k].item && fds[k].revents && boots_take(s, &s->workers[k]))
			r = boots_finish(s, &s->workers[k]);
	boots_say(s);
	return r;
}

static void boots_kill(struct boots_state *s)
{
	for (unsigned int k = 0; k < s->at_once; k++)
		if (s->workers[k].item) {
			(void)kill(s->workers[k].pid, SIGKILL); /* it may have ended itself */
			(void)waitpid(s->workers[k].pid, NULL, 0);
			(void)close(s->workers[k].fd);
		}
}

int boots_run(struct boots_item *items, size_t count, const struct boots_options *o)
{
	_cleanup_(freep) struct boots_item **queue = calloc(count + 1, sizeof(*queue));
	struct boots_state s = {.o = o, .count = count, .start_ns = loop_now_ns()};
	size_t next = 0;
	int r = 0;

	if (!queue)
		return -ENOMEM;
	s.at_once = MIN(o->at_once ? o->at_once : 2, BOOTS_AT_ONCE_MAX);
	s.tty = isatty(o->fd);
	for (size_t i = 0; i < count; i++)
		queue[i] = &items[i];
	qsort(queue, count, sizeof(struct boots_item *), boots_by_cost);
	while (r == 0 && s.done < count) {
		for (unsigned int k = 0; k < s.at_once && next < count && r == 0; k++)
			if (!s.workers[k].item)
				r = boots_start(&s.workers[k], queue[next++]);
		if (r == 0)
			r = boots_wait(&s);
	}
	boots_kill(&s);
	if (s.tty && !o->quiet)
		(void)!write(o->fd, "\r\033[K", 4); /* progress only */
	return r;
}
