/*
 * See json.h. cJSON keeps numbers as doubles, so integers are exact up to 2^53 only (104 days in
 * nanoseconds) and larger ones are refused; it also accepts duplicate keys, which json_object
 * refuses, because two readers would disagree about which one counts.
 */
#include "lab/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"

static const double json_integer_max = 9007199254740992.0; /* 2^53 */

void json_done(struct json *j)
{
	if (!j)
		return;
	cJSON_Delete(j->root);
	j->root = NULL;
}

bool json_failed(const struct json *j)
{
	return j->failed;
}

void json_fail(const struct json_at *at, const char *fmt, ...)
{
	struct json *j = at->doc;
	char text[256];
	va_list ap;

	if (j->failed)
		return;
	j->failed = true;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a cut message still tells */
	va_end(ap);
	(void)snprintf(j->message, sizeof(j->message), "%.200s: %s%s%.255s", j->file, at->path,
		at->path[0] ? ": " : "", text);
}

int json_parse(struct json *j, const char *file, const void *data, size_t size)
{
	struct json_at at = {.doc = j};
	const char *end = NULL;

	*j = (struct json){0};
	(void)snprintf(j->file, sizeof(j->file), "%s", file); /* only shown */
	if (size == 0) {
		json_fail(&at, "is empty");
		return -EBADMSG;
	}
	/* A NUL would end cJSON's text early and hide what follows. */
	if (memchr(data, 0, size)) {
		json_fail(&at, "contains a NUL byte");
		return -EBADMSG;
	}
	j->root = cJSON_ParseWithLengthOpts(data, size, &end, false);
	if (!j->root) {
		size_t line = 1;

		for (const char *p = data; end && p < end; p++)
			line += *p == '\n';
		json_fail(&at, "line %zu: not JSON", line);
		return -EBADMSG;
	}
	for (; end < (const char *)data + size; end++)
		if (!strchr(" \t\r\n", *end)) {
			json_fail(&at, "text after the document");
			return -EBADMSG;
		}
	return 0;
}

int json_load(struct json *j, const char *path)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(JSON_SIZE_MAX);
	int r = file_read(path, &b);

	if (r < 0) {
		struct json_at at = {.doc = j};

		*j = (struct json){0};
		(void)snprintf(j->file, sizeof(j->file), "%s", path); /* only shown */
		json_fail(&at, "%s", strerror(-r));
		return r;
	}
	return json_parse(j, path, buf_str(&b), b.size);
}

struct json_at json_root(struct json *j)
{
	return (struct json_at){.doc = j, .node = j->root};
}

bool json_present(const struct json_at *at)
{
	return at->node != NULL;
}

bool json_is_null(const struct json_at *at)
{
	return cJSON_IsNull(at->node);
}

bool json_is_text(const struct json_at *at)
{
	return cJSON_IsString(at->node);
}

/* The path of a field or element below at; long ones are cut, they are only shown. */
static struct json_at json_below(const struct json_at *at, const cJSON *node, const char *name)
{
	struct json_at ret = {.doc = at->doc, .node = node};
	bool dot = at->path[0] && name[0] != '[';

	(void)snprintf(ret.path, sizeof(ret.path), "%.100s%s%.50s", at->path, dot ? "." : "", name);
	return ret;
}

bool json_open_object(const struct json_at *at)
{
	if (at->doc->failed)
		return false;
	if (!cJSON_IsObject(at->node)) {
		json_fail(at, "must be an object");
		return false;
	}
	return true;
}

bool json_object(const struct json_at *at, const char *const names[])
{
	const cJSON *child;
	uint64_t seen = 0;

	if (!json_open_object(at))
		return false;
	cJSON_ArrayForEach(child, at->node)
	{
		struct json_at below = json_below(at, child, child->string);
		size_t i = 0;

		while (names[i] && strcmp(names[i], child->string) != 0)
			i++;
		if (!names[i]) {
			json_fail(&below, "unknown field");
			return false;
		}
		if (seen & 1ULL << i) {
			json_fail(&below, "stands there twice");
			return false;
		}
		seen |= 1ULL << i;
	}
	return true;
}

struct json_at json_field(const struct json_at *at, const char *name)
{
	const cJSON *node = NULL;

	if (!at->doc->failed && cJSON_IsObject(at->node))
		node = cJSON_GetObjectItemCaseSensitive(at->node, name);
	return json_below(at, node, name);
}

struct json_at json_need(const struct json_at *at, const char *name)
{
	struct json_at ret = json_field(at, name);

	if (!ret.node)
		json_fail(&ret, "is missing");
	return ret;
}

size_t json_array(const struct json_at *at, size_t min, size_t max)
{
	int size;

	if (at->doc->failed || (!at->node && min == 0))
		return 0;
	if (!cJSON_IsArray(at->node)) {
		json_fail(at, "must be an array");
		return 0;
	}
	size = cJSON_GetArraySize(at->node);
	if (size < 0 || (size_t)size < min || (size_t)size > max) {
		json_fail(at, "has %d elements, must have %zu..%zu", size, min, max);
		return 0;
	}
	return (size_t)size;
}

struct json_at json_item(const struct json_at *at, size_t i)
{
	const cJSON *node = NULL;
	char name[32];

	if (!at->doc->failed && cJSON_IsArray(at->node) && i <= INT32_MAX)
		node = cJSON_GetArrayItem(at->node, (int)i);
	(void)snprintf(name, sizeof(name), "[%zu]", i); /* cannot be cut */
	return json_below(at, node, name);
}

bool json_next_field(const struct json_at *at, size_t *i, struct json_at *ret, const char **name)
{
	const cJSON *node;

	if (at->doc->failed || !cJSON_IsObject(at->node) || *i > INT32_MAX)
		return false;
	node = cJSON_GetArrayItem(at->node, (int)*i);
	if (!node)
		return false;
	(*i)++;
	*name = node->string;
	*ret = json_below(at, node, node->string);
	return true;
}

const char *json_text(const struct json_at *at, const char *def, size_t size_min, size_t size_max)
{
	size_t size;

	if (at->doc->failed || !at->node)
		return def;
	if (!cJSON_IsString(at->node)) {
		json_fail(at, "must be a string");
		return def;
	}
	size = strlen(at->node->valuestring);
	if (size < size_min || size > size_max) {
		json_fail(at, "has %zu bytes, must have %zu..%zu", size, size_min, size_max);
		return def;
	}
	return at->node->valuestring;
}

/* The number at at, which is present, as a whole number in min..max. */
static bool json_whole(const struct json_at *at, double min, double max, double *ret)
{
	double v;

	if (!cJSON_IsNumber(at->node)) {
		json_fail(at, "must be a whole number");
		return false;
	}
	v = at->node->valuedouble;
	if (!isfinite(v) || v != floor(v)) {
		json_fail(at, "must be a whole number");
		return false;
	}
	if (v < min || v > max || fabs(v) > json_integer_max) {
		json_fail(at, "%.16g is not in %.0f..%.0f", v, min, fmin(max, json_integer_max));
		return false;
	}
	*ret = v;
	return true;
}

uint64_t json_u64(const struct json_at *at, uint64_t def, uint64_t min, uint64_t max)
{
	double v;

	if (at->doc->failed || !at->node || !json_whole(at, (double)min, (double)max, &v))
		return def;
	return (uint64_t)v;
}

int64_t json_i64(const struct json_at *at, int64_t def, int64_t min, int64_t max)
{
	double v;

	if (at->doc->failed || !at->node || !json_whole(at, (double)min, (double)max, &v))
		return def;
	return (int64_t)v;
}

double json_f64(const struct json_at *at, double def, double min, double max)
{
	if (at->doc->failed || !at->node)
		return def;
	if (!cJSON_IsNumber(at->node) || !isfinite(at->node->valuedouble)) {
		json_fail(at, "must be a number");
		return def;
	}
	if (at->node->valuedouble < min || at->node->valuedouble > max) {
		json_fail(at, "%g is not in %g..%g", at->node->valuedouble, min, max);
		return def;
	}
	return at->node->valuedouble;
}

bool json_bool(const struct json_at *at, bool def)
{
	if (at->doc->failed || !at->node)
		return def;
	if (!cJSON_IsBool(at->node)) {
		json_fail(at, "must be true or false");
		return def;
	}
	return cJSON_IsTrue(at->node);
}

size_t json_choice(const struct json_at *at, size_t def, const char *const choices[])
{
	char all[128] = "";
	const char *text;
	size_t used = 0;

	if (at->doc->failed || !at->node)
		return def;
	text = json_text(at, "", 0, 64);
	for (size_t i = 0; choices[i]; i++)
		if (strcmp(choices[i], text) == 0)
			return i;
	for (size_t i = 0; choices[i] && used < sizeof(all) - 1; i++) {
		int n = snprintf(
			all + used, sizeof(all) - used, "%s%s", used ? ", " : "", choices[i]);

		used += n > 0 ? (size_t)n : 0;
	}
	json_fail(at, "\"%s\" is not one of %s", text, all);
	return def;
}

void json_exit(const struct json_at *root, const char *name, char ret[JSON_EXIT_SIZE])
{
	struct json_at at = json_need(root, name);

	if (!json_present(&at))
		return;
	if (json_is_null(&at))
		(void)snprintf(ret, JSON_EXIT_SIZE, "never ran");
	else if (json_is_text(&at))
		(void)snprintf(ret, JSON_EXIT_SIZE, "%s", json_text(&at, "", 0, 63));
	else
		(void)snprintf(
			ret, JSON_EXIT_SIZE, "%lld", (long long)json_i64(&at, 0, -4096, 4096));
}
