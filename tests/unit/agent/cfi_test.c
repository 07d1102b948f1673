/*
 * cfi: every instruction, encoding and edge on hand-made bytes. That the rules of real files are right is
 * cfi_libdw_test.c's part.
 */
#include "agent/cfi.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <unistd.h>

#include "base/def.h"
#include "cfi_image.h"

static struct image image; /* larger than a stack frame should be; zero in each test's process */

/* The rows of a program; a function of 0x100 bytes whose CIE says sp + 8. */
#define SAYS(code, rows) cr_expect_str_eq(image_program(BYTES(code)), rows)

Test(cfi, follows_every_form_of_advance_loc)
{
	SAYS("", "0:sp+8 100:none");
	SAYS("\x41\x0e\x10", "0:sp+8 1:sp+16 100:none");
	SAYS("\x02\x20\x0e\x10", "0:sp+8 20:sp+16 100:none");
	SAYS("\x03\x21\x00\x0e\x10", "0:sp+8 21:sp+16 100:none");
	SAYS("\x04\x22\x00\x00\x00\x0e\x10", "0:sp+8 22:sp+16 100:none");
	SAYS("\x01\xde\xff\xfc\xff\x0e\x10", "0:sp+8 8:sp+16 100:none"); /* set_loc, pcrel */
	SAYS("\x40\x0e\x10", "0:sp+16 100:none");                        /* by nothing */
	SAYS("\x41\x0e\x10\x41\x0e\x18\x41\x0e\x10", "0:sp+8 1:sp+16 2:sp+24 3:sp+16 100:none");
}

Test(cfi, ends_a_function_at_its_range_whatever_its_program_says)
{
	SAYS("\x03\x00\x01\x0e\x10", "0:sp+8 100:none");
	SAYS("\x04\xff\xff\xff\xff\x0e\x10\x41\x0e\x18", "0:sp+8 100:none");
}

Test(cfi, joins_rows_that_differ_in_nothing_kept)
{
	SAYS("\x41\x83\x02\x42\x8c\x03\x43\x0e\x10", "0:sp+8 6:sp+16 100:none");
}

Test(cfi, follows_every_definition_of_the_cfa)
{
	SAYS("\x0c\x06\x10", "0:fp+16 100:none");
	SAYS("\x0d\x06", "0:fp+8 100:none");
	SAYS("\x0e\x80\x02", "0:sp+256 100:none");
	SAYS("\x12\x07\x7e", "0:sp+16 100:none"); /* def_cfa_sf: -2 * -8 */
	SAYS("\x13\x7d", "0:sp+24 100:none");
	SAYS("\x13\x01", "0:sp-8 100:none");
	SAYS("\x0c\x0a\x00", "0:r10+0 100:none");
	SAYS("\x0c\xac\x02\x00", "0:unsupported 100:none"); /* register 300 */
	SAYS("\x0e\xff\xff\xff\xff\x0f", "0:unsupported 100:none");
}

Test(cfi, follows_every_rule_of_a_register)
{
	SAYS("\x86\x02", "0:sp+8,fp@-16 100:none");
	SAYS("\x05\x06\x03", "0:sp+8,fp@-24 100:none");
	SAYS("\x11\x06\x7f", "0:sp+8,fp@8 100:none");
	SAYS("\x2f\x06\x02", "0:sp+8,fp@16 100:none");
	SAYS("\x86\x02\x41\xc6", "0:sp+8,fp@-16 1:sp+8 100:none");
	SAYS("\x86\x02\x41\x06\x06", "0:sp+8,fp@-16 1:sp+8 100:none");
	SAYS("\x07\x06", "0:sp+8,fp=? 100:none");
	SAYS("\x86\x02\x41\x08\x06", "0:sp+8,fp@-16 1:sp+8 100:none");
	SAYS("\x09\x06\x03", "0:sp+8,fp=r3 100:none");
	SAYS("\x09\x10\x05", "0:sp+8,ra=r5 100:none"); /* vfork keeps it in rdi */
	SAYS("\x14\x06\x02", "0:sp+8,fp=? 100:none");
	SAYS("\x15\x06\x02", "0:sp+8,fp=? 100:none");
	SAYS("\x14\x10\x02", "0:unsupported 100:none");
	SAYS("\x86\x80\x40", "0:sp+8,fp=? 100:none"); /* too far for a rule */
}

Test(cfi, ends_the_stack_where_the_return_address_is_undefined)
{
	SAYS("\x07\x10", "0:end 100:none");
	SAYS("\x07\x10\x42\xd0", "0:end 2:sp+8 100:none"); /* restored to what the CIE says */
}

Test(cfi, has_no_rule_for_a_return_address_that_x86_cannot_keep_in_place)
{
	SAYS("\x08\x10", "0:unsupported 100:none");
}

Test(cfi, remembers_states_as_deep_as_its_limit_and_no_deeper)
{
	uint8_t code[64] = {0x41, 0x0e, 0x10};
	size_t n = 3;

	for (size_t i = 0; i < CFI_STATES_MAX; i++)
		code[n++] = 0x0a;
	memcpy(code + n, "\x41\x0e\x18\x41\x0b", 5);
	cr_expect_str_eq(image_program(code, n + 5), "0:sp+8 1:sp+16 2:sp+24 3:sp+16 100:none");
	code[n] = 0x0a;
	cr_expect_str_eq(image_program(code, n + 1), "0:unsupported 100:none");
	SAYS("\x0b", "0:unsupported 100:none"); /* nothing was remembered */
}

Test(cfi, restores_the_cfa_with_the_registers)
{
	SAYS("\x41\x0c\x06\x18\x86\x02\x41\x0a\x0c\x07\x08\xc6\x41\x0b",
		"0:sp+8 1:fp+24,fp@-16 2:sp+8 3:fp+24,fp@-16 100:none");
}

Test(cfi, skips_args_size_and_nops)
{
	SAYS("\x00\x2e\x90\x01\x00\x41\x0e\x10", "0:sp+8 1:sp+16 100:none");
}

Test(cfi, makes_one_unsupported_row_of_a_program_that_makes_no_sense)
{
	SAYS("\x41\x0e\x10\x41\x3f", "0:unsupported 100:none"); /* an unknown instruction */
	SAYS("\x2d", "0:unsupported 100:none");                 /* aarch64's */
	SAYS("\x41\x0c\x07", "0:sp+8 1:sp+0 100:none");         /* the padding is its operand */
	SAYS("\x0f\x03\x77\x08\x06\x0e\x10",
		"0:unsupported 100:none"); /* an offset of no register */
	SAYS("\x0e\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "0:unsupported 100:none");
	SAYS("\x0f\x60\x77\x08", "0:unsupported 100:none"); /* an expression beyond the end */
}

Test(cfi, knows_the_expressions_of_compilers_and_linkers)
{
	SAYS("\x0f\x03\x76\x78\x06", "0:*(r6-8)+0 100:none");
	SAYS("\x0f\x05\x77\x08\x06\x23\x08", "0:*(r7+8)+8 100:none");
	SAYS("\x0f\x02\x77\x10", "0:sp+16 100:none");
	SAYS("\x0f\x04\x77\x10\x23\x08", "0:sp+24 100:none");
	SAYS("\x0f\x03\x92\x0a\x08", "0:r10+8 100:none");
	SAYS("\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", "0:plt+11 100:none");
	SAYS("\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3a\x2a\x33\x24\x22", "0:plt+10 100:none");
	SAYS("\x0f\x0b\x77\x10\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", "0:unsupported 100:none");
	SAYS("\x0f\x09\x77\x08\x79\x00\x38\x1e\x22\x06\x23\x08", "0:unsupported 100:none");
	SAYS("\x0f\x0a\x77\x08\x79\x00\x38\x1e\x22\x06\x23\x08", "0:*(sp+8*r9+8)+8 100:none");
	SAYS("\x0f\x0a\x77\x08\x79\x00\x34\x1e\x22\x06\x23\x08", "0:unsupported 100:none");
	SAYS("\x0f\x0a\x76\x08\x79\x00\x38\x1e\x22\x06\x23\x08", "0:unsupported 100:none");
	SAYS("\x0f\x01\x9c", "0:unsupported 100:none");
	SAYS("\x0f\x04\x76\x78\x06\x06", "0:unsupported 100:none");
	SAYS("\x0f\x00", "0:unsupported 100:none");
}

Test(cfi, finds_the_fp_of_realigned_stacks)
{
	SAYS("\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00", "0:*(r6-8)+0,fp@fp+0 100:none");
}

Test(cfi, takes_a_place_relative_to_the_cfas_register_as_one_relative_to_the_cfa)
{
	SAYS("\x0e\x20\x10\x06\x02\x77\x10", "0:sp+32,fp@-16 100:none");
	SAYS("\x10\x06\x02\x73\x10", "0:sp+8,fp=? 100:none"); /* rbx */
	SAYS("\x10\x10\x02\x73\x10", "0:unsupported 100:none");
	SAYS("\x16\x06\x02\x77\x10", "0:sp+8,fp=? 100:none");
	SAYS("\x16\x10\x02\x77\x10", "0:unsupported 100:none");
	SAYS("\x10\x03\x01\x9c\x16\x0c\x01\x9c", "0:sp+8 100:none"); /* registers not kept */
}

/* One function of 0x40 bytes by a CIE of these letters and this data. */
static const char *by_cie(
	const char *letters, const void *rest, size_t size, const void *head, size_t head_size)
{
	memset(&image, 0, sizeof(image));
	size_t cie = image_cie(&image, letters, rest, size);
	size_t begin = image_begin(&image);

	image_put_u32(&image, (uint32_t)(begin + 4 - cie));
	image_put(&image, head, head_size);
	image_end(&image, begin);
	return image_rows(&image, 1);
}

#define STATE "\x0c\x07\x08\x90\x01"

Test(cfi, reads_every_encoding_of_a_start)
{
	const char *rows = "0:none 10:sp+8 50:none";

	cr_expect_str_eq(
		by_cie("", BYTES(STATE), BYTES("\x10\0\1\0\0\0\0\0\x40\0\0\0\0\0\0\0")), rows);
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\0" STATE), BYTES("\x10\0\1\0\0\0\0\0\x40\0\0\0\0\0\0\0\0")),
		rows);
	cr_expect_str_eq(by_cie("zR", BYTES("\1\3" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), rows);
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\4" STATE), BYTES("\x10\0\1\0\0\0\0\0\x40\0\0\0\0\0\0\0\0")),
		rows);
	cr_expect_str_eq(by_cie("zR", BYTES("\1\xb" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), rows);
	cr_expect_str_eq(by_cie("zR", BYTES("\1\1" STATE), BYTES("\x90\x80\4\x40\0")), rows);
	cr_expect_str_eq(by_cie("zR", BYTES("\1\x09" STATE), BYTES("\x90\x80\4\xc0\0\0")), rows);
	/* pcrel of 8 bytes: the field stands at 0x40020 */
	cr_expect_str_eq(by_cie("zR", BYTES("\1\x1c" STATE),
				 BYTES("\xf0\xff\xfc\xff\xff\xff\xff\xff\x40\0\0\0\0\0\0\0\0")),
		rows);
}

Test(cfi, refuses_pointers_that_are_indirect_or_relative_to_what_it_does_not_know)
{
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\x9b" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), "error 61");
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\x2b" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), "error 61");
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\x3b" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), "error 61");
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\x0f" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), "error 61");
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\xff" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), "error 61");
}

Test(cfi, reads_augmentations_in_any_order)
{
	const char *rows = "0:none 10:sp+8 50:none";

	/* personality (indirect, 4 bytes), language data, encoding: the FDE has 4 bytes of data */
	cr_expect_str_eq(by_cie("zPLR", BYTES("\7\x9b\1\2\3\4\x1b\3" STATE),
				 BYTES("\x10\0\1\0\x40\0\0\0\4\x3f\x3f\x3f\x3f")),
		rows);
	cr_expect_str_eq(by_cie("zRB", BYTES("\1\3" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), rows);
	/* what an unknown letter means is skipped by the size, so R before it still counts */
	cr_expect_str_eq(
		by_cie("zR?", BYTES("\3\3\x3f\x3f" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), rows);
	cr_expect_str_eq(by_cie("zRS", BYTES("\1\3" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")),
		"0:none 10:signal 50:none");
	cr_expect_str_eq(by_cie("?", BYTES(STATE), BYTES("\x10\0\1\0\0\0\0\0\x40\0\0\0\0\0\0\0")),
		"error 61");
	cr_expect_str_eq(by_cie("zzzzzzzzz", BYTES("\0" STATE), BYTES("\x10\0\1\0")), "error 61");
}

Test(cfi, refuses_an_augmentation_longer_than_its_entry)
{
	cr_expect_str_eq(
		by_cie("zR", BYTES("\x7f\3" STATE), BYTES("\x10\0\1\0\x40\0\0\0\0")), "error 61");
	cr_expect_str_eq(
		by_cie("zR", BYTES("\1\3" STATE), BYTES("\x10\0\1\0\x40\0\0\0\x7f")), "error 61");
}

Test(cfi, reads_dwarf64_lengths)
{
	size_t cie = image_usual_cie(&image);
	size_t begin = image_begin(&image);
	uint64_t length = 20;

	memcpy(image.frame + begin, "\xff\xff\xff\xff", 4);
	image_put(&image, &length, sizeof(length));
	image_put_u32(&image, (uint32_t)(image.frame_size - cie));
	image_put_u32(&image, IMAGE_TEXT - (uint32_t)(IMAGE_FRAME + image.frame_size));
	image_put(&image, BYTES("\x40\0\0\0\0\x0e\x10\0\0\0\0\0"));
	image_fde(&image, cie, IMAGE_TEXT + 0x80, 0x10, BYTES(""));
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+16 40:none 80:sp+8 90:none");
}

Test(cfi, goes_on_behind_a_terminator_in_the_middle)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x40, BYTES(""));
	image_put_u32(&image, 0);
	image_fde(&image, cie, IMAGE_TEXT + 0x80, 0x10, BYTES("\x0e\x10"));
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+8 40:none 80:sp+16 90:none");
}

Test(cfi, keeps_what_stands_before_an_entry_longer_than_its_section)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x40, BYTES(""));
	size_t begin = image.frame_size;

	image_fde(&image, cie, IMAGE_TEXT + 0x80, 0x10, BYTES(""));
	image.frame[begin + 1] = 0x70;
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+8 40:none");
}

Test(cfi, refuses_an_fde_that_takes_itself_for_its_cie)
{
	size_t cie = image_usual_cie(&image);
	size_t first = image.frame_size;

	image_fde(&image, cie, IMAGE_TEXT, 0x40, BYTES(""));
	image_fde(&image, first, IMAGE_TEXT + 0x80, 0x40, BYTES("")); /* an FDE of an FDE */
	image_fde(&image, image.frame_size, IMAGE_TEXT + 0x100, 0x40, BYTES(""));
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+8 40:none");
	image_make_hdr(&image);
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+8 40:none");
}

Test(cfi, cuts_an_fde_where_the_next_begins)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT + 0x20, 0x100, BYTES("\x0e\x20"));
	image_fde(&image, cie, IMAGE_TEXT, 0x100, BYTES("\x0e\x10"));
	image_fde(&image, cie, IMAGE_TEXT + 0x40, 0, BYTES("\x0e\x30")); /* empty: none */
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+16 20:sp+32 120:none");
}

Test(cfi, finds_the_same_through_the_table_of_the_header)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT + 0x10, 0x20, BYTES("\x0e\x10"));
	image_fde(&image, cie, IMAGE_TEXT + 0x40, 0x20, BYTES("\x0e\x20"));
	image_fde(&image, cie, IMAGE_TEXT + 0x10100, 0x20, BYTES("\x0e\x30"));
	image_make_hdr(&image);
	cr_expect_str_eq(image_rows(&image, 1), "0:none 10:sp+16 30:none 40:sp+32 60:none");
	cr_expect_str_eq(image_rows(&image, 2), "0:none 100:sp+48 120:none");
	image.no_sections = true; /* .eh_frame by PT_GNU_EH_FRAME */
	cr_expect_str_eq(image_rows(&image, 1), "0:none 10:sp+16 30:none 40:sp+32 60:none");
}

Test(cfi, makes_its_own_index_when_the_table_lies)
{
	size_t cie = image_usual_cie(&image);
	const char *rows = "0:sp+16 20:none 40:sp+32 60:none";

	image_fde(&image, cie, IMAGE_TEXT + 0x40, 0x20, BYTES("\x0e\x20"));
	image_fde(&image, cie, IMAGE_TEXT, 0x20, BYTES("\x0e\x10"));
	image_make_hdr(&image); /* in the section's order, so descending */
	cr_expect_str_eq(image_rows(&image, 1), rows);
	image.hdr[0] = 2; /* a version of which nothing is known */
	cr_expect_str_eq(image_rows(&image, 1), rows);
	image.hdr[0] = 1;
	image.fde_count = 0;
	image_make_hdr(&image);
	cr_expect_str_eq(image_rows(&image, 1), rows);
	memcpy(image.hdr + 8, "\xff\xff\xff\x7f", 4); /* more entries than bytes */
	cr_expect_str_eq(image_rows(&image, 1), rows);
}

Test(cfi, leaves_alone_what_begins_outside_the_text)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, 0, 0x20, BYTES("")); /* as linkers leave what they threw away */
	image_fde(&image, cie, IMAGE_TEXT, 0x20, BYTES("\x0e\x10"));
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+16 20:none");
	cr_expect_str_eq(image_rows(&image, 0), "nothing");
	cr_expect_str_eq(image_rows(&image, 2), "nothing");
	cr_expect_str_eq(image_rows(&image, UINT64_MAX), "nothing");
}

Test(cfi, keeps_a_rule_over_padding_only)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x11, BYTES("\x0e\x10"));
	image_fde(&image, cie, IMAGE_TEXT + 0x20, 0x10, BYTES("\x0e\x20")); /* 15 bytes behind */
	image_fde(&image, cie, IMAGE_TEXT + 0x40, 0x10, BYTES("\x0e\x10")); /* 16 bytes behind */
	image_fde(&image, cie, IMAGE_TEXT + 0x50, 0x10, BYTES("\x0e\x10")); /* the same rule */
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+16 20:sp+32 30:none 40:sp+16 60:none");
}

Test(cfi, continues_a_function_over_the_end_of_a_chunk)
{
	image_fde(&image, image_usual_cie(&image), IMAGE_TEXT + 0xff00, 0x200,
		BYTES("\x41\x0e\x10\x02\xfe\x0e\x18\x03\x80\x00\x0e\x20"));
	cr_expect_str_eq(image_rows(&image, 1), "0:none ff00:sp+8 ff01:sp+16 ffff:sp+24");
	cr_expect_str_eq(image_rows(&image, 2), "0:sp+24 7f:sp+32 100:none");
}

static void put_debug_frame(void)
{
	image.is_debug = true;
	size_t cie = image_cie(&image, "", BYTES(STATE));
	size_t begin = image_begin(&image);

	image_put_u32(&image, (uint32_t)cie);
	image_put(&image, BYTES("\x10\0\1\0\0\0\0\0\x40\0\0\0\0\0\0\0\x41\x0e\x20\x41\x0e\x08"));
	image_end(&image, begin);
}

Test(cfi, reads_debug_frame_too)
{
	put_debug_frame();
	cr_expect_str_eq(image_rows(&image, 1), "0:none 10:sp+8 11:sp+32 12:sp+8 50:none");
}

Test(cfi, reads_debug_frame_that_is_compressed)
{
	put_debug_frame();
	image.is_compressed = true;
	cr_expect_str_eq(image_rows(&image, 1), "0:none 10:sp+8 11:sp+32 12:sp+8 50:none");
	image.is_debug = false; /* nobody compresses what is loaded */
	cr_expect_str_eq(image_rows(&image, 1), "error 61");
}

Test(cfi, knows_where_go_saves_the_frame_pointer)
{
	put_debug_frame();
	image.is_go = true;
	image.plt_size = 16;
	cr_expect_str_eq(image_rows(&image, 1), "0:none 10:sp+8 11:sp+32,fp@-16 12:sp+8 50:none");
	image.machine = EM_AARCH64; /* where it is elsewhere: frame pointers alone */
	cr_expect_str_eq(image_rows(&image, 1), "error 61");
}

/* At 0x10 a caller by rbx + 32 whose call ends at 0x2a; at 0x80 what it calls. */
static void put_caller_by_rbx(const char *callee, size_t size)
{
	size_t cie = image_usual_cie(&image);

	memcpy(image.text + 0x25, BYTES("\xe8\x56\0\0\0"));
	image_fde(&image, cie, IMAGE_TEXT + 0x10, 0x30, BYTES("\x41\x0c\x03\x20"));
	image_fde(&image, cie, IMAGE_TEXT + 0x80, 0x40, callee, size);
}

Test(cfi, finds_rbx_of_a_caller_where_its_callee_has_saved_it)
{
	put_caller_by_rbx(BYTES("\x42\x0e\x10\x83\x02\x42\xc3"));
	cr_expect_str_eq(image_rows(&image, 1),
		"0:none 10:sp+8 11:r3+32 29:*(r7-16)+32 2a:r3+32 40:none 80:sp+8 82:sp+16 c0:none");
}

Test(cfi, keeps_a_caller_by_rbx_whose_callee_says_two_places_or_none)
{
	put_caller_by_rbx(BYTES("\x42\x83\x02\x42\x83\x03"));
	cr_expect_str_eq(image_rows(&image, 1), "0:none 10:sp+8 11:r3+32 40:none 80:sp+8 c0:none");
	memset(&image, 0, sizeof(image));
	put_caller_by_rbx(BYTES("\x42\x86\x02"));
	cr_expect_str_eq(image_rows(&image, 1),
		"0:none 10:sp+8 11:r3+32 40:none 80:sp+8 82:sp+8,fp@-16 c0:none");
}

Test(cfi, knows_go_s_signal_restorer_by_its_bytes_from_one_before_it)
{
	put_debug_frame();
	size_t begin = image_begin(&image);

	image_put_u32(&image, 0); /* the same CIE */
	image_put(&image, BYTES("\x68\0\1\0\0\0\0\0\x0b\0\0\0\0\0\0\0"));
	image_end(&image, begin);
	image.is_go = true;
	image.plt_size = 16;
	memcpy(image.text + 0x68, BYTES("\x48\xc7\xc0\x0f\0\0\0\x0f\x05\xcd\x03"));
	cr_expect_str_eq(image_rows(&image, 1),
		"0:none 10:sp+8 11:sp+32,fp@-16 12:sp+8 50:none 67:signal 73:none");
	image.text[0x6b] = 0x0e; /* another system call */
	cr_expect_str_eq(image_rows(&image, 1),
		"0:none 10:sp+8 11:sp+32,fp@-16 12:sp+8 50:none 68:sp+8 73:none");
}

Test(cfi, follows_the_link_register_of_aarch64)
{
	image.machine = EM_AARCH64;
	size_t cie = image_cie(&image, "zR", BYTES("\x01\x1b\x0c\x1f\x00"));

	/* paciasp; stp x29, x30, [sp, #-32]!; mov x29, sp; and back */
	image_fde(&image, cie, IMAGE_TEXT, 0x40,
		BYTES("\x41\x2d\x41\x0e\x20\x9d\x04\x9e\x03\x41\x0d\x1d\x44\x0c\x1f\x00\xdd\xde\x41"
		      "\x2d"));
	cr_expect_str_eq(image_rows(&image, 1),
		"0:sp+0,lr 8:sp+32,fp@-32,ra@-24 c:fp+32,fp@-32,ra@-24 1c:sp+0,lr 40:none");
	image_fde(&image, cie, IMAGE_TEXT + 0x80, 0x10, BYTES("\x09\x1e\x11")); /* lr in x17 */
	image_fde(&image, cie, IMAGE_TEXT + 0xc0, 0x10, BYTES("\x07\x1e"));
	cr_assert_not_null(strstr(image_rows(&image, 1), " 80:sp+0,ra=r17 90:none c0:end d0:none"));
}

Test(cfi, finds_the_record_at_the_low_end_of_a_large_frame_of_aarch64)
{
	image.machine = EM_AARCH64;
	size_t cie = image_cie(&image, "zR", BYTES("\x01\x1b\x0c\x1f\x00"));

	/* cfa = sp + 109136, x29 at cfa - 109136, x30 at cfa - 109128 */
	image_fde(&image, cie, IMAGE_TEXT, 0x10, BYTES("\x0e\xd0\xd4\x06\x9d\xca\x6a\x9e\xc9\x6a"));
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+109136,fp@base+0,ra@base+8 10:none");
	/* Far from both ends. */
	image_fde(&image, cie, IMAGE_TEXT + 0x40, 0x10,
		BYTES("\x0e\xd0\xd4\x06\x9d\xa0\x35\x9e\x9f\x35"));
	cr_assert_not_null(strstr(image_rows(&image, 1), " 40:unsupported 50:none"));
}

Test(cfi, gives_rules_to_plt_sections_that_no_fde_covers)
{
	static const uint8_t lazy[] =
		"\xff\x35\0\0\0\0\xff\x25\0\0\0\0\x0f\x1f\x40\0\xff\x25\0\0\0\0\x68\0\0\0\0\xe9";
	size_t cie = image_usual_cie(&image);
	uint8_t *plt = image.text + IMAGE_PLT - IMAGE_TEXT;

	image.plt_size = 0x40;
	image_fde(&image, cie, IMAGE_PLT + 0x100, 0x10, BYTES("\x0e\x10"));
	cr_expect_str_eq(image_rows(&image, 2), "0:none f000:sp+8 f040:none f100:sp+16 f110:none");
	memcpy(plt, lazy, sizeof(lazy));
	cr_expect_str_eq(image_rows(&image, 2),
		"0:none f000:sp+16 f006:sp+24 f010:plt+11 f040:none f100:sp+16 f110:none");
	memcpy(plt + 16, "\xf3\x0f\x1e\xfa\x68", 5);
	cr_expect_str_eq(image_rows(&image, 2),
		"0:none f000:sp+16 f006:sp+24 f010:plt+9 f040:none f100:sp+16 f110:none");
	image_fde(&image, cie, IMAGE_PLT, 0x40, BYTES("\x0e\x20"));
	cr_expect_str_eq(image_rows(&image, 2), "0:none f000:sp+32 f040:none f100:sp+16 f110:none");
}

/* push rbp; mov rbp, rsp; ...; pop rbp; ret, at an offset of the text. */
#define PROLOGUE "\x41\x0e\x10\x86\x02\x43\x0d\x06"
#define LAST_RET "\x0c\x07\x08"

static void put_function(
	size_t at, const char *start, size_t size, const char *end, size_t end_size)
{
	memset(image.text + at, 0x90, 0x10);
	memcpy(image.text + at, start, size);
	memcpy(image.text + at + 0x10 - end_size, end, end_size);
}

Test(cfi, makes_one_row_of_a_function_with_the_frame_pointers_shape)
{
	size_t cie = image_usual_cie(&image);

	put_function(0, BYTES("\x55\x48\x89\xe5"), BYTES("\x5d\xc3"));
	put_function(0x10, BYTES("\x55\x48\x8b\xec"), BYTES("\x5d\xc3"));
	put_function(0x20, BYTES("\xf3\x0f\x1e\xfa\x55\x48\x89\xe5"), BYTES("\x5d\xc3"));
	image_fde(&image, cie, IMAGE_TEXT, 0x10, BYTES(PROLOGUE "\x4b" LAST_RET));
	image_fde(&image, cie, IMAGE_TEXT + 0x10, 0x10, BYTES(PROLOGUE "\x4b" LAST_RET "\xc6"));
	image_fde(&image, cie, IMAGE_TEXT + 0x20, 0x10,
		BYTES("\x45\x0e\x10\x86\x02\x43\x0d\x06\x47" LAST_RET));
	cr_expect_str_eq(image_rows(&image, 1), "0:shape+0 10:shape+0 20:shape+4 30:none");
}

Test(cfi, keeps_the_rows_of_a_prologue_whose_bytes_are_not_the_usual)
{
	const char *plain = "0:sp+8 1:sp+16,fp@-16 4:shape-1 10:none";
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x10, BYTES(PROLOGUE "\x4b" LAST_RET));
	put_function(0, BYTES("\x55\x48\x89\xec"), BYTES("\x5d\xc3"));
	cr_expect_str_eq(image_rows(&image, 1), plain);
	put_function(0, BYTES("\x53\x48\x89\xe5"), BYTES("\x5d\xc3"));
	cr_expect_str_eq(image_rows(&image, 1), plain);
}

Test(cfi, keeps_the_row_of_a_tail_call_in_a_shape)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x20,
		BYTES(PROLOGUE "\x46\x0a\x0c\x07\x08\x45\x0b\x50" LAST_RET));
	put_function(0, BYTES("\x55\x48\x89\xe5"), BYTES("\xe9\0\0\0\0\x90"));
	put_function(0x10, BYTES(""), BYTES("\xc3"));
	cr_expect_str_eq(image_rows(&image, 1), "0:shape+0 a:sp+8 f:shape-1 20:none");
}

Test(cfi, takes_a_ret_with_nops_behind_it_for_a_ret)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x20,
		BYTES(PROLOGUE "\x41\x0a\x0c\x07\x08\x4b\x0b\x4f" LAST_RET));
	put_function(0, BYTES("\x55\x48\x89\xe5"), BYTES("\xc3\x66\x2e\x0f\x1f\x84\0\0\0\0\0"));
	put_function(0x10, BYTES(""), BYTES("\xc3"));
	cr_expect_str_eq(image_rows(&image, 1), "0:shape+0 20:none");
	image.text[6] = 0x50; /* a push where a nop was: someone may jump there */
	cr_expect_str_eq(image_rows(&image, 1), "0:shape+0 5:sp+8 10:shape-1 20:none");
}

Test(cfi, begins_a_shape_at_a_push_that_is_not_the_first_instruction)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT, 0x10,
		BYTES("\x47\x0e\x10\x86\x02\x43\x0d\x06\x45" LAST_RET));
	put_function(0, BYTES("\x90\x90\x90\x90\x90\x90\x55\x48\x89\xe5"), BYTES("\x5d\xc3"));
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+8 6:shape+0 10:none");
}

Test(cfi, continues_a_shape_over_the_end_of_a_chunk)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT + 0xfff0, 0x20, BYTES(PROLOGUE "\x5b" LAST_RET));
	put_function(0xfff0, BYTES("\x55\x48\x89\xe5"), BYTES(""));
	put_function(0x10000, BYTES(""), BYTES("\xc3"));
	cr_expect_str_eq(image_rows(&image, 1), "0:none fff0:shape+0");
	cr_expect_str_eq(image_rows(&image, 2), "0:shape-1 10:none");
}

Test(cfi, keeps_the_rows_of_a_prologue_that_a_chunk_cuts)
{
	size_t cie = image_usual_cie(&image);

	image_fde(&image, cie, IMAGE_TEXT + 0xfffd, 0x20, BYTES(PROLOGUE "\x5b" LAST_RET));
	memcpy(image.text + 0xfffd, "\x55\x48\x89\xe5", 4);
	image.text[0x1001c] = 0xc3;
	cr_expect_str_eq(image_rows(&image, 1), "0:none fffd:sp+8 fffe:sp+16,fp@-16");
	cr_expect_str_eq(image_rows(&image, 2), "0:sp+16,fp@-16 1:shape-1 1d:none");
}

Test(cfi, stops_at_the_limits_of_a_chunk)
{
	static uint8_t code[3 * CFI_ROWS_PER_FUNCTION_MAX];
	size_t cie = image_usual_cie(&image);

	for (size_t i = 0; i < sizeof(code); i += 3)
		memcpy(code + i, i % 2 ? "\x41\x0e\x10" : "\x41\x0e\x18", 3);
	image_fde(&image, cie, IMAGE_TEXT, 0x8000, code, sizeof(code));
	cr_expect_str_eq(image_rows(&image, 1), "error 105"); /* ENOBUFS */
	memset(code, 0, sizeof(code));
	image.frame_size = 0;
	cie = image_usual_cie(&image);
	image_fde(&image, cie, IMAGE_TEXT, 0x8000, code, sizeof(code)); /* long, and says nothing */
	cr_expect_str_eq(image_rows(&image, 1), "0:sp+8 8000:none");
}

Test(cfi, tells_why_a_file_is_none)
{
	const char *why = NULL;
	struct cfi *c = NULL;
	int fd;

	cr_expect_eq(image_open(&image, &fd, &c), -ENODATA); /* an empty .eh_frame */
	cr_assert_eq(pwrite(fd, "\1", 1, 4), 1);
	cr_expect_eq(cfi_open(fd, &why, &c), -ENOEXEC);
	cr_expect_str_eq(why, "not 64-bit little-endian");
	cr_assert_eq(ftruncate(fd, 3), 0);
	cr_expect_eq(cfi_open(fd, &why, &c), -ENOEXEC);
	cr_expect_str_eq(why, "not an ELF file");
	(void)close(fd);
	cr_expect_eq(cfi_open(fd, &why, &c), -EBADF);
	cfi_free(NULL);
}

Test(cfi, tells_that_a_file_was_cut_while_it_was_open)
{
	static struct cfi_chunk chunk;
	struct cfi *c = NULL;
	struct cfi_info info;
	int fd;

	image_fde(&image, image_usual_cie(&image), IMAGE_TEXT, 0x40, BYTES(""));
	cr_assert_eq(image_open(&image, &fd, &c), 0);
	cfi_info(c, &info);
	cr_expect(info.has_eh_frame && !info.has_hdr && !info.has_debug_frame);
	cr_expect_eq(info.functions, 1);
	cr_expect_eq(info.text_start, IMAGE_TEXT);
	cr_expect_eq(info.text_end, IMAGE_TEXT + IMAGE_TEXT_SIZE);
	cr_assert_eq(ftruncate(fd, 0x2000), 0);
	cr_expect_eq(cfi_compile(c, 1, &chunk), -ENODATA);
	cr_expect_eq(chunk.row_count, 0);
	cfi_free(c);
	(void)close(fd);
}

/* Finds a rule the way bpf/table.h describes. */
static uint16_t packed_rule(const uint8_t *packed, uint32_t offset)
{
	const uint16_t *halves = (const uint16_t *)(packed + sizeof(struct table_chunk));
	struct table_chunk head;

	memcpy(&head, packed, sizeof(head));
	const uint16_t *map = halves + TABLE_BLOCKS + 1;
	const uint16_t *offsets = map + head.rule_count;
	size_t block = offset >> TABLE_BLOCK_SHIFT;
	size_t row = halves[block];

	while (row < halves[block + 1] && offsets[row + 1] <= offset)
		row++;
	const uint8_t *ids = (const uint8_t *)(offsets + head.row_count);

	return map[head.rule_count > 256 ? ((const uint16_t *)ids)[row] : ids[row]];
}

static void packs(size_t rows, size_t rules, uint32_t stride)
{
	static struct cfi_chunk c;
	static uint16_t map[TABLE_RULES_MAX];
	size_t row = 0;

	c.row_count = rows;
	c.rule_count = rules;
	for (size_t i = 0; i < rules; i++)
		map[i] = (uint16_t)(4095 - i);
	for (size_t i = 0; i < rows; i++)
		c.rows[i] = (struct cfi_row){(uint16_t)(i * stride), (uint16_t)(i * 7 % rules)};
	size_t size = cfi_packed_size(&c);
	_cleanup_(freep) uint8_t *packed = malloc(size);
	struct table_chunk head;

	cfi_pack(&c, map, packed, size);
	memcpy(&head, packed, sizeof(head));
	cr_expect_eq(head.bytes, size);
	for (uint32_t offset = 0; offset < 1 << TABLE_CHUNK_SHIFT; offset++) {
		while (row + 1 < rows && c.rows[row + 1].offset <= offset)
			row++;
		cr_assert_eq(packed_rule(packed, offset), map[c.rows[row].rule],
			"%zu rows, offset 0x%x", rows, offset);
	}
}

Test(cfi, packs_chunks_that_give_every_address_its_rule)
{
	packs(1, 1, 0);
	packs(2, 2, 512);
	packs(128, 5, 512);
	packs(3000, 256, 21);
	packs(3000, 257, 21);
	packs(TABLE_ROWS_MAX, TABLE_RULES_MAX, 4);
}
