/* The C side of cgo_split. Functions stay apart and make no tail calls, so that each has its frame. */
#include <stdint.h>

extern uint64_t goBurn(uint64_t x, uint64_t n);

__attribute__((noinline, noclone)) uint64_t c_leaf(uint64_t x, uint64_t n)
{
	do {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__asm__ volatile("" : "+r"(x));
	} while (--n);
	return x;
}

__attribute__((noinline, noclone)) uint64_t c_middle(uint64_t x, uint64_t n)
{
	return goBurn(x, n) | 1;
}
