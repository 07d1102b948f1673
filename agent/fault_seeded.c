/* The faults of fault.h, switched on by the environment. Never shipped. */
#include "agent/fault.h"

#include <errno.h>
#include <time.h>

#include "base/def.h"
#include "base/str.h"

enum fault_kind {
	FAULT_NONE,
	FAULT_DROP10,
	FAULT_SWAP,
	FAULT_KEEP_PC,
	FAULT_DOUBLE_CPU,
	FAULT_LEAK,
	FAULT_SLOW,
	FAULT_SAMPLE_SLOW,
	FAULT_SPOOL_UNBOUNDED
};

static const char *const fault_names[] = {
	[FAULT_NONE] = "",
	[FAULT_DROP10] = "drop10",
	[FAULT_SWAP] = "swap",
	[FAULT_KEEP_PC] = "keep_pc",
	[FAULT_DOUBLE_CPU] = "double_cpu",
	[FAULT_LEAK] = "leak",
	[FAULT_SLOW] = "slow",
	[FAULT_SAMPLE_SLOW] = "sample_slow",
	[FAULT_SPOOL_UNBOUNDED] = "spool_unbounded",
};

static struct {
	enum fault_kind kind;
	const char *function;
	const char *function2;
	uint64_t cpu;
	uint64_t seen;        /* samples of function so far, for drop10 */
	uint64_t cpu_ns_last; /* for slow */
	void *volatile leaked;
} fault = {.function = "", .function2 = ""};

static const char *env(const char *name)
{
	const char *s = getenv(name);

	return s ? s : "";
}

int fault_init(const char **ret_name)
{
	const char *name = env("FLAME_FAULT");
	const char *cpu = env("FLAME_FAULT_CPU");

	for (size_t i = 0; i < ARRAY_SIZE(fault_names); i++) {
		if (strcmp(name, fault_names[i]) != 0)
			continue;
		fault.kind = (enum fault_kind)i;
		fault.function = env("FLAME_FAULT_FUNCTION");
		fault.function2 = env("FLAME_FAULT_FUNCTION2");
		if (*cpu && str_to_u64(cpu, 0, 4095, &fault.cpu) < 0)
			return -EINVAL;
		*ret_name = fault_names[i];
		return 0;
	}
	return -EINVAL;
}

bool fault_keep_pc(void)
{
	return fault.kind == FAULT_KEEP_PC;
}

bool fault_double_cpu(size_t *ret_cpu)
{
	if (fault.kind != FAULT_DOUBLE_CPU)
		return false;
	*ret_cpu = fault.cpu;
	return true;
}

/* "split_heavy" names split_heavy and split_heavy(int), nothing else. */
static bool is_function(const struct profile *p, uint32_t id, const char *function)
{
	const struct frame *f = profile_frame_at(p, id);
	const char *name = f ? profile_text(p, f->name) : "";
	size_t n = function ? strlen(function) : 0;

	return n > 0 && strncmp(name, function, n) == 0 && (name[n] == '\0' || name[n] == '(');
}

int fault_swap(struct profile *p, uint32_t *frames, uint32_t count)
{
	if (fault.kind != FAULT_SWAP)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		const char *to = is_function(p, frames[i], fault.function)    ? fault.function2
				 : is_function(p, frames[i], fault.function2) ? fault.function
									      : NULL;
		struct frame f;
		int64_t id;

		if (!to)
			continue;
		f = *profile_frame_at(p, frames[i]);
		id = profile_str(p, to);
		if (id < 0)
			return (int)id;
		f.name = (uint32_t)id;
		id = profile_frame(p, &f);
		if (id < 0)
			return (int)id;
		frames[i] = (uint32_t)id;
	}
	return 0;
}

void fault_drop(const struct profile *p, const uint32_t *frames, uint32_t count, uint64_t *samples,
	uint64_t *weight_ns)
{
	uint64_t dropped;

	if (fault.kind != FAULT_DROP10 || *samples == 0)
		return;
	for (uint32_t i = 0; i < count; i++) {
		if (!is_function(p, frames[i], fault.function))
			continue;
		dropped = (fault.seen + *samples) / 10 - fault.seen / 10;
		fault.seen += *samples;
		*weight_ns -= *weight_ns / *samples * dropped;
		*samples -= dropped;
		return;
	}
}

void fault_leak(void)
{
	if (fault.kind == FAULT_LEAK) {
		fault.leaked = malloc(1024); /* the last one's address is forgotten: the fault */
		if (fault.leaked)
			memset(fault.leaked, 1, 1024);
	}
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* the clock exists */
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

void fault_slow(void)
{
	uint64_t now;

	if (fault.kind != FAULT_SLOW)
		return;
	now = cpu_ns();
	for (uint64_t end = now + (now - fault.cpu_ns_last) / 20; now < end; now = cpu_ns())
		;
	fault.cpu_ns_last = now;
}

uint32_t fault_sample_turns(void)
{
	return fault.kind == FAULT_SAMPLE_SLOW ? 64 : 0;
}

bool fault_spool_unbounded(void)
{
	return strcmp(env("FLAME_FAULT"), fault_names[FAULT_SPOOL_UNBOUNDED]) == 0;
}
