/*
 * Folded stacks: the stored form, names that look like syntax, limits.
 */
#include "prof/folded.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/file.h"
#include "prof/pprof.h"
#include "prof/profile_internal.h"
#include "random_profile.h"

static struct profile *read_text(const char *text)
{
	struct profile *p = NULL;

	cr_assert_eq(folded_read(text, strlen(text), 16 << 20, NULL, &p), 0);
	return p;
}

static const char *frame_name(const struct profile *p, const struct sample *s, uint32_t i)
{
	return profile_text(p, profile_frame_at(p, s->frames[i])->name);
}

Test(folded, writes_the_stored_lines)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf want = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL;

	cr_assert_eq(file_read("fixtures/prof/hostile.pb.gz", &in), 0);
	cr_assert_eq(file_read("fixtures/prof/hostile.folded", &want), 0);
	cr_assert_eq(pprof_read(in.data, in.size, 1 << 20, NULL, &p), 0);
	cr_assert_eq(
		folded_write(p,
			&(struct folded_options){.type = 0, .with_comm = true, .with_suffix = true},
			&out),
		0);
	cr_assert_str_eq(buf_str(&out), buf_str(&want));
}

Test(folded, reading_takes_root_first_and_the_last_space)
{
	_cleanup_(profile_freep) struct profile *p =
		read_text("# a comment\n\nmain;operator new 7\r\nmain;a b c;sys_read_[k] 12");
	struct sample s;

	cr_assert_eq(profile_sample_count(p), 2);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, 2);
	cr_assert_str_eq(frame_name(p, &s, 0), "operator new");
	cr_assert_str_eq(frame_name(p, &s, 1), "main");
	cr_assert(profile_sample_at(p, 1, &s));
	cr_assert_eq(s.values[0], 12);
	cr_assert_str_eq(frame_name(p, &s, 0), "sys_read");
	cr_assert_eq(profile_frame_at(p, s.frames[0])->kind, FRAME_KERNEL);
	cr_assert_eq(profile_frame_at(p, s.frames[1])->kind, FRAME_NATIVE);
}

Test(folded, equal_lines_merge_sorted_and_zero_is_left_out)
{
	_cleanup_(profile_freep) struct profile *p = read_text("b 1\na;x 2\nb 3\na 5\nz 0\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(1000);

	cr_assert_eq(folded_write(p, &(struct folded_options){0}, &out), 0);
	cr_assert_str_eq(buf_str(&out), "a 5\na;x 2\nb 4\n");
}

Test(folded, names_survive_a_round_trip)
{
	_cleanup_(profile_freep) struct profile *p = NULL, *q = NULL;
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);
	static const char *const names[] = {"#hash", "a;b", "back\\slash", "\\x3b", "k_[k]", "_[k]",
		"two  spaces 5", "[unnamed]", "\\"};
	struct sample s;

	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(profile_sample_type(p, "samples", "count"), 0);
	for (uint32_t kind = 0; kind < FRAME_OTHER; kind++) {
		uint32_t stack[ARRAY_SIZE(names)];

		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			stack[i] = (uint32_t)profile_frame(
				p, &(struct frame){.name = (uint32_t)profile_str(p, names[i]),
					   .kind = kind});
		cr_assert_eq(profile_add(p, stack, ARRAY_SIZE(stack), NULL, 0, (int64_t[]){1}), 0);
	}
	cr_assert_eq(folded_write(p, &(struct folded_options){.with_suffix = true}, &out), 0);
	cr_assert_eq(folded_read(out.data, out.size, 1 << 20, NULL, &q), 0);
	cr_assert_eq(profile_sample_count(q), FRAME_OTHER);
	for (size_t j = 0; profile_sample_at(q, j, &s); j++) {
		cr_assert_eq(s.frame_count, ARRAY_SIZE(names));
		for (uint32_t i = 0; i < s.frame_count; i++) {
			cr_assert_str_eq(frame_name(q, &s, i), names[i]);
			cr_assert_eq(profile_frame_at(q, s.frames[i])->kind,
				profile_frame_at(q, s.frames[0])->kind);
		}
	}
}

Test(folded, writing_what_was_read_gives_the_same_text)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		_cleanup_(profile_freep) struct profile *p = random_profile(seed, 30), *q = NULL;
		_cleanup_(buf_done) struct buf one = BUF_INIT(1 << 22);
		_cleanup_(buf_done) struct buf two = BUF_INIT(1 << 22);
		struct folded_options o = {.type = 2, .with_comm = seed % 2, .with_suffix = true};

		cr_assert_eq(folded_write(p, &o, &one), 0);
		cr_assert_eq(folded_read(one.data, one.size, 64 << 20, NULL, &q), 0);
		cr_assert_eq(profile_total(p, 2), profile_total(q, 0));
		o = (struct folded_options){.with_suffix = true};
		cr_assert_eq(folded_write(q, &o, &two), 0);
		cr_assert_str_eq(buf_str(&one), buf_str(&two), "seed %lu", seed);
	}
}

Test(folded, wrong_lines_are_refused_by_number)
{
	static const char *const bad[] = {"novalue", "a x", "a 1.5", "a ", " 5", "a -", "a 1-",
		"a 9223372036854775808", "a 99999999999999999999", "a 0x10"};
	struct profile *p = NULL;
	size_t line;
	char text[100];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		(void)snprintf(text, sizeof(text), "ok 1\n# c\n%s\nok 2\n", bad[i]);
		line = 0;
		cr_assert_eq(folded_read(text, strlen(text), 1 << 20, &line, &p), -EBADMSG, "%s",
			bad[i]);
		cr_assert_eq(line, 3, "%s", bad[i]);
		cr_assert_null(p);
	}
}

Test(folded, the_extreme_values_are_read)
{
	_cleanup_(profile_freep) struct profile *p =
		read_text("a 9223372036854775807\nb -9223372036854775808\n");
	struct sample s;

	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.values[0], INT64_MAX);
	cr_assert(profile_sample_at(p, 1, &s));
	cr_assert_eq(s.values[0], INT64_MIN);
}

Test(folded, a_stack_of_50000_frames_keeps_its_leaves_and_says_so)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct sample s;

	for (int i = 0; i < 50000; i++)
		cr_assert_eq(buf_printf(&in, "%sf%d", i ? ";" : "", i), 0);
	cr_assert_eq(buf_append_str(&in, " 3\n"), 0);
	cr_assert_eq(folded_read(in.data, in.size, 16 << 20, NULL, &p), 0);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, PROFILE_DEPTH_MAX);
	cr_assert_str_eq(frame_name(p, &s, 0), "f49999");
	cr_assert_str_eq(frame_name(p, &s, PROFILE_DEPTH_MAX - 2), "f48977");
	cr_assert_str_eq(frame_name(p, &s, PROFILE_DEPTH_MAX - 1), PROFILE_CUT_NAME);
	cr_assert_eq(s.values[0], 3);
}

Test(folded, exactly_the_depth_limit_is_not_cut)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct sample s;

	for (int i = 0; i < PROFILE_DEPTH_MAX; i++)
		cr_assert_eq(buf_printf(&in, "%sf%d", i ? ";" : "", i), 0);
	cr_assert_eq(buf_append_str(&in, " 3\n"), 0);
	cr_assert_eq(folded_read(in.data, in.size, 16 << 20, NULL, &p), 0);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_str_eq(frame_name(p, &s, PROFILE_DEPTH_MAX - 1), "f0");
}

Test(folded, the_memory_limit_is_an_error)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 22);
	struct profile *p = NULL;

	for (int i = 0; i < 50000; i++)
		cr_assert_eq(buf_printf(&in, "frame number %d 1\n", i), 0);
	cr_assert_eq(folded_read(in.data, in.size, 128 << 10, NULL, &p), -ENOBUFS);
	cr_assert_null(p);
}

Test(folded, a_full_output_is_an_error)
{
	_cleanup_(profile_freep) struct profile *p = read_text("abcdefgh 1\n");
	_cleanup_(buf_done) struct buf out = BUF_INIT(5);

	cr_assert_eq(folded_write(p, &(struct folded_options){0}, &out), -ENOBUFS);
	cr_assert_eq(folded_write(p, &(struct folded_options){.type = 1}, &out), -EINVAL);
}
