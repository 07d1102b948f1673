/*
 * The helper process: confines itself, then answers requests until the socket closes. It keeps the
 * symbol tables of the files it was asked about last, since the next window asks about the same
 * ones. Questions for unwind tables are helper_cfi_serve.c's.
 */
#include "agent/helper.h"

#include <errno.h>
#include <sys/socket.h>

#include "agent/demangle.h"
#include "agent/elf_symbols.h"
#include "agent/helper_cfi.h"
#include "agent/symbolize.h"
#include "base/log.h"
#include "base/str.h"

enum {
	HELPER_TABLES_MAX = 32,
	HELPER_TABLES_MEMORY_MAX = 8 << 20, /* beyond the one in use */
	/* An answer's largest size: 28 bytes and the name. */
	HELPER_ANSWER_SIZE_MAX = 28 + HELPER_NAME_MAX,
};

struct helper_table {
	uint64_t file;
	uint64_t used; /* sequence of the last use */
	struct elf_symbols *symbols;
};

struct helper_server {
	int socket;
	struct helper_table tables[HELPER_TABLES_MAX];
	size_t table_count;
	uint64_t uses;
	struct buf out;
	struct buf name;
};

/* Size of the request, 0 at the socket's end, -errno. */
static ssize_t helper_server_receive(int socket, uint8_t *data, size_t size, int *ret_fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	do {
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return n;
}

static int helper_server_send(struct helper_server *s)
{
	struct iovec iov = {.iov_base = s->out.data, .iov_len = s->out.size};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (buf_error(&s->out))
		return buf_error(&s->out);
	do {
		n = sendmsg(s->socket, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void helper_server_drop(struct helper_server *s, size_t at)
{
	elf_symbols_free(s->tables[at].symbols);
	s->tables[at] = s->tables[--s->table_count];
}

/* Makes room for one more: the least recently used ones go. */
static void helper_server_shrink(struct helper_server *s)
{
	for (;;) {
		size_t memory = 0;
		size_t oldest = 0;

		for (size_t i = 0; i < s->table_count; i++) {
			memory += elf_symbols_memory(s->tables[i].symbols);
			if (s->tables[i].used < s->tables[oldest].used)
				oldest = i;
		}
		if (s->table_count == 0 ||
			(s->table_count < HELPER_TABLES_MAX && memory <= HELPER_TABLES_MEMORY_MAX))
			return;
		helper_server_drop(s, oldest);
	}
}

/* Takes over *fd on success. */
static int helper_server_table(
	struct helper_server *s, uint64_t file, int *fd, const char **why, struct elf_symbols **ret)
{
	for (size_t i = 0; i < s->table_count; i++) {
		if (s->tables[i].file == file) {
			s->tables[i].used = ++s->uses;
			*ret = s->tables[i].symbols;
			return 0;
		}
	}
	*why = "no descriptor came with the request";
	if (*fd < 0)
		return -EBADF;
	helper_server_shrink(s);
	struct helper_table *t = &s->tables[s->table_count];
	int r = elf_symbols_open(*fd, why, &t->symbols);

	if (r < 0)
		return r;
	*fd = -1;
	t->file = file;
	t->used = ++s->uses;
	s->table_count++;
	*ret = t->symbols;
	return 0;
}

static void helper_server_name(
	struct helper_server *s, const struct elf_symbols *symbols, struct helper_answer *a)
{
	struct elf_symbols_answer found;

	if (!elf_symbols_find(symbols, a->vaddr, &found))
		return;
	buf_reset(&s->name);
	if (demangle(found.name, &s->name) < 0)
		(void)buf_append_str(&s->name, found.name); /* fits, as does what follows */
	if (found.is_plt)
		(void)buf_append_str(&s->name, "@plt");
	a->name = buf_str(&s->name);
	a->name_size = (uint32_t)s->name.size;
	a->start = found.start;
	a->size = found.size;
	a->flags |= HELPER_HAS_NAME;
}

static int helper_server_refuse(struct helper_server *s, uint32_t sequence, const char *why)
{
	buf_reset(&s->out);
	(void)helper_answer_open(&s->out, sequence, HELPER_REFUSED); /* buf keeps the error */
	(void)buf_append_str(&s->out, why ? why : "unknown");
	helper_answer_close(&s->out, 0, 0, true);
	return helper_server_send(s);
}

static int helper_server_answer(
	struct helper_server *s, struct helper_request *q, const struct elf_symbols *symbols)
{
	uint32_t first = 0;
	uint32_t count = 0;
	int r = 0;

	buf_reset(&s->out);
	(void)helper_answer_open(&s->out, q->sequence, HELPER_OK); /* buf keeps the error */
	for (uint32_t i = 0; i < q->count; i++) {
		struct helper_answer a = {0};
		uint64_t offset = cursor_u64(&q->offsets);

		if (elf_symbols_vaddr(symbols, offset, &a.vaddr)) {
			a.flags |= HELPER_HAS_VADDR;
			helper_server_name(s, symbols, &a);
		}
		if (s->out.size + HELPER_ANSWER_SIZE_MAX > s->out.size_max) {
			helper_answer_close(&s->out, first, count, false);
			r = helper_server_send(s);
			if (r < 0)
				return r;
			buf_reset(&s->out);
			(void)helper_answer_open(&s->out, q->sequence, HELPER_OK);
			first += count;
			count = 0;
		}
		(void)helper_answer_put(&s->out, &a);
		count++;
	}
	helper_answer_close(&s->out, first, count, true);
	return helper_server_send(s);
}

static int helper_server_take(struct helper_server *s, const void *data, size_t size, int *fd)
{
	struct elf_symbols *symbols = NULL;
	const char *why = NULL;
	struct helper_request q;
	int r = helper_request_get(data, size, &q);

	if (r < 0)
		return r;
	r = helper_server_table(s, q.file, fd, &why, &symbols);
	return r < 0 ? helper_server_refuse(s, q.sequence, why)
		     : helper_server_answer(s, &q, symbols);
}

int helper_serve(int socket)
{
	uint8_t data[HELPER_REQUEST_SIZE_MAX];
	struct helper_server s = {.socket = socket};
	struct helper_cfi_server *cfi = NULL;
	int r = helper_cfi_server_new(socket, &cfi);

	if (r < 0)
		return r;
	buf_init(&s.out, HELPER_PACKET_SIZE_MAX);
	buf_init(&s.name, HELPER_NAME_MAX);
	while (r == 0) {
		_cleanup_(closep) int fd = -1;
		ssize_t n = helper_server_receive(socket, data, sizeof(data), &fd);

		if (n <= 0) {
			r = (int)n;
			break;
		}
		r = helper_cfi_is_request(data, (size_t)n)
			    ? helper_cfi_serve(cfi, data, (size_t)n, &fd)
			    : helper_server_take(&s, data, (size_t)n, &fd);
	}
	while (s.table_count > 0)
		helper_server_drop(&s, 0);
	helper_cfi_server_free(cfi);
	buf_done(&s.out);
	buf_done(&s.name);
	return r;
}

int symbolizer_helper_main(int argc, char **argv)
{
	uint64_t memory_mb = 0;

	if (argc != 3 || str_to_u64(argv[2], 1, 1 << 20, &memory_mb) < 0)
		return 2;
	int r = helper_confine((uint32_t)memory_mb);

	if (r < 0) {
		log_error("helper", "confine", r, "%s", "");
		return 1;
	}
	return helper_serve(STDIN_FILENO) < 0 ? 1 : 0;
}
