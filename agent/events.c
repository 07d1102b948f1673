/* See events.h. */
#include "agent/events.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"

#include "agent/bpf/sample.h"

#define REDRAW_INTERVAL_MIN_NS (5 * NSEC_PER_MSEC)
#define REDRAW_INTERVAL_MAX_NS (250 * NSEC_PER_MSEC)

struct events {
	size_t count;
	size_t next;  /* whose period is redrawn next */
	uint64_t due; /* redraws owed, in units of 1/cycle: grows by count * elapsed */
	struct events_clock clock;
	struct rng rng;
	int fds[SAMPLE_CPUS_MAX];
};

/* "0-3,8" -> up to max CPU numbers. Count, or -EINVAL. */
static int parse_cpus(const char *s, int *cpus, int max)
{
	int count = 0;

	while (*s >= '0' && *s <= '9') {
		char *end;
		unsigned long from = strtoul(s, &end, 10);
		unsigned long to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (unsigned long c = from; c <= to && count < max; c++)
			cpus[count++] = (int)c;
		s = *end == ',' ? end + 1 : end;
	}
	return count > 0 ? count : -EINVAL;
}

int events_cpus(int *cpus, int max)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	int r = file_read("/sys/devices/system/cpu/online", &b);

	return r < 0 ? r : parse_cpus(buf_str(&b), cpus, max);
}

struct events_clock events_clock_for(uint64_t frequency_hz)
{
	/* Samples in a cycle. One that is short is longer in samples: timers are not that fast. */
	uint64_t samples =
		MAX(EVENTS_SAMPLES_PER_DRAW, REDRAW_INTERVAL_MIN_NS * frequency_hz / NSEC_PER_SEC);
	struct events_clock c = {.cycle_ns = NSEC_PER_SEC * samples / frequency_hz};

	/* n samples take n + 1/2 periods, see the header. */
	c.period_ns = 2 * c.cycle_ns / (2 * samples + 1);
	c.period_max_ns = c.period_ns * 4 / 3;
	return c;
}

uint64_t events_draw_ns(const struct events_clock *c, struct rng *r)
{
	enum { MILLION = 1000000 };

	return c->period_ns * MILLION / rng_between(r, MILLION * 3 / 4, MILLION * 5 / 4);
}

static int open_one(uint64_t period_ns, int cpu)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_ns,
		.disabled = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

static int open_all(struct events *e)
{
	int cpus[SAMPLE_CPUS_MAX];
	int count = events_cpus(cpus, SAMPLE_CPUS_MAX);

	if (count < 0)
		return count;
	for (int i = 0; i < count; i++) {
		int fd = open_one(events_draw_ns(&e->clock, &e->rng), cpus[i]);

		if (fd == -ENODEV) /* went offline just now */
			continue;
		if (fd < 0)
			return fd;
		e->fds[e->count++] = fd;
	}
	return e->count > 0 ? 0 : -ENODEV;
}

int events_new(uint64_t frequency_hz, uint64_t seed, struct events **ret)
{
	struct events *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	e->rng = rng_seeded(seed);
	e->clock = events_clock_for(frequency_hz);
	r = open_all(e);
	if (r < 0) {
		events_free(e);
		return r;
	}
	*ret = e;
	return 0;
}

void events_free(struct events *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->count; i++)
		closep(&e->fds[i]);
	free(e);
}

void events_freep(struct events **e)
{
	events_free(*e);
}

size_t events_count(const struct events *e)
{
	return e->count;
}

int events_fd(const struct events *e, size_t i)
{
	return e->fds[i];
}

const struct events_clock *events_clock(const struct events *e)
{
	return &e->clock;
}

int events_enable(struct events *e)
{
	for (size_t i = 0; i < e->count; i++)
		if (ioctl(e->fds[i], PERF_EVENT_IOC_ENABLE, 0) < 0)
			return -errno;
	return 0;
}

int events_disable(struct events *e)
{
	int r = 0;

	for (size_t i = 0; i < e->count; i++)
		if (ioctl(e->fds[i], PERF_EVENT_IOC_DISABLE, 0) < 0 && r == 0)
			r = -errno;
	return r;
}

uint64_t events_redraw_interval_ns(const struct events *e)
{
	uint64_t ns = e->clock.cycle_ns / e->count;

	return MIN(MAX(ns, REDRAW_INTERVAL_MIN_NS), REDRAW_INTERVAL_MAX_NS);
}

int events_redraw(struct events *e, uint64_t elapsed_ns)
{
	uint64_t cycle_ns = e->clock.cycle_ns;

	/* After a long pause one round is enough. */
	e->due += MIN(elapsed_ns, cycle_ns) * e->count;
	for (; e->due >= cycle_ns; e->due -= cycle_ns) {
		uint64_t period_ns = events_draw_ns(&e->clock, &e->rng);

		if (ioctl(e->fds[e->next], PERF_EVENT_IOC_PERIOD, &period_ns) < 0)
			return -errno;
		e->next = (e->next + 1) % e->count;
	}
	return 0;
}
