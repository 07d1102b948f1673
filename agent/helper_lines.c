/*
 * The role "lines" of the helper process: addresses to inlined functions and lines, by DWARF. It
 * keeps the files it was asked about last; what each holds is bounded, see dwarf_names.h.
 */
#include <errno.h>

#include "agent/dwarf_names.h"
#include "agent/helper_serve.h"
#include "base/def.h"
#include "base/loop.h"

enum {
	HELPER_LINES_FILES_MAX = 8,
	HELPER_LINES_MEMORY_MAX = 16 << 20, /* beyond the one in use */
	HELPER_LINES_REQUEST_MS = 2000,     /* then the rest of it is late */
};

struct helper_lines_file {
	uint64_t id;
	uint64_t used;             /* tick of the last use */
	struct dwarf_names *names; /* NULL: it cannot be read */
	const char *why;           /* then: static */
	uint32_t flags;            /* enum helper_file_flags */
	bool had_debug;
};

struct helper_lines_server {
	struct helper_stream stream;
	struct helper_lines_file files[HELPER_LINES_FILES_MAX];
	size_t count;
	uint64_t uses;
	struct names names;
	struct helper_answer answer;
};

int helper_lines_new(int socket, struct helper_lines_server **ret)
{
	struct helper_lines_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	helper_stream_init(&s->stream, socket);
	names_init(&s->names);
	*ret = s;
	return 0;
}

static void helper_lines_drop(struct helper_lines_server *s, size_t at)
{
	dwarf_names_free(s->files[at].names);
	s->files[at] = s->files[--s->count];
}

void helper_lines_free(struct helper_lines_server *s)
{
	if (!s)
		return;
	while (s->count > 0)
		helper_lines_drop(s, 0);
	helper_stream_done(&s->stream);
	names_done(&s->names);
	free(s);
}

/* Makes room for one more: the least recently used ones go. */
static void helper_lines_shrink(struct helper_lines_server *s)
{
	for (;;) {
		size_t memory = 0;
		size_t oldest = 0;

		for (size_t i = 0; i < s->count; i++) {
			memory += s->files[i].names ? dwarf_names_memory(s->files[i].names) : 0;
			if (s->files[i].used < s->files[oldest].used)
				oldest = i;
		}
		if (s->count == 0 ||
			(s->count < HELPER_LINES_FILES_MAX && memory <= HELPER_LINES_MEMORY_MAX))
			return;
		helper_lines_drop(s, oldest);
	}
}

static struct helper_lines_file *helper_lines_open(
	struct helper_lines_server *s, const struct helper_request *q, struct helper_fds *fds)
{
	for (size_t i = 0; i < s->count; i++) {
		struct helper_lines_file *f = &s->files[i];

		if (f->id != q->file)
			continue;
		if (f->had_debug == (fds->debug >= 0)) {
			f->used = ++s->uses;
			return f;
		}
		helper_lines_drop(s, i); /* it was found, or lost, since */
		break;
	}
	helper_lines_shrink(s);
	struct helper_lines_file *f = &s->files[s->count++];

	*f = (struct helper_lines_file){
		.id = q->file, .used = ++s->uses, .had_debug = fds->debug >= 0};
	int *fd = f->had_debug ? &fds->debug : &fds->file;
	int r = dwarf_names_open(*fd, fds->alt, &f->why, &f->names);

	if (r == 0) {
		*fd = -1;
		fds->alt = -1;
	}
	if (r == 0)
		f->flags = HELPER_FILE_HAS_DWARF;
	else if (r == -ENOTSUP || r == -EFBIG)
		f->flags = HELPER_FILE_HAS_DWARF | HELPER_FILE_DEBUG_UNREADABLE;
	return f;
}

static void helper_lines_find(
	struct helper_lines_server *s, struct dwarf_names *d, uint64_t vaddr, bool with_lines)
{
	names_reset(&s->names);
	/* What went wrong with one address costs what is known of it and nothing else. */
	if (dwarf_names_find(d, vaddr, with_lines, &s->names) < 0)
		names_reset(&s->names);
}

int helper_lines_serve(
	struct helper_lines_server *s, struct helper_request *q, struct helper_fds *fds)
{
	uint64_t end_ns = loop_now_ns() + HELPER_LINES_REQUEST_MS * NSEC_PER_MSEC;
	struct helper_lines_file *f = helper_lines_open(s, q, fds);
	bool is_late = false;
	int r = 0;

	if (!f->names)
		return helper_stream_refuse(&s->stream, q->sequence, f->flags, f->why);
	helper_stream_begin(&s->stream, q->sequence, f->flags);
	for (uint32_t i = 0; i < q->count && r == 0; i++) {
		uint64_t vaddr = cursor_u64(&q->addresses);

		is_late = is_late || loop_now_ns() >= end_ns;
		names_reset(&s->names);
		if (!is_late)
			helper_lines_find(s, f->names, vaddr, q->flags & HELPER_WANT_LINES);
		helper_answer_from(&s->answer, &s->names);
		s->answer.vaddr = vaddr;
		s->answer.flags |= HELPER_HAS_VADDR | (is_late ? HELPER_IS_LATE : 0);
		r = helper_stream_put(&s->stream, &s->answer);
	}
	return r < 0 ? r : helper_stream_end(&s->stream);
}
