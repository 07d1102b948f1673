/*
 * See sideband.h. A question first takes what the rings have got since the last one into the log
 * (sideband_log.h): each record is read once, the newest of a ring as far back as it is new, and then put
 * down in the order of time.
 */
#include "agent/sideband.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "agent/bpf/sample.h"
#include "agent/events.h"
#include "agent/sideband_log.h"
#include "base/def.h"
#include "base/loop.h"

enum {
	SIDEBAND_LOG_MIN = 4096, /* events */
	SIDEBAND_RECORD_MEAN = 128,
	SIDEBAND_PATH_MEAN = 48,
	SIDEBAND_RECORD_MIN = 24, /* a header, a number and the time */
};

struct sideband_cpu {
	struct sideband_ring ring;
	uint64_t head;      /* up to which it was read */
	uint64_t newest_ns; /* of what was read */
	int fd;             /* -1: the ring is the caller's */
	void *base;         /* of the mapping */
	size_t base_size;
};

struct sideband {
	struct sideband_cpu *cpus;
	size_t count;
	struct sideband_log *log;
	/*
	 * Of these times something was overwritten before it was read: the last such gap, and all that is
	 * older than lost_ns.
	 */
	uint64_t gap_start_ns, gap_end_ns, lost_ns;
	struct sideband_look look;
	uint32_t *places; /* of the records that are being read */
	size_t places_max;
	/* Of the process at hand, oldest first. */
	struct sideband_event *past;
	size_t past_count, past_allocated;
};

void sideband_free(struct sideband *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->count; i++) {
		if (s->cpus[i].base)
			(void)munmap(s->cpus[i].base, s->cpus[i].base_size); /* our own */
		closep(&s->cpus[i].fd);
	}
	sideband_log_free(s->log);
	free(s->cpus);
	free(s->places);
	free(s->past);
	free(s);
}

void sideband_freep(struct sideband **s)
{
	sideband_free(*s);
}

static int sideband_alloc(size_t count, size_t ring_size, struct sideband **ret)
{
	struct sideband *s = calloc(1, sizeof(*s));
	size_t events = MAX(count * ring_size / SIDEBAND_RECORD_MEAN, (size_t)SIDEBAND_LOG_MIN);

	if (!s)
		return -ENOMEM;
	s->places_max = ring_size / SIDEBAND_RECORD_MIN;
	s->places = calloc(s->places_max, sizeof(*s->places));
	s->cpus = calloc(count, sizeof(*s->cpus));
	int r = s->cpus && s->places
			? sideband_log_new(events, events * SIDEBAND_PATH_MEAN, &s->log)
			: -ENOMEM;

	if (r < 0)
		sideband_free(s);
	else
		*ret = s;
	return r;
}

int sideband_new_over(const struct sideband_ring *rings, size_t count, struct sideband **ret)
{
	int r = sideband_alloc(count, rings[0].size, ret);

	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++)
		(*ret)->cpus[i] = (struct sideband_cpu){.ring = rings[i], .fd = -1};
	(*ret)->count = count;
	return 0;
}

static int sideband_open_event(int cpu)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TIME,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.sample_id_all = 1,
		.exclude_kernel = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.write_backward = 1,
		.watermark = 1, /* nobody waits for it */
		.wakeup_watermark = INT32_MAX,
	};
	long fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

/* A mapping without PROT_WRITE is what makes the kernel overwrite. */
static int sideband_open_cpu(int cpu, size_t size, struct sideband_cpu *ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	_cleanup_(closep) int fd = sideband_open_event(cpu);

	if (fd < 0)
		return fd;
	void *base = mmap(NULL, page + size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	const struct perf_event_mmap_page *head = base;

	*ret = (struct sideband_cpu){
		.ring = {.data = (const uint8_t *)base + page,
			.size = size,
			.head = (const uint64_t *)&head->data_head},
		.fd = steal_fd(&fd),
		.base = base,
		.base_size = page + size,
	};
	return 0;
}

static int sideband_open_all(struct sideband *s, const int *cpus, int count, size_t size)
{
	for (int i = 0; i < count; i++) {
		int r = sideband_open_cpu(cpus[i], size, &s->cpus[s->count]);

		if (r == -ENODEV) /* went offline just now */
			continue;
		if (r < 0)
			return r;
		s->count++;
	}
	return s->count > 0 ? 0 : -ENODEV;
}

int sideband_new(struct sideband **ret)
{
	int cpus[SAMPLE_CPUS_MAX];
	int count = events_cpus(cpus, SAMPLE_CPUS_MAX);
	size_t size_min = MAX((size_t)SIDEBAND_RING_MIN, (size_t)sysconf(_SC_PAGESIZE));
	size_t size = SIDEBAND_RING_SIZE;
	int r;

	if (count <= 0)
		return count < 0 ? count : -ENODEV;
	while (size > size_min && size * (size_t)count > SIDEBAND_RINGS_SIZE)
		size /= 2;
	do {
		_cleanup_(sideband_freep) struct sideband *s = NULL;

		r = sideband_alloc((size_t)count, size, &s);
		if (r == 0)
			r = sideband_open_all(s, cpus, count, size);
		if (r == 0)
			*ret = steal_ptr(&s);
		/* kernel.perf_event_mlock_kb, without CAP_IPC_LOCK */
		size /= 2;
	} while (r == -EPERM && size >= size_min);
	return r;
}

uint64_t sideband_bytes(const struct sideband *s)
{
	uint64_t bytes = 0;

	for (size_t i = 0; s && i < s->count; i++)
		bytes += s->cpus[i].base_size;
	return bytes;
}

static void sideband_note_gap(struct sideband *s, uint64_t start_ns, uint64_t end_ns)
{
	if (start_ns > s->gap_end_ns) {
		s->lost_ns = MAX(s->lost_ns, s->gap_end_ns);
		s->gap_start_ns = start_ns;
	}
	s->gap_start_ns = MIN(s->gap_start_ns, start_ns);
	s->gap_end_ns = MAX(s->gap_end_ns, end_ns);
}

/* Whether all that happened between the two is known. */
static bool sideband_is_known(const struct sideband *s, uint64_t since_ns, uint64_t when_ns)
{
	uint64_t lost_ns = MAX(s->lost_ns, sideband_log_forgotten_ns(s->log));

	if (lost_ns != 0 && since_ns <= lost_ns)
		return false;
	return s->gap_end_ns == 0 || since_ns > s->gap_end_ns || when_ns < s->gap_start_ns;
}

/* What one ring has got since it was read last. */
static void sideband_catch_up_cpu(struct sideband *s, struct sideband_cpu *cpu)
{
	struct sideband_event e = {0};
	uint64_t at = 0;
	size_t count = 0;
	size_t size;

	sideband_look_init(&s->look, &cpu->ring);
	uint64_t new = cpu->head - s->look.head;

	for (; at < new &&count < s->places_max; at += size) {
		size = sideband_look_size(&s->look, at);
		if (size == 0)
			break;
		s->places[count++] = (uint32_t)at;
	}
	bool has_gap = at < new;

	cpu->head = s->look.head;
	while (count > 0) {
		if (!sideband_look_read(&s->look, s->places[--count], &e)) {
			has_gap = true;
			continue;
		}
		if (has_gap)
			sideband_note_gap(s, cpu->newest_ns, e.time_ns);
		has_gap = false;
		cpu->newest_ns = e.time_ns;
		sideband_log_add(s->log, &e);
	}
	if (has_gap) /* all of it was overwritten while we read */
		sideband_note_gap(s, cpu->newest_ns, loop_now_ns());
}

static void sideband_catch_up(struct sideband *s)
{
	for (size_t i = 0; i < s->count; i++)
		sideband_catch_up_cpu(s, &s->cpus[i]);
}

static int sideband_keep(struct sideband *s, const struct sideband_event *e)
{
	size_t allocated = s->past_allocated ? 2 * s->past_allocated : 64;

	if (s->past_count == s->past_allocated) {
		struct sideband_event *grown = reallocarray(s->past, allocated, sizeof(*s->past));

		if (!grown)
			return -ENOMEM;
		s->past = grown;
		s->past_allocated = allocated;
	}
	s->past[s->past_count++] = *e;
	return 0;
}

static int sideband_compare(const void *a, const void *b)
{
	const struct sideband_event *x = a;
	const struct sideband_event *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

/* All of tgid since then into past. */
static int sideband_gather(struct sideband *s, uint32_t tgid, uint64_t since_ns)
{
	struct sideband_event e;
	uint64_t at = 0;
	int r = 0;

	sideband_catch_up(s);
	s->past_count = 0;
	while (r == 0 && sideband_log_next(s->log, tgid, &at, &e))
		if (e.time_ns >= since_ns)
			r = sideband_keep(s, &e);
	if (r == 0 && s->past_count > 1)
		qsort(s->past, s->past_count, sizeof(*s->past), sideband_compare);
	return r;
}

int sideband_origin(struct sideband *s, uint32_t tgid, uint64_t since_ns, uint64_t when_ns,
	struct sideband_origin *ret)
{
	struct sideband_origin o = {0};
	int r = sideband_gather(s, tgid, since_ns);

	if (r < 0)
		return r;
	for (size_t i = 0; i < s->past_count && s->past[i].time_ns <= when_ns; i++) {
		const struct sideband_event *e = &s->past[i];

		if (e->kind == SIDEBAND_FORK)
			o = (struct sideband_origin){.since_ns = e->time_ns,
				.fork_ns = e->time_ns,
				.parent = e->parent,
				.is_forked = true};
		if (e->kind == SIDEBAND_EXEC) {
			o.since_ns = e->time_ns;
			o.is_forked = false;
		}
	}
	/* An exec that was overwritten would be missing. */
	if (o.since_ns == 0 || !sideband_is_known(s, o.since_ns, when_ns))
		return -ENODATA;
	*ret = o;
	return 0;
}

static int sideband_put(const struct sideband_event *e, uint64_t when_ns, struct maps *m)
{
	struct maps_region r = {
		.start = e->start,
		.end = e->end,
		.offset = e->offset,
		.inode = e->inode,
		.dev_major = e->dev_major,
		.dev_minor = e->dev_minor,
		.told_ns = e->time_ns,
		.generation = e->generation,
	};

	return maps_put(m, &r, e->path, e->path_size, e->time_ns <= when_ns);
}

int sideband_maps(
	struct sideband *s, uint32_t tgid, uint64_t since_ns, uint64_t when_ns, struct maps *m)
{
	int r = sideband_gather(s, tgid, since_ns);

	for (size_t i = 0; r == 0 && i < s->past_count; i++) {
		const struct sideband_event *e = &s->past[i];

		if (e->kind == SIDEBAND_MAP)
			r = sideband_put(e, when_ns, m);
		else if (e->time_ns > when_ns)
			break; /* the next image's */
	}
	return r;
}

bool sideband_is_file(struct sideband *s, int fd, const struct maps_region *r)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	struct sideband_event e;
	uint64_t n = 0;

	if (at == MAP_FAILED)
		return false;
	(void)munmap(at, page); /* our own */
	sideband_catch_up(s);
	while (sideband_log_next(s->log, (uint32_t)getpid(), &n, &e))
		if (e.kind == SIDEBAND_MAP && e.start == (uint64_t)(uintptr_t)at)
			return e.inode == r->inode && e.dev_major == r->dev_major &&
			       e.dev_minor == r->dev_minor && e.generation == r->generation;
	return false;
}

enum sideband_news sideband_since(struct sideband *s, uint32_t tgid, uint64_t since_ns)
{
	enum sideband_news news = SIDEBAND_NONE;
	struct sideband_event e;
	uint64_t at = 0;

	sideband_catch_up(s);
	while (sideband_log_next(s->log, tgid, &at, &e)) {
		if (e.time_ns < since_ns)
			continue;
		if (e.kind != SIDEBAND_MAP)
			return SIDEBAND_REPLACED;
		news = SIDEBAND_MAPPED;
	}
	return news == SIDEBAND_NONE && !sideband_is_known(s, since_ns, UINT64_MAX)
		       ? SIDEBAND_FORGOTTEN
		       : news;
}
