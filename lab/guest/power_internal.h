/*
 * What the parts of play power_cut share: power.c (set-up and result), power_record.c (the backend's work),
 * power_cut.c (which cuts, and the disk of one), power_check.c (what must be there), power_push.c (a push).
 */
#ifndef LAB_GUEST_POWER_INTERNAL_H
#define LAB_GUEST_POWER_INTERNAL_H

#include <assert.h>

#include "lab/guest/fleet_internal.h"
#include "lab/guest/power_log.h"

enum {
	POWER_EVENTS_MAX = 256,
	POWER_NUMBERS_MAX = 1024, /* of pushes */
	POWER_NUMBER_NEW = 1000,  /* the push that comes after a cut */
	POWER_CUTS_MAX = 512,
	POWER_CUTS_DEFAULT = 20,
	POWER_TOKEN_MAX = 64,
	POWER_PUSH_MAX = 16384,
};

#define POWER_UNMARKED UINT64_MAX

extern const uint64_t power_image_size; /* bytes of the disk */

/* Something that the backend acknowledged, or nearly so. */
struct power_event {
	enum power_kind {
		POWER_ADMIN, /* the token of all our requests, made before the first start */
		POWER_STORE, /* the backend answers: before, there is no store to verify */
		POWER_TOKEN,
		POWER_REVOKING, /* from here on the token may be gone */
		POWER_REVOKED,  /* and now it must be */
		POWER_REQUEST,
		POWER_CANCELLED,
		POWER_PUSH,
		POWER_KIND_COUNT
	} kind;
	unsigned int number;
	uint64_t entry; /* of the log, its mark: a cut behind it must have it. POWER_UNMARKED */
	char token[POWER_TOKEN_MAX];
};

struct power {
	struct fleet fleet;
	char device_path[PATH_MAX], log_path[PATH_MAX], base_path[PATH_MAX], scratch_path[PATH_MAX];
	char mount_dir[PATH_MAX];
	struct power_event events[POWER_EVENTS_MAX];
	size_t event_count;
	const char *admin; /* token; NULL: none yet */
	FILE *story;       /* power.log */
	struct power_log log;
	uint64_t log_bytes;
	unsigned char *image; /* the device after the entries that were applied */
	uint64_t
		lag; /* seeded fault lying_disk: the last so many entries before a cut never happened */

	/* For power.json. */
	char first[FLEET_ERROR_MAX]; /* what went wrong first after a cut, "" nothing */
	uint64_t marks, cuts_wanted, cuts, cuts_between, held;
	uint64_t lost_pushes, wrong_pushes, lost_requests, lost_tokens;
	uint64_t verify_faults, failed_mounts, failed_starts, failed_calls;
};

/* A push.v1 request and its size. Its stack push_NUMBER has power_push_value(). */
size_t power_push_build(unsigned int number, uint64_t now_unix_ns, char ret[POWER_PUSH_MAX]);
uint64_t power_push_value(unsigned int number);
/* The number of the push that a line of folded stacks is about, and its value; false: of none. */
bool power_push_parse(const char *line, unsigned int *ret_number, uint64_t *ret_value);

/* The answer's status, or -errno. type NULL: no body. */
int power_call(struct power *p, const char *method, const char *path, const char *json,
	const char *token, struct http_reply *ret);
/* All of them at once, so that they share a commit; failed[i] is set for what was not acknowledged. */
void power_push(struct power *p, const unsigned int *numbers, size_t count, bool *failed);

/* 0 or -EIO after fleet_fail(). */
int power_record(struct power *p);
int power_cut(struct power *p);
/* Looks at what is mounted, as it is after a cut behind k entries. What is wrong is counted and told. */
void power_check(struct power *p, uint64_t k);
/* Tells it in power.log, and keeps the first. */
void power_wrong(struct power *p, uint64_t *counter, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
