/*
 * What the files of the control part share:
 *	control.c		the database: schema, statements, transactions
 *	control_token.c		tokens and scopes
 *	control_heartbeat.c	what hosts say and are told
 *	control_beats.c		what they said, on its way to the disk
 *	control_request.c	profiling requests: made, shown, cancelled
 *	control_match.c		which hosts a request means
 *	control_json.c		reading JSON from strangers
 *
 * Tables in catalog.db; times are unix milliseconds of the server:
 *	ctl_tokens		name, scope, sha256 (hex), created
 *	ctl_hosts		the last heartbeat of each installation
 *	ctl_host_services	which host pushed which service
 *	ctl_requests		what was asked; cancelled
 *	ctl_commands		one per host; state, lease, deadline
 *
 * Commits here do not wait for the disk (synchronous=NORMAL under WAL): a killed process loses nothing, and
 * what a power cut takes, hosts say again with their next heartbeat. What somebody was told is different: a
 * request, its cancellation, a token and its end are committed with synchronous=FULL (control_sync).
 */
#ifndef BACKEND_CONTROL_INTERNAL_H
#define BACKEND_CONTROL_INTERNAL_H

#include <cjson/cJSON.h>
#include <pthread.h>
#include <sqlite3.h>

#include "backend/control.h"
#include "backend/store.h"
#include "base/map.h"

enum {
	CONTROL_STATEMENTS_MAX = 80,
	CONTROL_HOSTS_MAX = 200000,
	CONTROL_COMMANDS_PER_BEAT_MAX = 16,
	CONTROL_NAME_MAX = 255,
	CONTROL_TEXT_MAX = 512,
	CONTROL_LIST_MAX = 64, /* entries of one kind of filter */
	CONTROL_ID_MAX = 64,
};

struct control_statement {
	const char *sql; /* compared by address: each is one literal */
	sqlite3_stmt *stmt;
};

struct control_token {
	char sha256[65];
	enum http_scope scope;
};

struct control_beats;

struct control {
	pthread_mutex_t lock; /* everything below but the tokens */
	sqlite3 *db;
	struct control_statement statements[CONTROL_STATEMENTS_MAX];
	unsigned int interval_s;
	const char *wanted_version;
	int64_t host_count;
	struct control_beats *beats;
	struct map *seen; /* "host\0service" -> unix ms of the last write */

	char *path;
	pthread_mutex_t token_lock;
	struct control_token *tokens;
	size_t token_count;
	uint64_t tokens_read_ns; /* 0: never */
};

/* --- control.c; all need c->lock. types: 't' const char *, 'i' int64_t. */

/* The bound statement, to be stepped and then given to control_reset. NULL with *ret_error -errno. */
sqlite3_stmt *control_query(
	struct control *c, int *ret_error, const char *sql, const char *types, ...);
void control_reset(sqlite3_stmt **stmt); /* for _cleanup_; accepts NULL inside */
/*
 * What a request's filter has: columns of ctl_requests, each a JSON list, and keys of requests, in this
 * order.
 */
enum { CONTROL_FILTERS = 10 };
#define CONTROL_FILTER_COLUMNS                                                                    \
	"pids, comms, cgroups, containers, users, exclude_pids, exclude_comms, exclude_cgroups, " \
	"exclude_containers, exclude_users"
struct control_filter {
	const char *key;
	size_t size_max; /* bytes of a name; 0: numbers */
	const char *set; /* the statement */
};
extern const struct control_filter control_filters[CONTROL_FILTERS];
/* Appends ,"pids":[..], and so on, of the columns from first on. */
void control_filters_write(sqlite3_stmt *stmt, int first, struct buf *out);
/* Steps: true with a row, false at the end or with *error set. */
bool control_row(struct control *c, sqlite3_stmt *stmt, int *error);
int control_run(struct control *c, const char *sql, const char *types, ...);
const char *control_column(sqlite3_stmt *stmt, int i); /* never NULL */
int control_begin(struct control *c);
/* Commits when r is 0, rolls back otherwise. The first error. */
int control_end(struct control *c, int r);
int control_error(struct control *c, int rc);
/* Whether commits from here on wait for the disk; outside of transactions. */
void control_sync(struct control *c, bool full);
int control_random_hex(size_t bytes, char *out); /* out: 2 * bytes + 1 */
/* Times out what nobody will do any more; instance NULL: of all hosts. */
int control_expire(struct control *c, const char *instance, int64_t now_ms);

/* --- control_beats.c; all need c->lock */

/* What changes with every heartbeat. */
struct control_words {
	int64_t cpu_ns, rss, kernel_bytes, uptime_ns, lost, dropped, spool_windows, spool_bytes;
	int64_t skew_ms, received_ms; /* by our clock */
};

/* One heartbeat, checked. */
struct control_beat {
	struct buf host, instance, boot_id, version, kernel, arch, state, state_text, can;
	int64_t cpus;
	struct control_words words;
};

void control_beat_done(struct control_beat *b);

int control_beats_init(struct control *c);
void control_beats_free(struct control *c);
/* The host is known and no command waits for it, so that b may be answered before it is on disk. */
bool control_beats_is_quiet(struct control *c, const struct control_beat *b);
/* Takes a quiet b, which may become empty, and writes what waits when that is due. An error keeps it. */
int control_beats_add(struct control *c, struct control_beat *b);
/* Writes the texts that wait; before anything reads ctl_hosts. */
int control_beats_write(struct control *c);
/* The host's last numbers, when they are newer than its row; ret stays as it is otherwise. */
void control_beats_words(struct control *c, const char *instance, struct control_words *ret);
/* In the caller's transaction: what waits, then b, whose host may be new (-ENOSPC: too many hosts). */
int control_beats_put(struct control *c, const struct control_beat *b);
void control_beats_done(struct control *c, const struct control_beat *b); /* it was committed */

/* --- control_json.c */

void control_json_freep(cJSON **j);
/* The object, or NULL with a reason in why. */
cJSON *control_json_parse(const void *json, size_t size, struct buf *why);
/*
 * Text of at most max bytes, repaired to UTF-8, into out; absent gives "". -EINVAL with a reason: no text,
 * too long.
 */
int control_json_text(
	const cJSON *o, const char *key, size_t max, struct buf *why, struct buf *out);
/* A whole number in min..max; absent leaves *ret as it is. */
int control_json_int(
	const cJSON *o, const char *key, int64_t min, int64_t max, struct buf *why, int64_t *ret);
int control_json_bool(const cJSON *o, const char *key, struct buf *why, bool *ret);
/* Letters, digits, '-', '_', '.', ':'; 1..max bytes. */
bool control_word(const char *s, size_t max);

/* --- control_match.c */

struct control_target {
	char instance[CONTROL_ID_MAX + 1];
	char host[CONTROL_NAME_MAX + 1];
};

/* The hosts that services, hosts and match of o mean, at most max_hosts of them, in the arena. */
int control_match(struct control *c, const cJSON *o, int64_t now_ms, size_t max_hosts,
	struct arena *a, struct buf *why, struct control_target **ret, size_t *ret_count);

#endif
