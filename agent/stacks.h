/*
 * The stacks of one window, as they came through the ring: each key's record, kept until the
 * counts are read at the end. One arena holds all; a limit on keys and bytes is given at the start.
 */
#ifndef AGENT_STACKS_H
#define AGENT_STACKS_H

#include <stddef.h>

#include "agent/bpf/sample.h"

struct stacks;

int stacks_new(size_t keys_max, size_t bytes_max, struct stacks **ret); /* 0 or -ENOMEM */
void stacks_free(struct stacks *s);
void stacks_freep(struct stacks **s);

/* Keeps a copy, the first of a key wins. 0; -ENOBUFS at a limit; -ENOMEM. r's counts are checked.
 */
int stacks_add(struct stacks *s, const struct stack_record *r);
const struct stack_record *stacks_find(const struct stacks *s, const struct stack_key *key);
size_t stacks_count(const struct stacks *s);

#endif
