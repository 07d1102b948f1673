/* Profiles for the store's benches. See profiles.h. */
#include "bench/profiles.h"

#include <errno.h>

#include "base/def.h"
#include "base/rng.h"

enum { STACKS = 3000 };

void bench_die(const char *what, int error)
{
	(void)fprintf(stderr, "bench: %s: %s\n", what, strerror(-error));
	exit(1);
}

/* The function that is called by function from on the way of this number; few ways are taken often. */
static uint64_t callee(uint64_t from, uint64_t way)
{
	struct rng r = rng_seeded(from * 8 + way);

	return rng_between(&r, 0, 2999);
}

static uint32_t add_frame(struct profile *p, uint64_t function)
{
	static const char *const modules[] = {"/usr/bin/service", "libc.so.6", "[kernel.kallsyms]"};
	struct frame f = {.kind = FRAME_NATIVE};
	char name[64];
	int64_t id;

	(void)snprintf(name, sizeof(name), "service::module%u::function_%u(int, char const*)",
		(unsigned int)(function % 20), (unsigned int)function);
	f.name = (uint32_t)profile_str(p, name);
	f.module = (uint32_t)profile_str(p, modules[function % ARRAY_SIZE(modules)]);
	id = profile_frame(p, &f);
	if (id < 0)
		bench_die("frame", (int)id);
	return (uint32_t)id;
}

/* One of the pool's stacks, lower numbers far more often. */
static void add_sample(struct profile *p, struct rng *r)
{
	uint64_t rank = rng_between(r, 1, STACKS);
	struct rng of_stack = rng_seeded(rank * rng_between(r, 1, rank) / STACKS);
	uint32_t frames[40], depth = (uint32_t)rng_between(&of_stack, 8, ARRAY_SIZE(frames));
	int64_t value = (int64_t)rng_between(r, 1, 40) * 10101010;
	struct label comm = {.key = (uint32_t)profile_str(p, "comm"),
		.str = (uint32_t)profile_str(
			p, rng_between(&of_stack, 0, 3) ? "service" : "helper")};
	uint64_t function = 0;
	int e;

	for (uint32_t i = depth; i > 0; i--) {
		uint64_t way = rng_between(&of_stack, 0, 15);

		function = callee(function, way < 13 ? 0 : way - 12);
		frames[i - 1] = add_frame(p, function);
	}
	e = profile_add(p, frames, depth, &comm, 1, &value);
	if (e < 0)
		bench_die("sample", e);
}

struct profile *bench_profile(uint64_t seed)
{
	struct rng r = rng_seeded(seed);
	struct profile *p = NULL;
	char key[32];

	if (profile_new((size_t)16 << 20, &p) < 0 ||
		profile_sample_type(p, "cpu", "nanoseconds") < 0)
		bench_die("profile", -ENOMEM);
	profile_set_period(p, "cpu", "nanoseconds", 10101010);
	for (int i = 0; i < 19; i++) {
		(void)snprintf(key, sizeof(key), "lost.reason%d", i);
		(void)profile_set_factf(p, key, "%u", (unsigned int)rng_between(&r, 0, 9));
	}
	while (profile_sample_count(p) < BENCH_SAMPLES)
		add_sample(p, &r);
	return p;
}
