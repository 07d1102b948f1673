/* JSON from strangers: typed reads with limits and a one-line reason. cJSON bounds the nesting (1,000). */
#include <errno.h>
#include <math.h>

#include "backend/control_internal.h"
#include "base/def.h"
#include "base/str.h"

void control_json_freep(cJSON **j)
{
	cJSON_Delete(*j);
}

cJSON *control_json_parse(const void *json, size_t size, struct buf *why)
{
	cJSON *o = cJSON_ParseWithLength(json, size);

	if (o && cJSON_IsObject(o))
		return o;
	cJSON_Delete(o);
	(void)buf_append_str(why, "the body is not a JSON object");
	return NULL;
}

int control_json_text(const cJSON *o, const char *key, size_t max, struct buf *why, struct buf *out)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	buf_reset(out);
	if (!v || cJSON_IsNull(v))
		return buf_append_str(out, "");
	if (!cJSON_IsString(v) || !v->valuestring) {
		(void)buf_printf(why, "'%s' must be text", key);
		return -EINVAL;
	}
	if (strlen(v->valuestring) > max) {
		(void)buf_printf(why, "'%s' is longer than %zu bytes", key, max);
		return -EINVAL;
	}
	return str_append_utf8(out, v->valuestring, strlen(v->valuestring), 4 * max);
}

int control_json_int(
	const cJSON *o, const char *key, int64_t min, int64_t max, struct buf *why, int64_t *ret)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!v)
		return 0;
	if (!cJSON_IsNumber(v) || !(v->valuedouble >= (double)min) ||
		!(v->valuedouble <= (double)max) || v->valuedouble != floor(v->valuedouble)) {
		(void)buf_printf(why, "'%s' must be a whole number in %lld..%lld", key,
			(long long)min, (long long)max);
		return -EINVAL;
	}
	*ret = (int64_t)v->valuedouble;
	return 0;
}

int control_json_bool(const cJSON *o, const char *key, struct buf *why, bool *ret)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!v)
		return 0;
	if (!cJSON_IsBool(v)) {
		(void)buf_printf(why, "'%s' must be true or false", key);
		return -EINVAL;
	}
	*ret = cJSON_IsTrue(v);
	return 0;
}

bool control_word(const char *s, size_t max)
{
	size_t size =
		strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:");

	return size > 0 && size <= max && s[size] == '\0';
}
