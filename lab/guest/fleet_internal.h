/* What a play (fleet_play.c) has at hand (fleet.c). */
#ifndef LAB_GUEST_FLEET_INTERNAL_H
#define LAB_GUEST_FLEET_INTERNAL_H

#include "base/def.h"
#include "lab/guest/fleet.h"
#include "lab/guest/http.h"
#include "lab/guest/proxy.h"

enum {
	FLEET_PORT = 4040,
	FLEET_PROXY_PORT = 4041,
	FLEET_ERROR_MAX = 240,
	FLEET_BUFFER = 4 << 20,
	FLEET_CYCLES_MAX = 128,
	FLEET_WINDOWS_MAX = 256,
	FLEET_SPOOL_LIMIT = 6, /* windows, in play spool */
};

#define FLEET_TICK_NS (20 * NSEC_PER_MSEC) /* far below the backend's commit interval */

struct fleet {
	struct run *run;
	char data_dir[PATH_MAX], state_dir[PATH_MAX], spool_dir[PATH_MAX], copy_dir[PATH_MAX];
	char error[FLEET_ERROR_MAX]; /* the first thing that went wrong, "" none */
	char backend_exit[32];
	char *buffer;       /* FLEET_BUFFER bytes, for answers */
	struct proxy proxy; /* between the two, in play answers */

	/* What the looks at the spool found (fleet_spool.c). */
	size_t spool_now, spool_max; /* files at the last look, at most */
	uint64_t spool_changed_ns;   /* when the last file appeared */
	uint64_t windows;            /* that appeared */
	uint64_t seen[FLEET_WINDOWS_MAX];
	size_t seen_count;
	bool is_watching;                    /* what goes while no backend runs was dropped */
	uint64_t dropped[FLEET_WINDOWS_MAX]; /* places of those */
	size_t dropped_count;
	uint64_t dropped_early; /* of those: while an older one stayed */

	/* For fleet.json. */
	uint64_t bpf_before, bpf_dormant_max, bpf_sampling_max, bpf_after;
	uint64_t dormant_ns, dormant_cpu_ns, dormant_memory;
	uint64_t commands, commands_done, kills, resent;
	uint64_t memory[FLEET_CYCLES_MAX]; /* of the agent after each start/stop command */
	size_t memory_count;
	uint64_t stored, duplicates, verify_faults;
	uint64_t spool_limit;         /* windows, as the agent was told; 0: its default */
	uint64_t dropped_told;        /* windows dropped, by the agent's heartbeat */
	uint64_t refused, cut, early; /* pushes, by the proxy; early: before Retry-After was over */
	uint64_t ingested, ingest_cpu_ns; /* profiles; the backend's CPU for them */
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

/* A request number for the host, so that f->commands counts; and what waits for its states. */
int fleet_request(struct fleet *f, unsigned int number, unsigned int duration_s);
fleet_condition fleet_is_running, fleet_is_sampling, fleet_is_over;
int fleet_run_workload(struct fleet *f); /* until its end, or until the step's */

void fleet_look(struct fleet *f);          /* at the spool */
void fleet_write_windows(struct fleet *f); /* windows.spool, without those that were dropped */
/* The copied spool file that came first, its path; -EIO when there is none. */
int fleet_first_copy(struct fleet *f, char ret[PATH_MAX]);
/* Has flame-backend verify look at data_dir: f->stored and f->verify_faults, or fleet_fail(). */
void fleet_verify(struct fleet *f);

int fleet_play(struct fleet *f, const char *name);
/* The plays that go wrong on purpose (fleet_faults.c), and the one that measures (fleet_ingest.c). */
int fleet_play_faults(struct fleet *f);
int fleet_play_answers(struct fleet *f);
int fleet_play_spool(struct fleet *f);
int fleet_play_ingest(struct fleet *f);

#endif
