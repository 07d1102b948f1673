/* helper_identity: what is sent comes back, and nothing else is believed. */
#include "agent/helper_identity.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct elf_identity example(void)
{
	return (struct elf_identity){
		.kind = ELF_IDENTITY_GNU,
		.build_id_size = 3,
		.build_id = {1, 2, 3},
		.has_debuglink = true,
		.debuglink_crc = 0xdeadbeef,
		.debuglink = "x.debug",
		.alt_build_id_size = 2,
		.alt_build_id = {8, 9},
		.altlink = "../.dwz/x",
		.has_dwarf = true,
	};
}

static int decoded(const struct elf_identity *id, struct elf_identity *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_IDENTITY_ANSWER_SIZE_MAX);
	char reason[HELPER_REASON_MAX];

	cr_assert_eq(helper_identity_answer_put(&b, 7, id), 0);
	return helper_identity_answer_get(b.data, b.size, 7, reason, ret);
}

Test(helper_identity, answers_and_requests_survive_the_way)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_IDENTITY_REQUEST_SIZE_MAX);
	struct helper_identity_request q = {5, HELPER_IDENTITY_MATCH, example()};
	struct helper_identity_request got;
	struct elf_identity id = example();
	struct elf_identity back;

	cr_assert_eq(decoded(&id, &back), 0);
	cr_assert_arr_eq(&back, &id, sizeof(id));
	cr_assert_eq(helper_identity_request_put(&b, &q), 0);
	cr_assert(helper_identity_is_request(b.data, b.size));
	cr_assert_eq(helper_identity_request_get(b.data, b.size, &got), 0);
	cr_assert_eq(got.sequence, 5);
	cr_assert_eq(got.kind, HELPER_IDENTITY_MATCH);
	cr_assert_eq(got.of.build_id_size, 3);
	cr_assert_arr_eq(got.of.build_id, id.build_id, 3);
	cr_assert_eq(got.of.debuglink_crc, 0xdeadbeef);
	cr_assert_eq(helper_identity_request_get(b.data, b.size - 1, &got), -EBADMSG);
}

Test(helper_identity, a_refusal_carries_its_reason_as_plain_text)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_IDENTITY_ANSWER_SIZE_MAX);
	char reason[HELPER_REASON_MAX];
	struct elf_identity id;

	cr_assert_eq(helper_identity_refusal_put(&b, 7, "of another\n\x1b[build"), 0);
	cr_assert_eq(helper_identity_answer_get(b.data, b.size, 7, reason, &id), -EKEYREJECTED);
	cr_assert_str_eq(reason, "of another??[build");
	cr_assert_eq(helper_identity_answer_get(b.data, b.size, 8, reason, &id), -EBADMSG);
}

Test(helper_identity, believes_no_link_that_leads_elsewhere)
{
	static const char *const bad[] = {"a/b", "..", ".", "/etc/passwd"};
	struct elf_identity back;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct elf_identity id = example();

		(void)snprintf(id.debuglink, sizeof(id.debuglink), "%s", bad[i]);
		cr_assert_eq(decoded(&id, &back), -EBADMSG, "%s", bad[i]);
	}
}
