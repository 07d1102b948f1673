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
	free(m->beside);
	buf_done(&m->names);
	*m = (struct maps){0};
}

void maps_drop_beside(struct maps *m)
{
	free(m->beside);
	m->beside = NULL;
	m->beside_count = 0;
	m->beside_allocated = 0;
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
	/* "//anon" is how events call what has no name. */
	if (size == 0 || path[0] != '[' || (size >= 6 && memcmp(path, "[anon:", 6) == 0) ||
		(size >= 12 && memcmp(path, "[anon_shmem:", 12) == 0))
		return MAPS_ANON;
	return MAPS_SPECIAL;
}

/* Room for one more region. */
static int maps_reserve(struct maps *m)
{
	size_t allocated = m->allocated ? 2 * m->allocated : 16;

	if (m->count < m->allocated)
		return 0;
	struct maps_region *grown = reallocarray(m->regions, allocated, sizeof(*m->regions));

	if (!grown)
		return -ENOMEM;
	m->regions = grown;
	m->allocated = allocated;
	return 0;
}

static int maps_name(struct maps *m, const char *path, size_t size, uint32_t *ret)
{
	int e = m->names.size == 0 ? buf_append_char(&m->names, '\0') : 0;

	return e < 0 ? e : maps_add_path(m, path, size, ret);
}

/* Whether what begins at start is the first that matters behind generated code. */
static bool maps_is_beside(const struct maps *m, uint64_t start)
{
	const struct maps_region *last = m->count > 0 ? &m->regions[m->count - 1] : NULL;

	return last && last->kind == MAPS_ANON && start >= last->end &&
	       start - last->end <= MAPS_BESIDE_GAP &&
	       (m->beside_count == 0 || m->beside[m->beside_count - 1].start < last->end) &&
	       m->beside_count < MAPS_REGIONS_MAX;
}

static int maps_add_beside(
	struct maps *m, struct maps_region *r, const char *path, size_t path_size)
{
	if (m->beside_count == m->beside_allocated) {
		size_t allocated = m->beside_allocated ? 2 * m->beside_allocated : 4;
		struct maps_region *grown = reallocarray(m->beside, allocated, sizeof(*m->beside));

		if (!grown)
			return -ENOMEM;
		m->beside = grown;
		m->beside_allocated = allocated;
	}
	int e = maps_add_path(m, path, path_size, &r->path);

	if (e == 0)
		m->beside[m->beside_count++] = *r;
	return e == -ENOMEM ? e : 0; /* without a path it is of no use */
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
	bool is_code = t.pos[2] == 'x';
	if (!is_code && !maps_is_beside(m, r.start))
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
	size_t path_size = (size_t)(t.end - t.pos);
	if (!is_code)
		return r.inode == 0 ? 0 : maps_add_beside(m, &r, t.pos, path_size);
	r.kind = maps_kind_of(&r, t.pos, path_size);
	if (m->count >= (r.kind == MAPS_ANON ? MAPS_ANON_MAX : MAPS_REGIONS_MAX))
		goto skip;
	int e = maps_reserve(m);
	if (e == 0)
		e = maps_name(m, t.pos, path_size, &r.path);
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

/* The part of r from start to end. */
static struct maps_region maps_part(const struct maps_region *r, uint64_t start, uint64_t end)
{
	struct maps_region part = *r;

	part.start = start;
	part.end = end;
	part.offset += start - r->start;
	return part;
}

static int maps_insert(struct maps *m, size_t at, const struct maps_region *r)
{
	if (m->count >= (r->kind == MAPS_ANON ? MAPS_ANON_MAX : MAPS_REGIONS_MAX)) {
		m->skipped++;
		return 0;
	}
	int e = maps_reserve(m);

	if (e < 0)
		return e;
	memmove(m->regions + at + 1, m->regions + at, (m->count - at) * sizeof(*m->regions));
	m->regions[at] = *r;
	m->count++;
	return 0;
}

/* The first region that ends behind address. */
static size_t maps_after(const struct maps *m, uint64_t address)
{
	size_t low = 0;
	size_t high = m->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->regions[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Nothing is mapped from start to end any more; what is cut through leaves its ends. */
static int maps_clear(struct maps *m, uint64_t start, uint64_t end)
{
	size_t at = maps_after(m, start);
	size_t last = at;

	if (at < m->count && m->regions[at].start < start) {
		struct maps_region whole = m->regions[at];

		m->regions[at].end = start;
		last = ++at;
		if (whole.end > end) {
			struct maps_region rest = maps_part(&whole, end, whole.end);

			return maps_insert(m, at, &rest);
		}
	}
	while (last < m->count && m->regions[last].end <= end)
		last++;
	if (last < m->count && m->regions[last].start < end)
		m->regions[last] = maps_part(&m->regions[last], end, m->regions[last].end);
	if (last > at)
		memmove(&m->regions[at], &m->regions[last],
			(m->count - last) * sizeof(*m->regions));
	m->count -= last - at;
	return 0;
}

/* The parts of r that nothing covers yet. */
static int maps_fill(struct maps *m, const struct maps_region *r)
{
	size_t at = maps_after(m, r->start);
	uint64_t start = r->start;
	int e = 0;

	while (e == 0 && start < r->end) {
		bool is_next = at < m->count && m->regions[at].start < r->end;
		uint64_t end = is_next ? m->regions[at].start : r->end;

		if (end > start) {
			struct maps_region part = maps_part(r, start, end);
			size_t before = m->count;

			e = maps_insert(m, at, &part);
			at += m->count - before;
		}
		start = is_next ? m->regions[at].end : r->end;
		at++;
	}
	return e;
}

int maps_put(struct maps *m, const struct maps_region *r, const char *path, size_t path_size,
	bool replaces)
{
	struct maps_region new = *r;
	int e;

	new.user = 0;
	new.user_tried = 0;
	if (r->start >= r->end || r->offset > UINT64_MAX - (r->end - r->start) ||
		path_size > MAPS_LINE_MAX) {
		m->skipped++;
		return 0;
	}
	new.kind = maps_kind_of(&new, path, path_size);
	e = maps_name(m, path, path_size, &new.path);
	if (e == -ENOBUFS)
		m->skipped++;
	if (e < 0)
		return e == -ENOBUFS ? 0 : e;
	if (replaces)
		e = maps_clear(m, new.start, new.end);
	return e < 0 ? e : maps_fill(m, &new);
}

void maps_trim(struct maps *m)
{
	struct maps_region *regions =
		m->count > 0 ? reallocarray(m->regions, m->count, sizeof(*m->regions)) : NULL;
	char *names = m->names.data ? realloc(m->names.data, m->names.size + 1) : NULL;

	/* Without memory for less, it stays as it is. */
	if (regions) {
		m->regions = regions;
		m->allocated = m->count;
	}
	if (names) {
		m->names.data = names;
		m->names.allocated = m->names.size + 1;
	}
}

size_t maps_memory(const struct maps *m)
{
	return m->allocated * sizeof(*m->regions) + m->names.allocated;
}
