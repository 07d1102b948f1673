/* Where an anonymous region would be in a file's text; the whole is tests/e2e/names_files.sh. */
#include <criterion/criterion.h>

#include "agent/remapped_text.h"

/* As lld lays out a program: headers and constants, text whose address is not its offset, data. */
static const struct helper_cfi_segments segments = {
	.count = 3,
	.segments = {{.offset = 0, .vaddr = 0, .size = 0x2600},
		{.offset = 0x2600, .vaddr = 0x3600, .size = 0x6000, .is_code = 1},
		{.offset = 0x8600, .vaddr = 0xa600, .size = 0x400}},
};

enum { BIAS = 0x10000000 };

static struct maps_region region(uint64_t vaddr, uint64_t end, uint64_t offset)
{
	return (struct maps_region){.start = BIAS + vaddr, .end = BIAS + end, .offset = offset};
}

static uint64_t place(size_t load, struct maps_region seen, struct maps_region r)
{
	uint64_t offset = UINT64_MAX;

	if (!remapped_text_place(&segments, load, &seen, &r, &offset))
		cr_expect_eq(offset, UINT64_MAX);
	return offset;
}

Test(remapped_text, a_region_in_the_text_has_the_offset_its_bytes_had)
{
	struct maps_region data = region(0xa000, 0xb000, 0x8000);

	cr_expect_eq(place(2, data, region(0x3000, 0xa000, 0)), 0x2000);
	cr_expect_eq(place(2, data, region(0x5000, 0x6000, 0)), 0x4000);
	cr_expect_eq(place(1, region(0x3000, 0x5000, 0x2000), region(0x5000, 0x6000, 0)), 0x4000);
}

Test(remapped_text, a_region_that_reaches_out_of_the_text_has_no_place)
{
	struct maps_region data = region(0xa000, 0xb000, 0x8000);

	cr_expect_eq(place(2, data, region(0x2000, 0x4000, 0)), UINT64_MAX);
	cr_expect_eq(place(2, data, region(0x9000, 0xb000, 0)), UINT64_MAX);
	cr_expect_eq(place(2, data, region(0xb000, 0xc000, 0)), UINT64_MAX);
	cr_expect_eq(
		place(2, data, region(0x1000, 0x2000, 0)), UINT64_MAX, "constants are no text");
}

Test(remapped_text, a_mapping_is_not_of_a_segment_that_has_not_its_offset)
{
	struct maps_region data = region(0xa000, 0xb000, 0x8000);

	cr_expect_eq(place(0, data, region(0x5000, 0x6000, 0)), UINT64_MAX);
	cr_expect_eq(place(1, region(0x0, 0x2000, 0x9000), region(0x5000, 0x6000, 0)), UINT64_MAX);
}

Test(remapped_text, numbers_that_wrap_around_give_no_place)
{
	struct helper_cfi_segments s = {.count = 2,
		.segments = {{.offset = 0, .vaddr = UINT64_MAX - 0x1000, .size = 0x1000},
			{.offset = UINT64_MAX - 0x2000, .vaddr = 0, .size = 0x2000, .is_code = 1}}};
	struct maps_region seen = {.start = 0x2000, .end = 0x3000};
	struct maps_region r = {.start = 0, .end = UINT64_MAX};
	uint64_t offset;

	cr_expect(!remapped_text_place(&s, 0, &seen, &r, &offset));
	cr_expect(!remapped_text_place(&s, 1, &seen, &r, &offset));
}
