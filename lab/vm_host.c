/*
 * Host mode: lab-init runs the job as a plain program on this kernel and leaves its files in place.
 * Its stdout takes the console's part.
 */
#include "lab/vm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

#include "base/child.h"
#include "base/def.h"
#include "base/file.h"
#include "base/loop.h"

enum { TIMEOUT_MS_DEFAULT = 900000, LOOK_MS = 100 };

static int write_job(const struct job *j, const char *out_dir, char path[PATH_MAX])
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(4 << 20);
	int err = job_write(j, &text);

	if (err < 0)
		return err;
	if (snprintf(path, PATH_MAX, "%s/.vm/job", out_dir) >= PATH_MAX)
		return -ENAMETOOLONG;
	return file_write_atomic(path, text.data, text.size);
}

/* Follows lab-init's output until it ends or the deadline passes: 0 or -ETIMEDOUT. */
static int follow(struct child *child, struct vm_signs *signs, int fd, uint64_t deadline_ns)
{
	char bytes[4096];
	ssize_t n;
	int err;

	do {
		err = child_wait(child, LOOK_MS);
		while ((n = read(fd, bytes, sizeof(bytes))) > 0)
			vm_signs_feed(signs, bytes, (size_t)n);
	} while (err == -ETIMEDOUT && loop_now_ns() < deadline_ns);
	return err;
}

static void outcome_of(const struct vm_signs *signs, const struct child *child, int err,
	uint64_t timeout_ms, struct vm_outcome *o)
{
	char text[64];

	if (err < 0) {
		o->end = VM_HUNG;
		(void)snprintf(o->reason, sizeof(o->reason),
			"the deadline of %llu s passed in step %s",
			(unsigned long long)timeout_ms / 1000, signs->step);
	} else if (signs->finished) {
		o->end = VM_OK;
		(void)snprintf(o->reason, sizeof(o->reason), "done");
	} else {
		o->end = VM_CRASHED;
		(void)snprintf(o->reason, sizeof(o->reason), "lab-init ended with %s: %.150s",
			child_describe(child->status, text),
			signs->error[0] ? signs->error : "no reason given");
	}
}

int vm_host_run(const struct vm_config *c, const struct job *j, const char *out_dir,
	vm_progress_fn *progress, void *data, struct vm_outcome *ret)
{
	uint64_t timeout_ms = c->timeout_ms ? c->timeout_ms : TIMEOUT_MS_DEFAULT;
	uint64_t start_ns = loop_now_ns();
	char init[PATH_MAX], job_path[PATH_MAX];
	_cleanup_(vm_signs_done) struct vm_signs signs = {0};
	_cleanup_(child_done) struct child child = {.pidfd = -1};
	int err = write_job(j, out_dir, job_path);

	if (err < 0)
		return err;
	if (snprintf(init, sizeof(init), "%s/lab-init", c->bin_dir) >= (int)sizeof(init))
		return -ENAMETOOLONG;
	vm_signs_init(&signs, j, progress, data);
	_cleanup_(closep) int out =
		open(ret->console, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
	_cleanup_(closep) int in = open(ret->console, O_RDONLY | O_CLOEXEC);
	if (out < 0 || in < 0)
		return -errno;
	char *const argv[] = {
		init, (char[]){"--host"}, job_path, (char *)out_dir, (char *)c->bin_dir, NULL};
	struct child_io io = {.in = -1, .out = out, .err = out};
	err = child_start(&child, argv, &io);
	if (err < 0) {
		ret->end = VM_NO_START;
		(void)snprintf(ret->reason, sizeof(ret->reason), "cannot start %.150s: %s", init,
			strerror(-err));
		return 0;
	}
	err = follow(&child, &signs, in, start_ns + timeout_ms * NSEC_PER_MSEC);
	child_end(&child, 500);
	outcome_of(&signs, &child, err, timeout_ms, ret);
	ret->host_ns = loop_now_ns() - start_ns;
	(void)unlink(job_path);
	return 0;
}
