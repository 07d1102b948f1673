/* See campaign.h. */
#include "lab/campaign.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/file.h>
#include <time.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

static const size_t campaign_memory_max = 64U << 20;

static int campaign_fail(struct campaign *c, int error, const char *what, const char *why)
{
	(void)snprintf(c->error, sizeof(c->error), "%.200s: %.400s", what,
		why && why[0] ? why : strerror(-error));
	return error;
}

int campaign_place_find(struct campaign_place *ret)
{
	char self[PATH_MAX], path[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	self[n] = 0;
	slash = strrchr(self, '/');
	if (!slash || slash - self >= 480)
		return -ENAMETOOLONG;
	*slash = 0;
	(void)snprintf(ret->bin, sizeof(ret->bin), "%.500s", self);
	(void)snprintf(ret->out, sizeof(ret->out), "%.500s/lab", self);
	/* build/ stands in the tree, build/with-SANITIZERS/ one below. */
	while ((slash = strrchr(self, '/')) && slash != self) {
		*slash = 0;
		(void)snprintf(path, sizeof(path), "%s/lab/scenarios", self);
		if (access(path, R_OK) == 0) {
			(void)snprintf(ret->source, sizeof(ret->source), "%.500s", self);
			return 0;
		}
	}
	return -ENOENT;
}

int campaign_init(
	struct campaign *c, const struct campaign_place *place, const struct campaign_options *o)
{
	time_t now = time(NULL);
	const char *message = NULL;
	char path[1024];
	struct tm tm;
	int r;

	*c = (struct campaign){.place = *place, .options = *o, .lock_fd = -1};
	c->arena = arena_new(campaign_memory_max);
	c->policy = calloc(1, sizeof(*c->policy));
	if (!c->arena || !c->policy)
		return campaign_fail(c, -ENOMEM, "start", NULL);
	(void)gmtime_r(&now, &tm); /* cannot fail before the year 2^31 */
	(void)strftime(c->today, sizeof(c->today), "%Y-%m-%d", &tm);
	(void)strftime(c->started, sizeof(c->started), "%Y-%m-%dT%H:%M:%SZ", &tm);
	(void)snprintf(path, sizeof(path), "%s/lab", place->source);
	r = policy_load(c->policy, path, &message);
	if (r < 0)
		return campaign_fail(c, r, "policy", message);
	(void)snprintf(path, sizeof(path), "%s/flame-agent", place->bin);
	if (file_sha256(path, c->agent_sha256) < 0)
		c->agent_sha256[0] = 0;
	return 0;
}

void campaign_done(struct campaign *c)
{
	for (size_t i = 0; i < c->count; i++) {
		struct campaign_item *it = &c->items[i];

		for (size_t k = 0; it->evidence && k < it->plan.runs * it->plan.step_count; k++)
			evidence_done(&it->evidence[k]);
		gate_list_done(&it->gates);
	}
	/* A zeroed campaign, which has no policy, has no lock either. */
	if (c->policy && c->lock_fd >= 0)
		(void)close(c->lock_fd); /* gives the lock back */
	if (c->policy)
		policy_done(c->policy);
	free(c->policy);
	arena_free(c->arena);
	*c = (struct campaign){0};
}

/* How much more the plan does than what cost_s is about, suite smoke. */
static double campaign_growth(const struct plan *p)
{
	const struct scenario *s = p->scenario;

	if (s->kind == SCENARIO_PERTURB)
		return (double)p->step_count / (double)s->runs_smoke;
	if (s->kind == SCENARIO_FLEET && s->runs_smoke && p->boots[0].job.step_count)
		return (double)p->boots[0].job.steps[0].play_count / (double)s->runs_smoke;
	return 1;
}

/* Host time after which a VM is given up: a busy guest second costs up to 6 real ones on an idle
 * machine, and ours may be four times as loaded. */
static uint64_t campaign_timeout_ms(const struct plan *p)
{
	double busy = p->scenario->cost_s / (double)p->scenario->boots;

	return 240000 + (uint64_t)(busy * fmax(campaign_growth(p), 1) * 24000);
}

static void campaign_plan_boot(struct campaign *c, struct campaign_item *it, size_t b)
{
	const struct scenario *s = it->plan.scenario;
	struct boots_item *boot = &it->boots[b];

	*boot = (struct boots_item){
		.job = &it->plan.boots[b].job, .name = it->plan.boots[b].dir_name};
	boot->cost_s = s->cost_s / (double)it->plan.boot_count;
	boot->config = (struct vm_config){.mode = it->plan.mode,
		.arch = s->arch,
		.cpus = s->cpus,
		.next_kernel = s->next_kernel,
		.shift = s->shift,
		.memory_mb = s->memory_mb,
		.bin_dir = s->arch == VM_AARCH64 ? c->place.bin_arm64 : c->place.bin,
		.timeout_ms = campaign_timeout_ms(&it->plan),
		.keep = c->options.keep};
	(void)snprintf(boot->dir, sizeof(boot->dir), "%s/runs/%s", c->place.out, boot->name);
}

/* What a foreign architecture needs besides, and no other scenario; NULL: it is there. */
static const char *campaign_lacks(struct campaign *c, enum vm_arch arch)
{
	char path[600];

	if (arch != VM_AARCH64)
		return NULL;
	(void)snprintf(c->place.bin_arm64, sizeof(c->place.bin_arm64), "%s/arm64", c->place.bin);
	(void)snprintf(path, sizeof(path), "%s/flame-agent", c->place.bin_arm64);
	if (access(path, X_OK) < 0)
		return "build/arm64 is not built (make ARCH=arm64)";
	return image_has_qemu(arch) ? NULL : "qemu-system-aarch64 is not installed";
}

int campaign_plan(struct campaign *c, struct scenario *const *scenarios, size_t count)
{
	c->items = arena_alloc(c->arena, (count + 1) * sizeof(*c->items));
	if (!c->items)
		return campaign_fail(c, -ENOMEM, "plan", NULL);
	for (size_t i = 0; i < count; i++) {
		struct campaign_item *it = &c->items[i];
		int r = plan_make(c->arena, scenarios[i], &c->options.plan, &it->plan);

		if (r < 0)
			return campaign_fail(c, r, scenarios[i]->name, NULL);
		if (!it->plan.skipped)
			it->plan.skipped = campaign_lacks(c, scenarios[i]->arch);
		c->count = i + 1;
		it->boots = arena_alloc(c->arena, (it->plan.boot_count + 1) * sizeof(*it->boots));
		it->evidence = arena_alloc(c->arena,
			(it->plan.runs * it->plan.step_count + 1) * sizeof(*it->evidence));
		if (!it->boots || !it->evidence)
			return campaign_fail(c, -ENOMEM, scenarios[i]->name, NULL);
		for (size_t b = 0; b < it->plan.boot_count; b++)
			campaign_plan_boot(c, it, b);
	}
	return 0;
}

static bool campaign_needs_image(const struct campaign *c, enum vm_arch arch)
{
	for (size_t i = 0; i < c->count; i++)
		if (!c->items[i].plan.skipped && c->items[i].plan.mode != VM_HOST &&
			c->items[i].plan.scenario->arch == arch)
			return true;
	return false;
}

static int campaign_find_image(struct campaign *c)
{
	for (enum vm_arch arch = VM_X86_64; arch < VM_ARCH_COUNT; arch++) {
		if (!campaign_needs_image(c, arch))
			continue;
		if (image_find(c->place.source, arch, &c->image[arch]) < 0)
			/* Whatever it was, the command line was right. */
			return campaign_fail(c, -EIO, "image",
				"the VM image is not there and could not be built (see above)");
		c->has_image[arch] = true;
	}
	for (size_t i = 0; i < c->count; i++) {
		const struct plan *p = &c->items[i].plan;

		if (p->skipped || !p->scenario->next_kernel || c->image_next.dir[0])
			continue;
		if (image_find_next_kernel(c->place.source, &c->image_next) < 0)
			return campaign_fail(c, -EIO, "image",
				"the next kernel is not there and could not be fetched (see "
				"above)");
	}
	return 0;
}

/* The list of boots that will run, in the order of scenarios; copies, written back afterwards. */
static size_t campaign_collect(struct campaign *c, struct boots_item *all, bool back)
{
	size_t n = 0;

	for (size_t i = 0; i < c->count; i++)
		for (size_t b = 0; b < c->items[i].plan.boot_count; b++) {
			struct boots_item *boot = &c->items[i].boots[b];

			if (c->items[i].plan.skipped || !boot->job->step_count)
				continue;
			if (!all)
				;
			else if (back)
				*boot = all[n];
			else
				all[n] = *boot;
			n++;
		}
	return n;
}

/* An old result must not pass for a new one. */
static int campaign_clear(const struct boots_item *boots, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char *const argv[] = {(char *)"rm", (char *)"-rf", (char *)"--",
			(char *)boots[i].dir, NULL}; /* execvp changes none of them */
		int r = child_run(argv, NULL, 60000);

		if (r != 0)
			return r < 0 ? r : -EIO;
	}
	return 0;
}

/* Two runs in one output directory would mix their results. The lock goes with the process. */
static int campaign_lock(struct campaign *c)
{
	char path[800];
	int fd, r = file_mkdir_parents(c->place.out);

	if (r < 0)
		return campaign_fail(c, r, c->place.out, NULL);
	(void)snprintf(path, sizeof(path), "%s/.lock", c->place.out);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return campaign_fail(c, -errno, path, NULL);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		(void)close(fd); /* the other run's is what counts */
		return campaign_fail(c, -EBUSY, path, "another flamelab runs here");
	}
	c->lock_fd = fd;
	return 0;
}

int campaign_run(struct campaign *c)
{
	struct boots_options o = {
		.at_once = c->options.at_once, .quiet = c->options.quiet, .fd = STDERR_FILENO};
	struct boots_item *all;
	size_t n;
	int r = campaign_lock(c);

	if (r == 0)
		r = campaign_find_image(c);
	if (r < 0)
		return r;
	n = campaign_collect(c, NULL, false);
	all = arena_alloc(c->arena, (n + 1) * sizeof(*all));
	if (!all)
		return campaign_fail(c, -ENOMEM, "run", NULL);
	(void)campaign_collect(c, all, false); /* counted above */
	for (size_t i = 0; i < n; i++) {
		if (all[i].config.mode != VM_HOST)
			all[i].config.image_dir = all[i].config.next_kernel
							  ? c->image_next.dir
							  : c->image[all[i].config.arch].dir;
		else
			o.at_once = 1; /* two recordings on one machine would see each other */
	}
	r = campaign_clear(all, n);
	if (r < 0)
		return campaign_fail(c, r, c->place.out, NULL);
	r = boots_run(all, n, &o);
	(void)campaign_collect(c, all, true); /* counted above */
	return r < 0 ? campaign_fail(c, r, "run VMs", NULL) : 0;
}

int campaign_reload(struct campaign *c)
{
	int r = campaign_find_image(c);

	if (r < 0)
		return r;
	for (size_t i = 0; i < c->count; i++)
		for (size_t b = 0; b < c->items[i].plan.boot_count; b++)
			if (!c->items[i].plan.skipped && c->items[i].boots[b].job->step_count)
				(void)boots_load(&c->items[i].boots[b]); /* else: did not run */
	return 0;
}
