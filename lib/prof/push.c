/*
 * push.v1's PushRequest both ways. Reading makes two passes over each message, one that counts and one that
 * fills, because fields of one number may stand anywhere; so an array is allocated once, and a limit is found
 * before memory is taken for what exceeds it. Unknown fields (annotations) are skipped.
 *
 * Labels are repaired first and compared then: two names that differ only in what the repair replaces are
 * the same name to everybody who reads them later.
 */
#include "prof/push.h"

#include <errno.h>

#include "base/def.h"
#include "base/str.h"
#include "prof/proto.h"

enum push_field {
	REQUEST_SERIES = 1,
	SERIES_LABELS = 1,
	SERIES_SAMPLES = 2,
	LABEL_NAME = 1,
	LABEL_VALUE = 2,
	SAMPLE_PROFILE = 1,
	SAMPLE_ID = 2,
};

enum { PUSH_MESSAGE_MAX = 1 << 30, PUSH_SERIES_MAX = PUSH_SAMPLES_MAX };

struct push_reader {
	struct arena *arena;
	const char *why;
	size_t samples; /* of the request so far */
};

static int bad(struct push_reader *r, const char *why)
{
	r->why = why;
	return -EBADMSG;
}

static size_t count_fields(struct cursor c, uint32_t number)
{
	struct proto_field f;
	size_t count = 0;

	while (proto_next(&c, &f))
		count += f.number == number && f.wire == PROTO_BYTES;
	return count;
}

static bool is_plain(const char *s, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (s[i] < 0x20 || s[i] > 0x7e)
			return false;
	}
	return true;
}

/* The field's text, repaired, in the arena. -EFBIG above size_max, in raw or repaired bytes. */
static int read_text(struct push_reader *r, struct cursor c, size_t size_max, const char **ret)
{
	size_t size = cursor_left(&c);
	const char *raw = size ? cursor_bytes(&c, size) : "";
	struct buf b = BUF_INIT(3 * size + 1); /* U+FFFD takes three bytes */
	const char *text;
	int e = 0;

	if (size > size_max)
		return -EFBIG;
	if (!is_plain(raw, size)) {
		e = str_append_utf8(&b, raw, size, 3 * size);
		raw = buf_str(&b);
		size = b.size;
	}
	if (e == 0 && size > size_max)
		e = -EFBIG;
	text = e == 0 ? arena_strndup(r->arena, raw, size) : NULL;
	buf_done(&b);
	if (e < 0)
		return e;
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

static int read_label(struct push_reader *r, struct cursor c, struct push_label *ret)
{
	struct push_label l = {"", ""};
	struct proto_field f;
	int e = 0;

	while (e == 0 && proto_next(&c, &f)) {
		if (f.wire != PROTO_BYTES)
			continue;
		if (f.number == LABEL_NAME)
			e = read_text(r, f.bytes, PUSH_LABEL_NAME_MAX - 1, &l.name);
		else if (f.number == LABEL_VALUE)
			e = read_text(r, f.bytes, PUSH_LABEL_VALUE_MAX - 1, &l.value);
	}
	if (e == -EFBIG)
		return bad(r, "label longer than allowed");
	if (e < 0)
		return e;
	if (cursor_error(&c))
		return bad(r, "malformed label");
	if (!*l.name)
		return bad(r, "label without a name");
	*ret = l;
	return 0;
}

static int read_sample(struct push_reader *r, struct cursor c, struct push_sample *ret)
{
	struct push_sample s = {.profile = "", .id = ""};
	struct proto_field f;
	int e = 0;

	while (e == 0 && proto_next(&c, &f)) {
		if (f.wire != PROTO_BYTES)
			continue;
		if (f.number == SAMPLE_PROFILE) {
			s.profile_size = cursor_left(&f.bytes);
			s.profile = s.profile_size ? cursor_bytes(&f.bytes, s.profile_size) : "";
		} else if (f.number == SAMPLE_ID) {
			e = read_text(r, f.bytes, PUSH_ID_MAX, &s.id);
		}
	}
	if (e == -EFBIG)
		return bad(r, "sample id longer than allowed");
	if (e < 0)
		return e;
	if (cursor_error(&c))
		return bad(r, "malformed sample");
	*ret = s;
	return 0;
}

/* Inserts by name; there are at most PUSH_LABELS_MAX. */
static int add_label(struct push_reader *r, struct push_series *s, const struct push_label *l)
{
	size_t at = s->label_count;

	for (; at > 0; at--) {
		int order = strcmp(l->name, s->labels[at - 1].name);

		if (order == 0)
			return bad(r, "label name appears twice");
		if (order > 0)
			break;
		s->labels[at] = s->labels[at - 1];
	}
	s->labels[at] = *l;
	s->label_count++;
	return 0;
}

static int read_series(struct push_reader *r, struct cursor c, struct push_series *ret)
{
	size_t labels = count_fields(c, SERIES_LABELS);
	size_t samples = count_fields(c, SERIES_SAMPLES);
	struct push_series s = {0};
	struct proto_field f;
	int e = 0;

	if (labels > PUSH_LABELS_MAX)
		return bad(r, "more than 64 labels");
	if (samples > PUSH_SAMPLES_MAX - r->samples)
		return bad(r, "more than 4096 samples");
	r->samples += samples;
	/* An empty array has an address too. */
	s.labels = arena_alloc(r->arena, labels * sizeof(*s.labels));
	s.samples = arena_alloc(r->arena, samples * sizeof(*s.samples));
	if (!s.labels || !s.samples)
		return -ENOMEM;
	while (e == 0 && proto_next(&c, &f)) {
		struct push_label l;

		if (f.wire != PROTO_BYTES)
			continue;
		if (f.number == SERIES_LABELS) {
			e = read_label(r, f.bytes, &l);
			if (e == 0)
				e = add_label(r, &s, &l);
		} else if (f.number == SERIES_SAMPLES) {
			e = read_sample(r, f.bytes, &s.samples[s.sample_count]);
			if (e == 0)
				s.sample_count++;
		}
	}
	if (e == 0 && cursor_error(&c))
		e = bad(r, "malformed series");
	if (e < 0)
		return e;
	*ret = s;
	return 0;
}

int push_read(
	const void *data, size_t size, struct arena *a, const char **why, struct push_request *ret)
{
	struct push_reader r = {.arena = a, .why = "not a protobuf message"};
	struct push_request q = {0};
	struct cursor c = cursor_over(data, size);
	size_t series = count_fields(c, REQUEST_SERIES);
	struct proto_field f;
	int e = 0;

	if (series > PUSH_SERIES_MAX)
		e = bad(&r, "more than 4096 series");
	q.series = e == 0 ? arena_alloc(a, series * sizeof(*q.series)) : NULL;
	if (e == 0 && !q.series)
		e = -ENOMEM;
	while (e == 0 && proto_next(&c, &f)) {
		if (f.number != REQUEST_SERIES || f.wire != PROTO_BYTES)
			continue;
		e = read_series(&r, f.bytes, &q.series[q.series_count]);
		if (e == 0)
			q.series_count++;
	}
	if (e == 0 && cursor_error(&c))
		e = -EBADMSG;
	if (e == -EBADMSG && why)
		*why = r.why;
	if (e == 0)
		*ret = q;
	return e;
}

static int write_series(const struct push_series *s, struct buf *out)
{
	_cleanup_(buf_done) struct buf part = BUF_INIT(out->size_max);
	int e = 0;

	for (size_t i = 0; e == 0 && i < s->label_count; i++) {
		buf_reset(&part);
		(void)proto_put_str(&part, LABEL_NAME, s->labels[i].name);
		e = proto_put_str(&part, LABEL_VALUE, s->labels[i].value);
		if (e == 0)
			e = proto_put_bytes(out, SERIES_LABELS, part.data, part.size);
	}
	for (size_t i = 0; e == 0 && i < s->sample_count; i++) {
		const struct push_sample *one = &s->samples[i];

		buf_reset(&part);
		e = proto_put_bytes(&part, SAMPLE_PROFILE, one->profile, one->profile_size);
		if (e == 0 && *one->id)
			e = proto_put_str(&part, SAMPLE_ID, one->id);
		if (e == 0)
			e = proto_put_bytes(out, SERIES_SAMPLES, part.data, part.size);
	}
	return e;
}

int push_write(const struct push_request *r, struct buf *out)
{
	_cleanup_(buf_done) struct buf part = BUF_INIT(MIN(out->size_max, PUSH_MESSAGE_MAX));
	int e = buf_error(out);

	for (size_t i = 0; e == 0 && i < r->series_count; i++) {
		buf_reset(&part);
		e = write_series(&r->series[i], &part);
		if (e == 0)
			e = proto_put_bytes(out, REQUEST_SERIES, part.data, part.size);
	}
	return e;
}

const char *push_label(const struct push_series *s, const char *name)
{
	for (size_t i = 0; i < s->label_count; i++) {
		if (strcmp(s->labels[i].name, name) == 0)
			return s->labels[i].value;
	}
	return NULL;
}
