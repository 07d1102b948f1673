/*
 * Profiles for property tests: the same seed gives the same one. Names are hostile on purpose.
 */
#ifndef TESTS_RANDOM_PROFILE_H
#define TESTS_RANDOM_PROFILE_H

#include "prof/profile.h"

/* Up to samples_max samples of three types, with modules, files, labels and facts. Never NULL. */
struct profile *random_profile(uint64_t seed, uint32_t samples_max);

#endif
