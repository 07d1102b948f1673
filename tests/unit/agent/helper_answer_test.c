/* helper_answer: what is put comes back, and lies are refused. */
#include "agent/helper_answer.h"

#include <criterion/criterion.h>
#include <errno.h>

Test(helper_answer, request_comes_back_as_it_was_put)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_REQUEST_SIZE_MAX);
	const uint64_t addresses[] = {1, UINT64_MAX, 0x1122334455667788};
	const struct helper_request put = {
		.sequence = 7, .file = 9, .count = 3, .flags = HELPER_WANT_LINES | HELPER_WITH_ALT};
	struct helper_request q;

	cr_assert_eq(helper_request_put(&b, &put, addresses), 0);
	cr_assert_eq(helper_request_get(b.data, b.size, &q), 0);
	cr_assert_eq(q.sequence, 7);
	cr_assert_eq(q.file, 9);
	cr_assert_eq(q.count, 3);
	cr_assert_eq(q.flags, HELPER_WANT_LINES | HELPER_WITH_ALT);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(cursor_u64(&q.addresses), addresses[i]);
	for (size_t cut = 0; cut < b.size; cut++)
		cr_assert_eq(helper_request_get(b.data, cut, &q), -EBADMSG);
}

Test(helper_answer, flags_nobody_knows_are_refused)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_REQUEST_SIZE_MAX);
	struct helper_request q = {.flags = HELPER_REQUEST_FLAGS_ALL + 1};

	cr_assert_eq(helper_request_put(&b, &q, NULL), -EINVAL);
	q.flags = 0;
	cr_assert_eq(helper_request_put(&b, &q, NULL), 0);
	b.data[20] = (char)0x80;
	cr_assert_eq(helper_request_get(b.data, b.size, &q), -EBADMSG);
}

/* A chain of two, then an address without a name. */
static void put_two(struct buf *b)
{
	struct helper_answer named = {
		.vaddr = 0x10,
		.start = 8,
		.size = 16,
		.flags = HELPER_HAS_VADDR | HELPER_HAS_NAME,
		.kind = NAMES_GO,
		.frame_count = 2,
		.frames = {{"inner", "a.go", 5, 4, 7, 6}, {"outer", "", 5, 0, 0, 0}},
	};
	struct helper_answer nothing = {.flags = HELPER_HAS_VADDR | HELPER_HAS_NAME};

	cr_assert_eq(helper_answer_open(b, 3, HELPER_OK), 0);
	cr_assert_eq(helper_answer_put(b, &named), 0);
	cr_assert_eq(helper_answer_put(b, &nothing), 0);
	helper_answer_close(b, 5, 2, true, HELPER_FILE_IS_GO);
}

Test(helper_answer, answers_come_back_as_they_were_put)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_PACKET_SIZE_MAX);
	struct helper_packet p;
	struct helper_answer a;

	put_two(&b);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), 0);
	cr_assert_eq(p.sequence, 3);
	cr_assert_eq(p.first, 5);
	cr_assert(p.is_last);
	cr_assert_eq(p.file_flags, HELPER_FILE_IS_GO);
	cr_assert(helper_answer_next(&p, &a));
	cr_assert_eq(a.vaddr, 0x10);
	cr_assert_eq(a.start, 8);
	cr_assert_eq(a.size, 16);
	cr_assert_eq(a.kind, NAMES_GO);
	cr_assert_eq(a.frame_count, 2);
	cr_assert_eq(a.frames[0].name_size, 5);
	cr_assert_eq(memcmp(a.frames[0].name, "inner", 5), 0);
	cr_assert_eq(a.frames[0].file_size, 4);
	cr_assert_eq(memcmp(a.frames[0].file, "a.go", 4), 0);
	cr_assert_eq(a.frames[0].line, 7);
	cr_assert_eq(a.frames[0].start_line, 6);
	cr_assert_eq(memcmp(a.frames[1].name, "outer", 5), 0);
	cr_assert_eq(a.frames[1].file_size, 0);
	cr_assert(helper_answer_next(&p, &a));
	cr_assert_eq(a.flags, HELPER_HAS_VADDR, "no frame is no name");
	cr_assert_not(helper_answer_next(&p, &a));
	cr_assert_eq(helper_packet_error(&p), 0);
}

Test(helper_answer, a_cut_packet_is_an_error_and_not_an_end)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_PACKET_SIZE_MAX);
	struct helper_packet p;
	struct helper_answer a;

	put_two(&b);
	for (size_t cut = 0; cut < b.size; cut++) {
		if (helper_answer_get(b.data, cut, &p) == -EBADMSG)
			continue;
		while (helper_answer_next(&p, &a))
			;
		cr_assert_eq(helper_packet_error(&p), -EBADMSG, "cut at %zu", cut);
	}
}

Test(helper_answer, counts_beyond_a_batch_are_refused)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_PACKET_SIZE_MAX);
	struct helper_packet p;

	put_two(&b);
	helper_answer_close(&b, HELPER_BATCH_MAX - 1, 2, true, 0);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), -EBADMSG);
	helper_answer_close(&b, 0, UINT32_MAX, true, 0);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), -EBADMSG);
}

/* Puts value at an offset of put_two()'s first answer; it is then refused. */
static void expect_refused(size_t at, uint8_t value)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_PACKET_SIZE_MAX);
	struct helper_packet p;
	struct helper_answer a;

	put_two(&b);
	cr_assert_eq(buf_append(&b, (uint8_t[4096]){0}, 4096), 0); /* a size may look over it */
	b.data[28 + at] = (char)value;
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), 0);
	cr_assert_not(helper_answer_next(&p, &a));
	cr_assert_eq(helper_packet_error(&p), -EBADMSG);
}

Test(helper_answer, what_is_beyond_a_limit_is_refused)
{
	expect_refused(26, NAMES_GO + 1);
	expect_refused(27, NAMES_FRAMES_MAX + 1);
	expect_refused(29, (NAMES_NAME_MAX >> 8) + 1); /* name's size, high byte */
	expect_refused(31, (NAMES_NAME_MAX >> 8) + 1);
}

Test(helper_answer, a_chain_too_big_for_an_answer_keeps_its_ends)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_PACKET_SIZE_MAX);
	static char name[NAMES_NAME_MAX];
	struct helper_answer a = {.flags = HELPER_HAS_NAME, .frame_count = NAMES_FRAMES_MAX};
	struct helper_packet p;

	memset(name, 'n', sizeof(name));
	for (uint32_t i = 0; i < NAMES_FRAMES_MAX; i++)
		a.frames[i] = (struct helper_frame){
			.name = name, .file = "", .name_size = sizeof(name), .line = i};
	cr_assert_leq(helper_answer_size(&a), HELPER_ANSWER_SIZE_MAX);
	cr_assert_eq(helper_answer_open(&b, 1, HELPER_OK), 0);
	cr_assert_eq(helper_answer_put(&b, &a), 0);
	cr_assert_eq(b.size, 28 + helper_answer_size(&a));
	helper_answer_close(&b, 0, 1, true, 0);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), 0);
	cr_assert(helper_answer_next(&p, &a));
	cr_assert_lt(a.frame_count, NAMES_FRAMES_MAX);
	for (uint32_t i = 0; i + 1 < a.frame_count; i++)
		cr_assert_eq(a.frames[i].line, i);
	cr_assert_eq(a.frames[a.frame_count - 1].line, NAMES_FRAMES_MAX - 1);
}
