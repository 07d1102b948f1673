/*
 * Questions to a recorded profile about one process: how much of it stands under a function with
 * given callers, and does every stack of that function continue as it should.
 */
#ifndef LAB_STACKS_H
#define LAB_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prof/profile.h"

struct stacks {
	const struct profile *profile;
	uint32_t pid; /* 0: all processes */
	size_t weight_type, count_type;
	bool has_count;
	const char *comm; /* NULL: by pid; else all processes of that name */
	/*
	 * Leaves out stacks that say they were cut because a table was not built in time: where the clock
	 * means nothing, how fast an agent builds tables means nothing either.
	 */
	bool without_late;
};

struct stacks_sum {
	double weight_ns;
	double count; /* samples; from the weight and hz when the profile does not count */
};

/* Which frames may stand between a function and its caller. */
enum stacks_between { STACKS_NOTHING, STACKS_FOREIGN, STACKS_ANYTHING };

struct stacks_chain {
	const char *name;
	const char *const *callers; /* direct caller first */
	size_t caller_count;
	const bool *inlined; /* callers that may be missing, by index; NULL: none */
	enum stacks_between between;
	const char *const *foreign; /* prefixes of names, for STACKS_FOREIGN */
	size_t foreign_count;
};

/* 0; -ENODATA when the profile has no sample type in nanoseconds. */
int stacks_open(const struct profile *p, uint32_t pid, struct stacks *ret);
/*
 * A frame's name against a plain one: equal, or equal up to the parameter list that C++ demangling
 * appends.
 */
bool stacks_name_is(const char *frame, const char *name);

bool stacks_is_ours(const struct stacks *s, const struct sample *sample); /* of that process */
/* A text label of the sample, "" if it has none. */
const char *stacks_label(const struct stacks *s, const struct sample *sample, const char *key);
/* Name of frame i, leaf first; "" for the kernel's. */
const char *stacks_frame_name(const struct stacks *s, const struct sample *sample, uint32_t i);
/* Base name of the file that frame i is of; "" for the kernel's. */
const char *stacks_frame_module(const struct stacks *s, const struct sample *sample, uint32_t i);
/* The first frame of that name, leaf first; frame_count: there is none. */
uint32_t stacks_find(const struct stacks *s, const struct sample *sample, const char *name);
struct stacks_sum stacks_total(const struct stacks *s, double hz);
/* Does the chain stand at frame i of the sample? */
bool stacks_chain_at(const struct stacks *s, const struct sample *sample, uint32_t i,
	const struct stacks_chain *c);
/* Samples with the chain somewhere in the stack. */
struct stacks_sum stacks_under(const struct stacks *s, const struct stacks_chain *c, double hz);
/*
 * Samples with function name in the stack whose callers are none of the chains'. The function's
 * uppermost occurrence counts.
 */
struct stacks_sum stacks_astray(const struct stacks *s, const char *name,
	const struct stacks_chain *chains, size_t chain_count, double hz);
/* Samples with function name in the stack, but not as its leaf. */
struct stacks_sum stacks_above(const struct stacks *s, const char *name, double hz);
/* Samples with a frame of the module (base name of its path) that has no name. */
struct stacks_sum stacks_unnamed(const struct stacks *s, const char *module, double hz);

#endif
