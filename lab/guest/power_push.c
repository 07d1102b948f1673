/*
 * Pushes of play power_cut: push.v1 around a plain pprof (lib/prof/push.h and the public profile.proto say
 * what the fields are), written by hand because PID 1 is libc only. Push N has one stack that no other has,
 * "push_N" with the value 100000 + N, so that one flame graph tells which pushes the backend has, and whether
 * once; and some more stacks that make the dictionary grow. Windows go to three different hours, so that
 * the backend makes several data files.
 */
#include "lab/guest/power_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACKS = 24, VALUE = 100000, HOURS = 3, TEXT_MAX = 64, SERIES_MAX = 4096 };

struct proto {
	char *data;
	size_t size, size_max;
};

static void proto_bytes(struct proto *p, const void *data, size_t size)
{
	assert(size <= p->size_max - p->size); /* all that is written here is ours */
	memcpy(p->data + p->size, data, size);
	p->size += size;
}

static void proto_varint(struct proto *p, uint64_t v)
{
	do {
		unsigned char c = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

		proto_bytes(p, &c, 1);
		v >>= 7;
	} while (v > 0);
}

static void proto_number(struct proto *p, unsigned int field, uint64_t v)
{
	proto_varint(p, field << 3);
	proto_varint(p, v);
}

static void proto_field(struct proto *p, unsigned int field, const void *data, size_t size)
{
	proto_varint(p, field << 3 | 2);
	proto_varint(p, size);
	proto_bytes(p, data, size);
}

static void proto_text(struct proto *p, unsigned int field, const char *text)
{
	proto_field(p, field, text, strlen(text));
}

static void proto_pair(struct proto *p, unsigned int field, unsigned int first, uint64_t a,
	unsigned int second, uint64_t b)
{
	char data[32];
	struct proto inner = {data, 0, sizeof(data)};

	proto_number(&inner, first, a);
	proto_number(&inner, second, b);
	proto_field(p, field, data, inner.size);
}

/* Location and function i + 1 have the string 3 + i. The last one is the root of all stacks. */
static void write_profile(struct proto *p, unsigned int number, uint64_t start_unix_ns)
{
	char text[TEXT_MAX], data[TEXT_MAX];
	struct proto inner = {data, 0, sizeof(data)};

	proto_pair(p, 1, 1, 1, 2, 2);
	for (unsigned int i = 0; i < STACKS; i++) {
		inner.size = 0;
		proto_number(&inner, 1, i + 1);
		proto_number(&inner, 1, STACKS + 1);
		proto_number(&inner, 2, i == 0 ? power_push_value(number) : i);
		proto_field(p, 2, data, inner.size);
	}
	for (unsigned int i = 1; i <= STACKS + 1; i++) {
		char line[16];
		struct proto function = {line, 0, sizeof(line)};

		proto_number(&function, 1, i);
		inner.size = 0;
		proto_number(&inner, 1, i);
		proto_field(&inner, 4, line, function.size);
		proto_field(p, 4, data, inner.size);
		proto_pair(p, 5, 1, i, 2, 2 + i);
	}
	proto_text(p, 6, "");
	proto_text(p, 6, "cpu");
	proto_text(p, 6, "nanoseconds");
	for (unsigned int i = 0; i < STACKS; i++) {
		(void)snprintf(text, sizeof(text), i ? "more_%u_%u" : "push_%u", number, i);
		proto_text(p, 6, text);
	}
	proto_text(p, 6, "main");
	proto_number(p, 9, start_unix_ns);
	proto_number(p, 10, 10 * NSEC_PER_SEC);
	proto_pair(p, 11, 1, 1, 2, 2);
	proto_number(p, 12, 10000000);
}

static void write_label(struct proto *p, const char *name, const char *value)
{
	char data[TEXT_MAX];
	struct proto inner = {data, 0, sizeof(data)};

	proto_text(&inner, 1, name);
	proto_text(&inner, 2, value);
	proto_field(p, 1, data, inner.size);
}

size_t power_push_build(unsigned int number, uint64_t now_unix_ns, char ret[POWER_PUSH_MAX])
{
	char profile[SERIES_MAX], sample[SERIES_MAX], series[SERIES_MAX], id[TEXT_MAX];
	struct proto f = {profile, 0, sizeof(profile)}, m = {sample, 0, sizeof(sample)},
		     s = {series, 0, sizeof(series)}, q = {ret, 0, POWER_PUSH_MAX};

	write_profile(&f, number, now_unix_ns - number % HOURS * 3600 * NSEC_PER_SEC);
	(void)snprintf(id, sizeof(id), "power-cut-%u", number);
	proto_field(&m, 1, profile, f.size);
	proto_text(&m, 2, id);
	write_label(&s, "__name__", "process_cpu");
	write_label(&s, "host", "lab");
	write_label(&s, "service_name", "cut");
	proto_field(&s, 2, sample, m.size);
	proto_field(&q, 1, series, s.size);
	return q.size;
}

uint64_t power_push_value(unsigned int number)
{
	return VALUE + number;
}

bool power_push_parse(const char *line, unsigned int *ret_number, uint64_t *ret_value)
{
	static const char root[] = "main;push_";
	char *end;
	unsigned long number;

	if (strncmp(line, root, strlen(root)) != 0)
		return false;
	number = strtoul(line + strlen(root), &end, 10);
	if (*end != ' ' || number >= POWER_NUMBERS_MAX)
		return false;
	*ret_number = (unsigned int)number;
	*ret_value = strtoull(end + 1, NULL, 10);
	return true;
}

/* --- sending */

/* The time of a window must not change from try to try, or a second one would be in another hour's file. */
static uint64_t boot_unix_ns(void)
{
	static uint64_t ns;
	struct timespec ts;

	if (ns == 0 && clock_gettime(CLOCK_REALTIME, &ts) == 0)
		ns = (uint64_t)ts.tv_sec * NSEC_PER_SEC;
	return ns;
}

static void send_one(struct power *p, unsigned int number)
{
	struct http_call c = {.port = FLEET_PORT,
		.method = "POST",
		.path = "/push.v1.PusherService/Push",
		.type = "application/proto",
		.token = p->admin};
	struct http_reply reply = {0};
	char body[POWER_PUSH_MAX];

	c.body = body;
	c.size = power_push_build(number, boot_unix_ns(), body);
	_exit(http_do(&c, p->fleet.buffer, FLEET_BUFFER, &reply) == 0 && reply.status == 200 ? 0
											     : 1);
}

void power_push(struct power *p, const unsigned int *numbers, size_t count, bool *failed)
{
	pid_t pids[8] = {0};
	int status;

	assert(count <= ARRAY_SIZE(pids));
	(void)boot_unix_ns(); /* the children are to agree */
	for (size_t i = 0; i < count; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			send_one(p, numbers[i]);
	}
	for (size_t i = 0; i < count; i++) {
		pid_t pid = pids[i];

		while (pid > 0 && (pid = waitpid(pids[i], &status, 0)) < 0 && errno == EINTR)
			pid = pids[i];
		failed[i] = pid <= 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	}
}
