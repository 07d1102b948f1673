/*
 * Control groups: from what people write to ids, from ids to paths, and what a path says about who
 * runs there. A cgroup's id is the inode number of its directory; the kernel finds the directory by
 * it (open_by_handle_at), so no tree is walked to name one.
 *
 * Version 2 is one tree. With version 1 each controller has a tree of its own, and a process is in a
 * cgroup of each; a hybrid host has both, and version 2's tree may be empty. Which cgroup a process is
 * in is then read from /proc/PID/cgroup, where each line is searched, because a runtime may have
 * used only some controllers.
 */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
	CGROUP_PATH_MAX = 4096,
	CGROUP_CONTAINER_MAX = 64,
	CGROUP_UNIT_MAX = 256,
	CGROUP_CONTROLLER_MAX = 32
};

/* Where cgroup2 is mounted, of a /proc/self/mountinfo text. False: nowhere. */
bool cgroup_find_mount(const char *mountinfo, char ret[CGROUP_PATH_MAX]);
/* The same of version 1's controller ("memory"). */
bool cgroup_find_mount_v1(const char *mountinfo, const char *controller, char ret[CGROUP_PATH_MAX]);

struct cgroups;

/* Finds the mounts. Without any, what follows says -ENODEV. 0 or -ENOMEM. */
int cgroups_new(struct cgroups **ret);
void cgroups_free(struct cgroups *c); /* accepts NULL */
void cgroups_freep(struct cgroups **c);
/* There are controllers of version 1: version 2's path may say nothing of a process. */
bool cgroups_has_v1(const struct cgroups *c);

struct cgroup_id {
	uint64_t id;
	bool is_v1; /* in the tree of cgroups_v1_controller */
};

/*
 * The id of "/a/b.slice" (below a mount, or with it) or of a number (version 2 only). A path that
 * version 2 does not have, or has without a process in it, is looked for in the controllers of version 1.
 * All such answers of one c are of one controller, because a recording can follow one. 0; -EINVAL;
 * -ENOENT; -ENODEV; with one line in why.
 */
int cgroups_id(struct cgroups *c, const char *text, struct buf *why, struct cgroup_id *ret);
/*
 * The ids of all cgroups of containers whose id starts with prefix; at most max of them, in *count.
 * 0; -ENOENT when there is none, -E2BIG, -ENODEV, with one line in why.
 */
int cgroups_containers(struct cgroups *c, const char *prefix, size_t max, struct buf *why,
	struct cgroup_id *ret, size_t *count);
/* The controller of what was found in version 1, "": nothing was. */
const char *cgroups_v1_controller(const struct cgroups *c);
/* "/a/b.slice" of an id of version 2, while it exists. 0 or -errno. */
int cgroups_path(const struct cgroups *c, uint64_t id, char ret[CGROUP_PATH_MAX]);

/* --- what a path says; pure */

/*
 * The id of the innermost container: docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope,
 * libpod-ID.scope, ANY:RUNTIME:ID, or a directory named ID (cgroupfs driver); ID is 64 hex digits.
 * False: none.
 */
bool cgroup_container(const char *path, char ret[CGROUP_CONTAINER_MAX + 1]);
/* The id in one component of size bytes, of a text that ends with a NUL; NULL: it is no container. */
const char *cgroup_container_in(const char *name, size_t size);
/*
 * The innermost systemd service that is not a user's manager (user@N.service) nor one made for one
 * command (run-....service), as its unit is called: "foo.service", "foo@1.service". False: none, or
 * a container lies further in. Scopes (a login session, an app) are none.
 */
bool cgroup_unit(const char *path, char ret[CGROUP_UNIT_MAX]);
/*
 * The path that says most in a /proc/PID/cgroup text: of the line with the innermost container (most
 * containers around it, then deepest); without one version 2's, systemd's, the deepest. False: all of
 * them are "/".
 */
bool cgroup_of_process(const char *text, char ret[CGROUP_PATH_MAX]);

#endif
