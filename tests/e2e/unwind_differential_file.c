/*
 * Recordings of stopped threads, little endian as the machine is:
 *
 *	"FLUNW1\n\0"
 *	then any number of	u32 kind, u32 size, size bytes
 *	kind 'm'	text of /proc/PID/maps, holds for the samples behind it
 *	kind 'v'	the bytes of the vdso
 *	kind 's'	u64 regs[16] by DWARF number, pc, orig_ax, stack_start, stack_size; the stack's
 *			bytes; then for each page read elsewhere its u64 address and 4096 bytes
 *
 * Files are named in the maps and not contained: a recording is replayed where they are the same.
 */
#include "tests/e2e/unwind_differential.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/def.h"

static const char diff_magic[8] = "FLUNW1\n";
enum { DIFF_PART_MAX = 64 << 20, DIFF_HEAD = offsetof(struct diff_sample, stack) };

struct diff_bytes {
	const void *bytes;
	size_t size;
};

static int diff_file_put(FILE *f, uint32_t kind, const struct diff_bytes *parts, size_t count)
{
	uint32_t head[2] = {kind, 0};

	for (size_t i = 0; i < count; i++)
		head[1] += (uint32_t)parts[i].size;
	if (ftell(f) == 0 && fwrite(diff_magic, sizeof(diff_magic), 1, f) != 1)
		return -EIO;
	if (fwrite(head, sizeof(head), 1, f) != 1)
		return -EIO;
	for (size_t i = 0; i < count; i++)
		if (fwrite(parts[i].bytes, 1, parts[i].size, f) != parts[i].size)
			return -EIO;
	return 0;
}

int diff_file_put_space(FILE *f, const struct diff_space *space)
{
	uint8_t vdso[65536];
	ssize_t size = space->vdso_fd < 0 ? 0 : pread(space->vdso_fd, vdso, sizeof(vdso), 0);
	const struct diff_bytes image = {vdso, (size_t)MAX(size, 0)};
	const struct diff_bytes text = {space->text, space->text_size};
	int r = size > 0 ? diff_file_put(f, 'v', &image, 1) : 0;

	return r < 0 ? r : diff_file_put(f, 'm', &text, 1);
}

int diff_file_put_sample(FILE *f, const struct diff_sample *s)
{
	const struct diff_bytes parts[] = {{s, DIFF_HEAD}, {s->stack, s->stack_size},
		{s->pages, s->page_count * sizeof(s->pages[0])}};

	return diff_file_put(f, 's', parts, ARRAY_SIZE(parts));
}

int diff_space_set(struct diff_space *space, char *text, size_t size)
{
	size_t used = 0;

	free(space->text);
	space->text = text;
	space->text_size = size;
	maps_done(&space->maps);
	maps_init(&space->maps);
	return maps_feed(&space->maps, text, size, &used);
}

int diff_space_set_vdso(struct diff_space *space, const void *bytes, size_t size)
{
	int fd = memfd_create("vdso", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (write(fd, bytes, size) != (ssize_t)size) {
		close(fd);
		return -EIO;
	}
	if (space->vdso_fd >= 0)
		close(space->vdso_fd);
	space->vdso_fd = fd;
	return 0;
}

static int diff_file_sample(struct diff_sample *s, const char *bytes, size_t size)
{
	if (size < DIFF_HEAD)
		return -EBADMSG;
	memcpy(s, bytes, DIFF_HEAD);
	size -= DIFF_HEAD;
	if (s->stack_size > MIN(size, sizeof(s->stack)))
		return -EBADMSG;
	memcpy(s->stack, bytes + DIFF_HEAD, s->stack_size);
	bytes += DIFF_HEAD + s->stack_size;
	size -= s->stack_size;
	s->live = 0;
	s->page_count = size / sizeof(s->pages[0]);
	if (s->page_count > DIFF_PAGES_MAX || size % sizeof(s->pages[0]) != 0)
		return -EBADMSG;
	memcpy(s->pages, bytes, size);
	return 's';
}

static int diff_file_take(
	struct diff_space *space, struct diff_sample *s, uint32_t kind, char *bytes, size_t size)
{
	int r = -EBADMSG;

	if (kind == 'm') {
		r = diff_space_set(space, bytes, size);
		return r < 0 ? r : 'm';
	}
	if (kind == 'v')
		r = diff_space_set_vdso(space, bytes, size);
	if (kind == 's')
		r = diff_file_sample(s, bytes, size);
	free(bytes);
	return r;
}

int diff_file_get(FILE *f, struct diff_space *space, struct diff_sample *s)
{
	char magic[sizeof(diff_magic)];
	int r = 0;

	if (ftell(f) == 0 && (fread(magic, sizeof(magic), 1, f) != 1 ||
				     memcmp(magic, diff_magic, sizeof(magic)) != 0))
		return -EBADMSG;
	while (r == 0) { /* the vdso is no event of its own */
		uint32_t head[2];

		if (fread(head, sizeof(head), 1, f) != 1)
			return ferror(f) ? -EIO : 0;
		if (head[1] > DIFF_PART_MAX)
			return -EBADMSG;
		char *bytes = malloc(head[1] + 1UL);

		if (!bytes || fread(bytes, 1, head[1], f) != head[1]) {
			free(bytes);
			return -EBADMSG;
		}
		r = diff_file_take(space, s, head[0], bytes, head[1]);
	}
	return r;
}
