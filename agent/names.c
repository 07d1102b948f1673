/* See names.h. */
#include "agent/names.h"

#include <errno.h>

#include "base/def.h"

void names_init(struct names *n)
{
	*n = (struct names){0};
	buf_init(&n->text, NAMES_TEXT_MAX);
}

void names_done(struct names *n)
{
	if (!n)
		return;
	buf_done(&n->text);
}

void names_reset(struct names *n)
{
	n->start = 0;
	n->size = 0;
	n->kind = NAMES_NATIVE;
	n->count = 0;
	buf_reset(&n->text);
}

int names_add(struct names *n, const char *name, size_t name_size, const char *file,
	size_t file_size, uint32_t line, uint32_t start_line)
{
	struct names_frame f = {
		.name = (uint32_t)n->text.size,
		.name_size = (uint32_t)MIN(name_size, (size_t)NAMES_NAME_MAX),
		.file_size = file ? (uint32_t)MIN(file_size, (size_t)NAMES_NAME_MAX) : 0,
		.line = line,
		.start_line = start_line,
	};

	f.file = f.name + f.name_size;
	if (n->count == NAMES_FRAMES_MAX || f.file + f.file_size > NAMES_TEXT_MAX)
		return -ENOBUFS;
	int r = buf_append(&n->text, name, f.name_size);

	if (r == 0)
		r = buf_append(&n->text, file ? file : "", f.file_size);
	if (r < 0)
		return r;
	n->frames[n->count++] = f;
	return 0;
}

const char *names_name(const struct names *n, size_t i)
{
	return buf_str(&n->text) + n->frames[i].name;
}

const char *names_file(const struct names *n, size_t i)
{
	return buf_str(&n->text) + n->frames[i].file;
}
