/*
 * The call tree of a profile: stacks merged from the root, for drawing and for questions such as
 * "which share has function F, and who called it". Frames are the same node when name, module and
 * kind are equal.
 */
#ifndef PROF_TREE_H
#define PROF_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "prof/profile.h"

struct tree_node {
	uint32_t name; /* string id of the profile */
	uint32_t module;
	uint32_t kind;
	uint32_t parent;      /* index; the root's is 0 */
	uint32_t first_child; /* 0: none; children are linked in name order after tree_build */
	uint32_t next_sibling;
	uint32_t depth;
	int64_t self;
	int64_t total;
};

struct tree;

/* type: sample type index. Iterative, so depth is no problem. 0, -EINVAL, -ENOMEM. */
int tree_build(const struct profile *p, size_t type, bool with_comm, struct tree **ret);
void tree_free(struct tree *t);
void tree_freep(struct tree **t);
size_t tree_count(const struct tree *t); /* node 0 is the root, "all" */
const struct tree_node *tree_at(const struct tree *t, uint32_t i);
const char *tree_name(const struct tree *t, uint32_t i);
uint32_t tree_depth_max(const struct tree *t);

#endif
