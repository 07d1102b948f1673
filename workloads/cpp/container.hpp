/* What the two programs of the container workload share: one that burns inside, and one outside. Each says through
 * a pipe what it burnt; functions, not this file, make them differ. */
#pragma once

#include "burn.hpp"
#include "truth.hpp"

namespace truth
{

enum { CONTAINER_FD = 3, CONTAINER_FUNCTIONS = 2 };

struct container_report {
	uint64_t cpu_ns[CONTAINER_FUNCTIONS], wall_ns[CONTAINER_FUNCTIONS],
		count[CONTAINER_FUNCTIONS];
	uint64_t x;
};

inline void container_tell(const function *burnt, uint64_t x)
{
	container_report r = {};
	r.x = x;
	for (int i = 0; i < CONTAINER_FUNCTIONS; i++) {
		r.cpu_ns[i] = burnt[i].cpu_ns;
		r.wall_ns[i] = burnt[i].wall_ns;
		r.count[i] = burnt[i].count;
	}
	if (write(CONTAINER_FD, &r, sizeof r) != (ssize_t)sizeof r)
		fail("report");
}

} // namespace truth
