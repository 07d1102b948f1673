/* See verifier.h. */
#include "lab/verifier.h"

#include <errno.h>
#include <inttypes.h>

#include "base/def.h"
#include "base/str.h"

static int verifier_line(struct verifier *v, const char *line)
{
	struct verifier_program p = {0};
	int end = 0;

	if (str_has_prefix(line, "kernel ")) {
		(void)snprintf(v->kernel, sizeof(v->kernel), "%.60s", line + strlen("kernel "));
		return 0;
	}
	if (str_has_prefix(line, "exit ")) {
		(void)snprintf(v->exit, sizeof(v->exit), "%.30s", line + strlen("exit "));
		return 0;
	}
	if (sscanf(line, "%7s %31s %9" SCNu64 "%n", p.unwind, p.name, &p.instructions, &end) != 3 ||
		line[end] || (strcmp(p.unwind, "cfi") != 0 && strcmp(p.unwind, "fp") != 0)) {
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
