/*
 * cgroup2 by hand: a handful of small files under one directory. Only the memory controller is
 * switched on. The cpu controller would make the scheduler share by group, which changes what is
 * measured, and cpu.stat's usage_usec is there without it.
 */
#include "lab/guest/group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/def.h"

static int read_text(const char *dir, const char *file, char *text, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;

	text[0] = 0;
	(void)snprintf(path, sizeof(path), "%s/%s", dir, file);
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	if (n < 0)
		return -errno;
	text[n] = 0;
	return 0;
}

static int write_text(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, file);
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* The number after "KEY " at the start of a line; 0 when there is none. */
static uint64_t field(const char *text, const char *key, bool *found)
{
	size_t size = strlen(key);

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (strncmp(line, key, size) == 0 && (line[size] == ' ' || line[size] == ':')) {
			if (found)
				*found = true;
			return strtoull(line + size + 1, NULL, 10);
		}
	}
	if (found)
		*found = false;
	return 0;
}

/* Groups of a lab-init that was killed (host mode): their names have its pid. */
static void remove_stale(const char *root)
{
	DIR *d = opendir(root);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[PATH_MAX];
		char *end;
		long pid;

		if (strncmp(e->d_name, "flamelab-", 9) != 0)
			continue;
		pid = strtol(e->d_name + 9, &end, 10);
		if (pid <= 0 || *end != '-' || kill((pid_t)pid, 0) == 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", root, e->d_name);
		(void)rmdir(path); /* refused as long as somebody is in it */
	}
	if (d)
		(void)closedir(d); /* read only */
}

void group_root_find(struct group_root *ret)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[1024], mount_point[128], text[512];

	*ret = (struct group_root){0};
	while (f && fgets(line, sizeof(line), f)) {
		if (strstr(line, " - cgroup2 ") &&
			sscanf(line, "%*s %*s %*s %*s %127s", mount_point) == 1 &&
			access(mount_point, W_OK) == 0) {
			(void)snprintf(ret->path, sizeof(ret->path), "%s", mount_point);
			break;
		}
	}
	if (!ret->path[0])
		return;
	remove_stale(ret->path);
	/* Refused where the controller is not on this hierarchy: the read below tells. */
	(void)write_text(ret->path, "cgroup.subtree_control", "+memory");
	ret->memory = read_text(ret->path, "cgroup.subtree_control", text, sizeof(text)) == 0 &&
		      strstr(text, "memory");
}

void group_open(
	struct group *g, const struct group_root *root, const char *name, uint64_t memory_max)
{
	char text[32];

	*g = (struct group){0};
	if (!root->path[0])
		return;
	(void)snprintf(
		g->path, sizeof(g->path), "%s/flamelab-%d-%s", root->path, (int)getpid(), name);
	if (mkdir(g->path, 0755) < 0 && errno != EEXIST) {
		g->path[0] = 0;
		return;
	}
	g->memory = root->memory;
	if (g->memory && memory_max > 0) {
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)memory_max);
		g->limited = write_text(g->path, "memory.max", text) == 0;
	}
}

void group_join(const struct group *g)
{
	if (g->path[0])
		(void)write_text(g->path, "cgroup.procs", "0"); /* else it is metered by /proc */
}

void group_kill(const struct group *g)
{
	char path[PATH_MAX], text[256];

	if (!g->path[0])
		return;
	(void)write_text(g->path, "cgroup.kill", "1"); /* nobody left is fine */
	(void)snprintf(path, sizeof(path), "%s/cgroup.events", g->path);
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	for (int tries = 0; fd >= 0 && tries < 20; tries++) {
		struct pollfd p = {.fd = fd, .events = POLLPRI};
		ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

		if (n < 0)
			return;
		text[n] = 0;
		if (field(text, "populated", NULL) == 0)
			return;
		(void)poll(&p, 1, 100); /* woken by a change; zombies of ours count until reaped */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

void group_close(struct group *g)
{
	if (g->path[0])
		(void)rmdir(g->path); /* a dying cgroup costs nothing; its name has our pid */
	g->path[0] = 0;
}

uint64_t group_cpu_ns(const struct group *g)
{
	char text[2048];
	struct timespec ts;
	clockid_t clock;

	if (g->path[0])
		return read_text(g->path, "cpu.stat", text, sizeof(text)) < 0
			       ? 0
			       : field(text, "usage_usec", NULL) * 1000;
	if (g->pid <= 0 || clock_getcpuclockid(g->pid, &clock) != 0 ||
		clock_gettime(clock, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint64_t rss_anon_bytes(long pid)
{
	char dir[64], text[4096];

	(void)snprintf(dir, sizeof(dir), "/proc/%ld", pid);
	return read_text(dir, "status", text, sizeof(text)) < 0
		       ? 0
		       : field(text, "RssAnon", NULL) * 1024;
}

uint64_t group_memory_bytes(const struct group *g)
{
	static const char *const parts[] = {
		"slab", "kernel_stack", "pagetables", "percpu", "vmalloc"};
	char text[8192];
	uint64_t sum = 0, kernel;
	bool found = false;

	if (g->memory) {
		if (read_text(g->path, "memory.stat", text, sizeof(text)) < 0)
			return 0;
		kernel = field(text, "kernel", &found);
		for (size_t i = 0; !found && i < ARRAY_SIZE(parts); i++)
			kernel += field(text, parts[i], NULL);
		return field(text, "anon", NULL) + kernel;
	}
	if (!g->path[0])
		return g->pid > 0 ? rss_anon_bytes(g->pid) : 0;
	if (read_text(g->path, "cgroup.procs", text, sizeof(text)) < 0)
		return 0;
	for (char *p = text, *end; *p; p = end) {
		long pid = strtol(p, &end, 10);

		if (end == p)
			break;
		sum += rss_anon_bytes(pid);
	}
	return sum;
}

uint64_t group_memory_kept_bytes(const struct group *g)
{
	uint64_t all = group_memory_bytes(g);
	char text[8192];

	if (!g->memory || read_text(g->path, "memory.stat", text, sizeof(text)) < 0)
		return all;
	return all - MIN(all, field(text, "slab_reclaimable", NULL));
}

uint64_t group_oom_kills(const struct group *g)
{
	char text[512];

	if (!g->memory || read_text(g->path, "memory.events", text, sizeof(text)) < 0)
		return 0;
	return field(text, "oom_kill", NULL);
}

const char *group_cpu_source(const struct group *g)
{
	return g->path[0] ? "cgroup" : "process";
}

const char *group_memory_source(const struct group *g)
{
	return g->memory ? "cgroup" : "rss_anon";
}
