/* The store of stack records: found by the whole key, first record wins, limits hold. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/stacks.h"

static struct stack_record *record(__u64 hash, __u32 tgid, __u32 frames)
{
	struct stack_record *r = calloc(1, sizeof(*r) + frames * sizeof(r->frames[0]));

	cr_assert_not_null(r);
	r->key.hash = hash;
	r->key.tgid = tgid;
	r->user_count = frames;
	for (__u32 i = 0; i < frames; i++)
		r->frames[i] = hash + i;
	return r;
}

static void add(struct stacks *s, __u64 hash, __u32 tgid, __u32 frames, int want)
{
	struct stack_record *r = record(hash, tgid, frames);

	cr_assert_eq(stacks_add(s, r), want);
	free(r);
}

Test(stacks, a_record_is_found_by_every_field_of_its_key)
{
	struct stacks *s;
	struct stack_key key = {.hash = 7, .tgid = 1};
	struct stack_key other = {.hash = 7, .tgid = 2};

	cr_assert_eq(stacks_new(16, 1 << 20, &s), 0);
	add(s, 7, 1, 3, 0);
	cr_assert_not_null(stacks_find(s, &key));
	cr_assert_eq(stacks_find(s, &key)->user_count, 3);
	cr_assert_eq(stacks_find(s, &key)->frames[2], 9);
	cr_assert_null(stacks_find(s, &other));
	other = key;
	other.exec_id = 1;
	cr_assert_null(stacks_find(s, &other));
	stacks_free(s);
}

Test(stacks, the_first_record_of_a_key_wins)
{
	struct stacks *s;
	struct stack_key key = {.hash = 7, .tgid = 1};

	cr_assert_eq(stacks_new(16, 1 << 20, &s), 0);
	add(s, 7, 1, 3, 0);
	add(s, 7, 1, 5, 0);
	cr_assert_eq(stacks_count(s), 1);
	cr_assert_eq(stacks_find(s, &key)->user_count, 3);
	stacks_free(s);
}

Test(stacks, keys_and_bytes_have_limits)
{
	struct stacks *s;

	cr_assert_eq(stacks_new(2, 1 << 20, &s), 0);
	add(s, 1, 1, 1, 0);
	add(s, 2, 1, 1, 0);
	add(s, 3, 1, 1, -ENOBUFS);
	stacks_free(s);
	cr_assert_eq(stacks_new(1000, 1, &s), 0);
	add(s, 1, 1, 500, -ENOBUFS);
	cr_assert_null(stacks_find(s, &(struct stack_key){.hash = 1, .tgid = 1}));
	stacks_free(s);
}
