/*
 * Draws from a small pool of names, so that stacks share prefixes and samples merge.
 */
#include "random_profile.h"

#include <assert.h>

#include "base/def.h"
#include "base/rng.h"

static const char *const names[] = {"main", "a;b", "back\\slash", "<svg onload=alert(1)>",
	"constructor", "__proto__", "kernel_[k]", "x_[p]", "#first",
	"std::map<int, char>::at(int&)", "\xff\xfe not utf8", "tab\there", "new\nline",
	"\xe6\x97\xa5\xe6\x9c\xac", "]]>", "&amp;", "a", "b", "c", " spaces ", "native:main",
	"\\x3b"};
static const char *const modules[] = {
	"", "/usr/bin/cpu_split", "[kernel.kallsyms]", "libc.so.6", "nf_tables.ko", "vmlinux"};
static const char *const files[] = {"", "main.c", "/src/\"quoted\".py"};
static const char *const keys[] = {"comm", "pid", "thread", "container"};

#define PICK(r, table) (table)[rng_between(r, 0, ARRAY_SIZE(table) - 1)]

static uint32_t string(struct profile *p, const char *s)
{
	int64_t id = profile_str(p, s);

	assert(id >= 0);
	return (uint32_t)id;
}

static uint32_t random_frame(struct profile *p, struct rng *r)
{
	struct frame f = {
		.name = string(p, PICK(r, names)),
		.file = string(p, PICK(r, files)),
		.module = string(p, PICK(r, modules)),
		.line = (uint32_t)rng_between(r, 0, 3),
		.kind = (uint32_t)rng_between(r, 0, FRAME_KIND_COUNT - 1),
		.address = rng_between(r, 0, 2) ? rng_between(r, 0, 5) : rng_u64(r),
	};
	int64_t id = profile_frame(p, &f);

	assert(id >= 0);
	return (uint32_t)id;
}

static void random_sample(struct profile *p, struct rng *r)
{
	uint32_t frames[64];
	struct label labels[4];
	uint32_t depth = (uint32_t)rng_between(r, 0, ARRAY_SIZE(frames));
	uint32_t count = (uint32_t)rng_between(r, 0, ARRAY_SIZE(labels));
	int64_t values[3];

	for (uint32_t i = 0; i < depth; i++)
		frames[i] = random_frame(p, r);
	for (uint32_t i = 0; i < count; i++) {
		labels[i] = (struct label){.key = string(p, PICK(r, keys))};
		if (rng_between(r, 0, 1))
			labels[i].str = string(p, PICK(r, names));
		else
			labels[i].num = (int64_t)rng_u64(r);
	}
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		values[i] = (int64_t)rng_between(r, 0, 1000000);
	assert(profile_add(p, frames, depth, labels, count, values) == 0);
}

struct profile *random_profile(uint64_t seed, uint32_t samples_max)
{
	struct rng r = rng_seeded(seed);
	uint64_t samples = rng_between(&r, 0, samples_max);
	struct profile *p = NULL;

	assert(profile_new(64 << 20, &p) == 0);
	assert(profile_sample_type(p, "samples", "count") == 0);
	assert(profile_sample_type(p, "alloc", "bytes") == 1);
	assert(profile_sample_type(p, "cpu", "nanoseconds") == 2);
	profile_set_time(p, (int64_t)rng_u64(&r), (int64_t)rng_between(&r, 0, 1000));
	profile_set_period(p, "cpu", "nanoseconds", (int64_t)rng_between(&r, 0, 1000));
	for (uint64_t i = rng_between(&r, 0, 5); i > 0; i--)
		assert(profile_set_fact(p, PICK(&r, keys), PICK(&r, names)) == 0);
	for (uint64_t i = 0; i < samples; i++)
		random_sample(p, &r);
	return p;
}
