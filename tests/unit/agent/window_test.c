/* A host's profile becomes one series per service, without loss, with ids that stay the same. */
#include <criterion/criterion.h>
#include <errno.h>

#include "agent/window.h"
#include "base/def.h"
#include "prof/pprof.h"
#include "prof/push.h"

static const struct window_labels labels = {
	.instance = "i-1", .host = "h1", .view = "cpu", .recording = "c1"};

/* service "": a sample without that label. */
static void add(
	struct profile *p, const char *service, int64_t pid, const char *function, int64_t ns)
{
	struct frame f = {.name = (uint32_t)profile_str(p, function),
		.module = (uint32_t)profile_str(p, "lib"),
		.kind = FRAME_NATIVE};
	uint32_t frame = (uint32_t)profile_frame(p, &f);
	struct label l[3] = {{.key = (uint32_t)profile_str(p, "pid"), .num = pid},
		{.key = (uint32_t)profile_str(p, "cgroup"), .str = (uint32_t)profile_str(p, "/a")},
		{.key = (uint32_t)profile_str(p, "service"),
			.str = (uint32_t)profile_str(p, service)}};

	cr_assert_eq(profile_add(p, &frame, 1, l, *service ? 3 : 2, (const int64_t[]){1, ns}), 0);
}

static struct profile *make(void)
{
	struct profile *p;

	cr_assert_eq(profile_new(64 << 20, &p), 0);
	cr_assert_geq(profile_sample_type(p, "samples", "count"), 0);
	cr_assert_geq(profile_sample_type(p, "cpu", "nanoseconds"), 0);
	profile_set_time(p, 1700000000000000000, 10000000000);
	profile_set_period(p, "cpu", "nanoseconds", 10101010);
	cr_assert_eq(profile_set_fact(p, "event", "cpu-clock"), 0);
	return p;
}

static struct push_request must_encode(
	const struct profile *p, struct buf *out, struct arena *a, struct window_result *r)
{
	struct push_request q;
	const char *why = "";

	cr_assert_eq(window_encode(p, &labels, out, r), 0);
	cr_assert_eq(push_read(out->data, out->size, a, &why, &q), 0, "%s", why);
	return q;
}

Test(window, each_service_gets_its_samples_and_nobody_elses)
{
	struct buf out = BUF_INIT(1 << 20);
	struct arena *a = arena_new(1 << 20);
	struct window_result r = {0};
	struct profile *p = make();
	struct profile *part;
	struct push_request q;
	struct sample first;

	add(p, "shop", 7, "work", 700);
	add(p, "db", 9, "query", 200);
	add(p, "shop", 8, "work", 100);
	q = must_encode(p, &out, a, &r);
	cr_assert_eq(q.series_count, 2);
	cr_assert_eq(r.series, 2);
	cr_assert_eq(r.samples, 3);
	cr_assert_str_eq(push_label(&q.series[0], "service_name"), "db");
	cr_assert_str_eq(push_label(&q.series[1], "service_name"), "shop");
	cr_assert_str_eq(push_label(&q.series[1], "__name__"), "process_cpu");
	cr_assert_str_eq(push_label(&q.series[1], "host"), "h1");
	cr_assert_str_eq(push_label(&q.series[1], "view"), "cpu");
	cr_assert_eq(pprof_read(q.series[1].samples[0].profile, q.series[1].samples[0].profile_size,
			     1 << 24, NULL, &part),
		0);
	cr_assert_eq(profile_total(part, 1), 800);
	cr_assert(profile_sample_at(part, 0, &first));
	cr_assert_str_eq(profile_sample_label(part, &first, "cgroup"), "/a");
	cr_assert_str_eq(profile_sample_label(part, &first, "service"), "",
		"the series says it for all of them");
	cr_assert_eq(profile_sample_count(part), 2, "two processes stay apart");
	cr_assert_eq(profile_start_ns(part), 1700000000000000000);
	cr_assert_eq(profile_duration_ns(part), 10000000000);
	cr_assert_eq(profile_period(part), 10101010);
	cr_assert_str_eq(profile_fact(part, "event"), "cpu-clock");
	cr_assert_str_eq(profile_fact(part, "recording"), labels.recording);
	profile_free(part);
	profile_free(p);
	buf_done(&out);
	arena_free(a);
}

Test(window, ids_are_the_same_for_the_same_window_and_differ_in_every_part)
{
	struct window_labels other = labels;
	char a[WINDOW_ID_SIZE], b[WINDOW_ID_SIZE];

	cr_assert_eq(window_id(&labels, "shop", 17, a), 0);
	cr_assert_eq(strlen(a), WINDOW_ID_SIZE - 1);
	cr_assert_eq(a[14], '8');
	cr_assert_eq(window_id(&labels, "shop", 17, b), 0);
	cr_assert_str_eq(a, b);
	cr_assert_eq(window_id(&labels, "shop", 18, b), 0);
	cr_assert_str_neq(a, b);
	cr_assert_eq(window_id(&labels, "db", 17, b), 0);
	cr_assert_str_neq(a, b);
	other.instance = "i-2";
	cr_assert_eq(window_id(&other, "shop", 17, b), 0);
	cr_assert_str_neq(a, b);
	other = labels;
	other.recording = "c2";
	cr_assert_eq(window_id(&other, "shop", 17, b), 0);
	cr_assert_str_neq(a, b);
}

Test(window, a_sample_of_nobody_is_the_service_unknown)
{
	struct buf out = BUF_INIT(1 << 20);
	struct arena *a = arena_new(1 << 20);
	struct window_result r = {0};
	struct profile *p = make();
	struct push_request q;

	add(p, "", 7, "[lost: ring full]", 700);
	q = must_encode(p, &out, a, &r);
	cr_assert_eq(q.series_count, 1);
	cr_assert_str_eq(push_label(&q.series[0], "service_name"), "unknown");
	profile_free(p);
	buf_done(&out);
	arena_free(a);
}

Test(window, a_window_in_which_nothing_ran_makes_no_request)
{
	struct buf out = BUF_INIT(1 << 20);
	struct window_result r = {.series = 7};
	struct profile *p = make();

	cr_assert_eq(window_encode(p, &labels, &out, &r), 0);
	cr_assert_eq(r.series, 0);
	cr_assert_eq(out.size, 0);
	profile_free(p);
	buf_done(&out);
}

Test(window, more_services_than_the_limit_keep_the_heaviest_and_lose_no_time)
{
	struct buf out = BUF_INIT(64 << 20);
	struct arena *a = arena_new(64 << 20);
	struct window_result r = {0};
	struct profile *p = make();
	int64_t total = 0;
	struct push_request q;
	char name[16];

	for (int i = 0; i < WINDOW_SERVICES_MAX + 88; i++) {
		(void)snprintf(name, sizeof(name), "s%04d", i);
		add(p, name, i + 1, "work", 1000 - i);
	}
	q = must_encode(p, &out, a, &r);
	cr_assert_eq(q.series_count, WINDOW_SERVICES_MAX);
	for (size_t i = 0; i < q.series_count; i++) {
		struct profile *part;

		cr_assert_eq(pprof_read(q.series[i].samples[0].profile,
				     q.series[i].samples[0].profile_size, 1 << 24, NULL, &part),
			0);
		total += profile_total(part, 1);
		profile_free(part);
	}
	cr_assert_eq(total, profile_total(p, 1));
	cr_assert_str_eq(push_label(&q.series[0], "service_name"), "other");
	cr_assert_str_eq(push_label(&q.series[1], "service_name"), "s0000");
	cr_assert_eq(r.samples, WINDOW_SERVICES_MAX + 88);
	profile_free(p);
	buf_done(&out);
	arena_free(a);
}

Test(window, a_request_above_its_limit_is_an_error_not_a_part)
{
	struct buf out = BUF_INIT(64);
	struct window_result r = {0};
	struct profile *p = make();

	add(p, "shop", 7, "work", 700);
	cr_assert_eq(window_encode(p, &labels, &out, &r), -ENOBUFS);
	profile_free(p);
	buf_done(&out);
}
