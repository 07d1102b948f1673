/* See remapped_text.h. The file's bytes are compared here, not understood: that is the helper's part. */
#include "agent/remapped_text.h"

#include <errno.h>
#include <fcntl.h>

#include "agent/procfs.h"
#include "base/def.h"

enum {
	REMAPPED_PLACES = 64,
	REMAPPED_PLACE_SIZE = 64,
	REMAPPED_FEW = 8, /* places, all of which must agree */
	REMAPPED_PAGE = 4096,
	REMAPPED_ASKS_MAX = 64, /* of one process: the others stay anonymous */
};

static uint64_t remapped_page_down(uint64_t x)
{
	return x & ~(uint64_t)(REMAPPED_PAGE - 1);
}

static uint64_t remapped_page_up(uint64_t x)
{
	return remapped_page_down(x + REMAPPED_PAGE - 1);
}

bool remapped_text_place(const struct helper_cfi_segments *s, size_t load,
	const struct maps_region *seen, const struct maps_region *r, uint64_t *ret_offset)
{
	const struct helper_cfi_segment *l = &s->segments[load];

	if (seen->offset < remapped_page_down(l->offset) || seen->offset >= l->offset + l->size)
		return false;
	/* Arithmetic that wraps around gives no place inside of a segment. */
	uint64_t bias = seen->start - seen->offset + l->offset - l->vaddr;
	uint64_t start = r->start - bias;
	uint64_t end = r->end - bias;

	for (size_t i = 0; i < s->count; i++) {
		const struct helper_cfi_segment *c = &s->segments[i];

		if (!c->is_code || start < remapped_page_down(c->vaddr) || end <= start ||
			end > remapped_page_up(c->vaddr + c->size) ||
			start - remapped_page_down(c->vaddr) >= remapped_page_up(c->size) ||
			remapped_page_down(c->offset) > UINT64_MAX - (end - start))
			continue;
		*ret_offset =
			remapped_page_down(c->offset) + (start - remapped_page_down(c->vaddr));
		return true;
	}
	return false;
}

static bool remapped_read(int fd, uint64_t offset, uint8_t to[REMAPPED_PLACE_SIZE])
{
	ssize_t n;

	if (offset > INT64_MAX - REMAPPED_PLACE_SIZE)
		return false;
	do {
		n = pread(fd, to, REMAPPED_PLACE_SIZE, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n == REMAPPED_PLACE_SIZE;
}

/* One byte repeated is padding, and no evidence. */
static bool remapped_tells(const uint8_t bytes[REMAPPED_PLACE_SIZE])
{
	return memcmp(bytes, bytes + 1, REMAPPED_PLACE_SIZE - 1) != 0;
}

/* Rule 3: whether the memory of r is what the file has at offset. */
static bool remapped_is_copy(
	int memory_fd, int file_fd, const struct maps_region *r, uint64_t offset)
{
	uint64_t step = (r->end - r->start) / REMAPPED_PLACES & ~(uint64_t)15;
	uint8_t memory[REMAPPED_PLACE_SIZE];
	uint8_t file[REMAPPED_PLACE_SIZE];
	unsigned int telling = 0;
	unsigned int equal = 0;

	for (unsigned int i = 0; i < REMAPPED_PLACES; i++) {
		if (!remapped_read(file_fd, offset + i * step, file) || !remapped_tells(file))
			continue;
		if (!remapped_read(memory_fd, r->start + i * step, memory))
			return false;
		telling++;
		equal += memcmp(memory, file, sizeof(file)) == 0;
		if (telling >= REMAPPED_FEW && equal == 0)
			return false; /* generated code: not one of 8 */
	}
	return telling >= REMAPPED_FEW ? equal * 8 >= telling * 7
				       : telling >= 2 && equal == telling;
}

/* Makes r a region of the file that is mapped at seen, if it is a copy of its text. */
static bool remapped_take(struct helper *h, int process_fd, const struct maps *m,
	const struct maps_region *seen, struct maps_region *r)
{
	enum helper_cfi_status status = HELPER_CFI_BROKEN;
	struct helper_cfi_segments s = {0};
	struct stat st;

	_cleanup_(closep) int file = procfs_open_mapped(process_fd, m, seen, &st);
	if (file < 0 || helper_cfi_ask_segments(h, file, 0, &status, &s) < 0 ||
		status != HELPER_CFI_OK)
		return false;
	_cleanup_(closep) int memory = openat(process_fd, "mem", O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; memory >= 0 && i < s.count; i++) {
		uint64_t offset = 0;

		if (!remapped_text_place(&s, i, seen, r, &offset) ||
			!remapped_is_copy(memory, file, r, offset))
			continue;
		r->kind = MAPS_FILE;
		r->offset = offset;
		r->inode = seen->inode;
		r->dev_major = seen->dev_major;
		r->dev_minor = seen->dev_minor;
		r->path = seen->path;
		r->mapped_start = seen->mapped_end ? seen->mapped_start : seen->start;
		r->mapped_end = seen->mapped_end ? seen->mapped_end : seen->end;
		return true;
	}
	return false;
}

/* The file mapping that begins next behind region number i of m, within a huge page; or NULL. */
static const struct maps_region *remapped_behind(
	const struct maps *m, size_t i, size_t *beside, const struct maps_region *next)
{
	uint64_t end = m->regions[i].end;

	while (*beside > 0 && m->beside[*beside - 1].start >= end)
		--*beside;
	if (*beside < m->beside_count && (!next || m->beside[*beside].start < next->start))
		next = &m->beside[*beside];
	return next && next->start - end <= MAPS_BESIDE_GAP ? next : NULL;
}

void remapped_text_find(struct helper *h, int process_fd, struct maps *m)
{
	const struct maps_region *next = NULL;
	size_t beside = m->beside_count;
	int asks = 0;

	for (size_t i = m->count; i-- > 0 && asks < REMAPPED_ASKS_MAX;) {
		struct maps_region *r = &m->regions[i];
		const struct maps_region *behind =
			r->kind == MAPS_ANON ? remapped_behind(m, i, &beside, next) : NULL;

		if (behind)
			asks++;
		if (behind && remapped_take(h, process_fd, m, behind, r))
			next = r; /* for what is before it */
		else if (r->kind == MAPS_FILE)
			next = r;
	}
	for (size_t i = 1; i < m->count && asks < REMAPPED_ASKS_MAX; i++) {
		const struct maps_region *before = &m->regions[i - 1];
		struct maps_region *r = &m->regions[i];

		if (r->kind != MAPS_ANON || before->kind != MAPS_FILE || before->end != r->start)
			continue;
		asks++;
		(void)remapped_take(h, process_fd, m, before, r); /* or it stays anonymous */
	}
	maps_drop_beside(m);
}
