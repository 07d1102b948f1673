/* No faults: what the shipped agent links. See fault.h. */
#include "agent/fault.h"

int fault_init(const char **ret_name)
{
	*ret_name = "";
	return 0;
}

bool fault_keep_pc(void)
{
	return false;
}

bool fault_double_cpu(size_t *ret_cpu)
{
	(void)ret_cpu; /* only set when true */
	return false;
}

int fault_swap(struct profile *p, uint32_t *frames, uint32_t count)
{
	(void)p;
	(void)frames;
	(void)count;
	return 0;
}

void fault_drop(const struct profile *p, const uint32_t *frames, uint32_t count, uint64_t *samples,
	uint64_t *weight_ns)
{
	(void)p;
	(void)frames;
	(void)count;
	(void)samples;
	(void)weight_ns;
}

void fault_leak(void)
{
}

void fault_slow(void)
{
}

uint32_t fault_sample_turns(void)
{
	return 0;
}

bool fault_spool_unbounded(void)
{
	return false;
}
