/*
 * Reads the guest's console as it grows: the life signs of lab/guest/init.c, and what a dying kernel
 * prints. Console bytes come from the guest, so lines are cut, and names are only compared.
 */
#include "lab/vm_internal.h"

#include "base/def.h"
#include "base/str.h"

enum { LINE_MAX_BYTES = 1024 };

void vm_signs_init(struct vm_signs *s, const struct job *j, vm_progress_fn *progress, void *data)
{
	*s = (struct vm_signs){
		.line = BUF_INIT(LINE_MAX_BYTES), .job = j, .progress = progress, .data = data};
}

void vm_signs_done(struct vm_signs *s)
{
	buf_done(&s->line);
}

/* "I/N NAME start" or "... end", believed only when it is the step that the job has there. */
static void take_step(struct vm_signs *s, const char *text)
{
	char *rest = NULL;
	unsigned long index = strtoul(text, &rest, 10);
	const struct job_step *step;
	const char *name, *what;
	size_t name_size;

	if (index == 0 || index > s->job->step_count || *rest != '/')
		return;
	step = &s->job->steps[index - 1];
	name_size = strlen(step->name);
	name = rest + strcspn(rest, " ");
	if (*name != ' ' || strncmp(++name, step->name, name_size) != 0)
		return;
	what = name + name_size;
	if (strcmp(what, " start") == 0) {
		(void)snprintf(s->step, sizeof(s->step), "%s", step->name);
		s->timeout_ms = step->timeout_ms ? step->timeout_ms : 60000;
		s->done = (unsigned int)index - 1;
	} else if (strcmp(what, " end") == 0) {
		s->step[0] = 0;
		s->done = (unsigned int)index;
	} else {
		return;
	}
	if (s->progress)
		s->progress(s->data, step->name, s->done, (unsigned int)s->job->step_count);
}

static void keep_first(char *out, size_t size, const char *text)
{
	if (!out[0])
		(void)snprintf(out, size, "%s", text);
}

static void take_line(struct vm_signs *s, const char *line)
{
	static const char *const deaths[] = {
		"Kernel panic", "BUG: ", "Oops: ", "general protection"};
	const char *sign = strstr(line, "flamelab: ");

	for (size_t i = 0; i < ARRAY_SIZE(deaths); i++) {
		const char *at = strstr(line, deaths[i]);

		if (at)
			keep_first(s->panic, sizeof(s->panic), at);
	}
	if (!sign)
		return;
	sign += strlen("flamelab: ");
	if (str_has_prefix(sign, "step ")) {
		take_step(s, sign + strlen("step "));
	} else if (str_has_prefix(sign, "boot ")) {
		s->booted = true;
		s->guest_ns = strtoull(sign + strlen("boot "), NULL, 10);
	} else if (str_has_prefix(sign, "done ")) {
		s->finished = true;
		s->guest_ns = strtoull(sign + strlen("done "), NULL, 10);
	} else if (strcmp(sign, "full") == 0) {
		s->full = true;
	} else if (str_has_prefix(sign, "error ")) {
		keep_first(s->error, sizeof(s->error), sign + strlen("error "));
	}
}

void vm_signs_feed(struct vm_signs *s, const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\n') {
			take_line(s, buf_str(&s->line));
			buf_reset(&s->line);
		} else if ((unsigned char)text[i] >= ' ') {
			(void)buf_append_char(
				&s->line, text[i]); /* the end of a long line is cut */
		}
	}
}
