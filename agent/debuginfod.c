/* See debuginfod.h: what is wanted, and the process that fetches it, from outside. */
#include "agent/debuginfod.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

_Static_assert(DEBUGINFOD_URLS_MAX == 4, "the complaint below says so");

struct debuginfod {
	struct loop *loop;
	struct debuginfod_options options;
	struct child child;
	struct loop_source *on_exit;
};

static bool is_url(const char *url)
{
	const char *host = strstr(url, "://");

	if (!str_has_prefix(url, "http://") && !str_has_prefix(url, "https://"))
		return false;
	host += strlen("://");
	for (const char *p = host; *p; p++)
		if (!isgraph((unsigned char)*p) || strchr("?#@\\\"", *p))
			return false;
	return *host && *host != '/' && strlen(url) < 1024;
}

const char *debuginfod_complaint(const char *const *urls, size_t count, const char **ret_url)
{
	for (size_t i = 0; i < count; i++) {
		*ret_url = urls[i];
		if (i >= DEBUGINFOD_URLS_MAX)
			return "at most 4 servers";
		if (!is_url(urls[i]))
			return "must be http[s]://HOST[:PORT][/PATH]";
	}
	return NULL;
}

int debuginfod_want(const char *dir, const struct buf *ids)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/wanted", dir);
	int r = n > 0 && (size_t)n < sizeof(path) ? file_mkdir_parents(dir) : -ENAMETOOLONG;

	return r < 0 ? r : file_write_atomic(path, buf_str(ids), ids->size);
}

/* DIR, if nobody else can write there; -errno. */
static int open_dir(const char *dir)
{
	_cleanup_(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	if (faccessat(fd, "wanted", F_OK, AT_EACCESS) < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return steal_fd(&fd);
}

int debuginfod_start(const struct debuginfod_options *o, bool detached, struct child *ret)
{
	char program[] = "/proc/self/exe";
	char role[] = DEBUGINFOD_ARG;
	char *argv[3 + DEBUGINFOD_URLS_MAX + 1] = {program, role};
	char *envp[] = {NULL}; /* no proxy, no LD_PRELOAD, no DEBUGINFOD_URLS */
	_cleanup_(closep) int dir = open_dir(o->dir);

	if (dir < 0)
		return dir;
	argv[2] = (char *)(o->ca_file ? o->ca_file : "");
	for (size_t i = 0; i < MIN(o->url_count, (size_t)DEBUGINFOD_URLS_MAX); i++)
		argv[3 + i] = (char *)o->urls[i];
	/* The lock is of the open directory, so it goes over with it. */
	return child_start(ret, argv,
		&(struct child_io){.in = dir,
			.out = -1,
			.err = detached ? -1 : STDERR_FILENO,
			.envp = envp,
			.no_pdeathsig = detached});
}

int debuginfod_new(struct loop *l, const struct debuginfod_options *o, struct debuginfod **ret)
{
	struct debuginfod *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->loop = l;
	d->options = *o;
	d->child.pidfd = -1;
	*ret = d;
	return 0;
}

static void end(struct debuginfod *d)
{
	loop_remove(d->on_exit);
	d->on_exit = NULL;
	child_end(&d->child, 0);
}

void debuginfod_free(struct debuginfod *d)
{
	if (!d)
		return;
	end(d);
	free(d);
}

static int on_exit_event(struct loop *l, uint32_t events, void *data)
{
	(void)l;
	(void)events;
	end(data); /* it has ended, and only has to be reaped */
	return 0;
}

void debuginfod_kick(struct debuginfod *d)
{
	int r;

	if (!d || d->on_exit)
		return;
	r = debuginfod_start(&d->options, false, &d->child);
	if (r == -ENOENT || r == -EBUSY)
		return;
	if (r == 0)
		r = loop_add_fd(d->loop, d->child.pidfd, EPOLLIN, on_exit_event, d, &d->on_exit);
	if (r < 0) {
		log_warn("debuginfod", "start fetching", r, "dir=%s", d->options.dir);
		child_end(&d->child, 0);
	}
}
