/*
 * The helper's end of the questions for unwind tables. It keeps the last files' indexes, because
 * the next chunk that is missing is most often of a file that was asked about before.
 *
 * Segments are read here and not through cfi_open(): each mapped file is asked for them, and few of
 * them are ever in a sample.
 */
#include <elf.h>
#include <errno.h>
#include <sys/socket.h>

#include "agent/helper_cfi.h"
#include "base/def.h"

enum {
	HELPER_CFI_FUNCTION_SIZE =
		8, /* of an index that had to be made; none is with .eh_frame_hdr */
	HELPER_CFI_HEADERS_MAX = 4096, /* program headers of one file */
	HELPER_CFI_HEADERS_READ = 32,  /* at a time */
};

struct helper_cfi_file {
	uint64_t id;
	uint64_t used;
	uint64_t memory;
	int fd;
	struct cfi *cfi;
};

struct helper_cfi_server {
	int socket;
	uint64_t uses;
	size_t count;
	struct helper_cfi_file files[HELPER_CFI_FILES_MAX];
	struct cfi_chunk chunk;
	struct buf body;
	struct buf packet;
};

int helper_cfi_server_new(int socket, struct helper_cfi_server **ret)
{
	struct helper_cfi_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->socket = socket;
	buf_init(&s->body, HELPER_CFI_BODY_MAX);
	buf_init(&s->packet, HELPER_PACKET_SIZE_MAX);
	*ret = s;
	return 0;
}

static void helper_cfi_drop(struct helper_cfi_server *s, size_t at)
{
	cfi_free(s->files[at].cfi);
	closep(&s->files[at].fd);
	s->files[at] = s->files[--s->count];
}

void helper_cfi_server_free(struct helper_cfi_server *s)
{
	if (!s)
		return;
	while (s->count > 0)
		helper_cfi_drop(s, 0);
	buf_done(&s->body);
	buf_done(&s->packet);
	free(s);
}

/* Makes room for one more: the least recently used ones go. */
static void helper_cfi_shrink(struct helper_cfi_server *s)
{
	for (;;) {
		uint64_t memory = 0;
		size_t oldest = 0;

		for (size_t i = 0; i < s->count; i++) {
			memory += s->files[i].memory;
			if (s->files[i].used < s->files[oldest].used)
				oldest = i;
		}
		if (s->count == 0 ||
			(s->count < HELPER_CFI_FILES_MAX && memory <= HELPER_CFI_MEMORY_MAX))
			return;
		helper_cfi_drop(s, oldest);
	}
}

static enum helper_cfi_status helper_cfi_status_of(int r)
{
	switch (r) {
	case 0:
		return HELPER_CFI_OK;
	case -ENOBUFS:
		return HELPER_CFI_TOO_BIG;
	default: /* -EBADMSG, a file that is shorter than it says, an error of reading */
		return HELPER_CFI_BROKEN;
	}
}

/* Takes over *fd with HELPER_CFI_OK. */
static enum helper_cfi_status helper_cfi_file(
	struct helper_cfi_server *s, uint64_t id, int *fd, struct cfi **ret)
{
	const char *why = NULL;
	struct cfi_info info = {0};

	for (size_t i = 0; i < s->count; i++) {
		if (s->files[i].id == id) {
			s->files[i].used = ++s->uses;
			*ret = s->files[i].cfi;
			return HELPER_CFI_OK;
		}
	}
	if (*fd < 0)
		return HELPER_CFI_BROKEN;
	helper_cfi_shrink(s);
	struct helper_cfi_file *f = &s->files[s->count];
	int r = cfi_open(*fd, &why, &f->cfi);

	if (r == -ENODATA)
		return HELPER_CFI_NONE_AT_ALL;
	if (r < 0)
		return helper_cfi_status_of(r);
	cfi_info(f->cfi, &info);
	f->memory = info.functions * HELPER_CFI_FUNCTION_SIZE;
	f->fd = steal_fd(fd);
	f->id = id;
	f->used = ++s->uses;
	s->count++;
	*ret = f->cfi;
	return HELPER_CFI_OK;
}

static int helper_cfi_send(struct helper_cfi_server *s)
{
	struct iovec iov = {.iov_base = s->packet.data, .iov_len = s->packet.size};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (buf_error(&s->packet))
		return buf_error(&s->packet);
	do {
		n = sendmsg(s->socket, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* The body in as many packets as it takes. */
static int helper_cfi_answer(struct helper_cfi_server *s, uint32_t sequence,
	enum helper_cfi_status status, uint64_t chunk)
{
	size_t done = 0;
	bool is_last;

	if (buf_error(&s->body))
		return buf_error(&s->body);
	do {
		size_t size =
			status == HELPER_CFI_OK
				? MIN(s->body.size - done,
					  HELPER_PACKET_SIZE_MAX - (size_t)HELPER_CFI_HEAD_SIZE)
				: 0;

		is_last = status != HELPER_CFI_OK || done + size == s->body.size;
		buf_reset(&s->packet);
		(void)helper_cfi_head_put(&s->packet, sequence, status, is_last, chunk);
		if (size > 0)
			(void)buf_append(&s->packet, s->body.data + done, size); /* buf keeps it */
		int r = helper_cfi_send(s);
		if (r < 0)
			return r;
		done += size;
	} while (!is_last);
	return 0;
}

static int helper_cfi_chunks(
	struct helper_cfi_server *s, const struct helper_cfi_request *q, int *fd)
{
	struct cfi *cfi = NULL;
	enum helper_cfi_status opened = helper_cfi_file(s, q->file, fd, &cfi);
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < q->chunk_count; i++) {
		enum helper_cfi_status status = opened;

		buf_reset(&s->body);
		if (status == HELPER_CFI_OK)
			status = helper_cfi_status_of(
				cfi_compile(cfi, q->first_chunk + i, &s->chunk));
		if (status == HELPER_CFI_OK && s->chunk.row_count == 0)
			status = HELPER_CFI_NONE;
		if (status == HELPER_CFI_OK)
			(void)helper_cfi_chunk_put(&s->body, &s->chunk); /* buf keeps the error */
		r = helper_cfi_answer(s, q->sequence, status, q->first_chunk + i);
	}
	return r;
}

static bool helper_cfi_read(int fd, uint64_t offset, void *to, size_t size)
{
	ssize_t n;

	if (offset > INT64_MAX - size)
		return false;
	do {
		n = pread(fd, to, size, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)size;
}

static enum helper_cfi_status helper_cfi_add_segment(
	const Elf64_Phdr *p, struct helper_cfi_segments *ret)
{
	struct helper_cfi_segment s = {.offset = p->p_offset,
		.vaddr = p->p_vaddr,
		.size = p->p_filesz,
		.is_code = (p->p_flags & PF_X) != 0};

	if (p->p_type != PT_LOAD || s.size == 0)
		return HELPER_CFI_OK;
	if (s.offset > UINT64_MAX - s.size || s.vaddr > UINT64_MAX - s.size)
		return HELPER_CFI_BROKEN;
	if (ret->count == HELPER_CFI_SEGMENTS_MAX)
		return HELPER_CFI_TOO_BIG;
	ret->segments[ret->count++] = s;
	return HELPER_CFI_OK;
}

static enum helper_cfi_status helper_cfi_read_segments(int fd, struct helper_cfi_segments *ret)
{
	Elf64_Phdr headers[HELPER_CFI_HEADERS_READ];
	enum helper_cfi_status status = HELPER_CFI_OK;
	Elf64_Ehdr e;

	if (!helper_cfi_read(fd, 0, e.e_ident, sizeof(e.e_ident)) ||
		memcmp(e.e_ident, ELFMAG, SELFMAG) != 0)
		return HELPER_CFI_NO_ELF;
	/* Nobody walks by the tables of a 32-bit or foreign program. */
	if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_ident[EI_DATA] != ELFDATA2LSB)
		return HELPER_CFI_NONE_AT_ALL;
	if (!helper_cfi_read(fd, 0, &e, sizeof(e)) || e.e_phentsize != sizeof(*headers) ||
		e.e_phnum > HELPER_CFI_HEADERS_MAX)
		return HELPER_CFI_BROKEN;
	for (uint64_t i = 0; status == HELPER_CFI_OK && i < e.e_phnum;
		i += HELPER_CFI_HEADERS_READ) {
		size_t count = MIN(e.e_phnum - (size_t)i, (size_t)HELPER_CFI_HEADERS_READ);

		if (e.e_phoff > INT64_MAX || !helper_cfi_read(fd, e.e_phoff + i * sizeof(*headers),
						     headers, count * sizeof(*headers)))
			return HELPER_CFI_BROKEN;
		for (size_t k = 0; status == HELPER_CFI_OK && k < count; k++)
			status = helper_cfi_add_segment(&headers[k], ret);
	}
	for (size_t i = 0; status == HELPER_CFI_OK && i < ret->count; i++)
		if (ret->segments[i].is_code)
			return HELPER_CFI_OK;
	return status == HELPER_CFI_OK ? HELPER_CFI_NONE_AT_ALL : status;
}

int helper_cfi_serve(struct helper_cfi_server *s, const void *data, size_t size, int *fd)
{
	struct helper_cfi_request q;
	int r = helper_cfi_request_get(data, size, &q);

	if (r < 0)
		return r;
	if (q.kind == HELPER_CFI_CHUNKS)
		return helper_cfi_chunks(s, &q, fd);
	struct helper_cfi_segments segments = {0};
	enum helper_cfi_status status = helper_cfi_read_segments(*fd, &segments);

	buf_reset(&s->body);
	if (status == HELPER_CFI_OK)
		(void)helper_cfi_segments_put(&s->body, &segments); /* buf keeps the error */
	return helper_cfi_answer(s, q.sequence, status, 0);
}
