/*
 * The call tree: sums, order, levels.
 */
#include "prof/tree.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "prof/folded.h"
#include "random_profile.h"

static struct profile *read_text(const char *text)
{
	struct profile *p = NULL;

	cr_assert_eq(folded_read(text, strlen(text), 16 << 20, NULL, &p), 0);
	return p;
}

/* Index of parent's child of this name. */
static uint32_t child(const struct tree *t, uint32_t parent, const char *name)
{
	uint32_t i = tree_at(t, parent)->first_child;

	while (i && strcmp(tree_name(t, i), name) != 0)
		i = tree_at(t, i)->next_sibling;
	cr_assert_neq(i, 0, "no child %s", name);
	return i;
}

Test(tree, self_and_total_follow_the_stacks)
{
	_cleanup_(profile_freep) struct profile *p =
		read_text("main;a;hot 70\nmain;b;hot 20\nmain;b 10\nother 5\n");
	_cleanup_(tree_freep) struct tree *t = NULL;
	uint32_t main_, b;

	cr_assert_eq(tree_build(p, 0, false, &t), 0);
	cr_assert_eq(tree_count(t), 7);
	cr_assert_str_eq(tree_name(t, 0), "all");
	cr_assert_eq(tree_at(t, 0)->total, 105);
	cr_assert_eq(tree_at(t, 0)->self, 0);
	main_ = child(t, 0, "main");
	b = child(t, main_, "b");
	cr_assert_eq(tree_at(t, main_)->total, 100);
	cr_assert_eq(tree_at(t, b)->total, 30);
	cr_assert_eq(tree_at(t, b)->self, 10);
	cr_assert_eq(tree_at(t, child(t, b, "hot"))->total, 20);
	cr_assert_eq(tree_at(t, child(t, b, "hot"))->depth, 3);
	cr_assert_eq(tree_depth_max(t), 3);
	cr_assert_null(tree_at(t, 7));
}

Test(tree, children_stand_in_name_order_whatever_the_sample_order)
{
	_cleanup_(profile_freep) struct profile *p = read_text("c 1\na 2\nb 3\n");
	_cleanup_(tree_freep) struct tree *t = NULL;
	char order[8] = "";
	size_t n = 0;

	cr_assert_eq(tree_build(p, 0, false, &t), 0);
	for (uint32_t i = tree_at(t, 0)->first_child; i; i = tree_at(t, i)->next_sibling)
		order[n++] = tree_name(t, i)[0];
	cr_assert_str_eq(order, "abc");
}

Test(tree, kind_and_module_tell_nodes_apart_but_line_and_address_do_not)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	_cleanup_(tree_freep) struct tree *t = NULL;
	struct frame f = {0};
	uint32_t id;

	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(profile_sample_type(p, "samples", "count"), 0);
	f.name = (uint32_t)profile_str(p, "f");
	for (int i = 0; i < 4; i++) {
		f.line = i == 1 ? 7 : 0;
		f.address = i == 1 ? 0x1234 : 0;
		f.kind = i == 2 ? FRAME_KERNEL : FRAME_NATIVE;
		f.module = i == 3 ? (uint32_t)profile_str(p, "libc.so.6") : 0;
		id = (uint32_t)profile_frame(p, &f);
		cr_assert_eq(profile_add(p, &id, 1, NULL, 0, (int64_t[]){1}), 0);
	}
	cr_assert_eq(tree_build(p, 0, false, &t), 0);
	cr_assert_eq(tree_count(t), 1 + 3);
}

Test(tree, comm_is_the_first_level_when_asked)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	_cleanup_(tree_freep) struct tree *with = NULL, *without = NULL;
	struct label l;
	uint32_t id;

	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(profile_sample_type(p, "samples", "count"), 0);
	l = (struct label){
		.key = (uint32_t)profile_str(p, "comm"), .str = (uint32_t)profile_str(p, "nginx")};
	id = (uint32_t)profile_frame(p, &(struct frame){.name = (uint32_t)profile_str(p, "main")});
	cr_assert_eq(profile_add(p, &id, 1, &l, 1, (int64_t[]){4}), 0);
	cr_assert_eq(profile_add(p, &id, 1, NULL, 0, (int64_t[]){1}), 0);
	cr_assert_eq(tree_build(p, 0, true, &with), 0);
	cr_assert_eq(tree_build(p, 0, false, &without), 0);
	cr_assert_eq(tree_at(with, child(with, child(with, 0, "nginx"), "main"))->total, 4);
	cr_assert_eq(tree_at(with, child(with, 0, "main"))->total, 1, "no comm, no level");
	cr_assert_eq(tree_at(without, child(without, 0, "main"))->total, 5);
}

Test(tree, a_node_is_its_self_plus_its_children)
{
	for (uint64_t seed = 1; seed <= 30; seed++) {
		_cleanup_(profile_freep) struct profile *p = random_profile(seed, 40);
		_cleanup_(tree_freep) struct tree *t = NULL;

		cr_assert_eq(tree_build(p, seed % 3, seed % 2, &t), 0);
		cr_assert_eq(tree_at(t, 0)->total, profile_total(p, seed % 3));
		for (uint32_t i = 0; i < tree_count(t); i++) {
			int64_t sum = tree_at(t, i)->self;

			for (uint32_t c = tree_at(t, i)->first_child; c;
				c = tree_at(t, c)->next_sibling) {
				cr_assert_eq(tree_at(t, c)->parent, i);
				cr_assert_eq(tree_at(t, c)->depth, tree_at(t, i)->depth + 1);
				sum += tree_at(t, c)->total;
			}
			cr_assert_eq(sum, tree_at(t, i)->total);
		}
	}
}

Test(tree, an_unknown_type_is_refused)
{
	_cleanup_(profile_freep) struct profile *p = read_text("a 1\n");
	struct tree *t = NULL;

	cr_assert_eq(tree_build(p, 1, false, &t), -EINVAL);
	cr_assert_null(t);
}
