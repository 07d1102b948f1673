/*
 * What must be true of a backend that comes back after a cut: all that is behind a mark before it. What
 * was under way may be there or not, but whole and once.
 */
#include "lab/guest/power_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

enum { RESENT = 3 };

#define GRAPH "/api/v1/flamegraph.folded?service=cut&view=process_cpu&from=now-12h&until=now"

int power_call(struct power *p, const char *method, const char *path, const char *json,
	const char *token, struct http_reply *ret)
{
	struct http_call c = {.port = FLEET_PORT, .method = method, .path = path, .token = token};
	int err;

	if (json) {
		c.type = "application/json";
		c.body = json;
		c.size = strlen(json);
	}
	err = http_do(&c, p->fleet.buffer, FLEET_BUFFER, ret);
	return err < 0 ? err : ret->status;
}

void power_wrong(struct power *p, uint64_t *counter, const char *fmt, ...)
{
	char text[FLEET_ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a cut reason still tells */
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
			*c = ' '; /* it goes into JSON as it is */
	++*counter;
	(void)fprintf(p->story, "\t%s\n", text);
	if (!p->first[0])
		(void)snprintf(p->first, sizeof(p->first), "%s", text);
}

static bool is_due(const struct power_event *e, uint64_t k)
{
	return e->entry != POWER_UNMARKED && e->entry < k;
}

static const struct power_event *event_find(
	const struct power *p, enum power_kind kind, unsigned int number)
{
	for (size_t i = 0; i < p->event_count; i++)
		if (p->events[i].kind == kind && p->events[i].number == number)
			return &p->events[i];
	return NULL;
}

/* --- pushes */

/* What the backend has of each push; false: it does not say. */
static bool read_pushes(struct power *p, uint64_t values[POWER_NUMBERS_MAX])
{
	struct http_reply reply = {0};
	int status = power_call(p, "GET", GRAPH, NULL, p->admin, &reply);

	memset(values, 0, POWER_NUMBERS_MAX * sizeof(*values));
	if (status == 404)
		return true; /* nothing of it yet */
	if (status != 200) {
		power_wrong(p, &p->failed_calls, "no flame graph: status %d %s", status,
			status < 0 ? strerror(-status) : "");
		return false;
	}
	for (char *line = reply.body, *next; line && *line; line = next) {
		unsigned int number;
		uint64_t value;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (power_push_parse(line, &number, &value))
			values[number] += value;
	}
	return true;
}

static void check_push(struct power *p, unsigned int number, uint64_t value, bool due)
{
	if (value == 0 && due)
		power_wrong(p, &p->lost_pushes, "push %u is lost", number);
	if (value != 0 && value != power_push_value(number))
		power_wrong(p, &p->wrong_pushes, "push %u has the value %llu", number,
			(unsigned long long)value);
}

static bool check_pushes(struct power *p, uint64_t k, const bool also_due[POWER_NUMBERS_MAX])
{
	static uint64_t values[POWER_NUMBERS_MAX];

	if (!read_pushes(p, values))
		return false;
	for (size_t i = 0; i < p->event_count; i++) {
		const struct power_event *e = &p->events[i];

		if (e->kind != POWER_PUSH)
			continue;
		check_push(p, e->number, values[e->number],
			is_due(e, k) || (also_due && also_due[e->number]));
	}
	check_push(p, POWER_NUMBER_NEW, values[POWER_NUMBER_NEW],
		also_due && also_due[POWER_NUMBER_NEW]);
	return true;
}

/* One that is new, the last that was acknowledged, the first that was not: it must take all of them, once. */
static void check_more(struct power *p, uint64_t k)
{
	unsigned int numbers[RESENT] = {POWER_NUMBER_NEW};
	static bool due[POWER_NUMBERS_MAX];
	bool failed[RESENT];
	size_t n = 1;
	const struct power_event *last = NULL, *next = NULL;

	for (size_t i = 0; i < p->event_count; i++) {
		const struct power_event *e = &p->events[i];

		if (e->kind == POWER_PUSH && is_due(e, k))
			last = e;
		else if (e->kind == POWER_PUSH && !next)
			next = e;
	}
	if (last)
		numbers[n++] = last->number;
	if (next)
		numbers[n++] = next->number;
	power_push(p, numbers, n, failed);
	memset(due, 0, sizeof(due));
	for (size_t i = 0; i < n; i++) {
		due[numbers[i]] = !failed[i];
		if (failed[i])
			power_wrong(p, &p->failed_calls, "push %u is not taken", numbers[i]);
	}
	(void)check_pushes(p, k, due); /* what is wrong is counted */
}

/* --- requests and tokens */

static void check_requests(struct power *p, uint64_t k)
{
	struct http_reply reply = {0};
	int status = power_call(p, "GET", "/api/v1/requests", NULL, p->admin, &reply);

	if (status != 200) {
		power_wrong(p, &p->failed_calls, "no list of requests: status %d", status);
		return;
	}
	for (size_t i = 0; i < p->event_count; i++) {
		const struct power_event *e = &p->events[i];
		const char *at, *end, *cancelled;
		char id[32];

		if ((e->kind != POWER_REQUEST && e->kind != POWER_CANCELLED) || !is_due(e, k))
			continue;
		(void)snprintf(id, sizeof(id), "\"id\":\"cut-%u\"", e->number);
		at = strstr(reply.body, id);
		end = at ? strchr(at, '\n') : NULL;
		cancelled = at ? strstr(at, "\"state\":\"cancelled\"") : NULL;
		if (!at)
			power_wrong(p, &p->lost_requests, "request %u is lost", e->number);
		else if (e->kind == POWER_CANCELLED && (!cancelled || (end && cancelled > end)))
			power_wrong(p, &p->lost_requests, "request %u is not cancelled any more",
				e->number);
	}
}

/* The status that a request with this token gets. */
static int try_token(struct power *p, const char *token)
{
	struct http_reply reply = {0};

	return power_call(p, "GET", "/api/v1/hosts", NULL, token, &reply);
}

static void check_tokens(struct power *p, uint64_t k)
{
	for (size_t i = 0; i < p->event_count; i++) {
		const struct power_event *e = &p->events[i], *begun, *gone;
		int status;

		if (!is_due(e, k) || (e->kind != POWER_TOKEN && e->kind != POWER_ADMIN))
			continue;
		begun = event_find(p, POWER_REVOKING, e->number);
		gone = event_find(p, POWER_REVOKED, e->number);
		if (e->kind ==
			POWER_ADMIN) /* without any token the backend would let everybody in */
			status = try_token(p, "unknown") == 401 ? try_token(p, e->token) : 0;
		else
			status = try_token(p, e->token);
		if (gone && is_due(gone, k) && e->kind == POWER_TOKEN) {
			if (status != 401)
				power_wrong(p, &p->lost_tokens,
					"revoked token %u is good again: status %d", e->number,
					status);
		} else if (!(begun && is_due(begun, k)) && status != 200) {
			power_wrong(p, &p->lost_tokens, "token %u is lost: status %d", e->number,
				status);
		}
	}
}

/* --- one cut */

/* The log of a program that did not do what it should, for whoever reads power.log. */
static void tell_log(struct power *p, const char *file)
{
	char path[PATH_MAX], line[512];

	step_path(p->fleet.run, file, path);
	_cleanup_(fclosep) FILE *in = fopen(path, "re");
	for (int i = 0; i < 20 && in && fgets(line, sizeof(line), in); i++)
		(void)fprintf(p->story, "\t\t%.400s", line);
}

static void check_verify(struct power *p, uint64_t k)
{
	const struct power_event *store = event_find(p, POWER_STORE, 0);
	struct fleet *f = &p->fleet;

	if (!store || !is_due(store, k))
		return; /* the power went before there was anything to look at */
	f->stored = f->verify_faults = 0;
	fleet_verify(f);
	if (f->error[0])
		power_wrong(p, &p->verify_faults, "%s", f->error);
	else if (f->verify_faults > 0)
		power_wrong(p, &p->verify_faults, "flame-backend verify finds %llu faults",
			(unsigned long long)f->verify_faults);
	if (f->error[0] || f->verify_faults > 0)
		tell_log(p, "verify.log");
	f->error[0] = 0;
}

/* Before the first token was promised there may be none, and a backend without tokens wants none. */
static void choose_token(struct power *p, uint64_t k)
{
	const struct power_event *e = event_find(p, POWER_ADMIN, 0);

	assert(e); /* the play begins with it */
	p->admin = is_due(e, k) || try_token(p, e->token) == 200 ? e->token : NULL;
}

void power_check(struct power *p, uint64_t k)
{
	struct fleet *f = &p->fleet;

	uint64_t held = 0;

	for (size_t i = 0; i < p->event_count; i++)
		held += is_due(&p->events[i], k);
	p->held += held;
	(void)fprintf(p->story, "cut after entry %llu, %llu promises\n", (unsigned long long)k,
		(unsigned long long)held);
	check_verify(p, k);
	p->admin = NULL;
	if (fleet_start_backend(f) < 0) {
		power_wrong(p, &p->failed_starts, "%s", f->error);
		tell_log(p, "backend.log");
	} else {
		choose_token(p, k);
		if (check_pushes(p, k, NULL)) {
			check_requests(p, k);
			check_tokens(p, k);
			check_more(p, k);
		}
	}
	if (f->run->backend.pidfd >= 0)
		(void)fleet_end_backend(f, SIGKILL); /* its disk is thrown away */
	f->error[0] = 0;
}
