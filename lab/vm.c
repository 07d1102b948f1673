/*
 * One run of a job: makes the scratch directory, picks the accelerator, boots or runs on the host,
 * and puts the outcome into words.
 *
 * Boot is cold: 6 CPU seconds up to the job at shift 1 (9 at 0, 5 at 2), paid once for all steps of a
 * job. A snapshot would save four of them, but agent and workloads are in the initrd, so each build
 * of the agent would need a snapshot of its own.
 */
#include "lab/vm_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/def.h"
#include "base/file.h"
#include "lab/vm_result.h"

extern char **environ;

static int join(char *out, size_t size, const char *dir, const char *name)
{
	return snprintf(out, size, "%s/%s", dir, name) >= (int)size ? -ENAMETOOLONG : 0;
}

int vm_place_make(const char *out_dir, struct vm_place *ret)
{
	struct vm_place p = {0};
	int err;

	if ((err = join(p.dir, sizeof(p.dir), out_dir, ".vm")) < 0 ||
		(err = file_mkdir_parents(p.dir)) < 0 ||
		(err = join(p.initrd, sizeof(p.initrd), p.dir, "initrd")) < 0 ||
		(err = join(p.result, sizeof(p.result), p.dir, "result")) < 0 ||
		(err = join(p.qemu_log, sizeof(p.qemu_log), p.dir, "qemu.log")) < 0 ||
		(err = join(p.console, sizeof(p.console), out_dir, "console.log")) < 0)
		return err;
	*ret = p;
	return 0;
}

void vm_place_remove(const struct vm_place *p)
{
	/* Whatever cannot be removed is scratch under build/, which the next run overwrites. */
	(void)unlink(p->initrd);
	(void)unlink(p->result);
	(void)unlink(p->qemu_log);
	(void)rmdir(p->dir);
}

/* Files of an earlier run in the same directory must not pass for this one's. */
static void remove_stale(const struct job *j, const char *out_dir)
{
	static const char *const files[] = {"profile.pb.gz", "agent.json", "agent.log",
		"truth.json", "workload.log", "meters.json"};
	char path[PATH_MAX];

	for (size_t i = 0; i < j->step_count; i++)
		for (size_t k = 0; k < ARRAY_SIZE(files); k++)
			if (snprintf(path, sizeof(path), "%s/%s/%s", out_dir, j->steps[i].name,
				    files[k]) < (int)sizeof(path))
				(void)unlink(path); /* mostly it is not there */
	if (join(path, sizeof(path), out_dir, "done") == 0)
		(void)unlink(path);
}

static enum vm_accel choose_accel(const struct vm_config *c)
{
	if (c->mode == VM_EXACT)
		return VM_ACCEL_ICOUNT;
	return c->arch == VM_X86_64 && vm_kvm_works(c) ? VM_ACCEL_KVM : VM_ACCEL_TCG;
}

int vm_run(const struct vm_config *c, const struct job *j, const char *out_dir,
	vm_progress_fn *progress, void *data, struct vm_outcome *ret)
{
	static const char *const names[] = {"tcg+icount", "tcg", "kvm"};
	struct vm_outcome outcome = {.end = VM_CRASHED};
	struct vm_place place;
	enum vm_accel accel;
	int err;

	if (c->mode == VM_EXACT && c->cpus > 1)
		return -EINVAL; /* QEMU hangs with two CPUs under icount */
	if ((err = vm_place_make(out_dir, &place)) < 0)
		return err;
	remove_stale(j, out_dir);
	if ((err = join(outcome.console, sizeof(outcome.console), out_dir, "console.log")) < 0)
		return err;
	if (c->mode == VM_HOST) {
		(void)snprintf(outcome.accel, sizeof(outcome.accel), "host");
		err = vm_host_run(c, j, out_dir, progress, data, &outcome);
	} else {
		accel = choose_accel(c);
		(void)snprintf(outcome.accel, sizeof(outcome.accel), "%s", names[accel]);
		err = vm_boot(c, accel, j, &place, out_dir, progress, data, &outcome);
	}
	if (c->keep)
		(void)fprintf(stderr, "flamelab: scratch files are in %s\n", place.dir);
	else
		vm_place_remove(&place);
	if (err < 0)
		return err;
	*ret = outcome;
	return 0;
}

/* The agent and all workloads that are built, so that a prompt has something to try. */
static size_t shell_steps(const struct vm_config *c, struct dirent **names, size_t count,
	char step_names[][16], struct job_step *steps)
{
	char path[PATH_MAX];
	bool has_agent =
		join(path, sizeof(path), c->bin_dir, "flame-agent") == 0 && access(path, X_OK) == 0;
	size_t n = 0;

	for (size_t i = 0; i < count && n < JOB_STEPS_MAX; i++) {
		if (names[i]->d_type == DT_DIR || strchr(names[i]->d_name, '.'))
			continue; /* libraries, debug files and make's dependency files lie beside them */
		(void)snprintf(step_names[n], 16, "s%zu", n);
		steps[n] = (struct job_step){.name = step_names[n],
			.workload = names[i]->d_name,
			.agent = has_agent ? "flame-agent" : NULL};
		n++;
	}
	return n;
}

static int write_shell_initrd(const struct vm_config *c, const char *initrd)
{
	char step_names[JOB_STEPS_MAX][16];
	struct job j = {.steps = calloc(JOB_STEPS_MAX, sizeof(struct job_step))};
	struct dirent **names = NULL;
	char path[PATH_MAX];
	int n, err;

	if (!j.steps)
		return -ENOMEM;
	(void)snprintf(path, sizeof(path), "%s/workloads", c->bin_dir); /* cut: it is not found */
	n = scandir(path, &names, NULL, alphasort);
	j.step_count = shell_steps(c, names, n < 0 ? 0 : (size_t)n, step_names, j.steps);
	err = vm_initrd_write(c, &j, initrd);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	free(j.steps);
	return err;
}

static int is_shell_dir(const struct dirent *d)
{
	return strncmp(d->d_name, VM_SHELL_PREFIX, strlen(VM_SHELL_PREFIX)) == 0;
}

/* The lock ends with the process that holds it, however that ends. -1: another has it, or no such directory. */
static int lock_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
		flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	if (fd >= 0)
		(void)close(fd); /* was only asked */
	return -1;
}

void vm_shell_clean(const char *parent)
{
	struct dirent **names = NULL;
	int n = scandir(parent, &names, is_shell_dir, alphasort);

	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];
		struct vm_place place;

		(void)snprintf(path, sizeof(path), "%.3000s/%s", parent, names[i]->d_name);
		_cleanup_(closep) int fd = lock_dir(path);
		if (fd >= 0 && vm_place_make(path, &place) == 0) {
			vm_place_remove(&place);
			(void)rmdir(path); /* what is in it besides is not ours */
		}
		free(names[i]);
	}
	free(names);
}

int vm_shell(const struct vm_config *c)
{
	_cleanup_(vm_argv_done) struct vm_argv a = {0};
	char dir[] = "/tmp/" VM_SHELL_PREFIX "XXXXXX";
	struct vm_config shell = *c;
	struct vm_place place;
	int err, status;
	pid_t pid;

	shell.append = "flamelab.shell=1";
	vm_shell_clean("/tmp");
	if (!mkdtemp(dir))
		return -errno;
	_cleanup_(closep) int lock = lock_dir(dir);
	if ((err = vm_place_make(dir, &place)) < 0 ||
		(err = write_shell_initrd(&shell, place.initrd)) < 0 ||
		(err = vm_result_seed(place.result, VM_RESULT_BYTES)) < 0 ||
		(err = vm_argv_build(&shell, choose_accel(&shell), &place, -1, &a)) < 0)
		goto out;
	/* Not base/child: the terminal is for QEMU, so it must stay in our process group. */
	err = -posix_spawnp(&pid, a.argv[0], NULL, NULL, a.argv, environ);
	if (err < 0)
		goto out;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	err = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
out:
	vm_place_remove(&place);
	(void)rmdir(dir);
	return err;
}
