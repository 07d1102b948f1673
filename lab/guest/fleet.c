/* See fleet.h. The backend stores on the step's directory; the agent's state is there too. */
#include "lab/guest/fleet_internal.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS_MAX = 16 };

int fleet_fail(struct fleet *f, const char *fmt, ...)
{
	va_list ap;

	if (f->error[0])
		return -EIO;
	va_start(ap, fmt);
	(void)vsnprintf(f->error, sizeof(f->error), fmt, ap); /* a cut reason still tells */
	va_end(ap);
	for (char *c = f->error; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
			*c = ' '; /* it goes into JSON as it is */
	return -EIO;
}

/* --- time */

int fleet_tick(struct fleet *f, uint64_t ns)
{
	uint64_t until = step_now_ns() + ns;

	while (step_now_ns() < until)
		step_poll(f->run, until);
	fleet_look(f);
	if (!step_in_time(f->run))
		return fleet_fail(f, "the step's time is over");
	if (f->run->agent.pid > 0 && f->run->agent.pidfd < 0)
		return fleet_fail(f, "the agent ended");
	return f->error[0] ? -EIO : 0;
}

int fleet_pause(struct fleet *f, uint64_t ns)
{
	uint64_t until = step_now_ns() + ns;
	int err = 0;

	while (err == 0 && step_now_ns() < until)
		err = fleet_tick(f, MIN(FLEET_TICK_NS, until - step_now_ns()));
	return err;
}

int fleet_wait(struct fleet *f, fleet_condition *is_true, const char *what)
{
	int r;

	while ((r = is_true(f)) == 0) {
		r = fleet_tick(f, FLEET_TICK_NS);
		if (r < 0)
			break;
	}
	if (r < 0 && f->run->timed_out)
		f->error[0] = 0; /* what was waited for says more */
	return r < 0 ? fleet_fail(f, "waited in vain: %s", what) : 0;
}

/* --- the backend */

static int try_call(struct fleet *f, const struct http_call *c, struct http_reply *ret)
{
	return http_do(c, f->buffer, FLEET_BUFFER, ret);
}

static int answers(struct fleet *f)
{
	struct http_call c = {.port = FLEET_PORT, .method = "GET", .path = "/healthz"};
	struct http_reply reply = {0};

	if (f->run->backend.pidfd < 0)
		return fleet_fail(f, "the backend ended at its start");
	return try_call(f, &c, &reply) == 0 && reply.status == 200;
}

/* Plays that measure: heartbeats come as seldom as they do outside. */
static bool is_calm(const char *play)
{
	return strcmp(play, "dormant") == 0 || strcmp(play, "ingest") == 0;
}

int fleet_start_backend(struct fleet *f)
{
	const struct job_step *s = f->run->step;
	const char *envp[ENV_MAX], *argv[ARGS_MAX];
	char bin[PATH_MAX], listen[32];
	size_t n = 0;

	(void)snprintf(bin, sizeof(bin), "%s/%s", f->run->place->bin_dir, s->backend);
	(void)snprintf(listen, sizeof(listen), "127.0.0.1:%d", FLEET_PORT);
	argv[n++] = bin;
	argv[n++] = "--data";
	argv[n++] = f->data_dir;
	argv[n++] = "--listen";
	argv[n++] = listen;
	argv[n++] = "--heartbeat-interval";
	argv[n++] = is_calm(s->play) ? "30s" : "1s";
	argv[n++] = "--commit-interval";
	argv[n++] = "500ms";
	argv[n++] = "--free-min";
	argv[n++] = "1000000";
	argv[n] = NULL;
	step_env(envp, s->backend_env, NULL);
	if (step_start(f->run, &f->run->backend, argv, envp, "backend.log", -1) < 0)
		return fleet_fail(f, "cannot start the backend");
	return fleet_wait(f, answers, "the backend's first answer");
}

int fleet_end_backend(struct fleet *f, int signo)
{
	struct process *p = &f->run->backend;
	uint64_t until = step_now_ns() + 30 * NSEC_PER_SEC;

	if (p->pidfd < 0)
		return fleet_fail(f, "the backend had ended");
	(void)kill(p->pid, signo);
	while (p->pidfd >= 0 && step_now_ns() < until)
		step_poll(f->run, until);
	(void)step_exit_text(p, f->backend_exit);
	return p->pidfd >= 0 ? fleet_fail(f, "the backend did not end") : 0;
}

int fleet_call(struct fleet *f, const char *method, const char *path, const char *json,
	struct http_reply *ret)
{
	struct http_call c = {.port = FLEET_PORT, .method = method, .path = path};
	struct http_reply reply = {0};
	int err;

	if (json) {
		c.type = "application/json";
		c.body = json;
		c.size = strlen(json);
	}
	err = try_call(f, &c, &reply);
	if (err < 0)
		return fleet_fail(f, "%s %s: %s", method, path, strerror(-err));
	if (reply.status < 200 || reply.status > 299)
		return fleet_fail(f, "%s %s: %d %.100s", method, path, reply.status, reply.body);
	*ret = reply;
	return 0;
}

/* --- the agent */

/* How long the agent's windows last in a play: as long as the request where nothing is said. */
static const char *window_of(const char *play)
{
	if (strcmp(play, "spool") == 0)
		return "1s";
	if (strcmp(play, "churn") == 0)
		return "5s";
	return strcmp(play, "faults") == 0 || strcmp(play, "answers") == 0 ? "3s" : "1h";
}

/* One agent with no memory of earlier steps, and a seed, so that it always does the same. */
static int write_conf(struct fleet *f, char path[PATH_MAX])
{
	const struct job_step *s = f->run->step;
	FILE *o;

	f->spool_limit = strcmp(s->play, "spool") == 0 ? FLEET_SPOOL_LIMIT : 0;
	step_path(f->run, "agent.conf", path);
	o = fopen(path, "we");
	if (!o)
		return fleet_fail(f, "cannot write %s", path);
	(void)fprintf(o,
		"backend = http://127.0.0.1:%d\nhost = lab\nstate-dir = %s\nheartbeat = %s\n"
		"window = %s\nseed = %llu\n",
		f->proxy.pid > 0 ? FLEET_PROXY_PORT : FLEET_PORT, f->state_dir,
		is_calm(s->play) ? "30s" : "1s", window_of(s->play),
		(unsigned long long)s->jitter_seed);
	if (f->spool_limit)
		(void)fprintf(o, "spool-windows = %llu\n", (unsigned long long)f->spool_limit);
	return fclose(o) != 0 ? fleet_fail(f, "cannot write %s", path) : 0;
}

static int is_dormant(struct fleet *f)
{
	struct http_reply reply = {0};
	int err = fleet_call(f, "GET", "/api/v1/hosts", NULL, &reply);

	return err < 0 ? err : strstr(reply.body, "\"dormant\"") != NULL;
}

static int start_agent(struct fleet *f)
{
	const struct job_step *s = f->run->step;
	char bin[PATH_MAX], conf[PATH_MAX];
	const char *argv[] = {bin, "daemon", "--config", conf, NULL}, *envp[ENV_MAX];
	int err = write_conf(f, conf);

	if (err < 0)
		return err;
	(void)snprintf(bin, sizeof(bin), "%s/%s", f->run->place->bin_dir, s->agent);
	step_env(envp, s->agent_env, NULL);
	if (step_start(f->run, &f->run->agent, argv, envp, "agent.log", -1) < 0)
		return fleet_fail(f, "cannot start the agent");
	return fleet_wait(f, is_dormant, "the agent's first heartbeat");
}

/* SIGTERM; it has promised to end within 5 s. */
static void end_agent(struct fleet *f)
{
	struct process *p = &f->run->agent;
	uint64_t until = step_now_ns() + 5 * NSEC_PER_SEC;

	if (p->pidfd < 0)
		return;
	(void)kill(p->pid, SIGTERM);
	while (p->pidfd >= 0 && step_now_ns() < until)
		step_poll(f->run, until);
	fleet_look(f);
	if (p->pidfd >= 0)
		(void)fleet_fail(f, "the agent did not end within 5 s");
}

/* --- the end */

/* "DIR: N profiles, M faults" is the last line of flame-backend verify. */
void fleet_verify(struct fleet *f)
{
	const struct job_step *s = f->run->step;
	struct process *p = &f->run->backend;
	char bin[PATH_MAX], path[PATH_MAX], line[1024];
	const char *argv[] = {bin, "verify", f->data_dir, NULL}, *envp[ENV_MAX];
	bool found = false;

	(void)snprintf(bin, sizeof(bin), "%s/%s", f->run->place->bin_dir, s->backend);
	step_env(envp, NULL, NULL);
	if (step_start(f->run, p, argv, envp, "verify.log", -1) < 0) {
		(void)fleet_fail(f, "cannot start flame-backend verify");
		return;
	}
	while (p->pidfd >= 0 && step_in_time(f->run))
		step_poll(f->run, f->run->deadline_ns);
	step_path(f->run, "verify.log", path);
	_cleanup_(fclosep) FILE *in = fopen(path, "re");
	while (in && fgets(line, sizeof(line), in)) {
		const char *profiles = strrchr(line, ':'), *faults = strrchr(line, ',');

		found = profiles && faults && strstr(profiles, " profiles, ") &&
			strstr(faults, " faults\n");
		f->stored = found ? strtoull(profiles + 1, NULL, 10) : 0;
		f->verify_faults = found ? strtoull(faults + 1, NULL, 10) : 0;
	}
	if (!found)
		(void)fleet_fail(f, "flame-backend verify did not come to its end");
}

/* How many were sent twice, by the backend's own account. */
static void read_duplicates(struct fleet *f)
{
	static const char name[] = "\nflame_store_duplicates_total ";
	struct http_reply reply = {0};
	const char *at;

	if (f->run->backend.pidfd < 0 || fleet_call(f, "GET", "/metrics", NULL, &reply) < 0)
		return;
	at = reply.body ? strstr(reply.body, name) : NULL;
	f->duplicates = at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static int write_result(const struct fleet *f)
{
	char path[PATH_MAX], agent_exit[32];
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{"bpf_before", f->bpf_before},
		{"bpf_dormant_max", f->bpf_dormant_max},
		{"bpf_sampling_max", f->bpf_sampling_max},
		{"bpf_after", f->bpf_after},
		{"dormant_ns", f->dormant_ns},
		{"dormant_cpu_ns", f->dormant_cpu_ns},
		{"dormant_memory_bytes", f->dormant_memory},
		{"commands", f->commands},
		{"commands_done", f->commands_done},
		{"backend_kills", f->kills},
		{"windows_resent", f->resent},
		{"spool_windows_max", f->spool_max},
		{"stored_profiles", f->stored},
		{"duplicates", f->duplicates},
		{"verify_faults", f->verify_faults},
		{"spool_limit", f->spool_limit},
		{"windows_made", f->windows},
		{"windows_dropped", f->dropped_count},
		{"windows_dropped_early", f->dropped_early},
		{"windows_dropped_told", f->dropped_told},
		{"pushes_refused", f->refused},
		{"pushes_cut", f->cut},
		{"pushes_early", f->early},
		{"ingested_profiles", f->ingested},
		{"ingest_cpu_ns", f->ingest_cpu_ns},
	};
	FILE *o;
	bool bad;

	step_path(f->run, "fleet.json", path);
	o = fopen(path, "we");
	if (!o)
		return -errno;
	(void)fprintf(o, "{\n  \"schema\": \"flamelab-fleet/1\",\n  \"play\": \"%s\"",
		f->run->step->play);
	(void)fprintf(o, ",\n  \"error\": \"%s\"", f->error);
	(void)fprintf(o, ",\n  \"agent_exit\": %s", step_exit_text(&f->run->agent, agent_exit));
	(void)fprintf(
		o, ",\n  \"backend_exit\": %s", f->backend_exit[0] ? f->backend_exit : "null");
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		(void)fprintf(o, ",\n  \"%s\": %llu", numbers[i].name,
			(unsigned long long)numbers[i].value);
	(void)fprintf(o, ",\n  \"memory_bytes\": [");
	for (size_t i = 0; i < f->memory_count; i++)
		(void)fprintf(o, "%s%llu", i ? ", " : "", (unsigned long long)f->memory[i]);
	(void)fprintf(o, "]\n}\n");
	bad = ferror(o) != 0; /* one check for all of the writes above */
	return fclose(o) != 0 || bad ? -EIO : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int start_proxy(struct fleet *f)
{
	int err = strcmp(f->run->step->play, "answers") == 0
			  ? proxy_start(&f->proxy, FLEET_PROXY_PORT, FLEET_PORT)
			  : 0;

	return err < 0 ? fleet_fail(f, "cannot start the proxy: %s", strerror(-err)) : 0;
}

static void play(struct fleet *f)
{
	struct run *r = f->run;

	f->bpf_before = bpf_object_count();
	if (fleet_start_backend(f) == 0 && start_proxy(f) == 0 && start_agent(f) == 0) {
		r->ready = true;
		r->ready_ns = step_now_ns();
		r->cpu_ready_ns = group_cpu_ns(&r->agent.group);
		(void)fleet_play(f, r->step->play); /* what fails is in f->error */
		r->cpu_window_ns = group_cpu_ns(&r->agent.group);
		r->window_end_ns = step_now_ns();
	}
	end_agent(f);
	proxy_end(&f->proxy);
	f->bpf_after = bpf_object_count();
	read_duplicates(f);
	if (r->backend.pidfd >= 0 && fleet_end_backend(f, SIGTERM) == 0)
		fleet_verify(f);
	fleet_write_windows(f);
}

int fleet_run(struct run *r)
{
	struct fleet *f = calloc(1, sizeof(*f));
	const struct {
		const char *name;
		char *path;
	} dirs[] = {{"data", f ? f->data_dir : NULL}, {"state", f ? f->state_dir : NULL},
		{"copies", f ? f->copy_dir : NULL}};
	int err = f ? 0 : -ENOMEM;

	if (f)
		f->buffer = malloc(FLEET_BUFFER);
	if (f && !f->buffer)
		err = -ENOMEM;
	for (size_t i = 0; err == 0 && i < ARRAY_SIZE(dirs); i++) {
		step_path(r, dirs[i].name, dirs[i].path);
		err = mkdir(dirs[i].path, 0700) < 0 && errno != EEXIST ? -errno : 0;
	}
	if (err == 0) {
		f->run = r;
		(void)snprintf(f->spool_dir, PATH_MAX, "%.3900s/spool", f->state_dir);
		play(f);
		err = write_result(f);
		for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
			(void)nftw(dirs[i].path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
	if (f)
		free(f->buffer);
	free(f);
	return err;
}
