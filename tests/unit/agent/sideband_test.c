/* sideband: the kernel's records, its rings, and what follows from them. */
#include "agent/sideband.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "agent/process_maps.h"
#include "agent/procfs.h"
#include "base/def.h"
#include "base/loop.h"

enum { RING_SIZE = SIDEBAND_RING_MIN, TGID = 4242, PARENT = 77 };

struct ring {
	uint8_t data[RING_SIZE];
	uint64_t head;
};

/* As the kernel writes: backwards, over the oldest. */
static void put(struct ring *r, const void *record, size_t size)
{
	r->head -= size;
	size_t at = r->head % RING_SIZE;
	size_t first = MIN(size, RING_SIZE - at);

	memcpy(r->data + at, record, first);
	memcpy(r->data, (const uint8_t *)record + first, size - first);
}

struct map_record {
	struct perf_event_header h;
	uint32_t pid, tid;
	uint64_t start, size, offset;
	uint32_t major, minor;
	uint64_t inode, generation;
	uint32_t prot, flags;
	char path[32];
	uint64_t time;
};

struct comm_record {
	struct perf_event_header h;
	uint32_t pid, tid;
	char comm[16];
	uint64_t time;
};

struct fork_record {
	struct perf_event_header h;
	uint32_t pid, parent, tid, parent_tid;
	uint64_t when, time;
};

static struct map_record map_of(uint32_t pid, uint64_t time, uint64_t start, const char *path)
{
	struct map_record m = {
		.h = {PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, sizeof(m)},
		.pid = pid,
		.tid = pid,
		.start = start,
		.size = 0x1000,
		.offset = 0x2000,
		.major = 8,
		.minor = 1,
		.inode = 99,
		.generation = 5,
		.prot = PROT_READ | PROT_EXEC,
		.time = time,
	};

	(void)snprintf(m.path, sizeof(m.path), "%s", path);
	return m;
}

static void put_map(struct ring *r, uint32_t pid, uint64_t time, uint64_t start, const char *path)
{
	struct map_record m = map_of(pid, time, start, path);

	put(r, &m, sizeof(m));
}

static void put_exec(struct ring *r, uint32_t pid, uint64_t time)
{
	struct comm_record c = {
		.h = {PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, sizeof(c)},
		.pid = pid,
		.tid = pid,
		.comm = "new",
		.time = time,
	};

	put(r, &c, sizeof(c));
}

static void put_fork(struct ring *r, uint32_t parent, uint32_t pid, uint32_t tid, uint64_t time)
{
	struct fork_record f = {
		.h = {PERF_RECORD_FORK, 0, sizeof(f)},
		.pid = pid,
		.parent = parent,
		.tid = tid,
		.parent_tid = parent,
		.when = time,
		.time = time,
	};

	put(r, &f, sizeof(f));
}

static struct sideband *over(struct ring *rings, size_t count)
{
	struct sideband_ring r[2];
	struct sideband *s = NULL;

	for (size_t i = 0; i < count; i++)
		r[i] = (struct sideband_ring){rings[i].data, RING_SIZE, &rings[i].head};
	cr_assert_eq(sideband_new_over(r, count, &s), 0);
	return s;
}

/* The image at that time, as text: "start:path ..." */
static const char *image(struct sideband *s, uint64_t when_ns)
{
	static char text[1024];
	_cleanup_(maps_done) struct maps m;
	struct sideband_origin o = {0};

	maps_init(&m);
	text[0] = '\0';
	if (sideband_origin(s, TGID, 0, when_ns, &o) < 0)
		return "?";
	cr_assert_eq(sideband_maps(s, TGID, o.since_ns, when_ns, &m), 0);
	for (size_t i = 0; i < m.count; i++) {
		size_t used = strlen(text);

		(void)snprintf(text + used, sizeof(text) - used, "%s%llx:%s", i ? " " : "",
			(unsigned long long)m.regions[i].start, maps_path(&m, &m.regions[i]));
	}
	return text;
}

Test(sideband, parses_what_the_kernel_says_of_a_mapping)
{
	struct map_record m = map_of(TGID, 1234, 0x7000, "/bin/a");
	struct sideband_event e;

	sideband_parse(&m, sizeof(m), &e);
	cr_assert_eq(e.kind, SIDEBAND_MAP);
	cr_assert_eq(e.tgid, TGID);
	cr_assert_eq(e.time_ns, 1234);
	cr_assert_eq(e.start, 0x7000);
	cr_assert_eq(e.end, 0x8000);
	cr_assert_eq(e.offset, 0x2000);
	cr_assert_eq(e.dev_major, 8);
	cr_assert_eq(e.dev_minor, 1);
	cr_assert_eq(e.inode, 99);
	cr_assert_eq(e.generation, 5);
	cr_assert_eq(e.path_size, 6);
	cr_assert_eq(memcmp(e.path, "/bin/a", 6), 0);
}

Test(sideband, a_record_that_is_cut_or_makes_no_sense_says_nothing)
{
	struct map_record m = map_of(TGID, 1, 0x7000, "/bin/a");
	struct sideband_event e;

	for (size_t size = 0; size < sizeof(m); size++) {
		sideband_parse(&m, size, &e);
		cr_assert_eq(e.kind, SIDEBAND_OTHER);
	}
	m.start = UINT64_MAX - 10;
	sideband_parse(&m, sizeof(m), &e);
	cr_assert_eq(e.kind, SIDEBAND_OTHER);
	m = map_of(TGID, 1, 0x7000, "/bin/a");
	m.prot = PROT_READ;
	sideband_parse(&m, sizeof(m), &e);
	cr_assert_eq(e.kind, SIDEBAND_OTHER);
}

Test(sideband, a_thread_is_no_process_and_a_new_name_no_exec)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);
	struct comm_record c = {
		.h = {PERF_RECORD_COMM, 0, sizeof(c)}, .pid = TGID, .tid = TGID, .time = 3};

	put_fork(&r, TGID, TGID, TGID + 1, 2);
	put(&r, &c, sizeof(c));
	cr_assert_eq(sideband_since(s, TGID, 0), SIDEBAND_NONE);
}

Test(sideband, a_process_that_is_gone_has_the_mappings_of_its_exec)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);

	put_fork(&r, PARENT, TGID, TGID, 10);
	put_map(&r, TGID, 15, 0x100000, "/bin/sh");
	put_exec(&r, TGID, 20);
	put_map(&r, TGID, 21, 0x200000, "/bin/brief");
	put_map(&r, 5, 22, 0x300000, "/bin/other");
	put_map(&r, TGID, 23, 0x400000, "/lib/libc.so.6");
	cr_assert_str_eq(image(s, 25), "200000:/bin/brief 400000:/lib/libc.so.6");
}

/* A7: the sample decides, not what came later. */
Test(sideband, A7_before_and_after_exec_are_two_images)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);

	put_exec(&r, TGID, 10);
	put_map(&r, TGID, 11, 0x100000, "/bin/first");
	put_exec(&r, TGID, 20);
	put_map(&r, TGID, 21, 0x100000, "/bin/second");
	cr_assert_str_eq(image(s, 15), "100000:/bin/first");
	cr_assert_str_eq(image(s, 25), "100000:/bin/second");
	cr_assert_str_eq(image(s, 5), "?");
	cr_assert_eq(sideband_since(s, TGID, 15), SIDEBAND_REPLACED);
	cr_assert_eq(sideband_since(s, TGID, 20), SIDEBAND_REPLACED);
	cr_assert_eq(sideband_since(s, TGID, 21), SIDEBAND_MAPPED);
	cr_assert_eq(sideband_since(s, TGID, 22), SIDEBAND_NONE);
}

/* A6 */
Test(sideband, A6_a_number_used_again_is_another_process)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);
	struct sideband_origin o = {0};

	put_fork(&r, PARENT, TGID, TGID, 10);
	put_exec(&r, TGID, 11);
	put_map(&r, TGID, 12, 0x100000, "/bin/first");
	put_fork(&r, PARENT + 1, TGID, TGID, 30);
	cr_assert_str_eq(image(s, 20), "100000:/bin/first");
	cr_assert_eq(sideband_origin(s, TGID, 0, 35, &o), 0);
	cr_assert(o.is_forked);
	cr_assert_eq(o.parent, PARENT + 1);
	cr_assert_eq(o.fork_ns, 30);
	cr_assert_str_eq(image(s, 35), "");
}

Test(sideband, what_is_mapped_later_fills_only_what_was_free)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);

	put_exec(&r, TGID, 10);
	put_map(&r, TGID, 11, 0x100000, "/lib/old.so");
	put_map(&r, TGID, 30, 0x100000, "/lib/new.so");
	put_map(&r, TGID, 31, 0x200000, "/lib/more.so");
	cr_assert_str_eq(image(s, 20), "100000:/lib/old.so 200000:/lib/more.so");
	cr_assert_str_eq(image(s, 40), "100000:/lib/new.so 200000:/lib/more.so");
}

Test(sideband, records_of_several_cpus_are_one_history)
{
	struct ring r[2] = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(r, 2);

	put_exec(&r[1], TGID, 10);
	put_map(&r[0], TGID, 11, 0x100000, "/bin/first");
	put_exec(&r[0], TGID, 20);
	put_map(&r[1], TGID, 21, 0x200000, "/bin/second");
	cr_assert_str_eq(image(s, 15), "100000:/bin/first");
	cr_assert_str_eq(image(s, 25), "200000:/bin/second");
}

Test(sideband, reads_on_where_it_was_and_says_what_it_missed)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);
	uint64_t time = 100;

	put_exec(&r, TGID, 10);
	put_map(&r, TGID, 11, 0x100000, "/bin/brief");
	cr_assert_eq(sideband_since(s, TGID, 12), SIDEBAND_NONE);
	/* Read as often as this, nothing is missed, however often the ring goes round. */
	for (int i = 0; i < 1000; i++) {
		put_map(&r, 5, time++, 0x300000, "/bin/other");
		cr_assert_eq(sideband_since(s, TGID, time), SIDEBAND_NONE);
	}
	cr_assert_str_eq(image(s, 50), "100000:/bin/brief");
	cr_assert_eq(sideband_since(s, TGID, 50), SIDEBAND_NONE);
	/* Now the ring overflows between two looks. */
	for (int i = 0; i < 1000; i++)
		put_map(&r, 5, time++, 0x300000, "/bin/other");
	cr_assert_eq(sideband_since(s, TGID, 1100), SIDEBAND_FORGOTTEN);
	cr_assert_eq(sideband_since(s, TGID, time - 2), SIDEBAND_NONE);
	cr_assert_str_eq(image(s, 50), "100000:/bin/brief");
	/* It may have called exec in between. */
	cr_assert_str_eq(image(s, time), "?");
	put_exec(&r, TGID, time);
	cr_assert_str_eq(image(s, time), "");
}

Test(sideband, the_oldest_events_are_forgotten_and_that_is_known)
{
	struct ring r = {0};
	_cleanup_(sideband_freep) struct sideband *s = over(&r, 1);

	put_exec(&r, TGID, 10);
	for (uint64_t time = 100; time < 10000; time++) {
		put_map(&r, 5, time, 0x300000, "/bin/other");
		if (time % 50 == 0)
			cr_assert_neq(sideband_since(s, TGID, time + 1), SIDEBAND_FORGOTTEN);
	}
	cr_assert_eq(sideband_since(s, TGID, 11), SIDEBAND_FORGOTTEN);
	cr_assert_str_eq(image(s, 50), "?");
}

/* The kernel itself: a child that maps and is gone. Skipped where its events cannot be had. */
Test(sideband, A8_what_was_gone_at_once_is_known_by_its_events)
{
	_cleanup_(sideband_freep) struct sideband *s = NULL;
	_cleanup_(maps_done) struct maps m;
	_cleanup_(closep) int fd = -1;
	struct timespec boot;
	bool is_past = false;

	maps_init(&m);
	if (sideband_new(&s) < 0)
		cr_skip_test("no perf events here");
	(void)clock_gettime(CLOCK_BOOTTIME, &boot);
	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	struct process_maps_ask ask = {
		.sideband = s,
		.tgid = (uint32_t)pid,
		.start_ns = (uint64_t)boot.tv_sec * NSEC_PER_SEC + (uint64_t)boot.tv_nsec,
		.seen_ns = loop_now_ns(),
	};
	cr_assert_eq(process_maps_read(&ask, &m, &fd, &is_past), 0);
	cr_assert(is_past);
	bool has_true = false;

	for (size_t i = 0; i < m.count; i++) {
		struct stat st;

		if (m.regions[i].kind != MAPS_FILE)
			continue;
		_cleanup_(closep) int file = procfs_open_mapped(fd, &m, &m.regions[i], &st);
		if (!strstr(maps_path(&m, &m.regions[i]), "/true"))
			continue;
		has_true = file >= 0;
		/* The same by what mapping it tells; another file is another. */
		_cleanup_(closep) int other = open("/bin/sh", O_RDONLY | O_CLOEXEC);
		cr_assert(sideband_is_file(s, file, &m.regions[i]));
		cr_assert_not(sideband_is_file(s, other, &m.regions[i]));
	}
	cr_assert(has_true);
}

/* A child without exec has its parent's mappings. */
Test(sideband, A8_a_fork_without_exec_has_what_its_parent_had)
{
	_cleanup_(sideband_freep) struct sideband *s = NULL;
	_cleanup_(maps_done) struct maps m;
	_cleanup_(closep) int fd = -1;
	struct timespec boot;
	bool is_past = false;

	maps_init(&m);
	if (sideband_new(&s) < 0)
		cr_skip_test("no perf events here");
	(void)clock_gettime(CLOCK_BOOTTIME, &boot);
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	struct process_maps_ask ask = {
		.sideband = s,
		.tgid = (uint32_t)pid,
		.start_ns = (uint64_t)boot.tv_sec * NSEC_PER_SEC + (uint64_t)boot.tv_nsec,
		.seen_ns = loop_now_ns(),
	};
	cr_assert_eq(process_maps_read(&ask, &m, &fd, &is_past), 0);
	cr_assert(is_past);
	cr_assert_not_null(maps_find(&m, (uint64_t)(uintptr_t)put_exec));
}
