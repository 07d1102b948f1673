/* Filters as people say them: what is refused, what a profile says of them. */
#include <criterion/criterion.h>
#include <errno.h>

#include "agent/filter.h"
#include "base/def.h"

static const uint64_t pids[] = {7, 8};
static const char *const comms[] = {"a \"b\"", "c"};
static const char *const cgroups[] = {"/x.slice"};

Test(filter, a_profile_says_its_filter_as_json_and_nothing_without_one)
{
	struct filter f = {0};
	struct buf text = BUF_INIT(FILTER_TEXT_MAX);

	cr_assert_not(filter_is_any(&f));
	cr_assert_eq(filter_describe(&f, &text), 0);
	cr_assert_str_eq(buf_str(&text), "");
	f.comms = comms;
	f.comm_count = 2;
	cr_assert(filter_is_any(&f));
	cr_assert_eq(filter_describe(&f, &text), 0);
	cr_assert_str_eq(buf_str(&text), "{\"comms\":[\"a \\\"b\\\"\",\"c\"]}");
	f.pids = pids;
	f.pid_count = 2;
	f.cgroups = cgroups;
	f.cgroup_count = 1;
	f.containers = comms + 1;
	f.container_count = 1;
	buf_reset(&text);
	cr_assert_eq(filter_describe(&f, &text), 0);
	cr_assert_str_eq(buf_str(&text), "{\"pids\":[7,8],\"comms\":[\"a \\\"b\\\"\",\"c\"],"
					 "\"cgroups\":[\"/x.slice\"],\"containers\":[\"c\"]}");
	buf_done(&text);
}

Test(filter, a_name_that_no_process_can_have_is_refused)
{
	static const char *const wrong[] = {"", "a name of 16 byt"};
	static const char *const longest[] = {"a name of 15 by"};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct buf why = BUF_INIT(1024);

		cr_assert_eq(
			filter_check(&(struct filter){.comms = &wrong[i], .comm_count = 1}, &why),
			-EINVAL);
		cr_assert(why.size > 0);
		buf_done(&why);
	}
	cr_assert_eq(filter_check(&(struct filter){.comms = longest, .comm_count = 1}, NULL), 0);
}

Test(filter, what_asks_for_no_cgroup_needs_none)
{
	uint64_t ids[FILTER_CGROUPS_MAX];
	size_t count = 7;

	cr_assert_eq(
		filter_resolve(&(struct filter){.pids = pids, .pid_count = 2}, NULL, ids, &count),
		0);
	cr_assert_eq(count, 0);
}

Test(filter, a_cgroup_or_container_that_is_not_there_is_named)
{
	static const char *const none[] = {"/no/such/cgroup"};
	static const char *const upper[] = {"ABC"};
	uint64_t ids[FILTER_CGROUPS_MAX];
	struct buf why = BUF_INIT(4096);
	size_t count;

	cr_assert_lt(filter_resolve(&(struct filter){.cgroups = none, .cgroup_count = 1}, &why, ids,
			     &count),
		0);
	cr_assert(strstr(buf_str(&why), "cgroup"), "%s", buf_str(&why));
	buf_reset(&why);
	cr_assert_lt(filter_resolve(&(struct filter){.containers = upper, .container_count = 1},
			     &why, ids, &count),
		0);
	cr_assert(why.size > 0 && !strchr(buf_str(&why), '\n'));
	buf_done(&why);
}
