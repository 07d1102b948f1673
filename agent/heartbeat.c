/* See heartbeat.h. A number that cannot be read is 0. */
#include "agent/heartbeat.h"

#include <errno.h>
#include <sys/utsname.h>

#include "agent/own.h"
#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

#define JITTER_PERCENT 10

static void read_line(const char *path, char *out, size_t size)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

	if (file_read(path, &b) < 0)
		return;
	(void)snprintf(out, size, "%.*s", (int)strcspn(buf_str(&b), "\n"), buf_str(&b));
}

void heartbeat_identify(struct heartbeat_identity *id)
{
	struct utsname u;

	read_line("/proc/sys/kernel/random/boot_id", id->boot_id, sizeof(id->boot_id));
	id->cpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (uname(&u) < 0)
		return;
	(void)snprintf(id->kernel, sizeof(id->kernel), "%s", u.release);
	(void)snprintf(id->arch, sizeof(id->arch), "%s", u.machine);
}

static void append_text(struct buf *out, const char *key, const char *value)
{
	(void)buf_printf(out, ",\"%s\":", key);
	(void)str_append_json(out, value);
}

static void append_identity(const struct heartbeat_identity *id, struct buf *out)
{
	append_text(out, "host", id->host);
	append_text(out, "instance", id->instance);
	append_text(out, "boot_id", id->boot_id);
	append_text(out, "agent_version", id->version);
	append_text(out, "kernel", id->kernel);
	append_text(out, "arch", id->arch);
	(void)buf_printf(out, ",\"cpus\":%ld", id->cpus);
}

int heartbeat_write(const struct heartbeat_facts *f, const struct commands *acks, struct buf *out,
	uint64_t *ret_change)
{
	uint64_t change = 0;

	(void)buf_append_str(out, "{\"schema\":\"flame-heartbeat/1\"");
	append_identity(f->identity, out);
	(void)buf_printf(out, ",\"time_unix_ms\":%lld", (long long)f->time_unix_ms);
	append_text(out, "state", f->state);
	append_text(out, "state_text", f->state_text);
	(void)buf_append_str(out, ",\"can\":{\"cpu\":");
	(void)str_append_json(out, f->can_cpu);
	(void)buf_append_str(out, ",\"wall\":\"this agent records the view cpu only\"}");
	(void)buf_printf(out,
		",\"own\":{\"cpu_ns\":%llu,\"rss_bytes\":%llu,\"kernel_bytes\":%llu,\"uptime_ns\":%"
		"llu}",
		(unsigned long long)f->own.cpu_ns, (unsigned long long)f->own.rss_bytes,
		(unsigned long long)f->own.kernel_bytes, (unsigned long long)f->own.uptime_ns);
	(void)buf_printf(out, ",\"losses\":{\"samples\":%llu,\"windows_dropped\":%llu}",
		(unsigned long long)f->samples_lost, (unsigned long long)f->windows_dropped);
	(void)buf_printf(out, ",\"spool\":{\"windows\":%llu,\"bytes\":%llu},\"acks\":",
		(unsigned long long)f->spool_windows, (unsigned long long)f->spool_bytes);
	(void)commands_write_acks(acks, out, &change); /* its error stays in out */
	(void)buf_append_str(out, "}");
	if (buf_error(out) < 0)
		return buf_error(out);
	*ret_change = change;
	return 0;
}

uint64_t heartbeat_jittered_ns(uint64_t interval_ns, struct rng *r)
{
	uint64_t span = interval_ns / 100 * JITTER_PERCENT;

	return rng_between(r, interval_ns - span, interval_ns + span);
}

/* "\nKEY:   123 kB" of a process's status, in bytes. */
static uint64_t status_bytes(pid_t pid, const char *key)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(16384);
	char path[64];
	const char *at;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (file_read(path, &b) < 0)
		return 0;
	at = strstr(buf_str(&b), key);
	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

/* CPU time of a process that runs: fields 14 and 15 of its stat, in clock ticks. */
static uint64_t stat_cpu_ns(pid_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK);
	char path[64];
	char *at;
	uint64_t user, system;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(path, &b) < 0)
		return 0;
	at = strrchr(buf_str(&b), ')'); /* the name before it may hold anything */
	for (int field = 2; at && field < 14; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return 0;
	user = strtoull(at, &at, 10);
	system = strtoull(at, NULL, 10);
	return (user + system) * (NSEC_PER_SEC / ticks);
}

static void add_process(pid_t pid, struct heartbeat_own *ret)
{
	ret->rss_bytes += status_bytes(pid, "\nVmRSS:");
	ret->cpu_ns += stat_cpu_ns(pid);
}

/* A recorder and the helper it runs. */
static void add_recorder(pid_t pid, struct heartbeat_own *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	char path[64];
	char *at;

	add_process(pid, ret);
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (file_read(path, &b) < 0)
		return;
	for (at = b.data; at && *at;) {
		char *end;
		unsigned long child = strtoul(at, &end, 10);

		if (end == at)
			return;
		add_process((pid_t)child, ret);
		at = end;
	}
}

bool heartbeat_own_cgroup(const char *proc_cgroup, struct buf *ret)
{
	const char *at = strstr(proc_cgroup, "0::/");
	const char *last;
	size_t size;

	if (!at || (at != proc_cgroup && at[-1] != '\n'))
		return false;
	at += 3;
	size = strcspn(at, "\n");
	last = memrchr(at, '/', size);
	if (!last || !str_has_prefix(last + 1, "flame-agent"))
		return false;
	return buf_printf(ret, "/sys/fs/cgroup%.*s", (int)size, at) == 0;
}

/* usage_usec of the agent's own cgroup in ns; 0: it has none. */
static uint64_t cgroup_cpu_ns(void)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(16384);
	_cleanup_(buf_done) struct buf path = BUF_INIT(8192);
	const char *at;

	if (file_read("/proc/self/cgroup", &text) < 0 ||
		!heartbeat_own_cgroup(buf_str(&text), &path) ||
		buf_append_str(&path, "/cpu.stat") < 0)
		return 0;
	buf_reset(&text);
	if (file_read(buf_str(&path), &text) < 0)
		return 0;
	at = strstr(buf_str(&text), "usage_usec ");
	return at ? strtoull(at + strlen("usage_usec "), NULL, 10) * 1000 : 0;
}

void heartbeat_own(const pid_t *recorders, size_t count, struct heartbeat_own *ret)
{
	uint64_t cgroup_ns = cgroup_cpu_ns();

	*ret = (struct heartbeat_own){0};
	for (size_t i = 0; i < count; i++)
		add_recorder(recorders[i], ret);
	ret->cpu_ns += own_cpu_ns(0);
	ret->rss_bytes += status_bytes(getpid(), "\nVmRSS:");
	if (cgroup_ns > 0)
		ret->cpu_ns = cgroup_ns;
}
