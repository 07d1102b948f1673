/* What a play (fleet_play.c) has at hand (fleet.c). */
#ifndef LAB_GUEST_FLEET_INTERNAL_H
#define LAB_GUEST_FLEET_INTERNAL_H

#include "base/def.h"
#include "lab/guest/fleet.h"
#include "lab/guest/http.h"

enum { FLEET_PORT = 4040, FLEET_ERROR_MAX = 240, FLEET_BUFFER = 4 << 20, FLEET_CYCLES_MAX = 128 };

#define FLEET_TICK_NS (20 * NSEC_PER_MSEC) /* far below the backend's commit interval */

struct fleet {
	struct run *run;
	char data_dir[PATH_MAX], state_dir[PATH_MAX], spool_dir[PATH_MAX], copy_dir[PATH_MAX];
	char error[FLEET_ERROR_MAX]; /* the first thing that went wrong, "" none */
	char backend_exit[32];
	char *buffer;                /* FLEET_BUFFER bytes, for answers */
	size_t spool_now, spool_max; /* files in the spool at the last look, at most */

	/* For fleet.json. */
	uint64_t bpf_before, bpf_dormant_max, bpf_sampling_max, bpf_after;
	uint64_t dormant_ns, dormant_cpu_ns, dormant_memory;
	uint64_t commands, commands_done, kills, resent;
	uint64_t memory[FLEET_CYCLES_MAX]; /* of the agent after each start/stop command */
	size_t memory_count;
	uint64_t stored, duplicates, verify_faults;
};

/* Notes the first failure of a play; always -EIO, for return. */
int fleet_fail(struct fleet *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* All of these: 0, or -EIO after fleet_fail(). */
int fleet_start_backend(struct fleet *f); /* returns when it answers */
int fleet_end_backend(struct fleet *f, int signo);
/* One request to the backend; anything but a 2xx is a failure. The answer is in f->buffer. */
int fleet_call(struct fleet *f, const char *method, const char *path, const char *json,
	struct http_reply *ret);
/* Lets a moment pass, then looks at the spool; fails when the agent has ended or time is over. */
int fleet_tick(struct fleet *f, uint64_t ns);
int fleet_pause(struct fleet *f, uint64_t ns);
typedef int fleet_condition(struct fleet *f); /* 1, 0 or a failure */
int fleet_wait(struct fleet *f, fleet_condition *is_true, const char *what);
/* The copied spool file that came first, its path; -EIO when there is none. */
int fleet_first_copy(struct fleet *f, char ret[PATH_MAX]);
/* Has flame-backend verify look at data_dir: f->stored and f->verify_faults, or fleet_fail(). */
void fleet_verify(struct fleet *f);

int fleet_play(struct fleet *f, const char *name);

#endif
