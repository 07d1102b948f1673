/* JSON to protobuf. The count of values is bounded before cJSON takes memory for each of them. */
#include "backend/push_json.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "prof/push.h"

enum { VALUES_MAX = 400000, JSON_ARENA_BYTES = 64 << 20 };

struct reader {
	struct arena *arena;
	const char *why;
};

static void json_freep(cJSON **j)
{
	cJSON_Delete(*j);
}

/* Commas and opening brackets outside of strings bound the values from above. */
static bool is_small(const char *at, size_t size)
{
	bool in_string = false;
	size_t values = 1;

	for (size_t i = 0; i < size; i++) {
		if (in_string && at[i] == '\\')
			i++;
		else if (at[i] == '"')
			in_string = !in_string;
		else if (!in_string && (at[i] == ',' || at[i] == '[' || at[i] == '{'))
			values++;
	}
	return values <= VALUES_MAX;
}

static int bad(struct reader *r, const char *why)
{
	r->why = why;
	return -EBADMSG;
}

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

/* Base64 to bytes in place, which is never longer. */
static int decode(struct reader *r, char *text, size_t *ret_size)
{
	uint32_t bits = 0;
	size_t n = 0, count = 0;

	for (; text[count] && text[count] != '='; count++) {
		int d = digit(text[count]);

		if (d < 0)
			return bad(r, "rawProfile is not base64");
		bits = bits << 6 | (uint32_t)d;
		if (count % 4 != 0)
			text[n++] = (char)(bits >> (6 - 2 * (count % 4)));
	}
	if (count % 4 == 1 || strspn(&text[count], "=") != strlen(&text[count]) ||
		strlen(&text[count]) > 2)
		return bad(r, "rawProfile is not base64");
	*ret_size = n;
	return 0;
}

/* The list of this name, which may be absent. */
static int list(struct reader *r, const cJSON *o, const char *key, const cJSON **ret)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (v && !cJSON_IsNull(v) && !cJSON_IsArray(v))
		return bad(r, "series, labels and samples must be lists");
	for (const cJSON *e = v ? v->child : NULL; e; e = e->next) {
		if (!cJSON_IsObject(e))
			return bad(r, "what is in series, labels and samples must be objects");
	}
	*ret = v;
	return 0;
}

/* The text of this name, "" when absent. */
static int text(struct reader *r, const cJSON *o, const char *key, char **ret)
{
	static char empty[1];
	cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!v || cJSON_IsNull(v)) {
		*ret = empty;
		return 0;
	}
	if (!cJSON_IsString(v) || !v->valuestring)
		return bad(r, "name, value, rawProfile and ID must be text");
	*ret = v->valuestring;
	return 0;
}

static int read_labels(struct reader *r, const cJSON *o, struct push_series *s)
{
	const cJSON *labels = NULL;
	int e = list(r, o, "labels", &labels);

	if (e < 0)
		return e;
	s->labels = arena_alloc(
		r->arena, ((size_t)cJSON_GetArraySize(labels) + 1) * sizeof(*s->labels));
	if (!s->labels)
		return -ENOMEM;
	for (const cJSON *l = labels ? labels->child : NULL; e == 0 && l; l = l->next) {
		char *name = NULL, *value = NULL;

		e = text(r, l, "name", &name);
		if (e == 0)
			e = text(r, l, "value", &value);
		s->labels[s->label_count++] = (struct push_label){name, value};
	}
	return e;
}

static int read_samples(struct reader *r, const cJSON *o, struct push_series *s)
{
	const cJSON *samples = NULL;
	int e = list(r, o, "samples", &samples);

	if (e < 0)
		return e;
	s->samples = arena_alloc(
		r->arena, ((size_t)cJSON_GetArraySize(samples) + 1) * sizeof(*s->samples));
	if (!s->samples)
		return -ENOMEM;
	for (const cJSON *l = samples ? samples->child : NULL; e == 0 && l; l = l->next) {
		struct push_sample *to = &s->samples[s->sample_count++];
		char *raw = NULL, *id = NULL;

		e = text(r, l, "rawProfile", &raw);
		if (e == 0 && !*raw)
			e = text(r, l, "raw_profile", &raw);
		if (e == 0)
			e = text(r, l, "ID", &id);
		if (e == 0)
			e = decode(r, raw, &to->profile_size);
		to->profile = raw;
		to->id = id;
	}
	return e;
}

static int read_request(struct reader *r, const cJSON *o, struct push_request *ret)
{
	const cJSON *series = NULL;
	int e = list(r, o, "series", &series);

	if (e < 0)
		return e;
	ret->series = arena_alloc(
		r->arena, ((size_t)cJSON_GetArraySize(series) + 1) * sizeof(*ret->series));
	if (!ret->series)
		return -ENOMEM;
	for (const cJSON *s = series ? series->child : NULL; e == 0 && s; s = s->next) {
		struct push_series *to = &ret->series[ret->series_count++];

		e = read_labels(r, s, to);
		if (e == 0)
			e = read_samples(r, s, to);
	}
	return e;
}

int push_json_read(const void *json, size_t size, const char **why, struct buf *out)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(JSON_ARENA_BYTES);
	_cleanup_(json_freep) cJSON *o = NULL;
	struct reader r = {.arena = a, .why = ""};
	struct push_request q = {0};
	int e;

	if (!a)
		return -ENOMEM;
	if (!is_small(json, size)) {
		*why = "JSON with too many values";
		return -EBADMSG;
	}
	o = cJSON_ParseWithLength(json, size);
	if (!o || !cJSON_IsObject(o)) {
		*why = "the body is not a JSON object";
		return -EBADMSG;
	}
	e = read_request(&r, o, &q);
	if (e == 0)
		e = push_write(&q, out);
	if (e == -EBADMSG)
		*why = r.why;
	return e;
}
