/* See process_maps.h. */
#include "agent/process_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "agent/procfs.h"
#include "base/def.h"

/* The kernel notes the start a moment before it tells of the fork. */
#define PROCESS_MAPS_SLACK_NS (2 * NSEC_PER_MSEC)

enum { PROCESS_MAPS_FORKS_MAX = 8 }; /* without exec, one after the other */

static int process_maps_of_past(const struct process_maps_ask *a, uint64_t since_ns, int depth,
	struct maps *m, int *ret_fd);

/* A time of the boot clock as CLOCK_MONOTONIC has it; they differ by what was slept. */
static uint64_t process_maps_monotonic_ns(uint64_t boot_ns)
{
	struct timespec boot = {0};
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_BOOTTIME, &boot); /* the clocks exist */
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	int64_t slept_ns =
		(boot.tv_sec - now.tv_sec) * (int64_t)NSEC_PER_SEC + boot.tv_nsec - now.tv_nsec;

	return boot_ns - MIN(boot_ns, (uint64_t)MAX(slept_ns, (int64_t)0));
}

static bool process_maps_is_another(struct sideband *s, uint32_t tgid, uint64_t since_ns)
{
	enum sideband_news news = sideband_since(s, tgid, since_ns);

	return news == SIDEBAND_REPLACED || news == SIDEBAND_FORGOTTEN;
}

/* What the parent had when it forked: by events, or as it is, if it is the same image. */
static int process_maps_of_parent(
	struct sideband *s, const struct sideband_origin *o, int depth, struct maps *m, int *ret_fd)
{
	struct process_maps_ask parent = {.sideband = s, .tgid = o->parent, .seen_ns = o->fork_ns};

	if (depth == PROCESS_MAPS_FORKS_MAX)
		return -ESRCH;
	int r = process_maps_of_past(&parent, 0, depth + 1, m, ret_fd);
	if (r != -ESRCH)
		return r;
	maps_done(m);
	maps_init(m);
	_cleanup_(closep) int fd = procfs_open(o->parent, 0);
	if (fd < 0)
		return fd;
	r = procfs_read_maps(fd, m);
	if (r < 0)
		return r;
	/* A look after the reading tells of what came before it, too. */
	if (process_maps_is_another(s, o->parent, o->fork_ns))
		return -ESRCH;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int process_maps_of_past(
	const struct process_maps_ask *a, uint64_t since_ns, int depth, struct maps *m, int *ret_fd)
{
	struct sideband_origin o = {0};
	_cleanup_(closep) int fd = -1;
	int r = sideband_origin(a->sideband, a->tgid, since_ns, a->seen_ns, &o);

	if (r < 0)
		return r == -ENODATA ? -ESRCH : r;
	if (o.is_forked)
		r = process_maps_of_parent(a->sideband, &o, depth, m, &fd);
	if (r == 0)
		r = sideband_maps(a->sideband, a->tgid, o.since_ns, a->seen_ns, m);
	if (r == 0 && m->count == 0)
		r = -ESRCH;
	if (r < 0)
		return r;
	if (fd < 0 && o.parent != 0)
		fd = procfs_open(o.parent, 0);
	if (fd < 0)
		fd = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	*ret_fd = steal_fd(&fd); /* without one, files that are open still serve */
	return 0;
}

static int process_maps_live(const struct process_maps_ask *a, struct maps *m, int *ret_fd)
{
	_cleanup_(closep) int fd = procfs_open(a->tgid, a->start_ns);
	int r = fd < 0 ? fd : procfs_read_maps(fd, m);

	if (r < 0)
		return r;
	if (a->sideband && a->seen_ns != 0 &&
		sideband_since(a->sideband, a->tgid, a->seen_ns) == SIDEBAND_REPLACED)
		return -ESRCH; /* what was read is another image's */
	*ret_fd = steal_fd(&fd);
	return 0;
}

int process_maps_read(
	const struct process_maps_ask *a, struct maps *m, int *ret_fd, bool *ret_is_past)
{
	int r = a->is_over ? -ESRCH : process_maps_live(a, m, ret_fd);

	if (r == 0)
		*ret_is_past = false;
	if (r != -ESRCH || !a->sideband || a->seen_ns == 0)
		return r;
	uint64_t start_ns = process_maps_monotonic_ns(a->start_ns);

	maps_done(m);
	maps_init(m);
	r = process_maps_of_past(a, start_ns - MIN(start_ns, PROCESS_MAPS_SLACK_NS), 0, m, ret_fd);
	if (r < 0)
		return r;
	m->told_by = a->sideband;
	*ret_is_past = true;
	return 0;
}

bool process_maps_is_outdated(const struct process_maps_ask *a, uint64_t read_ns)
{
	if (!a->sideband || a->seen_ns == 0)
		return false;
	return sideband_since(a->sideband, a->tgid, read_ns) != SIDEBAND_NONE ||
	       (kill((pid_t)a->tgid, 0) < 0 && errno == ESRCH);
}
