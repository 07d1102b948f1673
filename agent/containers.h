/*
 * What a container runtime says of containers: name, image, pod, namespace, workload, Compose
 * project. It is asked over its socket (CRI of containerd, CRI-O, k3s; Docker's of Docker and
 * Podman) by a process of its own (`flame-agent __containers`), which has no capability, lives for a
 * few seconds at most, and takes libcurl and the runtime's bytes with it when it goes. Sampling never
 * waits for it: an answer that comes after the window's end is not used, and the container is known by its
 * id only. So are containers that no runtime knows, and all of them when a socket hangs or lies.
 *
 * Answers are kept by id, in a file from one window to the next: CONTAINERS_KEPT_S for what is known,
 * CONTAINERS_UNKNOWN_S for what is not. Format of file and answer: containers_internal.h.
 */
#ifndef AGENT_CONTAINERS_H
#define AGENT_CONTAINERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/loop.h"

/* argv[1] of the process; not for people. */
#define CONTAINERS_ARG "__containers"

enum {
	CONTAINERS_MAX = 4096,
	CONTAINERS_KEPT_S = 3600,
	CONTAINERS_UNKNOWN_S = 60,
};

enum container_field {
	CONTAINER_NAME,
	CONTAINER_IMAGE,
	CONTAINER_POD,
	CONTAINER_NAMESPACE,
	CONTAINER_WORKLOAD, /* of Kubernetes, or Compose's service */
	CONTAINER_PROJECT,  /* of Compose */
	CONTAINER_FIELDS
};
/* As samples have it: "container_name", "image", "pod", "namespace", "workload", "compose_project". */
const char *container_field_label(enum container_field f);

struct container {
	const char *fields[CONTAINER_FIELDS]; /* valid UTF-8, "" when not known */
};

struct containers;

struct containers_options {
	struct loop *loop;
	const char *runtime;    /* "auto", "off" or a socket's path; outlives */
	const char *cache_file; /* NULL: none; outlives */
};

/* Whether it is one of those; else one line in why. */
bool containers_runtime_is_good(const char *runtime, struct buf *why);

int containers_new(const struct containers_options *o, struct containers **ret); /* 0 or -ENOMEM */
void containers_free(struct containers *c); /* accepts NULL; before the loop is freed */

/* This container (64 hex digits) runs: it is asked for, soon and once, if it is not known. */
void containers_want(struct containers *c, const char *id);
/* Takes what has come, without waiting, and writes the cache. After the window. */
void containers_settle(struct containers *c);
/* Texts live as long as c. False: only the id is known. */
bool containers_find(const struct containers *c, const char *id, struct container *ret);

/* The process that asks. */
int containers_main(int argc, char **argv);

#endif
