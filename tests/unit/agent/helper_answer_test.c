/* helper_answer: what is put comes back, and lies are refused. */
#include "agent/helper_answer.h"

#include <criterion/criterion.h>
#include <errno.h>

Test(helper_answer, request_comes_back_as_it_was_put)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_REQUEST_SIZE_MAX);
	const uint64_t offsets[] = {1, UINT64_MAX, 0x1122334455667788};
	struct helper_request q;

	cr_assert_eq(helper_request_put(&b, 7, 9, offsets, 3), 0);
	cr_assert_eq(helper_request_get(b.data, b.size, &q), 0);
	cr_assert_eq(q.sequence, 7);
	cr_assert_eq(q.file, 9);
	cr_assert_eq(q.count, 3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(cursor_u64(&q.offsets), offsets[i]);
	for (size_t cut = 0; cut < b.size; cut++)
		cr_assert_eq(helper_request_get(b.data, cut, &q), -EBADMSG);
}

static void put_two(struct buf *b)
{
	struct helper_answer named = {.vaddr = 0x10,
		.start = 8,
		.size = 16,
		.flags = HELPER_HAS_VADDR | HELPER_HAS_NAME,
		.name = "name",
		.name_size = 4};
	struct helper_answer nothing = {.flags = HELPER_HAS_VADDR | HELPER_HAS_NAME};

	cr_assert_eq(helper_answer_open(b, 3, HELPER_OK), 0);
	cr_assert_eq(helper_answer_put(b, &named), 0);
	cr_assert_eq(helper_answer_put(b, &nothing), 0);
	helper_answer_close(b, 5, 2, true);
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
	cr_assert(helper_answer_next(&p, &a));
	cr_assert_eq(a.vaddr, 0x10);
	cr_assert_eq(a.start, 8);
	cr_assert_eq(a.size, 16);
	cr_assert_eq(a.name_size, 4);
	cr_assert_eq(memcmp(a.name, "name", 4), 0);
	cr_assert(helper_answer_next(&p, &a));
	cr_assert_eq(a.flags, HELPER_HAS_VADDR, "an empty name is none");
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
	helper_answer_close(&b, HELPER_BATCH_MAX - 1, 2, true);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), -EBADMSG);
	helper_answer_close(&b, 0, UINT32_MAX, true);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), -EBADMSG);
}

Test(helper_answer, names_beyond_the_limit_are_refused)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_PACKET_SIZE_MAX);
	char name[HELPER_NAME_MAX] = {0};
	struct helper_answer a = {.name = name, .name_size = HELPER_NAME_MAX};
	struct helper_packet p;

	cr_assert_eq(helper_answer_open(&b, 1, HELPER_OK), 0);
	cr_assert_eq(helper_answer_put(&b, &a), 0);
	helper_answer_close(&b, 0, 1, true);
	b.data[24 + 26] = (char)((HELPER_NAME_MAX + 1) & 0xff);
	b.data[24 + 27] = (char)((HELPER_NAME_MAX + 1) >> 8);
	cr_assert_eq(buf_append_str(&b, "more"), 0);
	cr_assert_eq(helper_answer_get(b.data, b.size, &p), 0);
	cr_assert_not(helper_answer_next(&p, &a));
	cr_assert_eq(helper_packet_error(&p), -EBADMSG);
}
