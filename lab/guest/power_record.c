/*
 * What the backend does while its writes are recorded, and what it promises meanwhile: pushes in groups that
 * share a commit, requests, cancellations, tokens made and revoked by flame-backend token beside it, one
 * orderly restart and one after SIGKILL. Behind every acknowledgement stands a mark in the log.
 */
#include "lab/guest/power_internal.h"

#include "lab/guest/power_disk.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { ROUNDS = 12, GROUP = 3, RESTART_ROUND = 4, KILL_ROUND = 7, ARGS_MAX = 16 };

/* The event's index. It counts from its mark on. */
static size_t event_add(struct power *p, enum power_kind kind, unsigned int number)
{
	assert(p->event_count < POWER_EVENTS_MAX); /* a fixed play with far fewer */
	p->events[p->event_count] =
		(struct power_event){.kind = kind, .number = number, .entry = POWER_UNMARKED};
	return p->event_count++;
}

static int event_mark(struct power *p, size_t event)
{
	char text[POWER_LOG_MARK_MAX];
	int err;

	(void)snprintf(text, sizeof(text), "e%zu", event);
	err = power_dm_mark(text);
	p->marks++;
	return err < 0 ? fleet_fail(&p->fleet, "cannot mark the log: %s", strerror(-err)) : 0;
}

/* An answer other than 2xx is the end: without a cut, all of this must work. */
static int do_call(struct power *p, const char *method, const char *path, const char *json)
{
	struct http_reply reply = {0};
	int status = power_call(p, method, path, json, p->admin, &reply);

	if (status < 0)
		return fleet_fail(&p->fleet, "%s %s: %s", method, path, strerror(-status));
	if (status < 200 || status > 299)
		return fleet_fail(&p->fleet, "%s %s: %d %.100s", method, path, status, reply.body);
	return 0;
}

static int heartbeat(struct power *p)
{
	return do_call(p, "POST", "/api/v1/heartbeat",
		"{\"schema\":\"flame-heartbeat/1\",\"host\":\"lab\",\"instance\":\"lab-1\","
		"\"boot_id\":\"b\",\"agent_version\":\"1\",\"kernel\":\"k\",\"arch\":\"x86_64\","
		"\"cpus\":1,\"state\":\"dormant\"}");
}

static int do_push(struct power *p, unsigned int round)
{
	unsigned int numbers[GROUP];
	size_t events[GROUP];
	bool failed[GROUP];
	int err = 0;

	for (unsigned int i = 0; i < GROUP; i++) {
		numbers[i] = round * GROUP + i;
		events[i] = event_add(p, POWER_PUSH, numbers[i]);
	}
	power_push(p, numbers, GROUP, failed);
	for (unsigned int i = 0; err == 0 && i < GROUP; i++)
		err = failed[i] ? fleet_fail(&p->fleet, "push %u was not acknowledged", numbers[i])
				: event_mark(p, events[i]);
	return err;
}

static int do_request(struct power *p, unsigned int number)
{
	size_t event = event_add(p, POWER_REQUEST, number);
	char json[160];
	int err;

	(void)snprintf(json, sizeof(json),
		"{\"id\":\"cut-%u\",\"hosts\":[\"lab\"],\"view\":\"cpu\",\"frequency_hz\":99,"
		"\"duration_s\":10,\"deadline_s\":36000}",
		number);
	err = do_call(p, "POST", "/api/v1/requests", json);
	return err < 0 ? err : event_mark(p, event);
}

static int do_cancel(struct power *p, unsigned int number)
{
	size_t event = event_add(p, POWER_CANCELLED, number);
	char path[64];
	int err;

	(void)snprintf(path, sizeof(path), "/api/v1/requests/cut-%u", number);
	err = do_call(p, "DELETE", path, NULL);
	return err < 0 ? err : event_mark(p, event);
}

/* flame-backend token ACTION --name cut-NUMBER; its first word of output, if there is room for it. */
static int run_token(struct power *p, const char *action, const char *scope, unsigned int number,
	char ret[POWER_TOKEN_MAX])
{
	struct run *r = p->fleet.run;
	struct process *process = &r->workload; /* a play without one */
	char bin[PATH_MAX], name[32], path[PATH_MAX], line[POWER_TOKEN_MAX] = "";
	const char *argv[ARGS_MAX], *envp[ENV_MAX];
	size_t n = 0;

	(void)snprintf(bin, sizeof(bin), "%s/%s", r->place->bin_dir, r->step->backend);
	(void)snprintf(name, sizeof(name), "cut-%u", number);
	argv[n++] = bin;
	argv[n++] = "token";
	argv[n++] = action;
	argv[n++] = "--data";
	argv[n++] = p->fleet.data_dir;
	argv[n++] = "--name";
	argv[n++] = name;
	if (scope) {
		argv[n++] = "--scope";
		argv[n++] = scope;
	}
	argv[n] = NULL;
	step_env(envp, r->step->backend_env, NULL);
	if (step_start(r, process, argv, envp, "token.log", -1) < 0)
		return fleet_fail(&p->fleet, "cannot start flame-backend token");
	while (process->pidfd >= 0 && step_in_time(r))
		step_poll(r, r->deadline_ns);
	if (process->pidfd >= 0 || !WIFEXITED(process->status) || WEXITSTATUS(process->status) != 0)
		return fleet_fail(&p->fleet, "flame-backend token %s failed", action);
	step_path(r, "token.log", path);
	_cleanup_(fclosep) FILE *in = fopen(path, "re");
	if (ret && (!in || !fgets(line, sizeof(line), in)))
		return fleet_fail(&p->fleet, "flame-backend token %s printed nothing", action);
	line[strcspn(line, "\n")] = 0;
	if (ret)
		(void)snprintf(ret, POWER_TOKEN_MAX, "%s", line);
	return 0;
}

static int do_token(struct power *p, enum power_kind kind, const char *scope, unsigned int number)
{
	size_t event = event_add(p, kind, number);
	int err = run_token(p, "create", scope, number, p->events[event].token);

	if (err == 0 && kind == POWER_ADMIN)
		p->admin = p->events[event].token;
	return err < 0 ? err : event_mark(p, event);
}

static int do_revoke(struct power *p, unsigned int number)
{
	int err = event_mark(p, event_add(p, POWER_REVOKING, number));
	size_t event = event_add(p, POWER_REVOKED, number);

	if (err == 0)
		err = run_token(p, "revoke", NULL, number, NULL);
	return err < 0 ? err : event_mark(p, event);
}

static int restart(struct power *p, int signo)
{
	int err = fleet_end_backend(&p->fleet, signo);

	return err < 0 ? err : fleet_start_backend(&p->fleet);
}

static int do_round(struct power *p, unsigned int round)
{
	int err = heartbeat(p);

	if (err == 0)
		err = do_push(p, round);
	/* What only the catalog knows comes last in its round: the next push's commit would carry it along. */
	if (err == 0)
		err = do_request(p, round);
	if (err == 0 && round % 2 == 1)
		err = do_cancel(p, round - 1);
	if (err == 0 && round % 3 == 2)
		err = do_token(p, POWER_TOKEN, "read", round);
	if (err == 0 && round % 6 == 3)
		err = do_revoke(p, round - 1);
	if (err == 0 && round == RESTART_ROUND)
		err = restart(p, SIGTERM);
	if (err == 0 && round == KILL_ROUND)
		err = restart(p, SIGKILL);
	return err;
}

int power_record(struct power *p)
{
	int err = do_token(p, POWER_ADMIN, "admin", 0);

	if (err == 0)
		err = fleet_start_backend(&p->fleet);
	if (err == 0)
		err = event_mark(p, event_add(p, POWER_STORE, 0));
	for (unsigned int round = 0; err == 0 && round < ROUNDS; round++)
		err = do_round(p, round);
	if (p->fleet.run->backend.pidfd >= 0)
		(void)fleet_end_backend(&p->fleet, SIGTERM); /* its failure is noted */
	return p->fleet.error[0] ? -EIO : 0;
}
