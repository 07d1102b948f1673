/* helper_cfi: what is put comes back, and whatever a table's shape does not promise is refused. */
#include "agent/helper_cfi.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"

static struct cfi_chunk chunk;
static struct cfi_chunk back;

static void fill(size_t rows, size_t rules)
{
	chunk.row_count = rows;
	chunk.rule_count = rules;
	for (size_t i = 0; i < rules; i++)
		chunk.rules[i] = (struct unwind_rule){
			.cfa = UNWIND_CFA_DEREF,
			.reg = 7,
			.fp = UNWIND_AT_CFA,
			.ra = UNWIND_IN_REG,
			.cfa_offset = -(int32_t)i - 1,
			.fp_offset = -16,
			.ra_offset = INT16_MIN,
			.aux = INT32_MIN,
		};
	for (size_t i = 0; i < rows; i++)
		chunk.rows[i] = (struct cfi_row){(uint16_t)(3 * i), (uint16_t)(i % rules)};
}

static int get(const struct buf *b)
{
	struct cursor c = cursor_over(b->data, b->size);

	return helper_cfi_chunk_get(&c, &back);
}

Test(helper_cfi, chunk_comes_back_as_it_was_put)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_CFI_BODY_MAX);

	fill(TABLE_ROWS_MAX, TABLE_RULES_MAX);
	cr_assert_eq(helper_cfi_chunk_put(&b, &chunk), 0, "the largest chunk fits");
	cr_assert_eq(b.size, HELPER_CFI_BODY_MAX);
	cr_assert_eq(get(&b), 0);
	cr_assert_eq(back.row_count, chunk.row_count);
	cr_assert_eq(back.rule_count, chunk.rule_count);
	cr_assert_arr_eq(back.rows, chunk.rows, chunk.row_count * sizeof(*chunk.rows));
	cr_assert_arr_eq(back.rules, chunk.rules, chunk.rule_count * sizeof(*chunk.rules));
}

Test(helper_cfi, a_cut_or_longer_chunk_is_refused)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_CFI_BODY_MAX);

	fill(20, 3);
	cr_assert_eq(helper_cfi_chunk_put(&b, &chunk), 0);
	for (size_t cut = 0; cut < b.size; cut++) {
		struct cursor c = cursor_over(b.data, cut);

		cr_assert_eq(helper_cfi_chunk_get(&c, &back), -EBADMSG, "cut at %zu", cut);
	}
	cr_assert_eq(buf_append_char(&b, 'x'), 0);
	cr_assert_eq(get(&b), -EBADMSG);
}

/* Puts the chunk as it is now and expects a refusal. */
static void refused(const char *why)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_CFI_BODY_MAX);

	cr_assert_eq(helper_cfi_chunk_put(&b, &chunk), 0);
	cr_assert_eq(get(&b), -EBADMSG, "%s", why);
	fill(20, 3);
}

Test(helper_cfi, what_a_table_does_not_promise_is_refused)
{
	fill(20, 3);
	chunk.rows[0].offset = 1;
	refused("first row behind the start");
	chunk.rows[5].offset = chunk.rows[4].offset;
	refused("two rows at one offset");
	chunk.rows[5].offset = 0;
	refused("offsets that descend");
	chunk.rows[19].rule = 3;
	refused("a rule that is not there");
	chunk.rules[1].cfa = UNWIND_CFA_UNSUPPORTED + 1;
	refused("a kind of CFA that nobody knows");
	chunk.rules[1].fp = UNWIND_AT_BASE + 1;
	refused("a place of the frame pointer that nobody knows");
	chunk.rules[1].ra = UINT8_MAX;
	refused("a place of the return address that nobody knows");
	chunk.row_count = 0;
	refused("no rows");
	chunk.rule_count = 0;
	refused("no rules");
}

Test(helper_cfi, counts_beyond_the_limits_are_refused)
{
	uint8_t head[8] = {0};
	struct cursor c;

	head[2] = 1; /* 65,536 rows */
	head[4] = 1;
	c = cursor_over(head, sizeof(head));
	cr_assert_eq(helper_cfi_chunk_get(&c, &back), -EBADMSG);
	memset(head, 0xff, sizeof(head));
	c = cursor_over(head, sizeof(head));
	cr_assert_eq(helper_cfi_chunk_get(&c, &back), -EBADMSG);
	c = cursor_over(head, 4);
	struct helper_cfi_segments s;

	cr_assert_eq(helper_cfi_segments_get(&c, &s), -EBADMSG);
}

Test(helper_cfi, request_comes_back_and_nonsense_is_refused)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_CFI_REQUEST_SIZE);
	struct helper_cfi_request q = {.sequence = 9,
		.kind = HELPER_CFI_CHUNKS,
		.chunk_count = HELPER_CFI_CHUNKS_MAX,
		.file = 5,
		.first_chunk = 77};
	struct helper_cfi_request r = {0};

	cr_assert_eq(helper_cfi_request_put(&b, &q), 0);
	cr_assert(helper_cfi_is_request(b.data, b.size));
	cr_assert_eq(helper_cfi_request_get(b.data, b.size, &r), 0);
	cr_assert_eq(r.sequence, q.sequence);
	cr_assert_eq(r.kind, q.kind);
	cr_assert_eq(r.chunk_count, q.chunk_count);
	cr_assert_eq(r.file, q.file);
	cr_assert_eq(r.first_chunk, q.first_chunk);
	for (size_t cut = 0; cut < b.size; cut++)
		cr_assert_eq(helper_cfi_request_get(b.data, cut, &r), -EBADMSG);
	buf_reset(&b);
	q.chunk_count = HELPER_CFI_CHUNKS_MAX + 1;
	cr_assert_eq(helper_cfi_request_put(&b, &q), 0);
	cr_assert_eq(helper_cfi_request_get(b.data, b.size, &r), -EBADMSG);
	buf_reset(&b);
	q.chunk_count = 2;
	q.first_chunk = UINT64_MAX;
	cr_assert_eq(helper_cfi_request_put(&b, &q), 0);
	cr_assert_eq(helper_cfi_request_get(b.data, b.size, &r), -EBADMSG);
}

Test(helper_cfi, packets_that_could_go_on_for_ever_are_refused)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64);
	struct helper_cfi_packet p;

	cr_assert_eq(helper_cfi_head_put(&b, 1, HELPER_CFI_OK, false, 4), 0);
	cr_assert_eq(helper_cfi_packet_get(b.data, b.size, &p), -EBADMSG, "a part without bytes");
	cr_assert_eq(buf_append_char(&b, 'x'), 0);
	cr_assert_eq(helper_cfi_packet_get(b.data, b.size, &p), 0);
	cr_assert_eq(p.chunk, 4);
	buf_reset(&b);
	cr_assert_eq(helper_cfi_head_put(&b, 1, HELPER_CFI_BROKEN, false, 4), 0);
	cr_assert_eq(helper_cfi_packet_get(b.data, b.size, &p), -EBADMSG, "a refusal goes on");
	buf_reset(&b);
	cr_assert_eq(helper_cfi_head_put(&b, 1, HELPER_CFI_STATUS_COUNT, true, 4), 0);
	cr_assert_eq(helper_cfi_packet_get(b.data, b.size, &p), -EBADMSG);
}

Test(helper_cfi, segments_that_wrap_around_are_refused)
{
	static const struct helper_cfi_segment bad[] = {
		{.offset = 0, .vaddr = 0, .size = 0},
		{.offset = UINT64_MAX, .vaddr = 0, .size = 1},
		{.offset = 0, .vaddr = UINT64_MAX - 1, .size = 2},
		{.offset = 0, .vaddr = 0, .size = 1, .is_code = 2},
	};
	struct helper_cfi_segments s = {.count = 1, .segments = {{1, 2, 3, 1}}};
	struct helper_cfi_segments r;

	for (size_t i = 0; i <= ARRAY_SIZE(bad); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(64);

		if (i > 0)
			s.segments[0] = bad[i - 1];
		cr_assert_eq(helper_cfi_segments_put(&b, &s), 0);
		struct cursor c = cursor_over(b.data, b.size);
		cr_assert_eq(helper_cfi_segments_get(&c, &r), i == 0 ? 0 : -EBADMSG);
	}
}
