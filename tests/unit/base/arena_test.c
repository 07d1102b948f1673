/* arena: alignment, zeroes, addresses that stay, the limit. */
#include "base/arena.h"

#include <criterion/criterion.h>

#include "base/def.h"

Test(arena, pieces_are_aligned_zeroed_and_keep_their_content)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(1 << 22);
	uint8_t *pieces[1000];

	for (size_t i = 0; i < 1000; i++) {
		pieces[i] = arena_alloc(a, i);
		cr_assert_not_null(pieces[i]);
		cr_assert_eq((uintptr_t)pieces[i] % 16, 0);
		for (size_t k = 0; k < i; k++)
			cr_assert_eq(pieces[i][k], 0);
		memset(pieces[i], (int)(i % 251) + 1, i);
	}
	for (size_t i = 0; i < 1000; i++) {
		for (size_t k = 0; k < i; k++)
			cr_assert_eq(pieces[i][k], i % 251 + 1);
	}
}

Test(arena, zeroes_again_after_a_reset)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(1 << 20);
	uint8_t *p = arena_alloc(a, 1000);

	memset(p, 0xaa, 1000);
	arena_reset(a);
	p = arena_alloc(a, 1000);
	for (size_t i = 0; i < 1000; i++)
		cr_assert_eq(p[i], 0);
}

Test(arena, never_takes_more_than_its_limit)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(200000);
	size_t pieces = 0;

	cr_assert_null(arena_alloc(a, 200000), "the chunk's header counts too");
	while (arena_alloc(a, 1000))
		pieces++;
	cr_assert_leq(arena_used(a), 200000);
	cr_assert_geq(pieces, 190);
	cr_assert_null(arena_alloc(a, SIZE_MAX));
	cr_assert_null(arena_alloc(a, SIZE_MAX - 15));
}

Test(arena, reset_gives_back_memory_and_the_whole_limit)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(1 << 20);

	for (int i = 0; i < 10; i++) {
		cr_assert_not_null(arena_alloc(a, 900000));
		arena_reset(a);
		cr_assert_leq(arena_used(a), 65536);
	}
}

Test(arena, a_large_piece_does_not_waste_the_chunk_in_use)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(1 << 20);
	uint8_t *first = arena_alloc(a, 16);

	cr_assert_not_null(arena_alloc(a, 100000));
	cr_assert_eq((uint8_t *)arena_alloc(a, 16), first + 16);
}

Test(arena, copies_text)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(1 << 20);

	cr_assert_str_eq(arena_strdup(a, "name"), "name");
	cr_assert_str_eq(arena_strndup(a, "name", 2), "na");
	cr_assert_str_eq(arena_strndup(a, "na", 50), "na");
	arena_free(NULL);
}
