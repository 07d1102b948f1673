/*
 * What a path of a cgroup says of who runs there: convention of systemd and of container runtimes. Pure.
 * See cgroup.h.
 */
#include <ctype.h>

#include "agent/cgroup.h"
#include "base/def.h"
#include "base/str.h"

#define HEX "0123456789abcdef"

const char *cgroup_container_in(const char *name, size_t size)
{
	static const char *const prefixes[] = {
		"docker-", "cri-containerd-", "crio-", "libpod-", "podman-", "nerdctl-", ""};
	/* "kubepods-pod1.slice:cri-containerd:ID": a systemd cgroup made by the cgroupfs driver. */
	const char *colon = memrchr(name, ':', size);

	if (colon) {
		size -= (size_t)(colon + 1 - name);
		name = colon + 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (size < n + CGROUP_CONTAINER_MAX || memcmp(name, prefixes[i], n) != 0 ||
			strspn(name + n, HEX) != CGROUP_CONTAINER_MAX)
			continue;
		/* Nothing behind it, or ".scope". */
		if (size == n + CGROUP_CONTAINER_MAX ||
			(size == n + CGROUP_CONTAINER_MAX + 6 &&
				memcmp(name + size - 6, ".scope", 6) == 0))
			return name + n;
	}
	return NULL;
}

/* The component before *end, which moves to its slash. NULL: no more. */
static const char *component_before(const char *path, const char **end, size_t *size)
{
	const char *slash = memrchr(path, '/', (size_t)(*end - path));

	if (!slash)
		return NULL;
	*size = (size_t)(*end - slash) - 1;
	*end = slash;
	return slash + 1;
}

bool cgroup_container(const char *path, char ret[CGROUP_CONTAINER_MAX + 1])
{
	const char *end = path + strlen(path);
	const char *name, *id;
	size_t size;

	while ((name = component_before(path, &end, &size))) {
		id = cgroup_container_in(name, size);
		if (id) {
			memcpy(ret, id, CGROUP_CONTAINER_MAX);
			ret[CGROUP_CONTAINER_MAX] = '\0';
			return true;
		}
	}
	return false;
}

/* run-u17.service, run-r(32 hex digits).service, run-p1-i2.service: systemd-run's own names. */
static bool is_transient(const char *name)
{
	return str_has_prefix(name, "run-") && strchr("urp", name[4]) &&
	       strspn(name + 5, HEX "-i") == strlen(name + 5) - strlen(".service");
}

bool cgroup_unit(const char *path, char ret[CGROUP_UNIT_MAX])
{
	const char *end = path + strlen(path);
	const char *name;
	size_t size;

	while ((name = component_before(path, &end, &size))) {
		char unit[CGROUP_UNIT_MAX];

		if (cgroup_container_in(name, size))
			return false;
		if (size >= sizeof(unit) || size <= strlen(".service"))
			continue;
		memcpy(unit, name, size);
		unit[size] = '\0';
		if (!str_has_suffix(unit, ".service") || str_has_prefix(unit, "user@") ||
			is_transient(unit))
			continue;
		memcpy(ret, unit, size + 1);
		return true;
	}
	return false;
}

/* --- /proc/PID/cgroup */

struct choice {
	size_t nesting; /* containers in it */
	size_t depth;   /* components up to the innermost container, or all */
	int rank;       /* what kind of line it is */
	const char *path;
	size_t size;
};

/* Lines that have the unit before those that may have it. */
static int rank_of(const char *controllers, size_t size)
{
	if (size == 0)
		return 2; /* version 2 */
	return size == strlen("name=systemd") && memcmp(controllers, "name=systemd", size) == 0;
}

/* What "ID:CONTROLLERS:PATH" says; path NULL: nothing. */
static struct choice judge(const char *line, size_t size)
{
	struct choice c = {0};
	const char *end = line + size;
	const char *controllers = memchr(line, ':', size);
	const char *path, *name;
	size_t n, depth = 0, innermost = 0;

	path = controllers ? memchr(controllers + 1, ':', (size_t)(end - (controllers + 1))) : NULL;
	if (!path || path + 1 == end || path[1] != '/' || end - path > CGROUP_PATH_MAX)
		return c;
	c.rank = rank_of(controllers + 1, (size_t)(path - (controllers + 1)));
	path++;
	c.size = (size_t)(end - path);
	while ((name = component_before(path, &end, &n))) {
		depth += n > 0;
		if (cgroup_container_in(name, n) && c.nesting++ == 0)
			innermost = depth;
	}
	c.depth = c.nesting > 0 ? depth - innermost + 1 : depth;
	c.path = c.depth > 0 ? path : NULL;
	return c;
}

static bool is_better(const struct choice *c, const struct choice *than)
{
	if (!c->path || !than->path)
		return c->path;
	if (c->nesting != than->nesting)
		return c->nesting > than->nesting;
	if (c->nesting == 0 && c->rank != than->rank)
		return c->rank > than->rank;
	return c->depth > than->depth;
}

bool cgroup_of_process(const char *text, char ret[CGROUP_PATH_MAX])
{
	struct choice best = {0};

	for (const char *line = text; *line;) {
		size_t size = strcspn(line, "\n");
		struct choice c = judge(line, size);

		if (is_better(&c, &best))
			best = c;
		line += size;
		line += *line == '\n';
	}
	if (!best.path)
		return false;
	memcpy(ret, best.path, best.size);
	ret[best.size] = '\0';
	return true;
}
