/*
 * One table row per option gives parser, limits, config-file key, help text and default (STYLE:
 * Varnish's lesson). Precedence: default, then config file, then argv, in whatever order they are
 * parsed. A list given by a better source replaces that of a worse one. Messages go into a buffer
 * for the caller to print; nothing here writes to a terminal.
 *
 * A config file has lines `key = value`; '#' at the start of a line or after a blank begins a
 * comment; only lists may repeat their key.
 *
 *	static const struct opt_spec specs[] = {
 *		{"duration", 'd', OPT_DURATION, offsetof(struct conf, duration_ns), .arg = "TIME",
 *			.def = "10s", .min = 1e6, .max = 86400e9, .help = "how long to record"},
 *		{0},
 *	};
 */
#ifndef BASE_OPTS_H
#define BASE_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum opt_type {
	OPT_FLAG,     /* bool; --name, --no-name; config: on|off|yes|no|true|false|1|0 */
	OPT_U64,      /* uint64_t */
	OPT_F64,      /* double */
	OPT_STR,      /* const char *, points into argv or the opts' arena */
	OPT_DURATION, /* uint64_t ns */
	OPT_ENUM,     /* int: index in .choices "a|b|c" */
	OPT_U64_LIST, /* struct opt_list of u64; repeatable, also comma separated */
	OPT_STR_LIST, /* struct opt_list of const char *; repeatable, never split */
};

#define OPT_LIST_MAX 1024

struct opt_list {
	size_t count;
	union {
		uint64_t u64[OPT_LIST_MAX];
		const char *str[OPT_LIST_MAX];
	};
};

/* The fields stand in the order in which tables give them, which costs 8 bytes a row. */
struct opt_spec {         /* NOLINT(clang-analyzer-optin.performance.Padding) */
	const char *name; /* long name and config key; NULL ends the table */
	char letter;      /* 0: none */
	enum opt_type type;
	size_t offset;       /* into the caller's struct */
	const char *arg;     /* placeholder in --help; NULL for flags */
	const char *def;     /* default, parsed like input; NULL: zero */
	double min, max;     /* both 0: no limit beyond the type's; so for max 0 of u64, duration */
	const char *choices; /* OPT_ENUM */
	const char *help;    /* one sentence, may contain \n */
	bool hidden;         /* accepted, not shown */
	bool argv_only;      /* not a config key */
};

struct opts {
	const struct opt_spec *specs;
	void *target;
	struct arena *arena;
	struct buf message; /* why the last call failed, one line */
	uint64_t seen;      /* bit i: specs[i] was given on argv */
};

/* Sets defaults. specs has at most 64 rows. 0 or -ENOMEM. */
int opts_init(struct opts *o, const struct opt_spec *specs, void *target);
void opts_done(struct opts *o);
/*
 * Parses argv[1..], moving options before operands. First operand's index through ret_operands
 * (argc when none; "--" ends options).
 * -EINVAL with o->message such as: option '--frequency': '0' is not in 1..10000
 * 1 when --help or -h was given (the caller prints opts_help).
 */
int opts_parse_argv(struct opts *o, int argc, char **argv, int *ret_operands);
/*
 * -EINVAL with "FILE:LINE: unknown key 'x'; did you mean 'y'?" and such; or -errno of reading, with
 * a message too. Lines before the wrong one have taken effect.
 */
int opts_parse_file(struct opts *o, const char *path);
/* The option table as aligned text. */
int opts_help(const struct opt_spec *specs, struct buf *out);
/* A config file with every option at its default, commented. */
int opts_sample_config(const struct opt_spec *specs, struct buf *out);

#endif
