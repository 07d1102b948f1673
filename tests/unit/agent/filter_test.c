/* Filters as people say them: what is refused, what a profile says of them. */
#include <criterion/criterion.h>
#include <errno.h>

#include "agent/filter.h"
#include "base/def.h"

static const uint64_t pids[] = {7, 8};
static const char *const comms[] = {"a \"b\"", "c"};
static const char *const cgroups[] = {"/x.slice"};
static struct filter_resolved resolved;

Test(filter, a_profile_says_its_filter_as_json_and_nothing_without_one)
{
	struct filter f = {0};
	struct buf text = BUF_INIT(FILTER_TEXT_MAX);

	cr_assert_not(filter_is_any(&f));
	cr_assert_eq(filter_describe(&f, &text), 0);
	cr_assert_str_eq(buf_str(&text), "");
	f.sides[0].texts[FILTER_COMMS] = (struct filter_texts){comms, 2};
	cr_assert(filter_is_any(&f));
	cr_assert_eq(filter_describe(&f, &text), 0);
	cr_assert_str_eq(buf_str(&text), "{\"comms\":[\"a \\\"b\\\"\",\"c\"]}");
	f.sides[0].pids = pids;
	f.sides[0].pid_count = 2;
	f.sides[0].texts[FILTER_CGROUPS] = (struct filter_texts){cgroups, 1};
	f.sides[0].texts[FILTER_CONTAINERS] = (struct filter_texts){comms + 1, 1};
	f.sides[1].pids = pids + 1;
	f.sides[1].pid_count = 1;
	f.sides[1].texts[FILTER_USERS] = (struct filter_texts){comms + 1, 1};
	buf_reset(&text);
	cr_assert_eq(filter_describe(&f, &text), 0);
	cr_assert_str_eq(buf_str(&text), "{\"pids\":[7,8],\"comms\":[\"a \\\"b\\\"\",\"c\"],"
					 "\"cgroups\":[\"/x.slice\"],\"containers\":[\"c\"],"
					 "\"exclude_pids\":[8],\"exclude_users\":[\"c\"]}");
	buf_done(&text);
}

Test(filter, a_name_that_no_process_can_have_is_refused)
{
	static const char *const wrong[] = {"", "a name of 16 byt"};
	static const char *const longest[] = {"a name of 15 by"};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(wrong); i++) {
		struct buf why = BUF_INIT(1024);
		struct filter f = {0};

		f.sides[i % 2].texts[FILTER_COMMS] = (struct filter_texts){&wrong[i / 2], 1};
		cr_assert_eq(filter_check(&f, &why), -EINVAL);
		cr_assert(why.size > 0);
		buf_done(&why);
	}
	cr_assert_eq(
		filter_check(&(struct filter){.sides[0].texts[FILTER_COMMS] = {longest, 1}}, NULL),
		0);
}

Test(filter, what_asks_for_no_cgroup_needs_none)
{
	struct filter f = {.sides[0] = {.pids = pids, .pid_count = 2}};

	resolved.cgroup_count = 7;
	cr_assert_eq(filter_resolve(&f, NULL, &resolved), 0);
	cr_assert_eq(resolved.cgroup_count, 0);
	cr_assert_not(resolved.has_v1);
}

Test(filter, users_are_found_by_name_and_number_and_keep_their_side)
{
	static const char *const only[] = {"root", "4294967294"};
	static const char *const except[] = {"0"};
	struct filter f = {.sides = {{.texts[FILTER_USERS] = {only, 2}},
				   {.texts[FILTER_USERS] = {except, 1}}}};

	cr_assert_eq(filter_resolve(&f, NULL, &resolved), 0);
	cr_assert_eq(resolved.uid_count, 3);
	cr_assert_eq(resolved.uids[0], 0);
	cr_assert_eq(resolved.uids[1], 4294967294U);
	cr_assert_eq(resolved.uids[2], 0);
	cr_assert_eq(resolved.uid_values[0], FILTER_ONLY);
	cr_assert_eq(resolved.uid_values[2], FILTER_EXCEPT);
}

Test(filter, what_is_not_there_is_named)
{
	static const char *const none[] = {"/no/such/cgroup"};
	static const char *const upper[] = {"ABC"};
	static const char *const user[] = {"no such user"};
	const struct {
		struct filter f;
		const char *says;
	} cases[] = {
		{{.sides[0].texts[FILTER_CGROUPS] = {none, 1}}, "cgroup"},
		{{.sides[1].texts[FILTER_CGROUPS] = {none, 1}}, "cgroup"},
		{{.sides[0].texts[FILTER_CONTAINERS] = {upper, 1}}, ""},
		{{.sides[1].texts[FILTER_USERS] = {user, 1}}, "user 'no such user'"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf why = BUF_INIT(4096);

		cr_assert_lt(filter_resolve(&cases[i].f, &why, &resolved), 0);
		cr_assert(why.size > 0 && !strchr(buf_str(&why), '\n'));
		cr_assert(strstr(buf_str(&why), cases[i].says), "%s", buf_str(&why));
		buf_done(&why);
	}
}
