/*
 * A disk that is really full, past the guard: a tmpfs of a few megabytes in a mount namespace of the test's own.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#include "base/def.h"
#include "base/rng.h"
#include "store_fixture.h"

/* Stacks that no other window has, so that the dictionary grows too. */
static struct profile *window(unsigned int n, int64_t start_ns)
{
	return fixture_profile(n + 1, 200, start_ns);
}

static int push_window(struct fixture *f, unsigned int n, int64_t *total)
{
	_cleanup_(profile_freep) struct profile *p = window(n, f->now_ns);
	enum store_outcome outcome;
	char id[16];
	int r;

	(void)snprintf(id, sizeof(id), "w%u", n);
	r = fixture_push(f, "s", "h", p, id, &outcome);
	if (r == 0) {
		cr_assert_eq(outcome, STORE_STORED);
		*total += profile_total(p, 0);
	}
	return r;
}

Test(store_full, a_full_disk_loses_nothing_acknowledged_and_the_store_goes_on, .timeout = 120)
{
	struct store_options o = {.commit_interval_ms = 1, .free_min_bytes = 1};
	struct fixture f = {.dir = "/tmp/flame-store-XXXXXX"};
	struct timespec now;
	unsigned int n = 0;
	int64_t total = 0;
	int r;

	cr_assert(mkdtemp(f.dir));
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", f.dir, "tmpfs", 0, "size=4m") < 0) {
		(void)rmdir(f.dir);
		cr_skip_test("SKIP: no mount namespace: %s", strerror(errno));
	}
	(void)clock_gettime(CLOCK_REALTIME, &now);
	f.now_ns = (int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC;
	fixture_reopen(&f, &o);
	while ((r = push_window(&f, n, &total)) == 0)
		n++;
	cr_assert_eq(r, -ENOSPC, "%s", strerror(-r));
	cr_assert_gt(n, 20);
	cr_assert_eq(push_window(&f, n, &total), -ENOSPC);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), total);
	fixture_reopen(&f, &o); /* a restart does not need room either */
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), total);

	cr_assert_eq(mount("none", f.dir, NULL, MS_REMOUNT, "size=32m"), 0);
	for (unsigned int end = n + 20; n < end; n++)
		cr_assert_eq(push_window(&f, n, &total), 0);
	cr_assert_eq(fixture_total(&f, "{}", fixture_all(&f)), total);
	cr_assert_eq(fixture_verify(&f), n);
	cr_assert_eq(umount(f.dir), 0);
	cr_assert_eq(rmdir(f.dir), 0);
}
