/*
 * What the files of lib/prof share beside the public headers: the rule for sums, and what readers
 * do with stacks deeper than a profile takes. There the frames nearest to the leaf stay, because
 * they say where the time went, and a marker stands where the root was.
 */
#ifndef PROF_PROFILE_INTERNAL_H
#define PROF_PROFILE_INTERNAL_H

#include "prof/profile.h"

#define PROFILE_CUT_NAME "[truncated: deeper than 1024 frames]"

_Static_assert(PROFILE_DEPTH_MAX == 1024, "the marker's text says so");

static inline int64_t profile_saturating_add(int64_t a, int64_t b)
{
	int64_t sum;

	if (!__builtin_add_overflow(a, b, &sum))
		return sum;
	return b > 0 ? INT64_MAX : INT64_MIN;
}

/* Puts the marker's id at frames[PROFILE_DEPTH_MAX - 1]. 0 or the profile's error. */
int profile_mark_cut(struct profile *p, uint32_t frames[PROFILE_DEPTH_MAX]);

#endif
