/* See containers_internal.h: the lines of cache and answer. Texts came from a runtime, through a file or not. */
#include <errno.h>

#include "agent/containers_internal.h"
#include "base/def.h"
#include "base/str.h"

#define HEX         "0123456789abcdef"
#define TIME_MAX    253402300799ULL /* year 9999 */
#define TIME_DIGITS 12

static const char *const labels[] = {
	[CONTAINER_NAME] = "container_name",
	[CONTAINER_IMAGE] = "image",
	[CONTAINER_POD] = "pod",
	[CONTAINER_NAMESPACE] = "namespace",
	[CONTAINER_WORKLOAD] = "workload",
	[CONTAINER_PROJECT] = "compose_project",
};

const char *container_field_label(enum container_field f)
{
	return labels[f];
}

bool container_id_is_good(const char *id, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!id[i] || !strchr(HEX, id[i]))
			return false;
	return size == CGROUP_CONTAINER_MAX;
}

static bool read_time(const char *at, size_t size, uint64_t *ret)
{
	char digits[TIME_DIGITS + 1];

	if (size == 0 || size > TIME_DIGITS)
		return false;
	memcpy(digits, at, size);
	digits[size] = '\0';
	return str_to_u64(digits, 0, TIME_MAX, ret) == 0;
}

/* The text up to the next TAB, or to the end. False: there was none. */
static bool next_text(const char **at, const char *end, const char **ret, size_t *ret_size)
{
	const char *tab;

	if (!*at)
		return false;
	tab = memchr(*at, '\t', (size_t)(end - *at));
	*ret = *at;
	*ret_size = (size_t)((tab ? tab : end) - *at);
	*at = tab ? tab + 1 : NULL;
	return true;
}

static bool is_text(const char *s, size_t size)
{
	if (size > CONTAINER_TEXT_MAX || !str_is_utf8(s, size))
		return false;
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)s[i] < ' ' || s[i] == 0x7f)
			return false;
	return true;
}

bool container_line_read(const char *line, size_t size, struct container_line *ret)
{
	const char *end = line + size;
	const char *at = line;
	const char *text;
	struct container_line l = {0};
	size_t n;

	if (!next_text(&at, end, &text, &n) || !container_id_is_good(text, n))
		return false;
	memcpy(l.id, text, n);
	if (!next_text(&at, end, &text, &n) || !read_time(text, n, &l.time_s))
		return false;
	for (size_t i = 0; i < CONTAINER_FIELDS; i++) {
		if (!next_text(&at, end, &l.fields[i].at, &l.fields[i].size) ||
			!is_text(l.fields[i].at, l.fields[i].size))
			return false;
	}
	if (at)
		return false;
	*ret = l;
	return true;
}

int container_line_write(
	struct buf *out, const char *id, uint64_t time_s, const struct container *c)
{
	(void)buf_printf(out, "%s\t%llu", id, (unsigned long long)time_s);
	for (size_t i = 0; i < CONTAINER_FIELDS; i++) {
		(void)buf_append_char(out, '\t');
		(void)str_append_utf8(out, c->fields[i], strlen(c->fields[i]), CONTAINER_TEXT_MAX);
	}
	(void)buf_append_char(out, '\n');
	return buf_error(out);
}
