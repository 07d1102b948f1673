/* See daemon_jobs.h. */
#include "agent/daemon_jobs.h"

#include <errno.h>
#include <time.h>

#include "agent/daemon_recorder.h"
#include "agent/daemon_spec.h"
#include "agent/own.h"
#include "base/def.h"
#include "base/log.h"

/* Loading takes 30 ms of CPU; a busy host may need many times that until they are over. */
#define LEAD_NS            NSEC_PER_SEC
#define FAILURES_IN_ROW    3
#define FREQUENCY_FLOOR_HZ 11

struct job {
	struct jobs *jobs;
	bool is_used;
	bool is_configured;
	bool is_stopping;
	struct spec spec;     /* what windows are started with */
	struct spec next;     /* of a change, from the next window on */
	struct spec proven;   /* what spec was before a change of which no window came out yet */
	uint64_t spec_number; /* grows with each change */
	struct jobs_schedule schedule;
	uint64_t first_ns; /* start of the recording */
	uint64_t next_ns;  /* start of the next window */
	uint64_t frequency_hz;
	struct loop_source *timer;
	struct recorder recorders[JOBS_RECORDERS_MAX];
	uint64_t recorder_spec[JOBS_RECORDERS_MAX]; /* the spec_number each works by */
	uint64_t good, failed_in_row; /* window processes, also those that saw nothing */
	uint64_t windows, samples;    /* in the spool */
	uint64_t skipped;             /* windows for which no process was free */
	uint64_t kernel_bytes;
	enum command_state end_state; /* when stopping */
	char end_text[COMMAND_TEXT_MAX];
	char error[RECORDER_TEXT_MAX]; /* of the last window that failed */
};

struct jobs {
	struct jobs_options options;
	struct job list[JOBS_MAX];
	struct jobs_stats stats;
	char last_error[RECORDER_TEXT_MAX];
	void (*end_done)(void *data);
	void *end_data;
};

static void schedule_next(struct job *job);

int jobs_new(const struct jobs_options *o, struct jobs **ret)
{
	struct jobs *j = calloc(1, sizeof(*j));

	if (!j)
		return -ENOMEM;
	j->options = *o;
	*ret = j;
	return 0;
}

static void job_clear(struct job *job)
{
	for (size_t i = 0; i < JOBS_RECORDERS_MAX; i++)
		recorder_kill(&job->recorders[i]);
	loop_remove(job->timer);
	spec_done(&job->spec);
	spec_done(&job->next);
	spec_done(&job->proven);
	*job = (struct job){0};
}

void jobs_free(struct jobs *j)
{
	if (!j)
		return;
	for (size_t i = 0; i < JOBS_MAX; i++)
		job_clear(&j->list[i]);
	free(j);
}

static int64_t clock_offset_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* the clock exists */
	return (int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec - (int64_t)loop_now_ns();
}

uint64_t jobs_window_end(const struct jobs_schedule *s, uint64_t start_ns)
{
	uint64_t length = s->window_ns;
	uint64_t end_ns;

	if (s->is_aligned) {
		uint64_t unix_ns = (uint64_t)((int64_t)start_ns + s->clock_offset_ns);

		length -= unix_ns % s->window_ns;
		/* A moment before the boundary: not worth a window of its own. */
		if (length < s->window_ns / 10)
			length += s->window_ns;
	}
	end_ns = start_ns + length;
	if (end_ns >= s->end_ns || s->end_ns - end_ns < s->window_ns / 10)
		end_ns = s->end_ns;
	return end_ns;
}

static const char *name_of(const struct job *job)
{
	return job->is_configured ? "continuous" : job->spec.command.id;
}

static size_t recorders_running(const struct job *job)
{
	size_t n = 0;

	for (size_t i = 0; i < JOBS_RECORDERS_MAX; i++)
		n += job->recorders[i].is_used;
	return n;
}

static void set_state(struct jobs *j, const char *id, enum command_state state, const char *text,
	const struct command *running)
{
	int r = commands_set(j->options.commands, id, state, text, running);

	if (r < 0)
		log_error("jobs", "remember a command", r, "id=%s", id);
	if (state != COMMAND_RUNNING)
		log_info("jobs", "end a command", "id=%s state=%s text=\"%s\"", id,
			command_state_name(state), text);
	j->options.on_change(j->options.data);
}

static void end_all_if_idle(struct jobs *j)
{
	void (*done)(void *data) = j->end_done;

	for (size_t i = 0; i < JOBS_MAX; i++)
		if (j->list[i].is_used)
			return;
	j->end_done = NULL;
	if (done)
		done(j->end_data);
}

/* Changes that the recording did not live to see. */
static void fail_changes(struct job *job)
{
	struct jobs *j = job->jobs;

	if (job->end_state == COMMAND_RUNNING)
		return; /* it goes on at the next start, and they with it */
	if (spec_is_set(&job->proven))
		set_state(j, job->spec.change_id, COMMAND_FAILED,
			"the recording ended before a window of it came out", NULL);
	if (spec_is_set(&job->next))
		set_state(j, job->next.change_id, COMMAND_FAILED,
			"the recording ended before its next window", NULL);
}

/* Nothing of it runs any more. */
static void finish(struct job *job)
{
	struct jobs *j = job->jobs;
	char id[COMMAND_ID_MAX + 1];
	enum command_state state = job->end_state;
	char text[COMMAND_TEXT_MAX];
	bool tell = !job->is_configured && state != COMMAND_RUNNING;
	int n;

	if (state == COMMAND_DONE && (job->good == 0 || job->failed_in_row > 0)) {
		state = COMMAND_FAILED;
		(void)snprintf(job->end_text, sizeof(job->end_text), "%s", job->error);
	}
	(void)snprintf(id, sizeof(id), "%s", job->spec.command.id ? job->spec.command.id : "");
	n = snprintf(text, sizeof(text), "%.400s%swindows=%llu samples=%llu", job->end_text,
		job->end_text[0] ? "; " : "", (unsigned long long)job->windows,
		(unsigned long long)job->samples);
	if (job->skipped > 0)
		(void)snprintf(text + n, sizeof(text) - (size_t)n, " skipped=%llu",
			(unsigned long long)job->skipped);
	fail_changes(job);
	job_clear(job);
	j->stats.running--;
	own_trim(); /* dormant again */
	if (tell)
		set_state(j, id, state, text, NULL);
	else
		j->options.on_change(j->options.data);
	end_all_if_idle(j);
}

/* No further window; what runs may finish. */
static void stop(struct job *job, enum command_state state, const char *text)
{
	/* Cancelled while its last window runs is cancelled, not done. */
	if (!job->is_stopping || (state == COMMAND_CANCELLED && job->end_state == COMMAND_DONE)) {
		job->is_stopping = true;
		job->end_state = state;
		(void)snprintf(job->end_text, sizeof(job->end_text), "%s", text);
	}
	loop_remove(job->timer);
	job->timer = NULL;
	if (recorders_running(job) == 0)
		finish(job);
}

static void interrupt(struct job *job)
{
	for (size_t i = 0; i < JOBS_RECORDERS_MAX; i++)
		recorder_interrupt(&job->recorders[i]);
}

/* Slows a continuous recording down that costs more than it may. */
static void apply_cpu_limit(struct job *job, const struct recorder *r)
{
	const struct daemon_conf *conf = job->jobs->options.conf;
	double machine_ns =
		(double)(r->end_ns - r->start_ns) * (double)sysconf(_SC_NPROCESSORS_ONLN);
	double percent = 100.0 * (double)r->result.cpu_ns / machine_ns;

	if (!job->schedule.is_aligned || percent <= conf->cpu_limit_percent ||
		job->frequency_hz <= FREQUENCY_FLOOR_HZ)
		return;
	job->frequency_hz = MAX(job->frequency_hz / 2, (uint64_t)FREQUENCY_FLOOR_HZ);
	log_warn("jobs", "keep to the CPU limit", 0,
		"recording=%s used_percent=%.2f limit_percent=%.2f frequency_hz=%llu", name_of(job),
		percent, conf->cpu_limit_percent, (unsigned long long)job->frequency_hz);
}

static void apply_memory_limit(struct job *job, const struct recorder *r)
{
	uint64_t limit = job->jobs->options.conf->memory_limit_mb << 20;
	uint64_t used = r->result.rss_peak_bytes + r->result.kernel_bytes;
	char text[128];

	if (used <= limit || job->is_stopping)
		return;
	(void)snprintf(text, sizeof(text), "took %llu MB, the limit is %llu MB",
		(unsigned long long)(used >> 20), (unsigned long long)(limit >> 20));
	log_error("jobs", "keep to the memory limit", -ENOMEM, "recording=%s why=\"%s\"",
		name_of(job), text);
	interrupt(job);
	stop(job, COMMAND_FAILED, text);
}

static void take_window(struct job *job, struct recorder *r)
{
	struct jobs *j = job->jobs;

	job->good++;
	job->failed_in_row = 0;
	job->samples += r->result.samples;
	job->kernel_bytes = r->result.kernel_bytes;
	j->stats.windows++;
	j->stats.samples_lost += r->result.samples_lost;
	j->last_error[0] = '\0';
	job->windows += r->result.series > 0;
	if (r->result.series > 0) {
		int e = spool_take_in(j->options.spool, r->place);

		if (e < 0)
			log_error("jobs", "queue a window", e, "place=%llu",
				(unsigned long long)r->place);
		j->options.on_window(j->options.data);
	}
	apply_cpu_limit(job, r);
}

static void miss_window(struct job *job, const char *why)
{
	struct jobs *j = job->jobs;

	job->failed_in_row++;
	j->stats.windows_failed++;
	(void)snprintf(j->last_error, sizeof(j->last_error), "%s", why);
	(void)snprintf(job->error, sizeof(job->error), "%s", why);
	if (job->is_configured || job->is_stopping)
		return;
	if (job->good == 0 || job->failed_in_row >= FAILURES_IN_ROW) {
		interrupt(job);
		stop(job, COMMAND_FAILED, why);
	}
}

/* From now on windows are as spec says; an end in the past is the next boundary. */
static void follow_spec(struct job *job)
{
	const struct daemon_conf *conf = job->jobs->options.conf;
	const struct command *c = &job->spec.command;

	job->spec_number++;
	job->frequency_hz = c->frequency_hz > 0 ? c->frequency_hz : conf->frequency_hz;
	job->schedule.window_ns = c->duration_ns > 0 ? conf->window_ns : conf->window_continuous_ns;
	job->schedule.is_aligned = c->duration_ns == 0;
	job->schedule.end_ns =
		c->duration_ns > 0 ? job->first_ns + c->duration_ns : (uint64_t)UINT64_MAX;
}

/* A restart goes on with what the recording is now. */
static void remember_spec(struct job *job)
{
	int e = commands_set(job->jobs->options.commands, job->spec.command.id, COMMAND_RUNNING, "",
		&job->spec.command);

	if (e < 0)
		log_error("jobs", "remember a command", e, "id=%s", name_of(job));
}

static void apply_change(struct job *job)
{
	if (!spec_is_set(&job->next))
		return;
	if (spec_is_set(&job->proven))
		set_state(job->jobs, job->spec.change_id, COMMAND_CANCELLED,
			"replaced by the next change", NULL);
	else
		spec_move(&job->proven, &job->spec);
	spec_move(&job->spec, &job->next);
	follow_spec(job);
	remember_spec(job);
	log_info("jobs", "change a recording", "recording=%s change=%s frequency_hz=%llu",
		name_of(job), job->spec.change_id, (unsigned long long)job->frequency_hz);
}

/* The first window by a change came out: it is done. Or it failed: the recording is as before. */
static void settle_change(struct job *job, bool is_good, const char *why)
{
	if (is_good) {
		spec_done(&job->proven);
		set_state(job->jobs, job->spec.change_id, COMMAND_DONE, "", NULL);
		job->spec.change_id[0] = '\0';
		return;
	}
	set_state(job->jobs, job->spec.change_id, COMMAND_FAILED, why, NULL);
	spec_move(&job->spec, &job->proven);
	job->spec.change_id[0] = '\0';
	job->failed_in_row = 0;
	follow_spec(job);
	remember_spec(job);
}

static void on_recorder(struct recorder *r, void *data)
{
	struct job *job = data;
	struct jobs *j = job->jobs;
	bool is_first_of_change = spec_is_set(&job->proven) &&
				  job->recorder_spec[r - job->recorders] == job->spec_number;

	if (is_first_of_change)
		settle_change(job, r->is_good, r->error);
	if (r->is_good)
		take_window(job, r);
	else if (is_first_of_change)
		j->stats.windows_failed++;
	else
		miss_window(job, r->error);
	/* Either may have ended the job by now, which empties its place. */
	if (job->jobs == j && job->is_used && r->is_good)
		apply_memory_limit(job, r);
	if (job->jobs == j && job->is_used && job->is_stopping && recorders_running(job) == 0)
		finish(job);
	else if (job->jobs == j && job->is_used && !job->is_stopping && !job->timer &&
		 recorders_running(job) == 0)
		schedule_next(job);
}

static struct recorder *free_recorder(struct job *job)
{
	for (size_t i = 0; i < JOBS_RECORDERS_MAX; i++)
		if (!job->recorders[i].is_used)
			return &job->recorders[i];
	return NULL;
}

/*
 * All processes still name and write earlier windows: this host does not keep up with windows this
 * short. More processes would only slow it down, so the recording has a gap, which is counted.
 */
static void skip_window(struct job *job)
{
	struct jobs *j = job->jobs;

	job->skipped++;
	j->stats.windows_failed++;
	(void)snprintf(j->last_error, sizeof(j->last_error),
		"a window was skipped: those before it are not written yet; windows are too short "
		"for this host");
	log_warn("jobs", "start a window", 0, "recording=%s skipped=%llu why=\"%s\"", name_of(job),
		(unsigned long long)job->skipped, j->last_error);
}

/* Starts the window's process; a window that cannot start is a failed one. */
static void start_window(struct job *job, uint64_t start_ns, uint64_t end_ns)
{
	const struct jobs_options *o = &job->jobs->options;
	struct recorder *r = free_recorder(job);
	char path[SPOOL_PATH_MAX];
	struct recorder_request q = {
		.conf = o->conf,
		.instance = o->instance,
		.command = &job->spec.command,
		.recording = job->is_configured ? "" : job->spec.command.id,
		.spool_path = path,
		.frequency_hz = job->frequency_hz,
		.jitter_seed = rng_u64(o->rng) >> 1,
		.start_ns = start_ns,
		.end_ns = end_ns,
	};
	int e;

	if (!r) {
		skip_window(job);
		return;
	}
	e = spool_reserve(o->spool, path, &q.place);
	if (e == 0)
		e = recorder_start(r, o->loop, &q, on_recorder, job);
	if (e == 0) {
		job->recorder_spec[r - job->recorders] = job->spec_number;
		return;
	}
	log_error("jobs", "start a window", e, "recording=%s", name_of(job));
	miss_window(job, strerrordesc_np(-e));
}

static int on_due(struct loop *l, uint32_t events, void *data)
{
	struct job *job = data;
	uint64_t start_ns, end_ns;

	(void)l;
	(void)events;
	loop_remove(job->timer);
	job->timer = NULL;
	job->schedule.clock_offset_ns = clock_offset_ns();
	apply_change(job);
	if (job->next_ns >= job->schedule.end_ns) {
		if (spec_is_set(&job->proven))
			settle_change(job, true, "");
		schedule_next(job);
		return 0;
	}
	start_ns = job->next_ns;
	end_ns = jobs_window_end(&job->schedule, start_ns);
	if (end_ns <= loop_now_ns()) {
		/* After a suspend, or a loop that stood still, what is over is not made up for. */
		start_ns = MIN(loop_now_ns(), job->schedule.end_ns);
		end_ns = jobs_window_end(&job->schedule, start_ns);
	}
	job->next_ns = end_ns;
	if (start_ns < end_ns)
		start_window(job, start_ns, end_ns);
	if (job->is_used && !job->is_stopping)
		schedule_next(job);
	return 0;
}

static void schedule_next(struct job *job)
{
	struct loop *l = job->jobs->options.loop;
	uint64_t now_ns = loop_now_ns();
	uint64_t lead_ns = MIN(LEAD_NS, job->schedule.window_ns / 2);
	uint64_t due_ns = job->next_ns - MIN(job->next_ns, lead_ns);
	int e;

	if (job->next_ns >= job->schedule.end_ns) {
		stop(job, COMMAND_DONE, "");
		return;
	}
	e = loop_add_timer(l, due_ns > now_ns ? due_ns - now_ns : 0, 0, on_due, job, &job->timer);
	if (e < 0)
		stop(job, COMMAND_FAILED, strerrordesc_np(-e));
}

static struct job *new_job(struct jobs *j, const struct command *c)
{
	struct job *job = NULL;

	for (size_t i = 0; i < JOBS_MAX && !job; i++)
		if (!j->list[i].is_used)
			job = &j->list[i];
	if (!job)
		return NULL;
	*job = (struct job){.jobs = j, .is_used = true};
	if (spec_init(c, &job->spec) < 0) {
		job_clear(job);
		return NULL;
	}
	job->first_ns = job->next_ns = loop_now_ns() + LEAD_NS;
	follow_spec(job);
	j->stats.running++;
	return job;
}

void jobs_start(struct jobs *j, const struct command *c)
{
	struct job *job = new_job(j, c);

	if (!job) {
		set_state(j, c->id, COMMAND_FAILED,
			"as many recordings run already as this agent makes at once (4)", NULL);
		return;
	}
	log_info("jobs", "start a recording", "id=%s frequency_hz=%llu duration_s=%llu", c->id,
		(unsigned long long)job->frequency_hz,
		(unsigned long long)(c->duration_ns / NSEC_PER_SEC));
	set_state(j, c->id, COMMAND_RUNNING, "", c);
	schedule_next(job);
}

void jobs_start_configured(struct jobs *j)
{
	struct job *job = new_job(j, &(struct command){.id = "", .view = "cpu"});

	if (!job) {
		log_error(
			"jobs", "start the continuous recording", -ENOMEM, "jobs_max=%d", JOBS_MAX);
		return;
	}
	job->is_configured = true;
	log_info("jobs", "start the continuous recording", "frequency_hz=%llu",
		(unsigned long long)job->frequency_hz);
	schedule_next(job);
	j->options.on_change(j->options.data);
}

static struct job *find(struct jobs *j, const char *id)
{
	for (size_t i = 0; i < JOBS_MAX; i++) {
		struct job *job = &j->list[i];

		if (job->is_used && !job->is_configured && strcmp(job->spec.command.id, id) == 0)
			return job;
	}
	return NULL;
}

bool jobs_stop(struct jobs *j, const char *target, const char *by)
{
	struct job *job = find(j, target);
	char text[COMMAND_TEXT_MAX];

	if (!job)
		return false;
	(void)snprintf(text, sizeof(text), "stopped by %s", by);
	interrupt(job);
	stop(job, COMMAND_CANCELLED, text);
	return true;
}

/* No further window was to come; with a later end there is one. */
static bool go_on(struct job *job)
{
	uint64_t duration_ns = job->next.command.duration_ns;

	if (job->end_state != COMMAND_DONE ||
		(duration_ns > 0 && job->first_ns + duration_ns <= job->next_ns))
		return false;
	job->is_stopping = false;
	apply_change(job);
	schedule_next(job);
	return true;
}

void jobs_change(struct jobs *j, const struct command *c)
{
	struct job *job = find(j, c->target);

	if (!job) {
		set_state(
			j, c->id, COMMAND_FAILED, "nothing to change: it does not run here", NULL);
		return;
	}
	if (spec_is_set(&job->next))
		set_state(j, job->next.change_id, COMMAND_CANCELLED, "replaced by the next change",
			NULL);
	spec_done(&job->next);
	if (spec_change(&job->spec.command, c, &job->next) < 0) {
		set_state(j, c->id, COMMAND_FAILED, strerrordesc_np(ENOMEM), NULL);
		return;
	}
	set_state(j, c->id, COMMAND_RUNNING, "", c);
	if (job->is_stopping && !go_on(job)) {
		spec_done(&job->next);
		set_state(j, c->id, COMMAND_FAILED, "its last window runs already", NULL);
	}
}

void jobs_end(struct jobs *j, void (*done)(void *data), void *data)
{
	j->end_done = done;
	j->end_data = data;
	for (size_t i = 0; i < JOBS_MAX; i++) {
		struct job *job = &j->list[i];

		if (!job->is_used)
			continue;
		interrupt(job);
		stop(job, job->schedule.end_ns == UINT64_MAX ? COMMAND_RUNNING : COMMAND_FAILED,
			"the agent was stopped");
	}
	end_all_if_idle(j);
}

void jobs_stats(const struct jobs *j, struct jobs_stats *ret)
{
	*ret = j->stats;
	ret->last_error = j->last_error;
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (j->list[i].is_used)
			ret->kernel_bytes += j->list[i].kernel_bytes;
}

size_t jobs_pids(const struct jobs *j, pid_t *ret, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < JOBS_MAX; i++)
		for (size_t k = 0; k < JOBS_RECORDERS_MAX; k++)
			if (j->list[i].recorders[k].is_used && n < count)
				ret[n++] = j->list[i].recorders[k].child.pid;
	return n;
}
