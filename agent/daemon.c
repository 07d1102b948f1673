/*
 * See daemon.h. Everything runs on one loop: a heartbeat brings commands, commands become recordings
 * (daemon_jobs.h), recordings leave windows in the spool (spool.h), and the spool empties itself into
 * the backend (upload.h). What happened is told by the next heartbeat, which comes early then.
 *
 * Ending (SIGTERM, SIGINT): windows end now, go to the spool, and are sent if that works within what
 * is left of END_NS; the rest waits in the spool for the next start.
 */
#include "agent/daemon.h"

#include <errno.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/daemon_conf.h"
#include "agent/daemon_http.h"
#include "agent/daemon_jobs.h"
#include "agent/daemon_state.h"
#include "agent/debuginfod.h"
#include "agent/heartbeat.h"
#include "agent/own.h"
#include "agent/preflight.h"
#include "agent/record.h"
#include "agent/upload.h"
#include "base/arena.h"
#include "base/def.h"
#include "base/log.h"

#define HEARTBEAT_PATH       "/api/v1/heartbeat"
#define HEARTBEAT_TIMEOUT_MS 20000
#define HEARTBEAT_BYTES_MAX  (1UL << 20)
#define HEARTBEAT_SOON_NS    (200 * NSEC_PER_MSEC)  /* gathers what changes together */
#define END_NS               (4500 * NSEC_PER_MSEC) /* of the 5 s we promise */
#define END_FLUSH_MS         2000
#define END_HEARTBEAT_MS     700
#define REPLY_ARENA_MAX      (8UL << 20)

struct daemon {
	struct daemon_conf conf;
	struct rng rng;
	int lock_fd;
	char instance[DAEMON_INSTANCE_SIZE];
	char user_agent[128];
	struct heartbeat_identity identity;
	struct loop *loop;
	struct daemon_http *http;
	struct spool *spool;
	struct upload *upload;
	struct commands *commands;
	struct jobs *jobs;
	struct debuginfod *debuginfod; /* NULL: no server is named */
	struct buf fetched_dir;

	struct loop_source *heartbeat_timer;
	struct buf heartbeat;      /* being sent */
	uint64_t heartbeat_change; /* of the ledger, in it */
	uint64_t interval_ns;
	bool heartbeat_again;   /* something changed while one was under way */
	int64_t clock_ahead_ms; /* the backend's clock less ours */
	uint64_t start_ns;
	struct buf cannot;        /* why nothing can be recorded, empty: it can */
	char backend_error[512];  /* of the last heartbeat; "" when it arrived */
	char backend_missed[512]; /* why earlier ones did not arrive, to be told by the next */
	char status[1200];        /* as last written */
	bool is_ending;
	bool is_last_heartbeat; /* its answer is the end */
};

static int64_t now_unix_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* the clock exists */
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / (int64_t)NSEC_PER_MSEC;
}

static void beat(struct daemon *d, uint64_t timeout_ms);

static int on_heartbeat_due(struct loop *l, uint32_t events, void *data)
{
	struct daemon *d = data;

	(void)l;
	(void)events;
	if (!d->is_ending) /* that has a heartbeat of its own */
		beat(d, HEARTBEAT_TIMEOUT_MS);
	return 0;
}

static void schedule_heartbeat(struct daemon *d, uint64_t wait_ns)
{
	int r = loop_set_timer(d->heartbeat_timer, wait_ns, 0);

	if (r < 0)
		log_error("daemon", "set the heartbeat's timer", r, "wait_ns=%llu",
			(unsigned long long)wait_ns);
}

/* A recording began or ended: the backend is to know soon. */
static void on_change(void *data)
{
	struct daemon *d = data;

	d->heartbeat_again = true;
	if (!d->is_ending && !daemon_http_is_busy(d->http, DAEMON_HTTP_HEARTBEAT))
		schedule_heartbeat(d, HEARTBEAT_SOON_NS);
}

static void on_window(void *data)
{
	struct daemon *d = data;

	if (d->is_ending) /* then the end sends all at once */
		return;
	upload_kick(d->upload);
	debuginfod_kick(d->debuginfod);
}

static void find_state(struct daemon *d, const char **state, const char **text)
{
	const char *upload_error = upload_stats(d->upload)->last_error;
	struct jobs_stats js;

	jobs_stats(d->jobs, &js);
	*state = js.running > 0 ? "profiling" : "dormant";
	*text = "";
	if (d->cannot.size > 0 || *js.last_error)
		*state = js.running > 0 && d->cannot.size == 0 ? "profiling" : "error";
	if (d->cannot.size > 0)
		*text = buf_str(&d->cannot);
	else if (*js.last_error)
		*text = js.last_error;
	else if (*upload_error)
		*text = upload_error;
	else
		*text = d->backend_missed;
}

/* For people on the host, who cannot see what the backend never heard. */
static void write_status(struct daemon *d)
{
	const char *state, *text;
	const char *backend = d->backend_error[0] ? d->backend_error : "ok";
	char status[sizeof(d->status)];
	int r;

	find_state(d, &state, &text);
	(void)snprintf(status, sizeof(status), "%s\n%s\n%s", state, text, backend);
	if (strcmp(status, d->status) == 0)
		return;
	memcpy(d->status, status, sizeof(status));
	r = daemon_state_write_status(d->conf.state_dir, state, text, backend, now_unix_ms());
	if (r < 0)
		log_error("daemon", "write status", r, "dir=%s", d->conf.state_dir);
}

/* A command is over before anything ran. */
static void settle(struct daemon *d, const char *id, enum command_state state, const char *text)
{
	int r = commands_set(d->commands, id, state, text, NULL);

	if (r < 0)
		log_error("daemon", "remember a command", r, "id=%s", id);
	on_change(d);
}

static void run_stop(struct daemon *d, const struct command *c)
{
	const char *text = "stopped";

	if (!jobs_stop(d->jobs, c->target, c->id)) {
		text = "nothing to stop: it does not run here";
		/* One that comes only now, out of order, is not to start. */
		if (!commands_find(d->commands, c->target))
			settle(d, c->target, COMMAND_CANCELLED, "stopped before it came");
	}
	settle(d, c->id, COMMAND_DONE, text);
}

static void run_command(struct daemon *d, const struct command *c)
{
	const char *refused = c->problem;

	if (commands_find(d->commands, c->id)) {
		commands_tell_again(d->commands, c->id);
		return;
	}
	if (!refused && c->deadline_unix_ms > 0 &&
		now_unix_ms() + d->clock_ahead_ms > c->deadline_unix_ms)
		refused = "came after its deadline";
	if (!refused && c->kind == COMMAND_START && d->cannot.size > 0)
		refused = buf_str(&d->cannot);
	if (refused) {
		log_warn("daemon", "refuse a command", 0, "id=%s why=\"%s\"", c->id, refused);
		settle(d, c->id, COMMAND_FAILED, refused);
	} else if (c->kind == COMMAND_START) {
		jobs_start(d->jobs, c);
	} else if (c->kind == COMMAND_CHANGE) {
		jobs_change(d->jobs, c);
	} else {
		run_stop(d, c);
	}
}

static void take_reply(struct daemon *d, const struct daemon_http_reply *r)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(REPLY_ARENA_MAX);
	struct commands_reply reply;
	const char *why = "no memory";
	int e = a ? commands_read_reply(r->body, r->size, a, &why, &reply) : -ENOMEM;

	if (e < 0) {
		(void)snprintf(d->backend_error, sizeof(d->backend_error),
			"the backend's answer cannot be understood: %s", why);
		log_error("daemon", "read the heartbeat's answer", e, "why=\"%s\"", why);
		return;
	}
	d->backend_error[0] = d->backend_missed[0] = '\0';
	if (commands_told(d->commands, d->heartbeat_change) < 0)
		log_error("daemon", "write commands.json", -EIO, "dir=%s", d->conf.state_dir);
	if (reply.interval_ns > 0 && d->conf.heartbeat_ns == DAEMON_CONF_HEARTBEAT_NS)
		d->interval_ns = reply.interval_ns;
	if (reply.time_unix_ms > 0)
		d->clock_ahead_ms = reply.time_unix_ms - now_unix_ms();
	if (reply.refused > 0)
		log_warn("daemon", "skip commands without a usable id", 0, "commands=%zu",
			reply.refused);
	for (size_t i = 0; i < reply.count && !d->is_ending; i++)
		run_command(d, &reply.commands[i]);
}

static void on_reply(const struct daemon_http_reply *r, void *data)
{
	struct daemon *d = data;
	bool is_ok = r->error == 0 && r->status >= 200 && r->status < 300;

	buf_done(&d->heartbeat);
	d->heartbeat = BUF_INIT(HEARTBEAT_BYTES_MAX);
	if (is_ok) {
		if (d->backend_error[0])
			log_info(
				"daemon", "reach the backend again", "backend=%s", d->conf.backend);
		take_reply(d, r);
	} else {
		(void)snprintf(d->backend_error, sizeof(d->backend_error), "%s", r->text);
		(void)snprintf(d->backend_missed, sizeof(d->backend_missed),
			"heartbeats were lost: %.480s", r->text);
		log_warn("daemon", "send a heartbeat", r->error, "backend=%s why=\"%s\"",
			d->conf.backend, r->text);
	}
	write_status(d);
	if (d->is_last_heartbeat)
		loop_stop(d->loop);
	else if (is_ok && d->heartbeat_again)
		schedule_heartbeat(d, HEARTBEAT_SOON_NS);
	else
		schedule_heartbeat(d, heartbeat_jittered_ns(d->interval_ns, &d->rng));
}

static int write_heartbeat(struct daemon *d)
{
	pid_t pids[JOBS_MAX * JOBS_RECORDERS_MAX];
	size_t count = jobs_pids(d->jobs, pids, ARRAY_SIZE(pids));
	struct spool_stats spool = spool_stats(d->spool);
	struct jobs_stats js;
	struct heartbeat_facts f = {
		.identity = &d->identity,
		.time_unix_ms = now_unix_ms(),
		.can_cpu = d->cannot.size > 0 ? buf_str(&d->cannot) : "ok",
		.spool_windows = spool.windows,
		.spool_bytes = spool.bytes,
	};

	jobs_stats(d->jobs, &js);
	find_state(d, &f.state, &f.state_text);
	heartbeat_own(pids, count, &f.own);
	f.own.kernel_bytes = js.kernel_bytes;
	f.own.uptime_ns = loop_now_ns() - d->start_ns;
	f.samples_lost = js.samples_lost;
	/* That no file of it came to be is no smaller loss. */
	f.windows_dropped = js.windows_failed + spool.dropped + spool.damaged +
			    upload_stats(d->upload)->refused;
	return heartbeat_write(&f, d->commands, &d->heartbeat, &d->heartbeat_change);
}

static void beat(struct daemon *d, uint64_t timeout_ms)
{
	struct daemon_http_request q = {
		.path = HEARTBEAT_PATH,
		.content_type = "application/json",
		.timeout_ms = timeout_ms,
		.fn = on_reply,
		.data = d,
	};
	int r;

	if (daemon_http_is_busy(d->http, DAEMON_HTTP_HEARTBEAT))
		return; /* its answer schedules the next */
	d->heartbeat_again = false;
	buf_reset(&d->heartbeat);
	r = write_heartbeat(d);
	if (r == 0) {
		q.body = d->heartbeat.data;
		q.size = d->heartbeat.size;
		r = daemon_http_post(d->http, DAEMON_HTTP_HEARTBEAT, &q);
	}
	if (r == 0)
		return;
	log_error("daemon", "send a heartbeat", r, "backend=%s", d->conf.backend);
	if (d->is_ending)
		loop_stop(d->loop);
	else
		schedule_heartbeat(d, heartbeat_jittered_ns(d->interval_ns, &d->rng));
}

/* --- the end */

static int on_end_deadline(struct loop *l, uint32_t events, void *data)
{
	(void)events;
	(void)data;
	log_warn("daemon", "end in time", -ETIMEDOUT, "spool=%s", "keeps what was not sent");
	loop_stop(l);
	return 0;
}

static void on_flushed(void *data)
{
	struct daemon *d = data;

	daemon_http_cancel(d->http, DAEMON_HTTP_HEARTBEAT);
	d->is_last_heartbeat = true;
	beat(d, END_HEARTBEAT_MS); /* its answer, or its failure, is the end */
}

static void on_jobs_ended(void *data)
{
	struct daemon *d = data;

	upload_flush(d->upload, END_FLUSH_MS, on_flushed, d);
}

static int on_signal(struct loop *l, uint32_t signo, void *data)
{
	struct daemon *d = data;
	struct loop_source *timer;
	int r;

	if (d->is_ending)
		return 0;
	d->is_ending = true;
	log_info("daemon", "end", "signal=%u", signo);
	r = loop_add_timer(l, END_NS, 0, on_end_deadline, d, &timer);
	jobs_end(d->jobs, on_jobs_ended, d);
	return r;
}

/* --- the start */

/* What the last run left: continuous commands go on, and changes of them; others ended with it. */
static void resume(struct daemon *d)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(REPLY_ARENA_MAX);

	for (size_t i = 0; a; i++) {
		const struct commands_entry *e = commands_at(d->commands, i);
		struct command c;
		const char *why;
		bool can;

		if (!e)
			return;
		if (e->state != COMMAND_RUNNING)
			continue;
		can = e->spec && d->cannot.size == 0 &&
		      commands_read_one(e->spec, strlen(e->spec), a, &why, &c) == 0 && !c.problem;
		if (can && c.kind == COMMAND_CHANGE)
			jobs_change(d->jobs, &c); /* the file has its target before it */
		else if (can && c.kind == COMMAND_START && c.duration_ns == 0)
			jobs_start(d->jobs, &c);
		else
			settle(d, e->id, COMMAND_FAILED, "the agent ended while it recorded");
	}
}

static int open_state(struct daemon *d)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf spool = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf commands = BUF_INIT(4096);
	const char *dir = d->conf.state_dir;
	struct spool_limits limits = {
		.bytes_max = d->conf.spool_mb << 20, .windows_max = d->conf.spool_windows};
	int r = daemon_state_instance(dir, d->instance);

	if (r == 0)
		r = daemon_state_path(dir, "spool", &spool);
	if (r == 0)
		r = daemon_state_path(dir, "commands.json", &commands);
	if (r == 0)
		r = spool_open(buf_str(&spool), &limits, &d->spool);
	if (r == 0)
		r = commands_open(buf_str(&commands), &why, &d->commands);
	if (r < 0)
		log_error("daemon", "open the state directory", r, "dir=%s", dir);
	else if (why.size > 0)
		log_warn("daemon", "read commands.json", -EBADMSG, "why=\"%s\"", buf_str(&why));
	return r;
}

static int add_sources(struct daemon *d)
{
	struct loop_source *source; /* the loop owns them */
	int r = loop_add_signal(d->loop, SIGTERM, on_signal, d, &source);

	if (r == 0)
		r = loop_add_signal(d->loop, SIGINT, on_signal, d, &source);
	if (r == 0) /* the first one soon: whoever starts an agent wants to see it */
		r = loop_add_timer(d->loop,
			rng_between(&d->rng, 0, MIN(d->interval_ns / 10, NSEC_PER_SEC)), 0,
			on_heartbeat_due, d, &d->heartbeat_timer);
	return r;
}

static int open_debuginfod(struct daemon *d)
{
	const struct opt_list *urls = &d->conf.debuginfod_urls;
	int r = urls->count > 0 ? daemon_state_path(d->conf.state_dir, "debug", &d->fetched_dir)
				: 0;

	if (r < 0 || urls->count == 0)
		return r;
	return debuginfod_new(d->loop,
		&(struct debuginfod_options){.dir = buf_str(&d->fetched_dir),
			.ca_file = d->conf.ca_file,
			.urls = urls->str,
			.url_count = urls->count},
		&d->debuginfod);
}

static int open_parts(struct daemon *d)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(4096);
	struct daemon_http_options http = {
		.url = d->conf.backend,
		.token = d->conf.token,
		.ca_file = d->conf.ca_file,
		.cert_file = d->conf.cert_file,
		.key_file = d->conf.key_file,
		.user_agent = d->user_agent,
	};
	struct jobs_options jobs = {
		.conf = &d->conf,
		.instance = d->instance,
		.rng = &d->rng,
		.on_window = on_window,
		.on_change = on_change,
		.data = d,
	};
	int r = loop_new(&d->loop);

	if (r == 0)
		r = daemon_http_new(d->loop, &http, &why, &d->http);
	if (r == 0)
		r = upload_new(d->loop, d->http, d->spool, &d->rng, &d->upload);
	jobs.loop = d->loop;
	jobs.spool = d->spool;
	jobs.commands = d->commands;
	if (r == 0)
		r = jobs_new(&jobs, &d->jobs);
	if (r == 0)
		r = open_debuginfod(d);
	if (r == 0)
		r = add_sources(d);
	if (r < 0)
		log_error("daemon", "start", r, "why=\"%s\"", buf_str(&why));
	return r;
}

static void daemon_done(struct daemon *d)
{
	jobs_free(d->jobs);
	debuginfod_free(d->debuginfod);
	upload_free(d->upload);
	daemon_http_free(d->http);
	loop_free(d->loop);
	commands_free(d->commands);
	spool_free(d->spool);
	buf_done(&d->heartbeat);
	buf_done(&d->cannot);
	buf_done(&d->fetched_dir);
	closep(&d->lock_fd);
	free(d);
}

static int run(struct daemon *d)
{
	int r = open_state(d);

	if (r == 0)
		r = open_parts(d);
	if (r < 0)
		return r;
	heartbeat_identify(&d->identity);
	if (preflight_system(&d->cannot) < 0)
		log_error("daemon", "prepare to record", -EPERM, "why=\"%s\"", buf_str(&d->cannot));
	log_info("daemon", "start", "version=%s instance=%s backend=%s spool_windows=%llu",
		d->identity.version, d->instance, d->conf.backend,
		(unsigned long long)spool_stats(d->spool).windows);
	resume(d);
	if (d->conf.continuous && d->cannot.size == 0)
		jobs_start_configured(d->jobs);
	upload_kick(d->upload);
	write_status(d);
	own_trim();
	return loop_run(d->loop);
}

static uint64_t seed_of(const struct daemon_conf *conf)
{
	uint64_t seed = conf->seed;

	if (seed == 0 && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = (uint64_t)now_unix_ms() ^ ((uint64_t)getpid() << 48);
	return seed;
}

/* Takes the lock and runs. Exit code. */
static int run_locked(struct daemon *d, const char *version)
{
	int pid = 0;
	int r = daemon_state_lock(d->conf.state_dir, &d->lock_fd, &pid);

	if (r == -EBUSY) {
		/* Not a failure: a restart loop would follow from one. */
		(void)fprintf(stderr,
			"flame-agent: another one runs with state directory %s (process %d)\n",
			d->conf.state_dir, pid);
		return RECORD_EXIT_OK;
	}
	if (r < 0) {
		(void)fprintf(stderr, "flame-agent: state directory %s: %s%s\n", d->conf.state_dir,
			strerrordesc_np(-r),
			r == -EACCES ? ": run as root, or give --state-dir another" : "");
		return RECORD_EXIT_FAILED;
	}
	d->rng = rng_seeded(seed_of(&d->conf));
	d->interval_ns = d->conf.heartbeat_ns;
	d->start_ns = loop_now_ns();
	d->heartbeat = BUF_INIT(HEARTBEAT_BYTES_MAX);
	d->cannot = BUF_INIT(COMMAND_TEXT_MAX - 1);
	d->fetched_dir = BUF_INIT(4096);
	(void)snprintf(d->user_agent, sizeof(d->user_agent), "flame-agent/%s", version);
	d->identity = (struct heartbeat_identity){
		.host = d->conf.host_name, .instance = d->instance, .version = version};
	r = run(d);
	log_info("daemon", "ended", "spool_windows=%llu",
		(unsigned long long)(d->spool ? spool_stats(d->spool).windows : 0));
	return r < 0 ? RECORD_EXIT_FAILED : RECORD_EXIT_OK;
}

int daemon_help(struct buf *out)
{
	return opts_help(daemon_conf_specs, out);
}

int daemon_main(int argc, char **argv, const char *version)
{
	_cleanup_(opts_done) struct opts opts = {0};
	_cleanup_(buf_done) struct buf why = BUF_INIT(4096);
	struct daemon *d = calloc(1, sizeof(*d));
	int r = d ? daemon_conf_load(argc, argv, &opts, &d->conf, &why) : -ENOMEM;

	if (r == 1) {
		_cleanup_(buf_done) struct buf help = BUF_INIT(65536);

		(void)daemon_help(&help); /* fits */
		(void)printf("Usage: flame-agent daemon [OPTION]...\n%s", buf_str(&help));
		free(d);
		return RECORD_EXIT_OK;
	}
	if (r < 0) {
		(void)fprintf(stderr, "flame-agent: %s\n", buf_str(&why));
		free(d);
		return RECORD_EXIT_USAGE;
	}
	d->lock_fd = -1;
	(void)umask(077); /* profiles tell what a host does */
	r = run_locked(d, version);
	daemon_done(d);
	return r;
}
