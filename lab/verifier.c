/* See verifier.h. */
#include "lab/verifier.h"

#include <errno.h>

#include "base/def.h"
#include "base/str.h"

/* "cfi on_sample 61032" */
static bool verifier_program(const char *line, struct verifier_program *ret)
{
	size_t unwind = strcspn(line, " "), name;
	const char *number;
	char *end;

	if (!line[unwind])
		return false;
	name = strcspn(line + unwind + 1, " ");
	if (!line[unwind + 1 + name] || unwind >= sizeof(ret->unwind) || name >= sizeof(ret->name))
		return false;
	number = line + unwind + 1 + name + 1;
	(void)snprintf(ret->unwind, sizeof(ret->unwind), "%.*s", (int)unwind, line);
	(void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)name, line + unwind + 1);
	errno = 0;
	ret->instructions = strtoull(number, &end, 10);
	return *number >= '0' && *number <= '9' && !*end && errno == 0 &&
	       (strcmp(ret->unwind, "cfi") == 0 || strcmp(ret->unwind, "fp") == 0);
}

static int verifier_line(struct verifier *v, const char *line)
{
	struct verifier_program p = {0};

	if (str_has_prefix(line, "kernel ")) {
		(void)snprintf(v->kernel, sizeof(v->kernel), "%.60s", line + strlen("kernel "));
		return 0;
	}
	if (str_has_prefix(line, "exit ")) {
		(void)snprintf(v->exit, sizeof(v->exit), "%.30s", line + strlen("exit "));
		return 0;
	}
	if (!verifier_program(line, &p)) {
		if (line[0])
			(void)snprintf(v->said, sizeof(v->said), "%.150s", line);
		return 0;
	}
	if (v->count == VERIFIER_PROGRAMS_MAX)
		return -EBADMSG;
	v->programs[v->count++] = p;
	return 0;
}

int verifier_parse(struct verifier *v, const char *text)
{
	char line[512];
	int r = 0;

	*v = (struct verifier){0};
	while (*text && r == 0) {
		size_t n = strcspn(text, "\n");

		(void)snprintf(line, sizeof(line), "%.*s", (int)MIN(n, sizeof(line) - 1), text);
		r = verifier_line(v, line);
		text += n + (text[n] != 0);
	}
	return r < 0 || !v->kernel[0] || !v->exit[0] ? -EBADMSG : 0;
}
