/*
 * The daemon's configuration: one table, from which the parser, the limits, --help and the shipped
 * agent.conf come (a test compares them).
 */
#ifndef AGENT_DAEMON_CONF_H
#define AGENT_DAEMON_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/opts.h"

/* Who leaves the heartbeat at this lets the backend choose. */
#define DAEMON_CONF_HEARTBEAT_NS (30 * NSEC_PER_SEC)

struct daemon_conf {
	const char *config; /* "": none */
	const char *backend, *token_file, *ca_file, *cert_file, *key_file;
	const char *host, *service, *state_dir;
	uint64_t heartbeat_ns;
	uint64_t spool_mb, spool_windows;
	uint64_t frequency_hz;
	bool continuous;
	uint64_t window_ns, window_continuous_ns;
	double cpu_limit_percent;
	uint64_t memory_limit_mb;
	int unwind; /* enum record_unwind */
	uint64_t unwind_table_mb;
	int lines; /* enum symbolizer_lines */
	struct opt_list debug_dirs;
	struct opt_list debuginfod_urls;
	uint64_t seed;
	const char *container_runtime; /* see containers.h */
	struct opt_list service_rules; /* SERVICE_RULES_MAX at most, each understood */

	/* Filled by daemon_conf_check. */
	char host_name[256];
	char token[4096];
};

extern const struct opt_spec daemon_conf_specs[];

/*
 * Command line and the file it names; then what the values mean together: the files can be read,
 * the token is one, the backend's URL is one. 0; 1: --help was asked for; -EINVAL with one line in
 * why, FILE:LINE: when it stands in the file. Texts of c live as long as o.
 */
int daemon_conf_load(int argc, char **argv, struct opts *o, struct daemon_conf *c, struct buf *why);

#endif
