/* See containers_internal.h: what Kubernetes appends to a workload's name, taken off again. */
#include <ctype.h>

#include "agent/containers_internal.h"
#include "base/def.h"
#include "base/str.h"

/* What k8s.io/apimachinery/pkg/util/rand draws from. */
#define DRAWN  "bcdfghjklmnpqrstvwxz2456789"
#define DIGITS "0123456789"

enum { DRAWN_SIZE = 5, HASH_MIN = 6, HASH_MAX = 10, CRON_MIN = 8, CRON_MAX = 10 };

/*
 * Where "-SUFFIX" begins at the end of size bytes of name, SUFFIX being min..max of those letters.
 * size: it does not, or nothing would be left.
 */
static size_t cut(const char *name, size_t size, const char *letters, size_t min, size_t max)
{
	const char *dash = memrchr(name, '-', size);
	size_t n = dash ? size - (size_t)(dash + 1 - name) : 0;

	if (!dash || dash == name || n < min || n > max)
		return size;
	for (size_t i = 0; i < n; i++)
		if (!strchr(letters, dash[1 + i]))
			return size;
	return (size_t)(dash - name);
}

/* Where "-TEXT" begins at the end; size: it does not stand there. */
static size_t cut_text(const char *name, size_t size, const char *text)
{
	size_t n = strlen(text);

	if (n == 0 || size < n + 2 || memcmp(name + size - n, text, n) != 0 ||
		name[size - n - 1] != '-')
		return size;
	return size - n - 1;
}

static bool has_digit(const char *s, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (isdigit((unsigned char)s[i]))
			return true;
	return false;
}

/* By their look only. A word such as "-proxy" holds a letter that is never drawn, or has no hash before it. */
static size_t cut_by_look(const char *name, size_t size)
{
	size_t drawn = cut(name, size, DRAWN, DRAWN_SIZE, DRAWN_SIZE);
	size_t hash = drawn < size ? cut(name, drawn, DRAWN, HASH_MIN, HASH_MAX) : drawn;

	if (drawn < size && hash < drawn && has_digit(name + hash, drawn - hash))
		return hash;
	return drawn;
}

static size_t size_of_workload(const struct container_pod *p, size_t size)
{
	size_t n;

	if (p->template_hash) {
		size_t drawn = cut(p->name, size, DRAWN, DRAWN_SIZE, DRAWN_SIZE);

		n = cut_text(p->name, drawn, p->template_hash);
		return drawn < size && n < drawn ? n : size;
	}
	if (p->stateful_name)
		return cut(p->name, size, DIGITS, 1, 6);
	if (p->revision)
		return cut(p->name, size, DRAWN, DRAWN_SIZE, DRAWN_SIZE);
	if (p->is_static)
		return cut_text(p->name, size, p->host);
	return cut_by_look(p->name, size);
}

void container_workload(const struct container_pod *p, char ret[CONTAINER_TEXT_MAX + 1])
{
	const char *name = p->name;
	size_t size;

	if (p->app && *p->app) {
		name = p->app;
		size = strlen(name);
	} else if (p->job && *p->job) {
		name = p->job;
		size = cut(name, strlen(name), DIGITS, CRON_MIN, CRON_MAX);
	} else {
		size = size_of_workload(p, strlen(name));
	}
	(void)snprintf(ret, CONTAINER_TEXT_MAX + 1, "%.*s",
		(int)MIN(size, (size_t)CONTAINER_TEXT_MAX), name); /* cut is a name, too */
}
