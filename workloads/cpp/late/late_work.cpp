/* The library that late_library loads while it runs. */
#include "burn.hpp"

BURN_DEFINE(late_leaf)

BURN_FUNCTION uint64_t late_work(uint64_t x, uint64_t iterations, uint64_t chunks)
{
	for (uint64_t i = 0; i < chunks; i++)
		x = late_leaf(x, iterations);
	return x;
}
