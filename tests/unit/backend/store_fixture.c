/*
 * The store's tests' directory, profiles and pushes.
 */
#include "store_fixture.h"

#include <criterion/criterion.h>

#include "base/child.h"
#include "base/def.h"
#include "base/rng.h"

void fixture_reopen(struct fixture *f, const struct store_options *o)
{
	struct store_options own = o ? *o : (struct store_options){0};
	const char *why = "";

	store_close(f->store);
	f->store = NULL;
	if (!own.commit_interval_ms)
		own.commit_interval_ms = 1;
	if (!own.free_min_bytes)
		own.free_min_bytes = 1;
	cr_assert_eq(store_open(f->dir, &own, &why, &f->store), 0, "%s", why);
}

void fixture_init(struct fixture *f, const struct store_options *o)
{
	struct timespec now;

	*f = (struct fixture){.dir = "/tmp/flame-store-XXXXXX"};
	cr_assert(mkdtemp(f->dir));
	(void)clock_gettime(CLOCK_REALTIME, &now);
	f->now_ns = (int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC;
	fixture_reopen(f, o);
}

void fixture_done(struct fixture *f)
{
	char rm[] = "rm", force[] = "-rf";
	char *argv[] = {rm, force, f->dir, NULL};

	store_close(f->store);
	cr_assert_eq(child_run(argv, NULL, 60000), 0);
}

static uint32_t frame_of(struct profile *p, const char *name)
{
	struct frame f = {.name = (uint32_t)profile_str(p, name)};
	int64_t id = profile_frame(p, &f);

	cr_assert_geq(id, 0);
	return (uint32_t)id;
}

static struct profile *empty_profile(int64_t start_ns)
{
	struct profile *p = NULL;

	cr_assert_eq(profile_new(FIXTURE_MEMORY, &p), 0);
	cr_assert_eq(profile_sample_type(p, "cpu", "nanoseconds"), 0);
	profile_set_time(p, start_ns, (int64_t)NSEC_PER_SEC);
	profile_set_period(p, "cpu", "nanoseconds", 10000000);
	return p;
}

struct profile *fixture_profile(uint64_t seed, unsigned int samples, int64_t start_ns)
{
	struct profile *p = empty_profile(start_ns);
	struct rng r = rng_seeded(seed);

	for (unsigned int i = 0; i < samples; i++) {
		struct label labels[2] = {
			{.key = (uint32_t)profile_str(p, "comm")},
			{.key = (uint32_t)profile_str(p, "pid"),
				.num = (int64_t)rng_between(&r, 1, 9)},
		};
		uint32_t frames[12];
		uint32_t depth = (uint32_t)rng_between(&r, 1, ARRAY_SIZE(frames));
		int64_t value = (int64_t)rng_between(&r, 0, 1000000);
		char text[32];

		for (uint32_t k = 0; k < depth; k++) {
			(void)snprintf(
				text, sizeof(text), "f%u", (unsigned int)rng_between(&r, 0, 40));
			frames[k] = frame_of(p, text);
		}
		(void)snprintf(text, sizeof(text), "comm%u", (unsigned int)rng_between(&r, 0, 3));
		labels[0].str = (uint32_t)profile_str(p, text);
		cr_assert_eq(profile_add(p, frames, depth, labels, 2, &value), 0);
	}
	return p;
}

struct profile *fixture_stack(const char *leaf, int64_t value, int64_t start_ns)
{
	struct profile *p = empty_profile(start_ns);
	uint32_t frames[3] = {frame_of(p, leaf), frame_of(p, "caller"), frame_of(p, "root")};

	cr_assert_eq(profile_add(p, frames, 3, NULL, 0, &value), 0);
	return p;
}

int fixture_push(struct fixture *f, const char *service, const char *host, const struct profile *p,
	const char *id, enum store_outcome *outcome)
{
	struct push_label labels[] = {
		{"__name__", "cpu"}, {"host", host}, {"service_name", service}};
	struct store_push push = {
		.labels = labels,
		.label_count = ARRAY_SIZE(labels),
		.profile = p,
		.window_id = id,
		.received_unix_ns = f->now_ns,
	};

	return store_push(f->store, &push, 1, FIXTURE_TIMEOUT_MS, outcome);
}

struct store_range fixture_all(const struct fixture *f)
{
	return (struct store_range){
		f->now_ns - 8 * 24 * FIXTURE_HOUR_NS, f->now_ns + FIXTURE_HOUR_NS};
}

struct profile *fixture_flamegraph(struct fixture *f, const char *selector, struct store_range r)
{
	struct matcher *m = calloc(MATCHERS_MAX, sizeof(*m));
	struct profile *p = NULL;
	const char *why = "";
	size_t count;

	cr_assert(m);
	cr_assert_eq(matcher_parse(selector, &why, m, &count), 0, "%s", why);
	cr_assert_eq(store_flamegraph(f->store, m, count, &r, FIXTURE_MEMORY, &p), 0);
	free(m);
	return p;
}

int64_t fixture_total(struct fixture *f, const char *selector, struct store_range r)
{
	_cleanup_(profile_freep) struct profile *p = fixture_flamegraph(f, selector, r);

	return profile_total(p, profile_default_type(p));
}

static int add_point(void *data, int64_t ts_ns, int64_t total, uint64_t profiles)
{
	int64_t *sum = data;

	(void)ts_ns;
	cr_assert_gt(profiles, 0);
	*sum += total;
	return 0;
}

int64_t fixture_timeline_total(
	struct fixture *f, const char *selector, struct store_range r, int64_t step_ns)
{
	struct matcher *m = calloc(MATCHERS_MAX, sizeof(*m));
	const char *why = "";
	int64_t sum = 0;
	size_t count;

	cr_assert(m);
	cr_assert_eq(matcher_parse(selector, &why, m, &count), 0, "%s", why);
	cr_assert_eq(store_timeline(f->store, m, count, &r, step_ns, add_point, &sum, NULL), 0);
	free(m);
	return sum;
}

int64_t fixture_leaf(const struct profile *p, const char *leaf)
{
	struct sample s;
	int64_t sum = 0;

	for (size_t i = 0; profile_sample_at(p, i, &s); i++) {
		if (s.frame_count &&
			strcmp(profile_text(p, profile_frame_at(p, s.frames[0])->name), leaf) == 0)
			sum += s.values[0];
	}
	return sum;
}

uint64_t fixture_verify(struct fixture *f)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	uint64_t profiles = 0;

	store_close(f->store);
	f->store = NULL;
	cr_assert_eq(store_verify(f->dir, &out, &profiles), 0, "%s", buf_str(&out));
	return profiles;
}
