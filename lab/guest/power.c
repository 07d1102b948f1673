/*
 * See power.h. All of it stands on three files in the step's tmpfs, behind loop devices:
 *	device	(loop0) what dm-log-writes passes the backend's writes to
 *	log	(loop1) what it logs
 *	base	no device: the image to which the log's entries are applied, mapped
 *	scratch	(loop2) a copy of base for each cut
 * FLAME_FAULT_POWER=lying_disk, a seeded fault of this play itself: the disk says it wrote, and did not yet
 * write the last LYING_LAG entries. What is then missing must be missed.
 */
#include "lab/guest/power.h"

#include "lab/guest/power_disk.h"
#include "lab/guest/power_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { LYING_LAG = 12 };

static const uint64_t log_size = 512ULL << 20; /* a hole; a run writes some 40 MB */
const uint64_t power_image_size = 64ULL << 20; /* of POWER_EMPTY */

static int failed(struct power *p, const char *what, int err)
{
	return fleet_fail(&p->fleet, "cannot %s: %s", what, strerror(-err));
}

static int set_up(struct power *p)
{
	struct fleet *f = &p->fleet;
	int err;

	step_path(f->run, "device", p->device_path);
	step_path(f->run, "log", p->log_path);
	step_path(f->run, "base", p->base_path);
	step_path(f->run, "scratch", p->scratch_path);
	step_path(f->run, "disk", p->mount_dir);
	(void)snprintf(f->data_dir, sizeof(f->data_dir), "%.4000s/data", p->mount_dir);
	if (getpid() != 1) /* on somebody's host it would take its loop devices */
		return fleet_fail(f, "power cuts need a VM");
	if (mkdir(p->mount_dir, 0700) < 0 && errno != EEXIST)
		return failed(p, "make a directory", -errno);
	if ((err = power_modules_load()) < 0)
		return failed(p, "load " POWER_DIR "/*.ko", err);
	if ((err = power_file_make(p->device_path, power_image_size)) < 0 ||
		(err = power_file_make(p->base_path, power_image_size)) < 0 ||
		(err = power_file_make(p->log_path, log_size)) < 0 ||
		(err = power_file_copy(POWER_EMPTY, p->device_path)) < 0 ||
		(err = power_file_copy(POWER_EMPTY, p->base_path)) < 0)
		return failed(p, "make the disk's files", err);
	return 0;
}

static int record(struct power *p)
{
	int err, end;

	if ((err = power_loop_attach(0, p->device_path)) < 0 ||
		(err = power_loop_attach(1, p->log_path)) < 0)
		return failed(p, "attach a loop device", err);
	if ((err = power_dm_create("/dev/loop0", "/dev/loop1", power_image_size)) < 0)
		return failed(p, "make a dm-log-writes device", err);
	if (mount("/dev/dm-0", p->mount_dir, "ext4", MS_NOATIME, NULL) < 0) {
		err = failed(p, "mount the logged device", -errno);
	} else {
		err = power_record(p);
		if (umount(p->mount_dir) < 0)
			err = failed(p, "unmount the logged device", -errno);
	}
	end = power_dm_remove();
	if (end < 0)
		err = failed(p, "end the log", end);
	(void)power_loop_detach(0); /* nobody needs its number again in this VM but another step, */
	(void)power_loop_detach(1); /* which says when it is taken */
	return err;
}

static void *map_file(const char *path, uint64_t size, int protection)
{
	_cleanup_(closep) int fd = open(path, O_RDWR | O_CLOEXEC);
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, size, protection, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static int cut(struct power *p)
{
	void *log = map_file(p->log_path, log_size, PROT_READ);
	int err;

	p->image = map_file(p->base_path, power_image_size, PROT_READ | PROT_WRITE);
	if (!log || !p->image)
		err = failed(p, "map the log", -errno);
	else if ((err = power_log_open(log, log_size, &p->log)) < 0)
		err = failed(p, "read the log", err);
	else
		err = power_cut(p);
	if (log)
		(void)munmap(log, log_size); /* ours, whole */
	if (p->image)
		(void)munmap(p->image, power_image_size);
	return err;
}

static int write_result(const struct power *p)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{"entries", p->log.entries},
		{"log_bytes", p->log_bytes},
		{"marks", p->marks},
		{"cuts_wanted", p->cuts_wanted},
		{"cuts", p->cuts},
		{"cuts_between", p->cuts_between},
		{"held", p->held},
		{"lost_pushes", p->lost_pushes},
		{"wrong_pushes", p->wrong_pushes},
		{"lost_requests", p->lost_requests},
		{"lost_tokens", p->lost_tokens},
		{"verify_faults", p->verify_faults},
		{"failed_mounts", p->failed_mounts},
		{"failed_starts", p->failed_starts},
		{"failed_calls", p->failed_calls},
	};
	char path[PATH_MAX];
	FILE *o;
	bool bad;

	step_path(p->fleet.run, "power.json", path);
	o = fopen(path, "we");
	if (!o)
		return -errno;
	(void)fprintf(
		o, "{\n  \"schema\": \"flamelab-power/1\",\n  \"error\": \"%s\"", p->fleet.error);
	(void)fprintf(o, ",\n  \"first\": \"%s\"", p->first);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		(void)fprintf(o, ",\n  \"%s\": %llu", numbers[i].name,
			(unsigned long long)numbers[i].value);
	(void)fprintf(o, "\n}\n");
	bad = ferror(o) != 0; /* one check for all of the writes above */
	return fclose(o) != 0 || bad ? -EIO : 0;
}

static bool has_lying_disk(const struct job_step *s)
{
	for (size_t i = 0; i < JOB_ARGS_MAX && s->backend_env[i]; i++)
		if (strcmp(s->backend_env[i], "FLAME_FAULT_POWER=lying_disk") == 0)
			return true;
	return false;
}

static int play(struct power *p)
{
	struct run *r = p->fleet.run;
	const char *const files[] = {
		p->device_path, p->log_path, p->base_path, p->scratch_path, NULL};
	int err;

	p->cuts_wanted = r->step->play_count ? r->step->play_count : POWER_CUTS_DEFAULT;
	p->cuts_wanted = MIN(p->cuts_wanted, (uint64_t)POWER_CUTS_MAX);
	p->lag = has_lying_disk(r->step) ? LYING_LAG : 0;
	err = set_up(p);
	r->workload_start_ns = r->ready_ns = step_now_ns();
	if (err == 0)
		err = record(p);
	r->workload_end_ns = step_now_ns();
	if (err == 0)
		(void)cut(p); /* what fails is in the result */
	r->window_end_ns = step_now_ns();
	for (size_t i = 0; files[i]; i++)
		(void)unlink(files[i]); /* the tmpfs has room for one step's */
	(void)rmdir(p->mount_dir);
	return write_result(p);
}

int power_run(struct run *r)
{
	struct power *p = calloc(1, sizeof(*p));
	char path[PATH_MAX];
	int err = -ENOMEM;

	if (!p)
		return -ENOMEM;
	step_path(r, "power.log", path);
	p->fleet.run = r;
	p->fleet.buffer = malloc(FLEET_BUFFER);
	p->story = fopen(path, "we");
	if (p->fleet.buffer && p->story)
		err = play(p);
	if (p->story && fclose(p->story) != 0 && err == 0)
		err = -EIO;
	free(p->fleet.buffer);
	free(p);
	return err;
}
