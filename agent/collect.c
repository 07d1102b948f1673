/* See collect.h; what the programs do stands in bpf/collect.bpf.c. */
#include "agent/collect.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#include "agent/bpf/skeleton.h"
#include "agent/collect_tables.h"
#include "agent/events.h"
#include "agent/ledger.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"

/* What is missing at the end is built for so long: some tens of libraries. */
#define FINISH_MAX_NS (1 * NSEC_PER_SEC)
/* Stop lies this far ahead, so that every CPU sees the stamp before its time comes. */
#define STOP_LEAD_NS  (1 * NSEC_PER_MSEC)

/* Of one message of libbpf. */
enum { PRINT_END_MAX = 1024 };

struct collector {
	struct collect_options options;
	struct collect_bpf *skel;
	struct events *events;
	struct ring_buffer *ring;
	struct collect_tables *tables; /* NULL: frame pointers only */
	struct bpf_link *switch_link;
	struct bpf_link **sample_links; /* one per event */
	uint64_t last_tick_ns;
	uint64_t records_bad;
	uint64_t run_ns, run_count, run_misses; /* of the programs, read at stop */
};

/* libbpf's print callback has no argument of the caller's; loading is single threaded. */
static struct buf *print_target;

/* One line: newlines become bars. Of a verifier's log only the end says why. */
static int print_to_buf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	char *text = NULL;
	size_t size;
	const char *from;

	if (level != LIBBPF_WARN || !print_target || vasprintf(&text, fmt, args) < 0)
		return 0;
	size = strlen(text);
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = c[1] ? '|' : ' ';
	from = size > PRINT_END_MAX ? text + size - PRINT_END_MAX : text;
	(void)buf_append_str(print_target, from); /* a full buffer keeps the first lines */
	free(text);
	return 0;
}

static int on_record(void *ctx, void *data, size_t size)
{
	struct collector *c = ctx;
	const struct stack_record *r = data;

	if (size < sizeof(*r) || r->kernel_count > SAMPLE_KERNEL_FRAMES_MAX ||
		r->user_count > SAMPLE_USER_FRAMES_MAX || r->end >= SAMPLE_END_COUNT ||
		size < sizeof(*r) + ((size_t)r->kernel_count + r->user_count) * sizeof(__u64)) {
		c->records_bad++;
		return 0;
	}
	return c->options.on_stack(r, c->options.data);
}

static int load(struct collector *c)
{
	const struct collect_options *o = &c->options;
	int r;

	c->skel = collect_bpf__open();
	if (!c->skel)
		return -errno;
	c->skel->rodata->stacks_max = o->stacks_max;
	c->skel->rodata->key_tids = o->key_tids;
	c->skel->rodata->period_max_ns = events_clock(c->events)->period_max_ns;
	r = bpf_map__set_max_entries(c->skel->maps.stacks, o->stacks_max);
	if (r == 0)
		r = bpf_map__set_max_entries(c->skel->maps.ledger, o->ledger_max);
	if (r == 0)
		r = filter_prepare(c->skel, o->filter, o->resolved);
	if (r == 0)
		r = collect_tables_prepare(
			c->skel, !o->unwind_fp, o->frequency_hz * events_count(c->events));
	if (r == 0)
		r = collect_bpf__load(c->skel);
	return r < 0 ? r : filter_fill(c->skel, o->filter, o->resolved);
}

static int make_tables(struct collector *c)
{
	const struct collect_options *o = &c->options;
	int r = collect_tables_new(c->skel, o->unwind_table_mb, o->helper, o->sideband, &c->tables);

	if (r < 0)
		return r;
	r = ring_buffer__add(
		c->ring, collect_tables_ring(c->tables), collect_tables_on_miss, c->tables);
	if (r == 0 && o->tables_file)
		collect_tables_warm(c->tables, o->tables_file);
	return r;
}

static int attach(struct collector *c)
{
	struct bpf_program *sampler =
		c->options.unwind_fp ? c->skel->progs.on_sample_fp : c->skel->progs.on_sample;
	int r;

	c->ring = ring_buffer__new(bpf_map__fd(c->skel->maps.ring), on_record, c, NULL);
	if (!c->ring)
		return -errno;
	r = c->options.unwind_fp ? 0 : make_tables(c);
	if (r < 0)
		return r;
	c->switch_link = bpf_program__attach(c->skel->progs.on_switch);
	if (!c->switch_link)
		return -errno;
	c->sample_links = calloc(events_count(c->events), sizeof(struct bpf_link *));
	if (!c->sample_links)
		return -ENOMEM;
	for (size_t i = 0; i < events_count(c->events); i++) {
		/* The link owns a descriptor of its own: bpf_link__destroy closes what it gets. */
		int fd = fcntl(events_fd(c->events, i), F_DUPFD_CLOEXEC, 3);

		if (fd < 0)
			return -errno;
		c->sample_links[i] = bpf_program__attach_perf_event(sampler, fd);
		if (!c->sample_links[i]) {
			r = -errno;
			(void)close(fd); /* the error that counts is the attach's */
			return r;
		}
	}
	return 0;
}

/* A kernel whose verifier refuses the walk by tables may take the one by frame pointers. */
static int load_either(struct collector *c)
{
	int r = load(c);

	if (r >= 0 || r == -ENOMEM || r == -EPERM || c->options.unwind_fp)
		return r;
	log_warn("collect", "load the unwinder by tables", r,
		"hint=\"stacks end where code keeps no frame pointer\" why=\"%s\"",
		print_target ? buf_str(print_target) : "");
	collect_bpf__destroy(c->skel);
	c->skel = NULL;
	c->options.unwind_fp = true;
	return load(c);
}

int collector_new(const struct collect_options *o, struct buf *why, struct collector **ret)
{
	_cleanup_(collector_freep) struct collector *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->options = *o;
	print_target = why;
	(void)libbpf_set_print(print_to_buf);
	r = events_new(o->frequency_hz, o->jitter_seed, &c->events);
	if (r == 0)
		r = load_either(c);
	if (r == 0)
		r = attach(c);
	print_target = NULL;
	if (r < 0)
		return r;
	*ret = steal_ptr(&c);
	return 0;
}

static void detach(struct collector *c)
{
	for (size_t i = 0; c->sample_links && i < events_count(c->events); i++)
		(void)bpf_link__destroy(c->sample_links[i]); /* only closes; nothing to be done */
	free(c->sample_links);
	c->sample_links = NULL;
	(void)bpf_link__destroy(c->switch_link);
	c->switch_link = NULL;
	events_free(c->events);
	c->events = NULL;
}

void collector_free(struct collector *c)
{
	if (!c)
		return;
	detach(c);
	ring_buffer__free(c->ring);
	collect_tables_free(c->tables);
	collect_bpf__destroy(c->skel);
	free(c);
}

void collector_freep(struct collector **c)
{
	collector_free(*c);
}

/* Runs the task iterator to its end; its output is empty. */
static int seed_ledger(struct collector *c)
{
	struct bpf_link *link = bpf_program__attach_iter(c->skel->progs.seed, NULL);
	_cleanup_(closep) int fd = -1;
	char none[64];
	ssize_t n;
	int r = 0;

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0)
		r = fd;
	while (r == 0 && (n = read(fd, none, sizeof(none))) != 0)
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			r = -errno;
	(void)bpf_link__destroy(link); /* only closes */
	return r;
}

int collector_start(struct collector *c)
{
	int r;

	__atomic_store_n(&c->skel->bss->armed_ns, loop_now_ns(), __ATOMIC_RELEASE);
	r = seed_ledger(c);
	c->last_tick_ns = loop_now_ns();
	__atomic_store_n(&c->skel->bss->start_ns, c->last_tick_ns, __ATOMIC_RELEASE);
	return r < 0 ? r : events_enable(c->events);
}

int collector_fd(const struct collector *c)
{
	return ring_buffer__epoll_fd(c->ring);
}

int collector_drain(struct collector *c)
{
	int r = ring_buffer__consume(c->ring);

	if (r < 0 || !c->tables)
		return r < 0 ? r : 0;
	/* What it finds missing now wakes us again. */
	return collect_tables_resume(c->tables);
}

uint64_t collector_tick_ns(const struct collector *c)
{
	return events_redraw_interval_ns(c->events);
}

int collector_tick(struct collector *c)
{
	uint64_t now = loop_now_ns();
	uint64_t elapsed_ns = now - c->last_tick_ns;

	c->last_tick_ns = now;
	if (c->tables) {
		int r = collect_tables_tick(c->tables);

		if (r < 0)
			return r;
	}
	return events_redraw(c->events, elapsed_ns);
}

static void wait_until(uint64_t ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static void read_run_time(struct collector *c)
{
	struct bpf_program *p;

	bpf_object__for_each_program(p, c->skel->obj)
	{
		struct bpf_prog_info info = {0};
		__u32 size = sizeof(info);

		/* Without it the cost stays 0, as without kernel.bpf_stats_enabled. */
		if (bpf_obj_get_info_by_fd(bpf_program__fd(p), &info, &size) == 0) {
			c->run_ns += info.run_time_ns;
			c->run_count += info.run_cnt;
			c->run_misses += info.recursion_misses;
		}
	}
}

/* Builds what deferred samples lack, as long as each round asks for something; then they end. */
static int finish_deferred(struct collector *c)
{
	uint64_t end_ns = loop_now_ns() + FINISH_MAX_NS;
	uint64_t misses;
	int r;

	do {
		misses = collect_tables_misses(c->tables);
		r = collector_drain(c);
	} while (r == 0 && collect_tables_waiting(c->tables) > 0 &&
		 collect_tables_misses(c->tables) != misses && loop_now_ns() < end_ns);
	if (r == 0)
		r = collect_tables_finish(c->tables);
	if (r == 0 && c->options.tables_file)
		collect_tables_save(c->tables, c->options.tables_file);
	return r == 0 ? collector_drain(c) : r;
}

int collector_stop(struct collector *c)
{
	uint64_t stop_ns = loop_now_ns() + STOP_LEAD_NS;
	int r;

	__atomic_store_n(&c->skel->bss->stop_ns, stop_ns, __ATOMIC_RELEASE);
	wait_until(stop_ns);
	r = events_disable(c->events);
	read_run_time(c);
	(void)bpf_link__destroy(c->switch_link); /* only closes */
	c->switch_link = NULL;
	if (r == 0)
		r = collector_drain(c);
	if (r == 0 && c->tables)
		r = finish_deferred(c);
	return r;
}

/* Sums one per-CPU map entry; returns the number of CPUs in values or -errno. */
static int read_counts(const struct collector *c, struct cpu_counts **ret)
{
	int cpus = libbpf_num_possible_cpus();
	__u32 zero = 0;
	int r;

	if (cpus < 0)
		return cpus;
	*ret = calloc((size_t)cpus, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	r = bpf_map__lookup_elem(
		c->skel->maps.counts, &zero, sizeof(zero), *ret, sizeof(**ret) * (size_t)cpus, 0);
	return r < 0 ? r : cpus;
}

uint64_t collector_samples(const struct collector *c)
{
	_cleanup_(freep) struct cpu_counts *counts = NULL;
	int cpus = read_counts(c, &counts);
	uint64_t n = 0;

	for (int i = 0; i < cpus; i++)
		n += counts[i].taken.samples;
	return n;
}

uint64_t collector_cpu_weight(const struct collector *c, size_t cpu)
{
	_cleanup_(freep) struct cpu_counts *counts = NULL;
	int cpus = read_counts(c, &counts);

	return cpus > 0 && cpu < (size_t)cpus ? counts[cpu].taken.weight_ns : 0;
}

int collector_cpus(const struct collector *c, struct collect_cpu **ret, size_t *ret_count)
{
	_cleanup_(freep) struct cpu_counts *counts = NULL;
	int cpus = read_counts(c, &counts);
	struct collect_cpu *list;
	size_t n = 0;

	if (cpus < 0)
		return cpus;
	list = calloc((size_t)cpus, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (int i = 0; i < cpus; i++)
		if (counts[i].last_ns != 0)
			list[n++] = (struct collect_cpu){
				.cpu = (uint32_t)i,
				.samples = counts[i].taken.samples + counts[i].idle.samples +
					   counts[i].filtered.samples,
				.gap_max_ns = counts[i].gap_max_ns,
			};
	*ret = list;
	*ret_count = n;
	return 0;
}

static void add_count(struct sample_count *to, const struct sample_count *from)
{
	to->samples += from->samples;
	to->weight_ns += from->weight_ns;
}

/* What no sample stands for at the end of the window, without what is known to be idle. */
static uint64_t tail_ns(
	struct cpu_counts *n, uint64_t start_ns, uint64_t stop_ns, uint64_t silent_max)
{
	uint64_t last_ns = MAX(n->last_ns, start_ns);
	uint64_t idle_ns;

	if (n->idle_since_ns == 0)
		return stop_ns - MIN(last_ns, stop_ns);
	idle_ns = stop_ns - MIN(MAX(n->idle_since_ns, last_ns), stop_ns);
	if (idle_ns > silent_max) {
		n->idle.weight_ns += idle_ns;
		n->idle_withheld_ns += idle_ns;
	}
	return n->idle_since_ns > last_ns ? n->idle_since_ns - last_ns : 0;
}

static void add_cpu(struct collect_totals *t, struct cpu_counts *n, uint64_t stop_ns)
{
	uint64_t tail_us = tail_ns(n, t->start_ns, stop_ns, 2 * t->period_max_ns) / 1000;

	add_count(&t->taken, &n->taken);
	add_count(&t->idle, &n->idle);
	add_count(&t->filtered, &n->filtered);
	for (int i = 0; i < SAMPLE_LOSS_COUNT; i++)
		add_count(&t->losses[i], &n->losses[i]);
	for (int i = 0; i < SAMPLE_END_COUNT; i++)
		t->ends[i] += n->ends[i];
	t->taken_sq += n->taken_sq;
	t->tail_us += tail_us;
	t->tail_sq += tail_us * tail_us;
	t->idle_withheld_ns += n->idle_withheld_ns;
	t->switches += n->switches;
	t->ledger_lost += n->ledger_lost;
	t->switches_missed += n->switches_missed;
}

/* "memlock:\t123" of /proc/self/fdinfo/FD: what the kernel charges for a map or program. */
static uint64_t memlock_of(int fd)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(8192);
	char path[64];
	const char *at;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd); /* fits */
	if (file_read(path, &b) < 0)
		return 0;
	at = strstr(buf_str(&b), "memlock:");
	return at ? strtoull(at + strlen("memlock:"), NULL, 10) : 0;
}

static uint64_t bpf_memory(const struct collector *c)
{
	struct bpf_map *m;
	struct bpf_program *p;
	uint64_t bytes = 0;

	bpf_object__for_each_map(m, c->skel->obj) bytes += memlock_of(bpf_map__fd(m));
	bpf_object__for_each_program(p, c->skel->obj) bytes += memlock_of(bpf_program__fd(p));
	return bytes;
}

static void add_resumed(struct collect_totals *t, const struct resume_counts *n)
{
	t->deferred = n->deferred;
	t->deferred_no_slot = n->no_slot;
	for (int i = 0; i < SAMPLE_LOSS_COUNT; i++)
		add_count(&t->losses[i], &n->losses[i]);
	for (int i = 0; i < SAMPLE_END_COUNT; i++)
		t->ends[i] += n->ends[i];
}

void collector_totals(const struct collector *c, struct collect_totals *ret)
{
	_cleanup_(freep) struct cpu_counts *counts = NULL;
	int cpus = read_counts(c, &counts);
	uint64_t stop_ns = c->skel->bss->stop_ns;

	*ret = (struct collect_totals){
		.start_ns = c->skel->bss->start_ns,
		.window_ns = stop_ns - c->skel->bss->start_ns,
		.cpus = events_count(c->events),
		.period_max_ns = events_clock(c->events)->period_max_ns,
		.records_bad = c->records_bad,
		.bpf_memory_bytes = bpf_memory(c),
		.bpf_run_ns = c->run_ns,
		.bpf_run_count = c->run_count,
		.run_misses = c->run_misses,
	};
	/* A possible CPU that was never online has neither samples nor switches. */
	for (int i = 0; i < cpus; i++)
		if (counts[i].last_ns != 0 || counts[i].switches != 0)
			add_cpu(ret, &counts[i], stop_ns);
	ret->has_tables = c->tables;
	if (c->tables) {
		add_resumed(ret, &c->skel->bss->resumed);
		collect_tables_stats(c->tables, &ret->tables);
		ret->bpf_memory_bytes += ret->tables.bytes;
	}
}

int collector_kernel_names(struct collector *c, const uint64_t *addresses, size_t count,
	char (*texts)[NAME_BATCH_TEXT])
{
	struct name_batch *batch = &c->skel->bss->name_batch;
	LIBBPF_OPTS(bpf_test_run_opts, run);
	int r;

	if (count > NAME_BATCH_MAX)
		return -EINVAL;
	memset(batch, 0, sizeof(*batch));
	batch->count = (__u32)count;
	for (size_t i = 0; i < count; i++)
		batch->addresses[i] = addresses[i];
	r = bpf_prog_test_run_opts(bpf_program__fd(c->skel->progs.name_addresses), &run);
	if (r < 0)
		return r;
	memcpy(texts, batch->texts, count * sizeof(texts[0]));
	for (size_t i = 0; i < count; i++)
		texts[i][NAME_BATCH_TEXT - 1] = '\0';
	return 0;
}

static int compare_stacks(const void *a, const void *b)
{
	const struct stack_key *x = &((const struct collect_stack *)a)->key;
	const struct stack_key *y = &((const struct collect_stack *)b)->key;

	if (x->tgid != y->tgid)
		return x->tgid < y->tgid ? -1 : 1;
	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	return (x->exec_id > y->exec_id) - (x->exec_id < y->exec_id);
}

static int compare_threads(const void *a, const void *b)
{
	const struct ledger_key *x = &((const struct collect_thread *)a)->key;
	const struct ledger_key *y = &((const struct collect_thread *)b)->key;

	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

int collector_stacks(const struct collector *c, struct collect_stack **ret, size_t *ret_count)
{
	struct bpf_map *m = c->skel->maps.stacks;
	size_t max = bpf_map__max_entries(m);
	_cleanup_(freep) struct collect_stack *list = calloc(max, sizeof(*list));
	struct stack_key *last = NULL;
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	while (n < max && bpf_map__get_next_key(m, last, &list[n].key, sizeof(list[n].key)) == 0) {
		struct collect_stack *s = &list[n];
		int r = bpf_map__lookup_elem(
			m, &s->key, sizeof(s->key), &s->value, sizeof(s->value), 0);

		if (r < 0)
			return r;
		last = &s->key;
		n++;
	}
	qsort(list, n, sizeof(*list), compare_stacks);
	*ret = steal_ptr(&list);
	*ret_count = n;
	return 0;
}

/* The thread's time on CPU and in run queues, 0 when it is gone. */
static void read_schedstat(const struct collect_thread *t, uint64_t *exec_ns, uint64_t *delay_ns)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(256);
	char path[64];
	char *end;

	*exec_ns = 0;
	*delay_ns = 0;
	(void)snprintf(path, sizeof(path), "/proc/%u/task/%u/schedstat", t->value.tgid, t->key.tid);
	if (file_read(path, &b) < 0)
		return;
	*exec_ns = strtoull(buf_str(&b), &end, 10);
	*delay_ns = strtoull(end, NULL, 10);
}

static void close_thread(struct collect_thread *t, uint64_t start_ns, uint64_t stop_ns)
{
	uint64_t exec_ns = 0;
	uint64_t delay_ns = 0;

	if (t->value.state & (LEDGER_ON_CPU | LEDGER_STATE_UNKNOWN))
		read_schedstat(t, &exec_ns, &delay_ns);
	ledger_catch_up(&t->value, start_ns, stop_ns, exec_ns);
	ledger_close(&t->value, start_ns, stop_ns, delay_ns);
}

int collector_ledger(const struct collector *c, struct collect_thread **ret, size_t *ret_count)
{
	struct bpf_map *m = c->skel->maps.ledger;
	uint64_t start_ns = c->skel->bss->start_ns;
	uint64_t stop_ns = c->skel->bss->stop_ns;
	size_t max = bpf_map__max_entries(m);
	_cleanup_(freep) struct collect_thread *list = calloc(max, sizeof(*list));
	struct ledger_key *last = NULL;
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	while (n < max && bpf_map__get_next_key(m, last, &list[n].key, sizeof(list[n].key)) == 0) {
		struct collect_thread *t = &list[n];
		int r = bpf_map__lookup_elem(
			m, &t->key, sizeof(t->key), &t->value, sizeof(t->value), 0);

		if (r < 0)
			return r;
		close_thread(t, start_ns, stop_ns);
		last = &t->key;
		n++;
	}
	qsort(list, n, sizeof(*list), compare_threads);
	*ret = steal_ptr(&list);
	*ret_count = n;
	return 0;
}
