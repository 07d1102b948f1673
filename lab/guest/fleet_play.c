/*
 * What happens between a dormant agent and the end of a step, play by play:
 *
 *	loop	a request over the API, the workload while the agent samples, the request's end; then the
 *		backend's flame graph of the workload becomes the step's profile
 *	churn	as loop, in windows of 5 s, and the profile stays where it is
 *	dormant	nothing is asked for while the workload keeps the host busy
 *	cycles	play_count requests, each ended once BPF objects are loaded
 *
 * faults, answers and spool are in fleet_faults.c, ingest is in fleet_ingest.c.
 */
#include "lab/guest/fleet_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REQUESTS "/api/v1/requests"
#define SETTLE_NS \
	(2 * NSEC_PER_SEC) /* a window starts 1 s after its command, to be ready in time */
#define DORMANT_NS (1 * NSEC_PER_SEC) /* between two looks at the kernel's BPF objects */

int fleet_request(struct fleet *f, unsigned int number, unsigned int duration_s)
{
	char json[256];
	struct http_reply reply = {0};

	(void)snprintf(json, sizeof(json),
		"{\"id\":\"lab-%u\",\"hosts\":[\"lab\"],\"view\":\"cpu\",\"frequency_hz\":%llu,"
		"\"duration_s\":%u}",
		number, (unsigned long long)f->run->step->frequency_hz, duration_s);
	f->commands++;
	return fleet_call(f, "POST", REQUESTS, json, &reply);
}

static int request_get(struct fleet *f, struct http_reply *ret)
{
	char path[64];

	(void)snprintf(path, sizeof(path), REQUESTS "/lab-%llu", (unsigned long long)f->commands);
	return fleet_call(f, "GET", path, NULL, ret);
}

int fleet_is_running(struct fleet *f)
{
	struct http_reply reply = {0};
	int err = request_get(f, &reply);

	return err < 0 ? err : strstr(reply.body, "\"running\"") != NULL;
}

/* Its commands have come to an end that the agent reported, and the backend has all windows. */
int fleet_is_over(struct fleet *f)
{
	static const char *const under_way[] = {"\"pending\"", "\"sent\"", "\"running\""};
	struct http_reply reply = {0};
	int err = request_get(f, &reply);

	for (size_t i = 0; err == 0 && i < ARRAY_SIZE(under_way); i++)
		if (strstr(reply.body, under_way[i]))
			return 0;
	if (err < 0)
		return err;
	if (strstr(reply.body, "\"failed\"") || strstr(reply.body, "\"expired\""))
		return fleet_fail(f, "the command failed: %.180s", reply.body);
	return f->spool_now == 0;
}

static int end_request(struct fleet *f)
{
	struct http_reply reply = {0};
	char path[64];
	int err;

	(void)snprintf(path, sizeof(path), REQUESTS "/lab-%llu", (unsigned long long)f->commands);
	err = fleet_call(f, "DELETE", path, NULL, &reply);
	if (err == 0)
		err = fleet_wait(f, fleet_is_over, "the request's end");
	f->commands_done += err == 0;
	return err;
}

/* Until its end, or until the step's. */
int fleet_run_workload(struct fleet *f)
{
	struct run *r = f->run;
	int err = 0;

	r->workload_start_ns = step_now_ns();
	if (step_start_workload(r) < 0)
		return fleet_fail(f, "cannot start the workload");
	while (err == 0 && r->workload.pidfd >= 0)
		err = fleet_tick(f, DORMANT_NS / 10);
	r->workload_end_ns = step_now_ns();
	return err;
}

/* The backend's flame graph of the workload, as the step's profile. */
static int fetch_profile(struct fleet *f)
{
	char path[PATH_MAX];
	struct http_reply reply = {0};
	int err;

	(void)snprintf(
		path, sizeof(path), "/api/v1/flamegraph.pb.gz?service=%s", f->run->step->workload);
	err = fleet_call(f, "GET", path, NULL, &reply);
	if (err < 0)
		return err;
	step_path(f->run, "profile.pb.gz", path);
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, reply.body, reply.size) != (ssize_t)reply.size)
		return fleet_fail(f, "cannot write %s", path);
	return 0;
}

static int play_churn(struct fleet *f)
{
	int err = fleet_request(f, 1, 3600);

	if (err == 0)
		err = fleet_wait(f, fleet_is_running, "the command to run");
	if (err == 0)
		err = fleet_pause(f, SETTLE_NS + f->run->step->start_offset_ns);
	f->bpf_sampling_max = bpf_object_count();
	if (err == 0)
		err = fleet_run_workload(f);
	return err == 0 ? end_request(f) : err;
}

static int play_loop(struct fleet *f)
{
	int err = play_churn(f);

	return err == 0 ? fetch_profile(f) : err;
}

static int play_dormant(struct fleet *f)
{
	struct run *r = f->run;
	uint64_t cpu = group_cpu_ns(&r->agent.group), start = step_now_ns();
	uint64_t peak = r->memory_peak;
	int err = 0;

	r->memory_peak = 0;
	r->workload_start_ns = start;
	if (step_start_workload(r) < 0)
		return fleet_fail(f, "cannot start the workload");
	while (err == 0 && r->workload.pidfd >= 0) {
		err = fleet_tick(f, DORMANT_NS);
		f->bpf_dormant_max = MAX(f->bpf_dormant_max, bpf_object_count());
	}
	r->workload_end_ns = step_now_ns();
	f->dormant_ns = r->workload_end_ns - start;
	f->dormant_cpu_ns = group_cpu_ns(&r->agent.group) - cpu;
	f->dormant_memory = r->memory_peak;
	r->memory_peak = MAX(peak, r->memory_peak);
	return err;
}

int fleet_is_sampling(struct fleet *f)
{
	uint64_t n = bpf_object_count();

	f->bpf_sampling_max = MAX(f->bpf_sampling_max, n);
	return n > f->bpf_before;
}

/* The kernel frees BPF objects after grace periods, so a little after the process is gone. */
static int is_unloaded(struct fleet *f)
{
	return bpf_object_count() <= f->bpf_before;
}

static int play_cycles(struct fleet *f)
{
	unsigned int count = (unsigned int)MIN(f->run->step->play_count, FLEET_CYCLES_MAX);
	int err = 0;

	for (unsigned int i = 1; err == 0 && i <= count; i++) {
		err = fleet_request(f, i, 3600);
		if (err == 0)
			err = fleet_wait(f, fleet_is_sampling, "BPF objects of a command");
		if (err == 0)
			err = fleet_pause(f, SETTLE_NS);
		if (err == 0)
			err = end_request(f);
		if (err == 0)
			err = fleet_wait(f, is_unloaded, "BPF objects to go");
		f->memory[f->memory_count++] = group_memory_kept_bytes(&f->run->agent.group);
	}
	return err == 0 ? fleet_run_workload(f) : err;
}

int fleet_play(struct fleet *f, const char *name)
{
	static const struct {
		const char *name;
		int (*play)(struct fleet *f);
	} plays[] = {{"loop", play_loop}, {"churn", play_churn}, {"dormant", play_dormant},
		{"cycles", play_cycles}, {"faults", fleet_play_faults},
		{"answers", fleet_play_answers}, {"spool", fleet_play_spool},
		{"ingest", fleet_play_ingest}};

	for (size_t i = 0; i < ARRAY_SIZE(plays); i++)
		if (strcmp(plays[i].name, name) == 0)
			return plays[i].play(f);
	return fleet_fail(f, "there is no play %s", name);
}
