/*
 * Play ingest: what a pushed profile costs the backend. Windows that an agent recorded
 * (fixtures/push/README.md) are pushed again and again, each time as another host's and under ids of its own,
 * by a few senders at a time as a backend has them, until PROFILES_MIN profiles are acknowledged.
 *
 * Host and ids are changed in place, so nothing changes its length and the bytes are the same in every run.
 */
#include "lab/guest/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum {
	PROFILES_MIN = 500,
	SENDERS = 4,
	WINDOWS_MAX = 16,
	WINDOW_BYTES_MAX = 1 << 20,
	HEADER_SIZE = 24, /* of agent/spool.h */
	SIZE_OFFSET = 8,
	ID_DIGITS = 8,
	HOST_DIGITS = 3,
	DEPTH_MAX = 3,
};

#define PUSH "/push.v1.PusherService/Push"

/* The fixture, by the assembler. */
__asm__(".pushsection .rodata\n"
	"recorded_windows:\n.incbin \"fixtures/push/windows.spool\"\n"
	"recorded_windows_end:\n.balign 8\n"
	"recorded_windows_size:\n.quad recorded_windows_end - recorded_windows\n"
	".popsection\n");
extern const char recorded_windows[];
extern const uint64_t recorded_windows_size;

struct window {
	const char *data;
	size_t size;
};

static size_t find_windows(struct window ret[WINDOWS_MAX])
{
	const char *at = recorded_windows;
	uint64_t left = recorded_windows_size;
	size_t count = 0;

	while (left >= HEADER_SIZE && count < WINDOWS_MAX) {
		uint64_t size;

		memcpy(&size, at + SIZE_OFFSET, sizeof(size)); /* both are little endian */
		at += HEADER_SIZE;
		left -= HEADER_SIZE;
		if (size > left || size > WINDOW_BYTES_MAX)
			return 0;
		ret[count++] = (struct window){at, (size_t)size};
		at += size;
		left -= size;
	}
	return left == 0 ? count : 0;
}

static uint64_t varint(const unsigned char **at, const unsigned char *end)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; *at < end && shift < 64; shift += 7) {
		unsigned char c = *(*at)++;

		v |= (uint64_t)(c & 0x7f) << shift;
		if (c < 0x80)
			break;
	}
	return v;
}

/* The last digits of text become those of n. */
static void write_number(char *text, size_t size, unsigned int digits, unsigned int n)
{
	for (unsigned int i = 0; i < digits && i < size; i++, n /= 10)
		text[size - 1 - i] = (char)('0' + n % 10);
}

/*
 * Walks a PushRequest (prof/push.h): series 1, in it labels 1 (name 1, value 2) and samples 2 (profile 1,
 * ID 2). Gives the label "host" and every ID the number n; the count of samples.
 */
static unsigned int renumber(
	char *data, size_t size, unsigned int depth, bool in_sample, unsigned int n)
{
	const unsigned char *at = (const unsigned char *)data, *end = at + size;
	bool is_host = false;
	unsigned int samples = 0;

	while (at < end) {
		uint64_t key = varint(&at, end), length = varint(&at, end);
		char *field = data + (at - (const unsigned char *)data);

		if ((key & 7) != 2 || length > (uint64_t)(end - at))
			return samples; /* not what was recorded: fewer profiles than there should be */
		if (depth < 2) {
			samples += depth == 1 && key >> 3 == 2;
			samples +=
				renumber(field, length, depth + 1, depth == 1 && key >> 3 == 2, n);
		} else if (key >> 3 == 1 && !in_sample) {
			is_host = length == 4 && memcmp(field, "host", 4) == 0;
		} else if (key >> 3 == 2 && in_sample) {
			write_number(field, length, ID_DIGITS, n);
		} else if (key >> 3 == 2 && is_host) {
			write_number(field, length, HOST_DIGITS, n);
		}
		at += length;
	}
	return samples;
}

/* A process of its own: every SENDERS-th push from first on. Exits with 0 when all were taken. */
static _Noreturn void send_all(
	const struct window *windows, size_t count, unsigned int first, unsigned int pushes)
{
	static char body[WINDOW_BYTES_MAX], answer[4096];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a killed lab-init */
	for (unsigned int n = first; n < pushes; n += SENDERS) {
		const struct window *w = &windows[n % count];
		struct http_call c = {.port = FLEET_PORT,
			.method = "POST",
			.path = PUSH,
			.type = "application/proto",
			.body = body,
			.size = w->size};
		struct http_reply reply = {0};

		memcpy(body, w->data, w->size);
		(void)renumber(body, w->size, 0, false, n); /* counted before */
		if (http_do(&c, answer, sizeof(answer), &reply) < 0 || reply.status != 200)
			_exit(1);
	}
	_exit(0);
}

/* False: a sender failed. */
static bool wait_for_all(const pid_t *senders, size_t count)
{
	bool good = true;
	int status;

	for (size_t i = 0; i < count; i++)
		good &= senders[i] > 0 && waitpid(senders[i], &status, 0) == senders[i] &&
			status == 0;
	return good;
}

/* How many pushes make PROFILES_MIN profiles; 0: the fixture is not what it should be. */
static unsigned int count_pushes(const struct window *windows, size_t count, uint64_t *ret_profiles)
{
	static char body[WINDOW_BYTES_MAX];
	unsigned int n = 0, samples;

	for (*ret_profiles = 0; count && *ret_profiles < PROFILES_MIN; *ret_profiles += samples) {
		const struct window *w = &windows[n % count];

		memcpy(body, w->data, w->size);
		samples = renumber(body, w->size, 0, false, n++);
		if (samples == 0)
			return 0;
	}
	return n;
}

int fleet_play_ingest(struct fleet *f)
{
	struct window windows[WINDOWS_MAX];
	size_t count = find_windows(windows);
	uint64_t profiles = 0, cpu = group_cpu_ns(&f->run->backend.group);
	unsigned int pushes = count_pushes(windows, count, &profiles);
	pid_t senders[SENDERS] = {0};

	if (pushes == 0)
		return fleet_fail(f, "the recorded windows cannot be read");
	for (unsigned int i = 0; i < SENDERS; i++) {
		senders[i] = fork();
		if (senders[i] == 0)
			send_all(windows, count, i, pushes);
	}
	if (!wait_for_all(senders, SENDERS))
		return fleet_fail(f, "a push was not taken");
	f->ingest_cpu_ns = group_cpu_ns(&f->run->backend.group) - cpu;
	f->ingested = profiles;
	return fleet_run_workload(f); /* for its truth: a step without one is no step */
}
