/* See helper_identity.h. */
#include "agent/helper_identity.h"

#include <errno.h>
#include <sys/socket.h>

#include "agent/helper_internal.h"
#include "base/cursor.h"
#include "base/def.h"

enum {
	HELPER_IDENTITY_HAS_DEBUGLINK = 1,
	HELPER_IDENTITY_HAS_SYMTAB = 2,
	HELPER_IDENTITY_HAS_DWARF = 4,
	HELPER_IDENTITY_HAS_DEBUGDATA = 8,
	HELPER_IDENTITY_IS_GO = 16,
};

static void put_u32(struct buf *b, uint32_t v)
{
	uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

	(void)buf_append(b, bytes, sizeof(bytes)); /* buf keeps the error */
}

static void put_u16(struct buf *b, size_t v)
{
	uint8_t bytes[2] = {(uint8_t)v, (uint8_t)(v >> 8)};

	(void)buf_append(b, bytes, sizeof(bytes));
}

bool helper_identity_is_request(const void *data, size_t size)
{
	struct cursor c = cursor_over(data, size);

	return cursor_u32(&c) == HELPER_IDENTITY_REQUEST_MAGIC;
}

int helper_identity_request_put(struct buf *b, const struct helper_identity_request *q)
{
	uint32_t id_size = q->of.kind == ELF_IDENTITY_GNU ? q->of.build_id_size : 0;

	put_u32(b, HELPER_IDENTITY_REQUEST_MAGIC);
	put_u32(b, q->sequence);
	put_u32(b, q->kind);
	put_u32(b, q->of.has_debuglink);
	put_u32(b, q->of.debuglink_crc);
	put_u32(b, id_size);
	(void)buf_append(b, q->of.build_id, id_size);
	return buf_error(b);
}

int helper_identity_request_get(const void *data, size_t size, struct helper_identity_request *ret)
{
	struct cursor c = cursor_over(data, size);
	struct helper_identity_request q = {0};
	uint32_t magic = cursor_u32(&c);

	q.sequence = cursor_u32(&c);
	uint32_t kind = cursor_u32(&c);
	q.of.has_debuglink = cursor_u32(&c) != 0;
	q.of.debuglink_crc = cursor_u32(&c);
	q.of.build_id_size = cursor_u32(&c);
	const void *id = cursor_bytes(&c, q.of.build_id_size);
	if (cursor_error(&c) || cursor_left(&c) || magic != HELPER_IDENTITY_REQUEST_MAGIC ||
		kind > HELPER_IDENTITY_MATCH || q.of.build_id_size > sizeof(q.of.build_id))
		return -EBADMSG;
	memcpy(q.of.build_id, id, q.of.build_id_size);
	q.of.kind = q.of.build_id_size > 0 ? ELF_IDENTITY_GNU : ELF_IDENTITY_NONE;
	q.kind = (enum helper_identity_kind)kind;
	*ret = q;
	return 0;
}

int helper_identity_answer_put(struct buf *b, uint32_t sequence, const struct elf_identity *id)
{
	size_t link_size = strlen(id->debuglink);
	size_t alt_size = strlen(id->altlink);
	uint32_t flags = 0;

	flags |= id->has_debuglink ? HELPER_IDENTITY_HAS_DEBUGLINK : 0;
	flags |= id->has_symtab ? HELPER_IDENTITY_HAS_SYMTAB : 0;
	flags |= id->has_dwarf ? HELPER_IDENTITY_HAS_DWARF : 0;
	flags |= id->has_debugdata ? HELPER_IDENTITY_HAS_DEBUGDATA : 0;
	flags |= id->is_go ? HELPER_IDENTITY_IS_GO : 0;
	put_u32(b, HELPER_IDENTITY_ANSWER_MAGIC);
	put_u32(b, sequence);
	put_u32(b, HELPER_OK);
	put_u32(b, id->kind);
	put_u32(b, flags);
	put_u32(b, id->debuglink_crc);
	put_u16(b, id->build_id_size);
	put_u16(b, link_size);
	put_u16(b, id->alt_build_id_size);
	put_u16(b, alt_size);
	(void)buf_append(b, id->build_id, id->build_id_size);
	(void)buf_append(b, id->debuglink, link_size);
	(void)buf_append(b, id->alt_build_id, id->alt_build_id_size);
	(void)buf_append(b, id->altlink, alt_size);
	return buf_error(b);
}

int helper_identity_refusal_put(struct buf *b, uint32_t sequence, const char *why)
{
	put_u32(b, HELPER_IDENTITY_ANSWER_MAGIC);
	put_u32(b, sequence);
	put_u32(b, HELPER_REFUSED);
	return buf_append_str(b, why ? why : "unknown");
}

/* A name without NUL, of size bytes, to, which has room for more. False: it has one, or no room. */
static bool helper_identity_text(struct cursor *c, size_t size, char *to, size_t to_size)
{
	const char *s = cursor_bytes(c, size);

	if (!s || size >= to_size || memchr(s, '\0', size))
		return false;
	memcpy(to, s, size);
	to[size] = '\0';
	return true;
}

static bool helper_identity_bytes(struct cursor *c, size_t size, uint8_t *to, uint32_t *ret_size)
{
	const void *s = cursor_bytes(c, size);

	if (!s || size > ELF_IDENTITY_BUILD_ID_MAX)
		return false;
	memcpy(to, s, size);
	*ret_size = (uint32_t)size;
	return true;
}

/* A debuglink becomes a path of ours, so that it is a bare name is looked at once more. */
static bool helper_identity_is_sound(const struct elf_identity *id)
{
	const char *link = id->debuglink;

	if ((id->kind == ELF_IDENTITY_NONE) != (id->build_id_size == 0))
		return false;
	if (id->has_debuglink != (link[0] != '\0'))
		return false;
	return !strchr(link, '/') && strcmp(link, ".") != 0 && strcmp(link, "..") != 0;
}

static int helper_identity_get(struct cursor *c, struct elf_identity *ret)
{
	struct elf_identity id = {0};
	uint32_t kind = cursor_u32(c);
	uint32_t flags = cursor_u32(c);

	id.debuglink_crc = cursor_u32(c);
	uint16_t id_size = cursor_u16(c);
	uint16_t link_size = cursor_u16(c);
	uint16_t alt_id_size = cursor_u16(c);
	uint16_t alt_size = cursor_u16(c);
	if (cursor_error(c) || kind > ELF_IDENTITY_GO ||
		!helper_identity_bytes(c, id_size, id.build_id, &id.build_id_size) ||
		!helper_identity_text(c, link_size, id.debuglink, sizeof(id.debuglink)) ||
		!helper_identity_bytes(c, alt_id_size, id.alt_build_id, &id.alt_build_id_size) ||
		!helper_identity_text(c, alt_size, id.altlink, sizeof(id.altlink)) ||
		cursor_left(c))
		return -EBADMSG;
	id.kind = (enum elf_identity_kind)kind;
	id.has_debuglink = flags & HELPER_IDENTITY_HAS_DEBUGLINK;
	id.has_symtab = flags & HELPER_IDENTITY_HAS_SYMTAB;
	id.has_dwarf = flags & HELPER_IDENTITY_HAS_DWARF;
	id.has_debugdata = flags & HELPER_IDENTITY_HAS_DEBUGDATA;
	id.is_go = flags & HELPER_IDENTITY_IS_GO;
	if (!helper_identity_is_sound(&id))
		return -EBADMSG;
	*ret = id;
	return 0;
}

int helper_identity_answer_get(
	const void *data, size_t size, uint32_t sequence, char *reason, struct elf_identity *ret)
{
	struct cursor c = cursor_over(data, size);
	uint32_t magic = cursor_u32(&c);
	uint32_t answered = cursor_u32(&c);
	uint32_t status = cursor_u32(&c);

	reason[0] = '\0';
	if (cursor_error(&c) || magic != HELPER_IDENTITY_ANSWER_MAGIC || answered != sequence)
		return -EBADMSG;
	if (status == HELPER_OK)
		return helper_identity_get(&c, ret);
	size_t length = MIN(cursor_left(&c), (size_t)HELPER_REASON_MAX - 1);
	const char *text = cursor_bytes(&c, length);

	for (size_t i = 0; i < length; i++) /* goes to a log */
		reason[i] = text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?';
	reason[length] = '\0';
	return -EKEYREJECTED;
}

static int helper_identity_ask(struct helper *h, struct helper_identity_request *q, int fd,
	char *reason, struct elf_identity *ret)
{
	uint64_t deadline_ns = 0;

	reason[0] = '\0';
	q->sequence = ++h->sequence;
	buf_reset(&h->request);
	int r = helper_identity_request_put(&h->request, q);

	if (r == 0)
		r = helper_begin(h, &fd, 1, &deadline_ns);
	if (r == 0) {
		ssize_t n = helper_receive(h, deadline_ns);

		r = n < 0 ? (int)n
			  : helper_identity_answer_get(
				    h->packet, (size_t)n, q->sequence, reason, ret);
	}
	if (r < 0 && r != -EKEYREJECTED)
		helper_stop(h); /* the next request starts another */
	return r;
}

int helper_identify(struct helper *h, int fd, char *reason, struct elf_identity *ret)
{
	struct helper_identity_request q = {.kind = HELPER_IDENTITY_READ};

	return helper_identity_ask(h, &q, fd, reason, ret);
}

int helper_identity_match(struct helper *h, const struct elf_identity *of, int fd, char *reason,
	struct elf_identity *ret)
{
	struct helper_identity_request q = {.kind = HELPER_IDENTITY_MATCH, .of = *of};

	return helper_identity_ask(h, &q, fd, reason, ret);
}

int helper_identity_serve(int socket, const void *data, size_t size, int fd)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HELPER_IDENTITY_ANSWER_SIZE_MAX);
	struct helper_identity_request q;
	struct elf_identity id;
	const char *why = "no descriptor came with the request";
	int r = helper_identity_request_get(data, size, &q);
	ssize_t n;

	if (r < 0)
		return r;
	r = fd < 0 ? -EBADF : elf_identity_read(fd, &why, &id);
	if (r == 0 && q.kind == HELPER_IDENTITY_MATCH)
		r = elf_identity_match(&q.of, fd, &why);
	r = r < 0 ? helper_identity_refusal_put(&b, q.sequence, why)
		  : helper_identity_answer_put(&b, q.sequence, &id);
	if (r < 0)
		return r;
	struct iovec iov = {.iov_base = b.data, .iov_len = b.size};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	do {
		n = sendmsg(socket, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}
