/*
 * Which cuts, and the disk of each. Seven of ten are right behind a mark, where a promise is youngest, of every
 * kind of promise alike; the others are one at random in each of as many stretches of the log. They come in
 * the log's order, so that its entries are applied once; each cut gets a copy of the disk, because
 * mounting writes.
 */
#include "lab/guest/power_internal.h"

#include "lab/guest/power_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mount.h>

enum { SCRATCH_LOOP = 2, MARKS_OF_TEN = 7 };

struct cuts {
	uint64_t k[POWER_CUTS_MAX];
	size_t count;
};

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static void cuts_add(struct cuts *c, uint64_t k)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->k[i] == k)
			return;
	if (c->count < POWER_CUTS_MAX)
		c->k[c->count++] = k;
}

/* A kind after the other gives one of its marks. */
static void add_marks(const struct power *p, uint64_t *random, size_t max, struct cuts *ret)
{
	bool taken[POWER_EVENTS_MAX] = {0};
	size_t left = p->event_count;

	for (unsigned int kind = 0; left > 0 && ret->count < max; kind++) {
		size_t of_kind[POWER_EVENTS_MAX], n = 0, pick;

		for (size_t i = 0; i < p->event_count; i++)
			if (!taken[i] && p->events[i].kind == kind % POWER_KIND_COUNT)
				of_kind[n++] = i;
		if (n == 0)
			continue;
		pick = of_kind[next_random(random) % n];
		taken[pick] = true;
		left--;
		if (p->events[pick].entry != POWER_UNMARKED)
			cuts_add(ret, p->events[pick].entry + 1);
	}
}

static void add_between(const struct power *p, uint64_t *random, size_t max, struct cuts *ret)
{
	uint64_t entries = p->log.entries, stretches = max - ret->count;

	/* A second turn for cuts that were there already. */
	for (uint64_t i = 0; i < 4 * stretches && ret->count < max; i++) {
		uint64_t from = entries * (i % stretches) / stretches,
			 to = entries * (i % stretches + 1) / stretches;

		cuts_add(ret, from + (to > from ? next_random(random) % (to - from) : 0));
	}
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void choose(struct power *p, struct cuts *ret)
{
	uint64_t random = p->fleet.run->step->jitter_seed;

	add_marks(p, &random, p->cuts_wanted * MARKS_OF_TEN / 10, ret);
	p->cuts_between = ret->count;
	add_between(p, &random, p->cuts_wanted, ret);
	p->cuts_between = ret->count - p->cuts_between;
	qsort(ret->k, ret->count, sizeof(ret->k[0]), by_number);
}

/* Finds the marks of the events. */
static int read_marks(struct power *p)
{
	uint64_t at = power_log_start(&p->log), found = 0;
	struct power_entry e;

	for (uint64_t i = 0; i < p->log.entries; i++) {
		if (power_log_next(&p->log, &at, &e) < 0)
			return fleet_fail(&p->fleet, "the log breaks off at entry %llu",
				(unsigned long long)i);
		if (e.is_mark && e.mark[0] == 'e') {
			unsigned long number = strtoul(e.mark + 1, NULL, 10);

			if (number >= p->event_count)
				return fleet_fail(&p->fleet, "the log has a mark of nobody's");
			p->events[number].entry = i;
			found++;
		}
	}
	p->log_bytes = at;
	if (found != p->marks)
		return fleet_fail(&p->fleet, "%llu marks of %llu are in the log",
			(unsigned long long)found, (unsigned long long)p->marks);
	return 0;
}

static void one_cut(struct power *p, uint64_t k, uint64_t image_size)
{
	int err = power_file_make(p->scratch_path, image_size);

	if (err == 0)
		err = power_file_copy(p->base_path, p->scratch_path);
	if (err == 0)
		err = power_loop_attach(SCRATCH_LOOP, p->scratch_path);
	if (err < 0) {
		(void)fleet_fail(&p->fleet, "cannot make a disk: %s", strerror(-err));
		return;
	}
	p->cuts++;
	if (mount("/dev/loop2", p->mount_dir, "ext4", MS_NOATIME, NULL) < 0) {
		power_wrong(p, &p->failed_mounts, "ext4 cannot be mounted after entry %llu: %s",
			(unsigned long long)k, strerror(errno));
	} else {
		power_check(p, k);
		if (umount(p->mount_dir) < 0)
			(void)fleet_fail(&p->fleet, "cannot unmount: %s", strerror(errno));
	}
	err = power_loop_detach(SCRATCH_LOOP);
	if (err < 0)
		(void)fleet_fail(&p->fleet, "cannot free a loop device: %s", strerror(-err));
}

int power_cut(struct power *p)
{
	uint64_t at = power_log_start(&p->log), applied = 0, size = power_image_size;
	struct cuts cuts = {0};
	struct power_entry e;
	int err = read_marks(p);

	if (err == 0)
		choose(p, &cuts);
	for (size_t i = 0; err == 0 && i < cuts.count; i++) {
		uint64_t end = cuts.k[i] > p->lag ? cuts.k[i] - p->lag : 0;

		for (; err == 0 && applied < end; applied++)
			if (power_log_next(&p->log, &at, &e) < 0 ||
				power_log_apply(&e, p->image, size) < 0)
				err = fleet_fail(&p->fleet, "a log entry is damaged");
		if (err == 0)
			one_cut(p, cuts.k[i], size);
		if (p->fleet.error[0])
			err = -EIO;
		if (err == 0 && !step_in_time(p->fleet.run))
			err = fleet_fail(&p->fleet, "the step's time is over");
	}
	return err;
}
