/*
 * Three functions of which two are inlined into the third, hard case B8. Tests compile this in many
 * ways and look up its lines by the marks at their ends.
 */
#include <cstdint>

namespace fixture
{

static volatile uint64_t sink;

static inline __attribute__((always_inline)) void innie(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		sink = sink + i * i; /* mark: innie */
}

struct worker {
	uint64_t count;

	inline __attribute__((always_inline)) void middle() const
	{
		sink = sink + count;
		innie(count); /* mark: middle */
	}
};

} // namespace fixture

extern "C" __attribute__((noinline)) void outie(uint64_t n)
{
	const fixture::worker w{n};

	fixture::sink = n;
	w.middle(); /* mark: outie */
	fixture::sink = fixture::sink + 1;
}

#ifdef FIXTURE_MAIN
int main()
{
	for (;;)
		outie(1 << 20); /* mark: main */
}
#endif
