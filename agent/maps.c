/*
 * Parser for /proc/PID/maps, see maps.h for the format. The numbers come from the kernel, the path
 * from whoever owns the process: any byte but newline, of any length. So lines are parsed by hand
 * with a bound on everything; sscanf would stop at spaces and overflow silently.
 */
#include "agent/maps.h"

#include <errno.h>

enum { MAPS_WINDOW_SIZE = 16 * 1024 };

void maps_init(struct maps *m)
{
	*m = (struct maps){0};
	buf_init(&m->names, MAPS_NAMES_MAX);
}

void maps_done(struct maps *m)
{
	if (!m)
		return;
	free(m->regions);
	buf_done(&m->names);
	*m = (struct maps){0};
}

struct maps_text {
	const char *pos;
	const char *end;
	bool failed;
};

static uint64_t maps_number(struct maps_text *t, unsigned int base)
{
	const char *start = t->pos;
	uint64_t value = 0;

	for (; t->pos < t->end; t->pos++) {
		char c = *t->pos;
		unsigned int digit;

		if (c >= '0' && c <= '9')
			digit = (unsigned int)(c - '0');
		else if (base == 16 && c >= 'a' && c <= 'f')
			digit = (unsigned int)(c - 'a') + 10;
		else
			break;
		if (value > (UINT64_MAX - digit) / base)
			t->failed = true;
		value = value * base + digit;
	}
	if (t->pos == start)
		t->failed = true;
	return value;
}

static void maps_expect(struct maps_text *t, char c)
{
	if (t->pos < t->end && *t->pos == c)
		t->pos++;
	else
		t->failed = true;
}

/* Appends the path with \012 undone and returns its offset; offset 0 is "". */
static int maps_add_path(struct maps *m, const char *s, size_t size, uint32_t *ret)
{
	size_t start = m->names.size;
	size_t room = m->names.size_max - start;
	void *to;

	if (size == 0) {
		*ret = 0;
		return 0;
	}
	if (room < size + 2)
		return -ENOBUFS;
	if (buf_reserve(&m->names, size + 1, &to) < 0)
		return -ENOMEM;
	char *out = to;
	for (size_t i = 0; i < size;) {
		if (size - i >= 4 && memcmp(s + i, "\\012", 4) == 0) {
			*out++ = '\n';
			i += 4;
		} else {
			*out++ = s[i] ? s[i] : '?';
			i++;
		}
	}
	*out++ = '\0';
	m->names.size += (size_t)(out - (char *)to);
	*ret = (uint32_t)start;
	return 0;
}

static enum maps_kind maps_kind_of(const struct maps_region *r, const char *path, size_t size)
{
	if (r->inode != 0)
		return MAPS_FILE;
	if (size == 6 && memcmp(path, "[vdso]", 6) == 0)
		return MAPS_VDSO;
	if (size == 0 || path[0] != '[' || (size >= 6 && memcmp(path, "[anon:", 6) == 0) ||
		(size >= 12 && memcmp(path, "[anon_shmem:", 12) == 0))
		return MAPS_ANON;
	return MAPS_SPECIAL;
}

/* 0 taken or skipped; -ENOMEM. */
static int maps_line(struct maps *m, const char *line, size_t size)
{
	struct maps_text t = {.pos = line, .end = line + size};
	struct maps_region r = {0};

	r.start = maps_number(&t, 16);
	maps_expect(&t, '-');
	r.end = maps_number(&t, 16);
	maps_expect(&t, ' ');
	if (t.failed || t.end - t.pos < 5)
		goto skip;
	if (t.pos[2] != 'x')
		return 0;
	t.pos += 4;
	maps_expect(&t, ' ');
	r.offset = maps_number(&t, 16);
	maps_expect(&t, ' ');
	uint64_t major = maps_number(&t, 16);
	maps_expect(&t, ':');
	uint64_t minor = maps_number(&t, 16);
	maps_expect(&t, ' ');
	r.inode = maps_number(&t, 10);
	if (t.failed || r.start >= r.end || major > UINT32_MAX || minor > UINT32_MAX ||
		r.offset > UINT64_MAX - (r.end - r.start))
		goto skip;
	r.dev_major = (uint32_t)major;
	r.dev_minor = (uint32_t)minor;
	while (t.pos < t.end && *t.pos == ' ')
		t.pos++;
	if (m->count > 0 && r.start < m->regions[m->count - 1].end)
		goto skip;
	if (m->count >= MAPS_REGIONS_MAX)
		goto skip;
	size_t path_size = (size_t)(t.end - t.pos);
	r.kind = maps_kind_of(&r, t.pos, path_size);
	if (m->count == m->allocated) {
		size_t allocated = m->allocated ? 2 * m->allocated : 16;
		struct maps_region *grown =
			reallocarray(m->regions, allocated, sizeof(*m->regions));

		if (!grown)
			return -ENOMEM;
		m->regions = grown;
		m->allocated = allocated;
	}
	int e = m->names.size == 0 ? buf_append_char(&m->names, '\0') : 0;
	if (e == 0)
		e = maps_add_path(m, t.pos, path_size, &r.path);
	if (e == -ENOMEM)
		return e;
	if (e < 0)
		goto skip;
	m->regions[m->count++] = r;
	return 0;
skip:
	m->skipped++;
	return 0;
}

int maps_feed(struct maps *m, const char *text, size_t size, size_t *ret_used)
{
	size_t used = 0;

	while (used < size) {
		const char *line = text + used;
		const char *newline = memchr(line, '\n', size - used);

		if (!newline)
			break;
		size_t line_size = (size_t)(newline - line);
		m->lines++;
		if (line_size > MAPS_LINE_MAX || m->lines > MAPS_LINES_MAX) {
			m->skipped++;
		} else {
			int e = maps_line(m, line, line_size);

			if (e < 0)
				return e;
		}
		used += line_size + 1;
	}
	*ret_used = used;
	return 0;
}

int maps_read_fd(struct maps *m, int fd)
{
	char window[MAPS_WINDOW_SIZE];
	size_t held = 0;

	while (m->lines <= MAPS_LINES_MAX) {
		ssize_t n = read(fd, window + held, MAPS_WINDOW_SIZE - held);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		held += (size_t)n;
		size_t used = 0;
		int e = maps_feed(m, window, held, &used);

		if (e < 0)
			return e;
		if (used == 0 && held == MAPS_WINDOW_SIZE) {
			/* One line as large as the window: drop what came, the rest of it will
			 * not parse and is counted. */
			m->skipped++;
			used = held;
		}
		memmove(window, window + used, held - used);
		held -= used;
	}
	return 0;
}

struct maps_region *maps_find(const struct maps *m, uint64_t address)
{
	size_t low = 0;
	size_t high = m->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		struct maps_region *r = &m->regions[middle];

		if (address < r->start)
			high = middle;
		else if (address >= r->end)
			low = middle + 1;
		else
			return r;
	}
	return NULL;
}

const char *maps_path(const struct maps *m, const struct maps_region *r)
{
	return r->path < m->names.size ? m->names.data + r->path : "";
}
