/*
 * What the files of containers share:
 *	containers.c		what is known, the cache, the process that asks from outside
 *	containers_ask.c	that process from inside: sockets, libcurl
 *	containers_cri.c	CRI's answers (protobuf)
 *	containers_docker.c	Docker's answers (JSON)
 *	containers_workload.c	from a pod's name and labels to its workload
 *	containers_line.c	the format of cache and answer
 *
 * FORMAT. The cache and the answer of the process are lines
 *	ID TAB TIME TAB NAME TAB IMAGE TAB POD TAB NAMESPACE TAB WORKLOAD TAB PROJECT LF
 * ID is 64 lower case hex digits, TIME (Unix seconds, decimal) when it was asked for, 0 in an answer.
 * Texts are UTF-8 without control characters, CONTAINER_TEXT_MAX bytes at most; all empty: no runtime
 * knows this id. The cache begins with the line CONTAINERS_MAGIC.
 */
#ifndef AGENT_CONTAINERS_INTERNAL_H
#define AGENT_CONTAINERS_INTERNAL_H

#include <stdint.h>

#include "agent/cgroup.h"
#include "agent/containers.h"
#include "base/arena.h"
#include "base/cursor.h"

#define CONTAINERS_MAGIC "flame-agent-containers/1"

enum {
	CONTAINER_TEXT_MAX = 255,
	CONTAINERS_ASKED_MAX = 1024,       /* ids in one question */
	CONTAINERS_ANSWER_MAX = 4 << 20,   /* of the process */
	CONTAINERS_RUNTIME_MAX = 16 << 20, /* bytes of one answer of a runtime */
	CONTAINERS_LISTED_MAX =
		16384, /* containers, and pods, of one answer; more are not looked at */
	CONTAINERS_ARENA_MAX = 64 << 20,
};

/* --- lines */

struct container_line {
	char id[CGROUP_CONTAINER_MAX + 1];
	uint64_t time_s;
	struct {
		const char *at;
		size_t size;
	} fields[CONTAINER_FIELDS];
};

bool container_id_is_good(const char *id, size_t size);
/* size bytes without the LF. False: it is none. Points into line. */
bool container_line_read(const char *line, size_t size, struct container_line *ret);
/* Repairs and cuts the texts. 0 or buf's error. */
int container_line_write(
	struct buf *out, const char *id, uint64_t time_s, const struct container *c);

/* --- answers of runtimes: hostile bytes. Texts that fn gets live in the arena, or are "" */

typedef void containers_fn(const char *id, const struct container *c, void *data);

/*
 * The one message of a gRPC body: flag (0), size (big endian), bytes. False: it is something else, or
 * compressed.
 */
bool containers_grpc_message(const void *body, size_t size, struct cursor *ret);
/*
 * runtime.v1 (v1alpha2 is the same): ListPodSandboxResponse and ListContainersResponse. host: this
 * host's name, which ends the names of static pods. fn for each container and for each sandbox. 0;
 * -EBADMSG, after what could be read; -ENOMEM.
 */
int containers_read_cri(struct cursor pods, struct cursor list, const char *host, struct arena *a,
	containers_fn *fn, void *data);
/* GET /containers/json. Same. */
int containers_read_docker(
	const void *json, size_t size, struct arena *a, containers_fn *fn, void *data);

/* --- workloads */

/* A pod's labels, NULL: it has none of that name. */
struct container_pod {
	const char *name;
	const char *host;          /* of static pods */
	const char *app;           /* app.kubernetes.io/name */
	const char *template_hash; /* pod-template-hash: of a Deployment */
	const char *revision;      /* controller-revision-hash: of a DaemonSet or StatefulSet */
	const char *stateful_name; /* statefulset.kubernetes.io/pod-name */
	const char *job;           /* batch.kubernetes.io/job-name, job-name */
	bool is_static;            /* annotation kubernetes.io/config.source file or http */
};

/*
 * The workload a pod is of. The first that applies:
 *	app.kubernetes.io/name
 *	the job's name, without the time at the end that a CronJob gives ("-28912345", 8 to 10 digits)
 *	the name without "-HASH-xxxxx" (a Deployment's; HASH is pod-template-hash)
 *	the name without "-N" (a StatefulSet's)
 *	the name without "-xxxxx" (a DaemonSet's; it has controller-revision-hash)
 *	the name without "-HOST" (a static pod's)
 *	without labels: the name without "-HASH-xxxxx", else without "-xxxxx", where these are made of
 *	the letters and digits that Kubernetes draws (bcdfghjklmnpqrstvwxz2456789), HASH 6 to 10 of them
 *	with a digit among them
 *	the name
 */
void container_workload(const struct container_pod *p, char ret[CONTAINER_TEXT_MAX + 1]);

#endif
