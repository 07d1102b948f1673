/*
 * What a recording is about, as people say it: process ids, names, users, cgroups (paths or ids),
 * containers (beginnings of ids), each asked for ("only") or left out ("except"). Of each kind that
 * is asked for one entry must match, cgroups and containers being one kind; nothing may match that is left
 * out, whatever else does. Resolved once when a window starts: a container that starts later is in the
 * next one. The kernel side is bpf/filter.h.
 */
#ifndef AGENT_FILTER_H
#define AGENT_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/sample.h"
#include "agent/cgroup.h"
#include "base/buf.h"
#include "base/opts.h"

enum { FILTER_CGROUPS_MAX = 1024, FILTER_COMM_MAX = 15, FILTER_TEXT_MAX = 1 << 20 };

enum filter_texts_kind {
	FILTER_COMMS,
	FILTER_USERS, /* a name, or a number */
	FILTER_CGROUPS,
	FILTER_CONTAINERS,
	FILTER_TEXTS
};

struct filter_texts {
	const char *const *at;
	size_t count;
};

struct filter_list {
	const uint64_t *pids;
	size_t pid_count;
	struct filter_texts texts[FILTER_TEXTS];
};

enum filter_side { FILTER_SIDE_ONLY, FILTER_SIDE_EXCEPT, FILTER_SIDES };

struct filter {
	struct filter_list sides[FILTER_SIDES];
};

/* One row for each side and kind of texts: what it is called, and how long an entry may be. */
struct filter_texts_name {
	const char *option; /* "exclude-comm" */
	const char *key;    /* in JSON, "exclude_comms" */
	size_t size_max;
};
extern const struct filter_texts_name filter_texts_names[FILTER_SIDES][FILTER_TEXTS];
extern const char *const filter_pids_options[FILTER_SIDES]; /* "pid", "exclude-pid" */
extern const char *const filter_pids_keys[FILTER_SIDES];    /* "pids", "exclude_pids" */

/* --- as options of a command, in a field of its struct */

struct filter_options {
	struct opt_list pids[FILTER_SIDES];
	struct opt_list texts[FILTER_SIDES][FILTER_TEXTS];
};

#define FILTER_PIDS_AT(type, field, side) offsetof(type, field.pids[FILTER_SIDE_##side])
#define FILTER_TEXTS_AT(type, field, side, kind) \
	offsetof(type, field.texts[FILTER_SIDE_##side][FILTER_##kind])
#define FILTER_OPTION_ROWS(type, field)                                                            \
	{"pid", 'p', OPT_U64_LIST, FILTER_PIDS_AT(type, field, ONLY), .arg = "PID", .min = 1,      \
		.max = 4194304, .help = "only this process; without it, all of them"},             \
		{"comm", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, ONLY, COMMS),               \
			.arg = "NAME",                                                             \
			.help = "only processes of this name (15 bytes, as ps -o comm shows it)"}, \
		{"user", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, ONLY, USERS),               \
			.arg = "USER",                                                             \
			.help = "only what runs as this user (effective, a name or a number)"},    \
		{"cgroup", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, ONLY, CGROUPS),           \
			.arg = "PATH",                                                             \
			.help = "only what is in this cgroup or below it:\n"                       \
				"a path from /, or an id of cgroup2"},                             \
		{"container", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, ONLY, CONTAINERS),     \
			.arg = "ID",                                                               \
			.help = "only this container, by the beginning of its id;\n"               \
				"of each kind of filter one must match"},                          \
		{"exclude-pid", 0, OPT_U64_LIST, FILTER_PIDS_AT(type, field, EXCEPT),              \
			.arg = "PID", .min = 1, .max = 4194304, .help = "not this process"},       \
		{"exclude-comm", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, EXCEPT, COMMS),     \
			.arg = "NAME", .help = "not processes of this name"},                      \
		{"exclude-user", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, EXCEPT, USERS),     \
			.arg = "USER", .help = "not what runs as this user"},                      \
		{"exclude-cgroup", 0, OPT_STR_LIST, FILTER_TEXTS_AT(type, field, EXCEPT, CGROUPS), \
			.arg = "PATH", .help = "not what is in this cgroup or below it"},          \
	{                                                                                          \
		"exclude-container", 0, OPT_STR_LIST,                                              \
			FILTER_TEXTS_AT(type, field, EXCEPT, CONTAINERS),                          \
			.arg = "ID",                                                               \
			.help = "not this container; what is left out is out,\n"                   \
				"whatever else matches"                                            \
	}

/* Of options, which stay the owners of what it points at. */
struct filter filter_of(const struct filter_options *o);

/* --- */

bool filter_is_any(const struct filter *f); /* it has an entry */
/* 0, or -EINVAL with one line in why: what no process can ever match. */
int filter_check(const struct filter *f, struct buf *why);

/* What has to be looked up. Values are FILTER_ONLY, FILTER_EXCEPT (bpf/sample.h). */
struct filter_resolved {
	struct filter_cgroup cgroups[FILTER_CGROUPS_MAX];
	uint8_t cgroup_values[FILTER_CGROUPS_MAX];
	uint32_t uids[2 * OPT_LIST_MAX];
	uint8_t uid_values[2 * OPT_LIST_MAX];
	size_t cgroup_count, uid_count;
	bool has_v1;        /* there are cgroups of version 1, */
	uint32_t v1_subsys; /* of the controller that the kernel numbers so */
};

/* 0 or -errno with one line in why. */
int filter_resolve(const struct filter *f, struct buf *why, struct filter_resolved *ret);
/* For the profile, as JSON: {"pids":[1],"comms":["a"]}; "" without a filter. 0 or buf's error. */
int filter_describe(const struct filter *f, struct buf *out);

/* --- the kernel side's maps and constants, around loading */

struct collect_bpf;

/* How the kernel numbers a controller ("memory"). 0; -ENOTSUP with one line in why. */
int filter_find_subsys(const char *controller, struct buf *why, uint32_t *ret);

/* Before loading: sizes and kinds. NULLs: no filter. 0 or -errno. */
int filter_prepare(
	struct collect_bpf *skel, const struct filter *f, const struct filter_resolved *resolved);
/* After it. 0 or -errno. */
int filter_fill(
	struct collect_bpf *skel, const struct filter *f, const struct filter_resolved *resolved);

#endif
