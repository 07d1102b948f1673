/*
 * What an agent says about itself every half minute (schema flame-heartbeat/1), and what it costs by
 * the kernel's account. Pure but for heartbeat_own.
 *
 *	{ "schema":"flame-heartbeat/1", "host":"h1", "instance":"UUID of the installation", "boot_id":"..",
 *	  "agent_version":"..", "kernel":"..", "arch":"x86_64", "cpus":2, "time_unix_ms":0,
 *	  "state":"dormant|profiling|error", "state_text":"", "can":{"cpu":"ok","wall":"reason why not"},
 *	  "own":{"cpu_ns":0,"rss_bytes":0,"kernel_bytes":0,"uptime_ns":0},
 *	  "losses":{"samples":0,"windows_dropped":0}, "spool":{"windows":0,"bytes":0},
 *	  "acks":[{"id":"..","state":"running|done|failed|cancelled","text":""}] }
 */
#ifndef AGENT_HEARTBEAT_H
#define AGENT_HEARTBEAT_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/commands.h"
#include "base/buf.h"
#include "base/rng.h"

/* Of all processes of the agent: CPU since the start, memory now. */
struct heartbeat_own {
	uint64_t cpu_ns;
	uint64_t rss_bytes;
	uint64_t kernel_bytes; /* BPF maps and programs, perf rings */
	uint64_t uptime_ns;
};

/* Who we are; found once. */
struct heartbeat_identity {
	const char *host;
	const char *instance;
	const char *version;
	char boot_id[64];
	char kernel[128];
	char arch[65];
	long cpus;
};

struct heartbeat_facts {
	const struct heartbeat_identity *identity;
	int64_t time_unix_ms;
	const char *state;
	const char *state_text;
	const char *can_cpu; /* "ok" or why not */
	struct heartbeat_own own;
	uint64_t samples_lost, windows_dropped;
	uint64_t spool_windows, spool_bytes;
};

/* Fills boot_id, kernel, arch and cpus; what cannot be read is "". */
void heartbeat_identify(struct heartbeat_identity *id);
/* The message; *ret_change is commands_write_acks's. 0 or buf's error. */
int heartbeat_write(const struct heartbeat_facts *f, const struct commands *acks, struct buf *out,
	uint64_t *ret_change);
/* Interval +-10 %, so that a fleet that started at once does not knock at once. */
uint64_t heartbeat_jittered_ns(uint64_t interval_ns, struct rng *r);

/*
 * Cost of this process, the recorders that run (and the helpers they run), and all that ended. When
 * the agent has a cgroup of its own the cgroup's CPU time is taken, which misses nobody.
 */
void heartbeat_own(const pid_t *recorders, size_t count, struct heartbeat_own *ret);
/* The cgroup v2 directory in a /proc/PID/cgroup text when it is the agent's own; false otherwise. */
bool heartbeat_own_cgroup(const char *proc_cgroup, struct buf *ret);

#endif
