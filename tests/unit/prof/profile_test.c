/*
 * The profile model: interning, merging, order, limits, hostile names.
 */
#include "prof/profile.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/str.h"

static struct profile *new_profile(void)
{
	struct profile *p = NULL;

	cr_assert_eq(profile_new(16 << 20, &p), 0);
	cr_assert_eq(profile_sample_type(p, "samples", "count"), 0);
	return p;
}

static uint32_t frame(struct profile *p, const char *name)
{
	struct frame f = {.name = (uint32_t)profile_str(p, name)};

	return (uint32_t)profile_frame(p, &f);
}

Test(profile, equal_strings_and_frames_share_an_id)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	int64_t a = profile_str(p, "alpha");

	cr_assert_gt(a, 0);
	cr_assert_eq(profile_string(p, "alphabet", 5), a);
	cr_assert_neq(profile_str(p, "beta"), a);
	cr_assert_eq(profile_str(p, ""), 0);
	cr_assert_str_eq(profile_text(p, (uint32_t)a), "alpha");
	cr_assert_eq(frame(p, "alpha"), frame(p, "alpha"));
	cr_assert_eq(profile_frame_count(p), 1);
}

Test(profile, text_pointers_survive_growth)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	const char *first = profile_text(p, (uint32_t)profile_str(p, "first"));
	char name[32];

	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), "name %d", i);
		cr_assert_gt(profile_str(p, name), 0);
	}
	cr_assert_str_eq(first, "first");
	cr_assert_eq(profile_string_count(p), 20000 + 4); /* "", type, unit, first */
	cr_assert_str_eq(profile_text(p, (uint32_t)profile_str(p, "name 12345")), "name 12345");
}

Test(profile, equal_samples_merge_whatever_the_label_order)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	uint32_t stack[] = {frame(p, "leaf"), frame(p, "root")};
	uint32_t comm = (uint32_t)profile_str(p, "comm"), pid = (uint32_t)profile_str(p, "pid");
	uint32_t name = (uint32_t)profile_str(p, "nginx");
	struct label ab[] = {{.key = comm, .str = name}, {.key = pid, .num = 7}};
	struct label ba[] = {{.key = pid, .num = 7}, {.key = comm, .str = name}};
	struct sample s;

	cr_assert_eq(profile_add(p, stack, 2, ab, 2, (int64_t[]){3}), 0);
	cr_assert_eq(profile_add(p, stack, 2, ba, 2, (int64_t[]){4}), 0);
	cr_assert_eq(profile_add(p, stack, 1, ab, 2, (int64_t[]){5}), 0);
	cr_assert_eq(profile_sample_count(p), 2);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.values[0], 7);
	cr_assert_eq(s.frame_count, 2);
	cr_assert_eq(s.frames[0], stack[0]);
	cr_assert_str_eq(profile_sample_label(p, &s, "comm"), "nginx");
	cr_assert_str_eq(profile_sample_label(p, &s, "pid"), "");
	cr_assert_str_eq(profile_sample_label(p, &s, "absent"), "");
	cr_assert_eq(profile_total(p, 0), 12);
	cr_assert_not(profile_sample_at(p, 2, &s));
}

Test(profile, sums_saturate)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	uint32_t a = frame(p, "a"), b = frame(p, "b");
	struct sample s;

	cr_assert_eq(profile_add(p, &a, 1, NULL, 0, (int64_t[]){INT64_MAX - 1}), 0);
	cr_assert_eq(profile_add(p, &a, 1, NULL, 0, (int64_t[]){2}), 0);
	cr_assert_eq(profile_add(p, &b, 1, NULL, 0, (int64_t[]){INT64_MIN}), 0);
	cr_assert_eq(profile_add(p, &b, 1, NULL, 0, (int64_t[]){-1}), 0);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.values[0], INT64_MAX);
	cr_assert(profile_sample_at(p, 1, &s));
	cr_assert_eq(s.values[0], INT64_MIN);
}

Test(profile, indices_out_of_range_are_refused)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	uint32_t a = frame(p, "a"), wrong = 99;
	uint32_t deep[PROFILE_DEPTH_MAX + 1] = {0};
	struct label labels[PROFILE_LABELS_MAX + 1] = {0};
	struct label bad_key = {.key = 99}, bad_str = {.str = 99};
	int64_t one = 1;

	cr_assert_eq(profile_frame(p, &(struct frame){.name = 99}), -EINVAL);
	cr_assert_eq(profile_frame(p, &(struct frame){.file = 99}), -EINVAL);
	cr_assert_eq(profile_frame(p, &(struct frame){.module = 99}), -EINVAL);
	cr_assert_eq(profile_frame(p, &(struct frame){.kind = FRAME_KIND_COUNT}), -EINVAL);
	cr_assert_eq(profile_add(p, &wrong, 1, NULL, 0, &one), -EINVAL);
	cr_assert_eq(profile_add(p, deep, PROFILE_DEPTH_MAX + 1, NULL, 0, &one), -EINVAL);
	cr_assert_eq(profile_add(p, deep, PROFILE_DEPTH_MAX, NULL, 0, &one), 0);
	cr_assert_eq(profile_add(p, &a, 1, labels, PROFILE_LABELS_MAX + 1, &one), -EINVAL);
	cr_assert_eq(profile_add(p, &a, 1, &bad_key, 1, &one), -EINVAL);
	cr_assert_eq(profile_add(p, &a, 1, &bad_str, 1, &one), -EINVAL);
	cr_assert_eq(profile_sample_count(p), 1);
	cr_assert_str_eq(profile_text(p, 99), "");
	cr_assert_null(profile_frame_at(p, 99));
}

Test(profile, sample_types_are_fixed_by_the_first_sample)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	uint32_t a;

	cr_assert_eq(profile_new(1 << 20, &p), 0);
	a = frame(p, "a");
	cr_assert_eq(profile_add(p, &a, 1, NULL, 0, (int64_t[]){1}), -EINVAL);
	for (int i = 0; i < PROFILE_TYPES_MAX; i++)
		cr_assert_eq(profile_sample_type(p, "t", "u"), i);
	cr_assert_eq(profile_sample_type(p, "t", "u"), -EINVAL);
	cr_assert_eq(profile_default_type(p), PROFILE_TYPES_MAX - 1);

	profile_free(p);
	p = new_profile();
	a = frame(p, "a");
	cr_assert_eq(profile_add(p, &a, 1, NULL, 0, (int64_t[]){1}), 0);
	cr_assert_eq(profile_sample_type(p, "late", "count"), -EINVAL);
}

Test(profile, memory_max_is_kept_and_the_profile_stays_usable)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	uint32_t a;
	char name[64];
	int64_t id = 0;
	int added = 0;

	cr_assert_eq(profile_new(256 << 10, &p), 0);
	cr_assert_eq(profile_sample_type(p, "samples", "count"), 0);
	a = frame(p, "a");
	cr_assert_eq(profile_add(p, &a, 1, NULL, 0, (int64_t[]){1}), 0);
	for (; id >= 0 && added < 100000; added++) {
		(void)snprintf(name, sizeof(name), "a name that takes its memory %d", added);
		id = profile_str(p, name);
	}
	cr_assert_eq(id, -ENOBUFS);
	cr_assert_gt(added, 1000);
	cr_assert_lt(added, (256 << 10) / 48);
	cr_assert_eq(
		profile_add(p, &a, 1, NULL, 0, (int64_t[]){1}), 0, "equal samples need nothing");
	cr_assert_eq(profile_total(p, 0), 2);
}

Test(profile, names_become_valid_text_of_bounded_size)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	char huge[10240];
	const char *text;

	text = profile_text(p, (uint32_t)profile_string(p, "a\xff\0b\n\x1b", 6));
	cr_assert_str_eq(text, "a\xef\xbf\xbd\xef\xbf\xbd"
			       "b\xef\xbf\xbd\xef\xbf\xbd");
	memset(huge, 'n', sizeof(huge));
	text = profile_text(p, (uint32_t)profile_string(p, huge, sizeof(huge)));
	cr_assert_eq(strlen(text), PROFILE_NAME_MAX);
	cr_assert(str_has_suffix(text, "n..."));
	text = profile_text(p, (uint32_t)profile_string(p, huge, PROFILE_NAME_MAX));
	cr_assert(str_has_suffix(text, "nnnn"));
	cr_assert_str_eq(profile_text(p, profile_frame_at(p, frame(p, ""))->name), "[unnamed]");
}

Test(profile, facts_are_replaced_by_key_and_keep_their_order)
{
	_cleanup_(profile_freep) struct profile *p = new_profile();
	const char *key, *value;

	cr_assert_eq(profile_set_fact(p, "event", "cycles"), 0);
	cr_assert_eq(profile_set_factf(p, "rate", "%d", 99), 0);
	cr_assert_eq(profile_set_fact(p, "event", "cpu-clock=1"), 0);
	cr_assert_eq(profile_fact_count(p), 2);
	cr_assert(profile_fact_at(p, 0, &key, &value));
	cr_assert_str_eq(key, "event");
	cr_assert_str_eq(value, "cpu-clock=1");
	cr_assert_str_eq(profile_fact(p, "rate"), "99");
	cr_assert_null(profile_fact(p, "absent"));
	cr_assert_not(profile_fact_at(p, 2, &key, &value));
	cr_assert_eq(profile_set_fact(p, "", "v"), -EINVAL);
	cr_assert_eq(profile_set_fact(p, "a=b", "v"), -EINVAL);
}

Test(profile, kinds_have_names_that_parse_back)
{
	enum frame_kind k;

	for (int i = 0; i < FRAME_KIND_COUNT; i++) {
		cr_assert(frame_kind_parse(frame_kind_name((enum frame_kind)i), &k));
		cr_assert_eq(k, (enum frame_kind)i);
	}
	cr_assert_not(frame_kind_parse("cobol", &k));
}
