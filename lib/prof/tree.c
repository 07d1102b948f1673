/*
 * The call tree: a node is an interned record whose key is (name, module, kind, parent), so merging
 * stacks from the root is one lookup per frame. Everything walks with indices: a stack of any depth
 * costs no C stack.
 *
 * Children are linked in the order of name, module, kind, compared as bytes: the same profile gives
 * the same drawing whatever the order of its samples.
 */
#include "prof/tree.h"

#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "prof/intern.h"
#include "prof/profile_internal.h"

struct tree {
	const struct profile *profile;
	struct arena *arena;
	struct intern nodes;
	uint32_t depth_max;
};

/* The head of struct tree_node, which is the node's identity. */
struct node_key {
	uint32_t name;
	uint32_t module;
	uint32_t kind;
	uint32_t parent;
};

_Static_assert(offsetof(struct tree_node, parent) == offsetof(struct node_key, parent) &&
		       offsetof(struct tree_node, first_child) == sizeof(struct node_key),
	"a node starts with its key");

static struct tree_node *node_at(const struct tree *t, uint32_t i)
{
	return intern_at(&t->nodes, i, NULL);
}

/* Finds or makes the child and adds value to its total. Its index or -ENOMEM. */
static int64_t descend(struct tree *t, const struct node_key *key, int64_t value)
{
	size_t extra = sizeof(struct tree_node) - sizeof(*key);
	uint32_t depth = node_at(t, key->parent)->depth + 1;
	bool is_new;
	int64_t i = intern_put(&t->nodes, key, sizeof(*key), extra, &is_new);
	struct tree_node *n;

	if (i < 0)
		return -ENOMEM;
	n = node_at(t, (uint32_t)i);
	if (is_new) {
		n->depth = depth;
		t->depth_max = MAX(t->depth_max, depth);
	}
	n->total = profile_saturating_add(n->total, value);
	return i;
}

/* String id of the sample's comm, 0 when it has none. */
static uint32_t comm_of(const struct profile *p, const struct sample *s)
{
	for (uint32_t i = 0; i < s->label_count; i++) {
		if (strcmp(profile_text(p, s->labels[i].key), "comm") == 0)
			return s->labels[i].str;
	}
	return 0;
}

static int add_sample(struct tree *t, const struct sample *s, int64_t value, bool with_comm)
{
	struct node_key key = {.kind = FRAME_OTHER};
	struct tree_node *root = node_at(t, 0);
	int64_t at = 0;

	root->total = profile_saturating_add(root->total, value);
	key.name = with_comm ? comm_of(t->profile, s) : 0;
	if (key.name)
		at = descend(t, &key, value);
	for (uint32_t i = s->frame_count; i > 0 && at >= 0; i--) {
		const struct frame *f = profile_frame_at(t->profile, s->frames[i - 1]);

		key = (struct node_key){.name = f->name,
			.module = f->module,
			.kind = f->kind,
			.parent = (uint32_t)at};
		at = descend(t, &key, value);
	}
	if (at < 0)
		return (int)at;
	node_at(t, (uint32_t)at)->self =
		profile_saturating_add(node_at(t, (uint32_t)at)->self, value);
	return 0;
}

static int compare_nodes(const void *a, const void *b, void *arg)
{
	const struct tree *t = arg;
	const struct tree_node *x = node_at(t, *(const uint32_t *)a);
	const struct tree_node *y = node_at(t, *(const uint32_t *)b);
	int r;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	r = x->name == y->name ? 0
			       : strcmp(tree_name(t, *(const uint32_t *)a),
					 tree_name(t, *(const uint32_t *)b));
	if (r == 0 && x->module != y->module)
		r = strcmp(
			profile_text(t->profile, x->module), profile_text(t->profile, y->module));
	if (r == 0)
		r = x->kind < y->kind ? -1 : x->kind > y->kind;
	return r;
}

static int link_children(struct tree *t)
{
	size_t count = t->nodes.count;
	_cleanup_(freep) uint32_t *order = calloc(count, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		order[i] = (uint32_t)i;
	qsort_r(order + 1, count - 1, sizeof(*order), compare_nodes, t);
	/* From the back, so that each sibling is put before those that come after it. */
	for (size_t i = count; i-- > 1;) {
		struct tree_node *n = node_at(t, order[i]);
		struct tree_node *parent = node_at(t, n->parent);

		n->next_sibling = parent->first_child;
		parent->first_child = order[i];
	}
	return 0;
}

static int tree_new(const struct profile *p, struct tree **ret)
{
	const struct node_key root = {.kind = FRAME_OTHER};
	struct tree *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->profile = p;
	/* The profile is bounded, and so is its tree: one node per frame of a sample at most. */
	t->arena = arena_new(SIZE_MAX);
	intern_init(&t->nodes, t->arena, SIZE_MAX);
	if (!t->arena || intern_put(&t->nodes, &root, sizeof(root),
				 sizeof(struct tree_node) - sizeof(root), NULL) != 0) {
		tree_free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

int tree_build(const struct profile *p, size_t type, bool with_comm, struct tree **ret)
{
	_cleanup_(tree_freep) struct tree *t = NULL;
	struct sample s;
	int r;

	if (type >= profile_type_count(p))
		return -EINVAL;
	r = tree_new(p, &t);
	for (size_t i = 0; r == 0 && profile_sample_at(p, i, &s); i++)
		r = add_sample(t, &s, s.values[type], with_comm);
	if (r == 0)
		r = link_children(t);
	if (r < 0)
		return r;
	*ret = steal_ptr(&t);
	return 0;
}

void tree_free(struct tree *t)
{
	if (!t)
		return;
	arena_free(t->arena);
	free(t);
}

void tree_freep(struct tree **t)
{
	tree_free(*t);
}

size_t tree_count(const struct tree *t)
{
	return t->nodes.count;
}

const struct tree_node *tree_at(const struct tree *t, uint32_t i)
{
	return node_at(t, i);
}

const char *tree_name(const struct tree *t, uint32_t i)
{
	const struct tree_node *n = node_at(t, i);

	if (!n)
		return "";
	return i == 0 ? "all" : profile_text(t->profile, n->name);
}

uint32_t tree_depth_max(const struct tree *t)
{
	return t->depth_max;
}
