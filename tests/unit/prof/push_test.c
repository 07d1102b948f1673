/*
 * push.v1: round trip, limits, damage.
 */
#include "prof/push.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "prof/proto.h"

#define BYTES_MAX ((size_t)64 << 20)

static struct arena *arena;

static void setup(void)
{
	arena = arena_new(BYTES_MAX);
}

static void teardown(void)
{
	arena_free(arena);
}

TestSuite(push, .init = setup, .fini = teardown);

/* A series message around what label and sample messages are given. */
static void put_label(struct buf *series, const char *name, const char *value, size_t value_size)
{
	_cleanup_(buf_done) struct buf label = BUF_INIT(BYTES_MAX);

	(void)proto_put_str(&label, 1, name);
	(void)proto_put_bytes(&label, 2, value, value_size);
	cr_assert_eq(proto_put_bytes(series, 1, label.data, label.size), 0);
}

static int read_series(const struct buf *series, const char **why, struct push_request *ret)
{
	struct buf request = BUF_INIT(BYTES_MAX);

	cr_assert_eq(proto_put_bytes(&request, 1, series->data, series->size), 0);
	/* The result points into the request, which lives as long as the arena here. */
	void *copy = arena_alloc(arena, request.size);
	memcpy(copy, request.data, request.size);
	size_t size = request.size;
	buf_done(&request);
	return push_read(copy, size, arena, why, ret);
}

Test(push, what_is_written_is_read)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(BYTES_MAX);
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "../../x"}};
	struct push_sample samples[] = {{"\x1f\x8b\0z", 4, "w-1"}, {"", 0, ""}};
	struct push_series series[] = {{labels, 2, samples, 2}, {labels, 1, samples, 1}};
	struct push_request q = {series, 2}, r;
	const char *why = NULL;

	cr_assert_eq(push_write(&q, &out), 0);
	cr_assert_eq(push_read(out.data, out.size, arena, &why, &r), 0);
	cr_assert_eq(r.series_count, 2);
	cr_assert_eq(r.series[0].label_count, 2);
	cr_assert_str_eq(push_label(&r.series[0], "service_name"), "../../x");
	cr_assert_null(push_label(&r.series[1], "service_name"));
	cr_assert_eq(r.series[0].sample_count, 2);
	cr_assert_eq(r.series[0].samples[0].profile_size, 4);
	cr_assert_arr_eq(r.series[0].samples[0].profile, "\x1f\x8b\0z", 4);
	cr_assert_str_eq(r.series[0].samples[0].id, "w-1");
	cr_assert_eq(r.series[0].samples[1].profile_size, 0);
	cr_assert_str_eq(r.series[0].samples[1].id, "");
}

/* The bytes of a request as protoc encodes them: series{labels{name,value}, samples{raw_profile,ID}}. */
Test(push, bytes_of_another_encoder_are_read)
{
	static const uint8_t bytes[] = {0x0a, 0x16, 0x0a, 0x0b, 0x0a, 0x08, '_', '_', 'n', 'a', 'm',
		'e', '_', '_', 0x12, 0xff};
	static const uint8_t whole[] = {0x0a, 0x10, 0x0a, 0x06, 0x0a, 0x01, 'a', 0x12, 0x01, 'b',
		0x12, 0x06, 0x0a, 0x01, 'P', 0x12, 0x01, 'I'};
	struct push_request r;
	const char *why = NULL;

	cr_assert_eq(push_read(bytes, sizeof(bytes), arena, &why, &r), -EBADMSG);
	cr_assert_not_null(why);
	cr_assert_eq(push_read(whole, sizeof(whole), arena, &why, &r), 0);
	cr_assert_str_eq(push_label(&r.series[0], "a"), "b");
	cr_assert_eq(*(const char *)r.series[0].samples[0].profile, 'P');
	cr_assert_str_eq(r.series[0].samples[0].id, "I");
}

Test(push, labels_are_sorted_and_repaired)
{
	_cleanup_(buf_done) struct buf series = BUF_INIT(BYTES_MAX);
	struct push_request r;
	const char *why = NULL;

	put_label(&series, "zone", "a\nb", 3);
	put_label(&series, "app", "\xff", 1);
	put_label(&series, "host", "h\0i", 3);
	cr_assert_eq(read_series(&series, &why, &r), 0);
	cr_assert_str_eq(r.series[0].labels[0].name, "app");
	cr_assert_str_eq(r.series[0].labels[0].value, "\xef\xbf\xbd");
	cr_assert_str_eq(r.series[0].labels[1].value, "h\xef\xbf\xbdi");
	cr_assert_str_eq(r.series[0].labels[2].name, "zone");
	cr_assert_str_eq(r.series[0].labels[2].value, "a\xef\xbf\xbd"
						      "b");
}

Test(push, names_that_become_equal_are_refused)
{
	_cleanup_(buf_done) struct buf series = BUF_INIT(BYTES_MAX);
	struct push_request r;
	const char *why = NULL;

	put_label(&series, "a\xfe", "1", 1);
	put_label(&series, "a\xff", "2", 1);
	cr_assert_eq(read_series(&series, &why, &r), -EBADMSG);
	cr_assert_str_eq(why, "label name appears twice");
}

Test(push, a_label_of_the_longest_value_is_read_and_one_more_byte_refused)
{
	_cleanup_(buf_done) struct buf fits = BUF_INIT(BYTES_MAX);
	_cleanup_(buf_done) struct buf over = BUF_INIT(BYTES_MAX);
	char value[PUSH_LABEL_VALUE_MAX];
	struct push_request r;
	const char *why = NULL;

	memset(value, 'v', sizeof(value));
	put_label(&fits, "a", value, sizeof(value) - 1);
	cr_assert_eq(read_series(&fits, &why, &r), 0);
	cr_assert_eq(strlen(push_label(&r.series[0], "a")), sizeof(value) - 1);
	put_label(&over, "a", value, sizeof(value));
	cr_assert_eq(read_series(&over, &why, &r), -EBADMSG);
	cr_assert_str_eq(why, "label longer than allowed");
}

Test(push, counts_above_their_limits_are_refused)
{
	_cleanup_(buf_done) struct buf labels = BUF_INIT(BYTES_MAX);
	_cleanup_(buf_done) struct buf samples = BUF_INIT(BYTES_MAX);
	_cleanup_(buf_done) struct buf series = BUF_INIT(BYTES_MAX);
	struct push_request r;
	const char *why = NULL;

	for (int i = 0; i <= PUSH_LABELS_MAX; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "l%d", i);
		put_label(&labels, name, "v", 1);
	}
	cr_assert_eq(read_series(&labels, &why, &r), -EBADMSG);
	cr_assert_str_eq(why, "more than 64 labels");
	for (int i = 0; i <= PUSH_SAMPLES_MAX; i++)
		(void)proto_put_bytes(&samples, 2, "", 0);
	cr_assert_eq(read_series(&samples, &why, &r), -EBADMSG);
	cr_assert_str_eq(why, "more than 4096 samples");
	for (int i = 0; i <= PUSH_SAMPLES_MAX; i++)
		(void)proto_put_bytes(&series, 1, "", 0);
	cr_assert_eq(push_read(series.data, series.size, arena, &why, &r), -EBADMSG);
	cr_assert_str_eq(why, "more than 4096 series");
}

Test(push, a_request_cut_anywhere_is_refused_or_shorter)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(BYTES_MAX);
	struct push_label labels[] = {{"__name__", "cpu"}, {"service_name", "shop"}};
	struct push_sample samples[] = {{"profile", 7, "w-1"}};
	struct push_series series[] = {{labels, 2, samples, 1}};
	struct push_request q = {series, 1}, r;

	cr_assert_eq(push_write(&q, &out), 0);
	for (size_t size = 1; size < out.size; size++) {
		const char *why = NULL;

		cr_assert_eq(push_read(out.data, size, arena, &why, &r), -EBADMSG, "%zu", size);
		cr_assert_not_null(why);
	}
	cr_assert_eq(push_read(out.data, 0, arena, NULL, &r), 0);
	cr_assert_eq(r.series_count, 0);
}
