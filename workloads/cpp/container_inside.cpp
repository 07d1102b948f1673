/* container_inside: what workload `container` runs in its container, under the path that `container` itself has outside.
 *
 *   main -> inside_run -> inside_step -> inside_heavy | inside_light     75 and 25 % of its CPU
 */
#include "container.hpp"

BURN_DEFINE(inside_heavy)
BURN_DEFINE(inside_light)

static truth::function burnt[truth::CONTAINER_FUNCTIONS] = {
	{"inside_heavy", {}}, {"inside_light", {}}};

BURN_FUNCTION uint64_t inside_step(uint64_t x, uint64_t chunk)
{
	volatile char depth[512]; /* a frame of another size than any outside */
	depth[x % sizeof depth] = 1;
	truth::meter heavy;
	x = inside_heavy(x, 3 * chunk);
	heavy.stop(burnt[0]);
	truth::meter light;
	x = inside_light(x, chunk);
	light.stop(burnt[1]);
	return x + depth[x % sizeof depth] % 2;
}

BURN_FUNCTION uint64_t inside_run(uint64_t rounds, uint64_t chunk)
{
	uint64_t x = burn_seed(1);
	while (rounds--)
		x = inside_step(x, chunk) | 1;
	return x;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2; /* started by container only */
	truth::container_tell(
		burnt, inside_run(strtoull(argv[1], nullptr, 10), strtoull(argv[2], nullptr, 10)));
	return 0;
}
