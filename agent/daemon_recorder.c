/*
 * See daemon_recorder.h. The process's log lines are passed on to ours as they are; the last one of
 * level error is what a failed recording is explained with.
 */
#include "agent/daemon_recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>

#include "agent/record.h"
#include "base/arena.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

/* Naming and writing a window takes well under a second; a process that needs this long hangs. */
#define LATE_NS       (60 * NSEC_PER_SEC)
#define ARGUMENTS_MAX 1024

struct arguments {
	struct arena *arena;
	char *list[ARGUMENTS_MAX + 1];
	size_t count;
	bool is_full;
};

static void arguments_done(struct arguments *a)
{
	arena_free(a->arena);
}

static void add(struct arguments *a, const char *text)
{
	char *copy = a->count < ARGUMENTS_MAX ? arena_strdup(a->arena, text) : NULL;

	if (copy)
		a->list[a->count++] = copy;
	else
		a->is_full = true;
}

/* "--key=value": whatever the value begins with, it is never an option. */
static void add_option(struct arguments *a, const char *key, const char *value)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(16384);

	if (buf_printf(&b, "--%s=%s", key, value) < 0)
		a->is_full = true;
	else
		add(a, buf_str(&b));
}

static void add_number(struct arguments *a, const char *key, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	add_option(a, key, text);
}

static void add_filter(struct arguments *a, const struct filter *f)
{
	for (size_t s = 0; s < FILTER_SIDES; s++) {
		const struct filter_list *l = &f->sides[s];

		for (size_t i = 0; i < l->pid_count; i++)
			add_number(a, filter_pids_options[s], l->pids[i]);
		for (size_t k = 0; k < FILTER_TEXTS; k++)
			for (size_t i = 0; i < l->texts[k].count; i++)
				add_option(a, filter_texts_names[s][k].option, l->texts[k].at[i]);
	}
}

static int fill(struct arguments *a, const struct recorder_request *q)
{
	const struct command *c = q->command;
	char tables[PATH_MAX], containers[PATH_MAX],
		fetched[PATH_MAX]; /* cut, they are not there */

	add(a, "/proc/self/exe");
	add(a, WINDOW_ARG);
	add_option(a, "spool-file", q->spool_path);
	add_number(a, "start-ns", q->start_ns);
	add_number(a, "duration-ns", q->end_ns - q->start_ns);
	add_number(a, "frequency", q->frequency_hz);
	add_number(a, "jitter-seed", q->jitter_seed);
	add_option(a, "unwind", q->conf->unwind == RECORD_UNWIND_FP ? "fp" : "cfi");
	add_number(a, "unwind-table-mb", q->conf->unwind_table_mb);
	add_option(a, "lines", q->conf->lines == SYMBOLIZER_LINES_LINE ? "line" : "function");
	(void)snprintf(tables, sizeof(tables), "%s/tables", q->conf->state_dir);
	add_option(a, "tables-file", tables);
	(void)snprintf(containers, sizeof(containers), "%s/containers", q->conf->state_dir);
	add_option(a, "containers-file", containers);
	add_option(a, "container-runtime", q->conf->container_runtime);
	add_option(a, "service", q->conf->service);
	add_option(a, "instance", q->instance);
	add_option(a, "host", q->conf->host_name);
	add_option(a, "view", c->view);
	add_option(a, "recording", q->recording);
	add_filter(a, &c->filter);
	for (size_t i = 0; i < q->conf->debug_dirs.count; i++)
		add_option(a, "debug-dir", q->conf->debug_dirs.str[i]);
	(void)snprintf(fetched, sizeof(fetched), "%s/debug", q->conf->state_dir);
	if (q->conf->debuginfod_urls.count > 0)
		add_option(a, "fetched-dir", fetched);
	for (size_t i = 0; i < q->conf->service_rules.count; i++)
		add_option(a, "service-rule", q->conf->service_rules.str[i]);
	return a->is_full ? -E2BIG : 0;
}

const char *recorder_error_text(const char *line, char ret[RECORDER_TEXT_MAX])
{
	const char *from = strstr(line, "why=\"");
	size_t size;

	if (!str_has_prefix(line, "level=error "))
		return NULL;
	if (from) {
		from += strlen("why=\"");
		size = strlen(from);
		size -= size > 0 && from[size - 1] == '"';
	} else {
		from = line + strlen("level=error ");
		size = strlen(from);
	}
	(void)snprintf(ret, RECORDER_TEXT_MAX, "%.*s", (int)MIN(size, RECORDER_TEXT_MAX - 1), from);
	return ret;
}

static void take_line(struct recorder *r)
{
	r->line[r->line_size] = '\0';
	(void)recorder_error_text(r->line, r->error);
	r->line[r->line_size++] = '\n';
	(void)file_write_all(STDERR_FILENO, r->line, r->line_size); /* nowhere to complain */
	r->line_size = 0;
}

/* Everything its log pipe holds now. */
static void drain_log(struct recorder *r)
{
	char bytes[1024];
	ssize_t n;

	while ((n = read(r->err, bytes, sizeof(bytes))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (bytes[i] == '\n' || r->line_size == sizeof(r->line) - 2)
				take_line(r);
			if (bytes[i] != '\n')
				r->line[r->line_size++] = bytes[i];
		}
	}
	if (n == 0) {
		loop_remove(r->on_log);
		r->on_log = NULL;
	}
}

static void recorder_clear(struct recorder *r)
{
	loop_remove(r->on_exit);
	loop_remove(r->on_log);
	loop_remove(r->on_late);
	r->on_exit = r->on_log = r->on_late = NULL;
	closep(&r->out);
	closep(&r->err);
	r->out = r->err = -1;
	r->is_used = false;
}

/* Its result is small enough to stand in the pipe whole. */
static bool read_result(struct recorder *r)
{
	struct window_result result;

	if (read(r->out, &result, sizeof(result)) != sizeof(result) ||
		result.magic != WINDOW_RESULT_MAGIC)
		return false;
	r->result = result;
	return true;
}

static int on_log_bytes(struct loop *l, uint32_t events, void *data)
{
	(void)l;
	(void)events;
	drain_log(data);
	return 0;
}

static int on_exit_event(struct loop *l, uint32_t events, void *data)
{
	struct recorder *r = data;
	char how[64];

	(void)l;
	(void)events;
	if (child_wait(&r->child, 0) < 0)
		return 0;
	drain_log(r);
	if (r->line_size > 0)
		take_line(r);
	r->is_good = r->child.status == 0 && read_result(r);
	if (!r->is_good && !r->error[0])
		(void)snprintf(r->error, sizeof(r->error), "the recording process ended: %s",
			child_describe(r->child.status, how));
	recorder_clear(r);
	r->fn(r, r->data);
	return 0;
}

static int on_late_event(struct loop *l, uint32_t events, void *data)
{
	struct recorder *r = data;

	(void)l;
	(void)events;
	(void)snprintf(r->error, sizeof(r->error), "the recording process hung and was killed");
	(void)kill(r->child.pid, SIGKILL); /* not reaped yet, so it is still it */
	return 0;
}

static int watch(struct recorder *r, struct loop *l)
{
	uint64_t now_ns = loop_now_ns();
	uint64_t late_ns = (r->end_ns > now_ns ? r->end_ns - now_ns : 0) + LATE_NS;
	int e = loop_add_fd(l, r->child.pidfd, EPOLLIN, on_exit_event, r, &r->on_exit);

	if (e == 0)
		e = loop_add_fd(l, r->err, EPOLLIN, on_log_bytes, r, &r->on_log);
	if (e == 0)
		e = loop_add_timer(l, late_ns, 0, on_late_event, r, &r->on_late);
	return e;
}

static int start_process(struct recorder *r, char *const *argv)
{
	int out[2], err[2];
	int e;

	if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	_cleanup_(closep) int out_write = out[1];
	r->out = out[0];
	if (pipe2(err, O_CLOEXEC) < 0)
		return -errno;
	_cleanup_(closep) int err_write = err[1];
	r->err = err[0];
	/* Our end only: the process may wait for us, we never for it. */
	if (fcntl(r->err, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	e = child_start(
		&r->child, argv, &(struct child_io){.in = -1, .out = out_write, .err = err_write});
	return e;
}

int recorder_start(struct recorder *r, struct loop *l, const struct recorder_request *q,
	recorder_fn *fn, void *data)
{
	_cleanup_(arguments_done) struct arguments a = {.arena = arena_new(2UL << 20)};
	int e = a.arena ? fill(&a, q) : -ENOMEM;

	*r = (struct recorder){
		.is_used = true,
		.out = -1,
		.err = -1,
		.fn = fn,
		.data = data,
		.place = q->place,
		.start_ns = q->start_ns,
		.end_ns = q->end_ns,
	};
	if (e == 0)
		e = start_process(r, a.list);
	if (e == 0) {
		e = watch(r, l);
		if (e < 0)
			child_end(&r->child, 0);
	}
	if (e < 0)
		recorder_clear(r);
	return e;
}

void recorder_interrupt(struct recorder *r)
{
	if (r->is_used && r->child.pid > 0)
		(void)kill(r->child.pid, SIGTERM); /* not reaped yet, so it is still it */
}

void recorder_kill(struct recorder *r)
{
	if (!r->is_used)
		return;
	child_end(&r->child, 0);
	recorder_clear(r);
}
