/*
 * Which service a process belongs to. The first that applies: the configured name for all; a rule
 * (service-rule = KIND:GLOB=NAME, in their order); the Kubernetes workload or Compose service of its
 * container; "kernel" for kernel threads; the systemd unit; the name of its executable; its own name.
 */
#ifndef AGENT_SERVICE_H
#define AGENT_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { SERVICE_RULES_MAX = 64, SERVICE_PATTERN_MAX = 512, SERVICE_NAME_MAX = 256 };

/* What a rule's pattern is compared with. */
enum service_kind { SERVICE_COMM, SERVICE_UNIT, SERVICE_CGROUP };

struct service_rule {
	enum service_kind kind;
	char pattern[SERVICE_PATTERN_MAX]; /* fnmatch(3): * crosses slashes */
	char name[SERVICE_NAME_MAX];
};

/* "comm:nginx*=web", "unit:pg@*.service=db", "cgroup:/batch.slice*=batch". -EINVAL with why. */
int service_rule_parse(const char *text, struct buf *why, struct service_rule *ret);

struct service_facts {
	const char *fixed; /* "": none */
	const struct service_rule *rules;
	size_t rule_count;
	/* "" when not known; exe is a file name, not a path; workload is the runtime's word */
	const char *comm, *exe, *cgroup, *workload;
	bool is_kernel;
};

/* How it was found; only a name of last resort may be pooled with others (processes.h). */
enum service_source { SERVICE_GIVEN, SERVICE_OF_WORKLOAD, SERVICE_OF_UNIT, SERVICE_OF_NAME };

enum service_source service_name(const struct service_facts *f, char ret[SERVICE_NAME_MAX]);

#endif
