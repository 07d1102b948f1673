/*
 * Control groups (v2): from what people write to ids, from ids to paths, and what a path says about
 * who runs there. A cgroup's id is the inode number of its directory; the kernel finds the directory
 * by it (open_by_handle_at), so no tree is walked to name one.
 *
 * On a host without a cgroup2 mount there are no ids and no paths. On a hybrid one (v1 controllers
 * and an empty cgroup2 tree) all is in "/" unless systemd keeps its units there, too.
 */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { CGROUP_PATH_MAX = 4096, CGROUP_CONTAINER_MAX = 64, CGROUP_UNIT_MAX = 256 };

/* Where cgroup2 is mounted, of a /proc/self/mountinfo text. False: nowhere. */
bool cgroup_find_mount(const char *mountinfo, char ret[CGROUP_PATH_MAX]);

struct cgroups;

/* Finds the mount. Without one, what follows says -ENODEV. 0 or -ENOMEM. */
int cgroups_new(struct cgroups **ret);
void cgroups_free(struct cgroups *c); /* accepts NULL */
void cgroups_freep(struct cgroups **c);

/*
 * The id of "/a/b.slice" (below the mount, or with it) or of a number. 0; -EINVAL; -ENOENT; -ENODEV;
 * with one line in why.
 */
int cgroups_id(const struct cgroups *c, const char *text, struct buf *why, uint64_t *ret);
/*
 * The ids of all cgroups of containers whose id starts with prefix; at most max of them, in *count.
 * 0; -ENOENT when there is none, -E2BIG, -ENODEV, with one line in why.
 */
int cgroups_containers(const struct cgroups *c, const char *prefix, size_t max, struct buf *why,
	uint64_t *ret, size_t *count);
/* "/a/b.slice" of an id, while it exists. 0 or -errno. */
int cgroups_path(const struct cgroups *c, uint64_t id, char ret[CGROUP_PATH_MAX]);

/* --- what a path says; pure */

/*
 * The id of the innermost container: docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope,
 * libpod-ID.scope, or a directory named ID (cgroupfs driver); ID is 64 hex digits. False: none.
 */
bool cgroup_container(const char *path, char ret[CGROUP_CONTAINER_MAX + 1]);
/*
 * The innermost systemd service that is not a user's manager (user@N.service) nor one made for one
 * command (run-....service), as its unit is called: "foo.service", "foo@1.service". False: none, or
 * a container lies further in. Scopes (a login session, an app) are none.
 */
bool cgroup_unit(const char *path, char ret[CGROUP_UNIT_MAX]);

#endif
