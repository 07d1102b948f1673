/* map: values by key, insertion order, the limit. */
#include "base/map.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"

Test(map, counts_by_key_through_many_growths)
{
	_cleanup_(map_freep) struct map *m = map_new(100000);
	uint64_t v = 0;

	for (uint64_t i = 0; i < 50000; i++) {
		uint64_t key = i % 5000;
		bool is_new = false;
		uint64_t *p = map_put(m, &key, sizeof(key), &is_new);

		cr_assert_not_null(p);
		cr_assert_eq(is_new, i < 5000);
		*p += key + 1;
	}
	cr_assert_eq(map_count(m), 5000);
	for (uint64_t key = 0; key < 5000; key++) {
		cr_assert(map_get(m, &key, sizeof(key), &v));
		cr_assert_eq(v, 10 * (key + 1));
	}
}

Test(map, does_not_find_what_was_not_put)
{
	_cleanup_(map_freep) struct map *m = map_new(10);
	uint64_t v = 42;

	cr_assert_not(map_get(m, "a", 1, &v), "an empty map");
	cr_assert_not_null(map_put(m, "a", 1, NULL));
	cr_assert_not(map_get(m, "b", 1, &v));
	cr_assert_not(map_get(m, "a", 2, &v), "NUL belongs to the key");
	cr_assert_not(map_get(m, "", 0, &v));
	cr_assert_eq(v, 42);
}

Test(map, copies_keys_and_takes_the_empty_one)
{
	_cleanup_(map_freep) struct map *m = map_new(10);
	char key[] = "key";
	uint64_t v = 0;

	*map_put(m, key, 3, NULL) = 7;
	*map_put(m, NULL, 0, NULL) = 8;
	key[0] = 'x';
	cr_assert(map_get(m, "key", 3, &v));
	cr_assert_eq(v, 7);
	cr_assert(map_get(m, "", 0, &v));
	cr_assert_eq(v, 8);
}

Test(map, iterates_in_insertion_order)
{
	_cleanup_(map_freep) struct map *m = map_new(1000);
	const void *key;
	uint64_t value;
	size_t size, i;

	for (uint32_t k = 0; k < 100; k++) {
		uint32_t name = (k * 37) % 100;

		*map_put(m, &name, sizeof(name), NULL) = k;
	}
	for (i = 0; map_entry(m, i, &key, &size, &value); i++) {
		uint32_t name;

		cr_assert_eq(size, sizeof(name));
		memcpy(&name, key, sizeof(name));
		cr_assert_eq(name, (i * 37) % 100);
		cr_assert_eq(value, i);
	}
	cr_assert_eq(i, 100);
}

Test(map, refuses_a_new_key_at_the_limit_but_still_finds_old_ones)
{
	_cleanup_(map_freep) struct map *m = map_new(2);
	bool is_new = true;

	cr_assert_not_null(map_put(m, "a", 1, NULL));
	cr_assert_not_null(map_put(m, "b", 1, NULL));
	errno = 0;
	cr_assert_null(map_put(m, "c", 1, NULL));
	cr_assert_eq(errno, ENOBUFS);
	cr_assert_eq(map_count(m), 2);
	cr_assert_not_null(map_put(m, "a", 1, &is_new));
	cr_assert_not(is_new);
	map_free(NULL);
}
