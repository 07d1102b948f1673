/* CPU work of a known length: one loop body that every burning function repeats in its own code.
 *
 * The body is a chain of dependent operations (xorshift64, Marsaglia 2003, "Xorshift RNGs"), so its
 * time is the chain's latency and does not depend on where the loop lies in a cache line. The empty
 * asm keeps the compiler from vectorizing, unrolling or removing it. An iteration is 11
 * instructions on x86-64 with gcc -O2; tests/e2e/workloads.sh counts them. */
#pragma once

#include <cstdint>

/* Own code under its own name: not inlined, cloned, folded with its twins, nor judged pure by
 * callers. Aligned alike, so that the twins start alike. */
#define BURN_FUNCTION extern "C" __attribute__((noipa, aligned(64)))

/* gcc drops the frame of a leaf function despite -fno-omit-frame-pointer when it needs no stack
 * (gcc/config/i386/i386.cc, ix86_finalize_stack_frame_flags), and with it the caller from a walk by
 * frame pointers. A function that asks for its own frame address keeps it. */
#ifdef BURN_NO_FRAME /* programs that prove unwinding without frame pointers */
#define BURN_KEEP_FRAME() \
	do {              \
	} while (0)
#else
#define BURN_KEEP_FRAME() asm volatile("" : : "r"(__builtin_frame_address(0)))
#endif

#define BURN_LOOP(x, iterations)                    \
	do {                                        \
		uint64_t burn_left = (iterations);  \
		do {                                \
			(x) ^= (x) << 13;           \
			(x) ^= (x) >> 7;            \
			(x) ^= (x) << 17;           \
			asm volatile("" : "+r"(x)); \
		} while (--burn_left);              \
	} while (0)

/* Defines uint64_t NAME(x, iterations): iterations > 0, x > 0; returns the new x, never 0. */
#define BURN_DEFINE(NAME)                                            \
	BURN_FUNCTION uint64_t NAME(uint64_t x, uint64_t iterations) \
	{                                                            \
		BURN_KEEP_FRAME();                                   \
		BURN_LOOP(x, iterations);                            \
		return x;                                            \
	}

/* Spreads a seed (0 included) into a start value for burn and for shuffles: splitmix64, Steele
 * 2014. */
inline uint64_t burn_seed(uint64_t seed)
{
	uint64_t z = seed + 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return z ? z : 1;
}

/* Next random number of a generator state, for order and jitter, not for work. */
inline uint64_t burn_random(uint64_t &state)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}
