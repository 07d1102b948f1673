/*
 * What the store's tests share: a data directory of their own, profiles by seed, pushes by one call.
 */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include "backend/store.h"

#define FIXTURE_HOUR_NS    ((int64_t)3600 * 1000000000)
#define FIXTURE_MEMORY     ((size_t)256 << 20)
#define FIXTURE_TIMEOUT_MS 60000

struct fixture {
	char dir[64];
	struct store *store;
	int64_t now_ns;
};

/* A new directory and a store in it, with short commits unless o says otherwise. */
void fixture_init(struct fixture *f, const struct store_options *o);
void fixture_done(struct fixture *f); /* removes the directory */
void fixture_reopen(struct fixture *f, const struct store_options *o);

/* One type "cpu nanoseconds", names from a small pool, a comm and a pid a sample. */
struct profile *fixture_profile(uint64_t seed, unsigned int samples, int64_t start_ns);
/* A profile of one stack, root;caller;leaf. */
struct profile *fixture_stack(const char *leaf, int64_t value, int64_t start_ns);

/* Pushes with labels __name__=cpu, host, service_name. store_push's result. */
int fixture_push(struct fixture *f, const char *service, const char *host, const struct profile *p,
	const char *id, enum store_outcome *outcome);

/* The whole time that may hold data. */
struct store_range fixture_all(const struct fixture *f);
/* The merged profile of a selector; the caller frees. */
struct profile *fixture_flamegraph(struct fixture *f, const char *selector, struct store_range r);
int64_t fixture_total(struct fixture *f, const char *selector, struct store_range r);
int64_t fixture_timeline_total(
	struct fixture *f, const char *selector, struct store_range r, int64_t step_ns);
/* The value at the leaf of this name. */
int64_t fixture_leaf(const struct profile *p, const char *leaf);
/* Closes the store and asserts that verify finds nothing; the count of profiles. */
uint64_t fixture_verify(struct fixture *f);

#endif
