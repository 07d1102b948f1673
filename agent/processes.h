/*
 * What a profile says of each process beside its stacks: cgroup, container, service. It is read when
 * the first stack of a process is seen, because later the process may be gone. What the container
 * runtime says comes when it comes, so services are named after the window (processes_settle).
 *
 * On hosts with version 1 controllers the cgroup is what /proc/PID/cgroup says (cgroup_of_process),
 * because the kernel's own word, the id, is of version 2 only.
 *
 * Tools that live for a moment (sed, cc1, a shell's children) would each be a service of their own.
 * Those of a unit are the unit's. Of the others, a service all of whose processes were born in the
 * window and that used less than 1 % of a CPU in it is pooled into the service "other". Its frames,
 * comm and cgroup stay; nothing is lost but the series of its own.
 */
#ifndef AGENT_PROCESSES_H
#define AGENT_PROCESSES_H

#include "agent/cgroup.h"
#include "agent/collect.h"
#include "agent/containers.h"
#include "agent/service.h"

struct processes;

struct processes_options {
	const char *service; /* for all; "": none. Texts and rules outlive the table */
	const struct service_rule *rules;
	size_t rule_count;
	size_t max; /* processes that are kept; others have their own name as service, no cgroup */
	struct containers *containers; /* outlives; NULL: containers are known by their ids */
};

enum { PROCESS_LABELS_MAX = 3 + CONTAINER_FIELDS };

/*
 * Labels of its samples: "cgroup" (a path), "container" (the id's first 12 digits), "service", and
 * those of containers.h. What is not known is not there.
 */
struct process {
	struct {
		const char *key, *text;
	} labels[PROCESS_LABELS_MAX];
	size_t label_count;
};

int processes_new(const struct processes_options *o, struct processes **ret); /* 0 or -ENOMEM */
void processes_free(struct processes *p);                                     /* accepts NULL */

/* Never fails: what cannot be read is not known. */
void processes_see(struct processes *p, const struct stack_record *r);
/* Names services, with what the runtime has said by now. Before what follows, once. */
void processes_settle(struct processes *p);
/* What is known of the process of this stack; false: nothing, or it is not there. */
bool processes_find(const struct processes *p, const struct stack_key *key, struct process *ret);

/* Pools small services as described above. start_boot_ns: of the window, on the boot clock. */
void processes_pool(struct processes *p, const struct collect_stack *counted, size_t count,
	uint64_t start_boot_ns, uint64_t window_ns);

#endif
