/* See own.h. A value that cannot be read is 0. */
#include "agent/own.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_usec * 1000;
}

static uint64_t timespec_ns(struct timespec t)
{
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

uint64_t own_cpu_ns(pid_t child)
{
	struct rusage children = {0};
	struct timespec t = {0};
	struct timespec live = {0};
	clockid_t clock;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* the clock exists */
	(void)getrusage(RUSAGE_CHILDREN, &children);       /* cannot fail with these arguments */
	if (child > 0 && clock_getcpuclockid(child, &clock) == 0)
		(void)clock_gettime(
			clock, &live); /* it ended just now: not reaped, counted later */
	return timespec_ns(t) + timespec_ns(live) + timeval_ns(children.ru_utime) +
	       timeval_ns(children.ru_stime);
}

/* "KEY:   123 kB" of /proc/self/status, in bytes. */
static uint64_t status_bytes(const char *key)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(16384);
	const char *at;

	if (file_read("/proc/self/status", &b) < 0)
		return 0;
	at = strstr(buf_str(&b), key);
	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

uint64_t own_rss_peak_bytes(void)
{
	return status_bytes("\nVmHWM:");
}

uint64_t own_anon_bytes(void)
{
	return status_bytes("\nRssAnon:");
}

uint64_t own_heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Segments that nobody may write have no content of their own, so the file gives them again. */
static int drop_constant_segments(struct dl_phdr_info *info, size_t size, void *data)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size;
	(void)data;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = (info->dlpi_addr + p->p_vaddr) & ~(page - 1);
		uintptr_t end = info->dlpi_addr + p->p_vaddr + p->p_memsz;

		/* The vDSO is the kernel's and says no. */
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W))
			(void)madvise((void *)start, end - start,
				MADV_DONTNEED); // NOLINT(performance-no-int-to-ptr)
	}
	return 0;
}

void own_trim(void)
{
	(void)malloc_trim(0); /* says whether there was any */
	(void)dl_iterate_phdr(drop_constant_segments, NULL);
}
