/*
 * Who may do what and who does what: tokens, hosts and their heartbeats, profiling requests and the
 * commands they become. Kept in catalog.db in tables of its own, one writer at a time (a mutex and one
 * connection; WAL, busy timeout), readers on the same connection: the rates are small.
 *
 * A request names services, hosts or a label match and becomes one command per host. States:
 *	pending -> sent (leased to a host by a heartbeat) -> running -> done | failed
 *	                     ^ lease over without ack: pending again          expired (deadline passed), cancelled
 * Commands are idempotent by id; the agent's acknowledgements move the state, never the sending.
 *
 * Heartbeat, POST /api/v1/heartbeat, JSON:
 *	{ "schema":"flame-heartbeat/1", "host":"h1", "instance":"UUID of the installation", "boot_id":"..",
 *	  "agent_version":"..", "kernel":"..", "arch":"x86_64", "cpus":2, "time_unix_ms":0,
 *	  "state":"dormant|profiling|error", "state_text":"", "can":{"cpu":"ok","wall":"reason why not"},
 *	  "own":{"cpu_ns":0,"rss_bytes":0,"kernel_bytes":0,"uptime_ns":0},
 *	  "losses":{"samples":0,"windows_dropped":0}, "spool":{"windows":0,"bytes":0},
 *	  "acks":[{"id":"..","state":"running|done|failed|cancelled","text":""}] }
 * Answer:
 *	{ "schema":"flame-heartbeat-reply/1", "time_unix_ms":0, "interval_s":30, "wanted_version":"",
 *	  "commands":[{"id":"..","kind":"start|stop|change","view":"cpu","frequency_hz":99,"duration_s":60,
 *	               "pids":[],"comms":[],"cgroups":[],"containers":[],"users":[],"exclude_pids":[],
 *	               "exclude_comms":[],"exclude_cgroups":[],"exclude_containers":[],"exclude_users":[],
 *	               "deadline_unix_ms":0,"target":""}] }
 * duration_s 0 is continuous, until a stop command with "target":"ID of the start command". A change
 * command has a target, too, and all that the recording is to be from its next window on.
 *
 * POST /api/v1/requests, JSON; at least one of services, hosts, match:
 *	{ "services":["shop"], "hosts":["h1"], "match":"{arch=\"x86_64\"}", "view":"cpu", "frequency_hz":99,
 *	  "duration_s":60, "pids":[], "comms":[], "cgroups":[], "containers":[], "deadline_s":600,
 *	  "max_hosts":100, "dry_run":false, "id":"of the caller's choice, for safe retries; optional" }
 * and users, exclude_pids, exclude_comms, exclude_cgroups, exclude_containers, exclude_users. Another key is 400. cgroups are
 * paths from / or ids of cgroup2, containers beginnings of ids, users names or numbers as texts; a process is recorded when
 * it matches one entry of each kind that is given, cgroups and containers being one kind, and none of what is excluded.
 *
 * { "change":"ID of a request", "frequency_hz":199, "duration_s":0, "comms":["a"] } changes one that is not
 * over, on all its hosts, from their next window on. What is not mentioned stays; an empty list ends a
 * filter; duration_s counts from the recording's start. Asking twice is the same as once. Each host
 * has a command of kind change for it: running when it has it, done when the first window came out.
 *
 * match knows host, instance, arch, kernel, agent_version, state and service_name. Hosts are found by the
 * name they give; services by what hosts pushed. A service or match takes hosts that were heard of
 * in the last 10 minutes; one by name waits for its host until the deadline.
 * Answer (also of GET /api/v1/requests/ID, and of DELETE, which cancels):
 *	{ "id":"..", "state":"pending", "dry_run":false, "created_unix_ms":0, "deadline_unix_ms":0, "view":"cpu",
 *	  "frequency_hz":99, "duration_s":60, "pids":[], "comms":[], "cgroups":[], "containers":[],
 *	  "commands":[{"id":"..","kind":"start","host":"h1","instance":"..","state":"pending","text":"",
 *	               "updated_unix_ms":0}] }
 */
#ifndef BACKEND_CONTROL_H
#define BACKEND_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/http.h"
#include "base/buf.h"

struct control;

/* What control_request_create answers when no host matches is -ENOENT with a reason too. */
int control_open(const char *catalog_path, struct control **ret);
void control_close(struct control *c); /* accepts NULL */
/* What agents are told, and half of a lease; before other threads use c. Default 30. */
void control_set_interval(struct control *c, unsigned int heartbeat_interval_s);
/* The agent version that answers to heartbeats name, "" for none; the text stays the caller's. Likewise before. */
void control_set_wanted_version(struct control *c, const char *version);

const char *control_scope_name(enum http_scope scope); /* "ingest", "read", "control", "admin" */
bool control_scope_parse(const char *name, enum http_scope *ret);
/* This scope allows what that one asks for: itself, or admin. */
bool control_scope_covers(enum http_scope held, enum http_scope wanted);

/* Prints the new token once into ret (base64url of 32 random bytes); only its SHA-256 is kept. */
int control_token_create(
	struct control *c, enum http_scope scope, const char *name, struct buf *ret);
int control_token_revoke(struct control *c, const char *name); /* -ENOENT */
/* "NAME SCOPE CREATED" lines, by name. */
int control_token_list(struct control *c, struct buf *out);
/* SCOPE_NONE asks whether the token is known at all. Changes by another process count within a second. */
bool control_token_allows(struct control *c, const char *token, enum http_scope scope);
bool control_has_tokens(struct control *c);

/*
 * JSON in, JSON out. 0; -EINVAL with a one-line reason in why (the peer's fault); -ENOENT; -errno.
 * control_heartbeat answers -ENOSPC when it knows as many hosts as it may.
 */
int control_heartbeat(struct control *c, const void *json, size_t size, int64_t now_unix_ns,
	struct buf *out, struct buf *why);
int control_request_create(struct control *c, const void *json, size_t size, int64_t now_unix_ns,
	struct buf *out, struct buf *why);
int control_request_list(struct control *c, int64_t now_unix_ns, struct buf *out);
int control_request_get(struct control *c, const char *id, int64_t now_unix_ns, struct buf *out);
int control_request_cancel(struct control *c, const char *id, int64_t now_unix_ns, struct buf *out);
/* A host pushed a profile of this service: how requests find a service's hosts. Cheap when repeated. */
int control_host_seen_service(
	struct control *c, const char *host, const char *service, int64_t now_unix_ns);
/* [{host, instance, agent_version, kernel, arch, cpus, state, own, losses, skew_ms, last_heartbeat_unix_ms}] */
/*
 * By host and instance: at most limit (0: all) of those behind the one whose instance is after ("": from the first
 * on; none when it is not known).
 */
int control_hosts(struct control *c, int64_t now_unix_ns, const char *after, unsigned int limit,
	struct buf *out);

#endif
