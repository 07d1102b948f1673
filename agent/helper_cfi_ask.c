/*
 * The agent's end of the questions for unwind tables, see helper_cfi.h. As with names: whatever goes
 * wrong with a request kills the helper, so that no late answer is taken for the next one.
 */
#include <errno.h>

#include "agent/helper_cfi.h"
#include "agent/helper_internal.h"

/* One body into h->body; 0 also without one, which *ret_status says. */
static int helper_cfi_receive(
	struct helper *h, uint64_t deadline_ns, uint64_t chunk, uint32_t *ret_status)
{
	struct helper_cfi_packet p;

	buf_reset(&h->body);
	do {
		ssize_t size = helper_receive(h, deadline_ns);

		if (size < 0)
			return (int)size;
		int r = helper_cfi_packet_get(h->packet, (size_t)size, &p);
		if (r < 0)
			return r;
		/* What comes after a first part belongs to it. */
		if (p.sequence != h->sequence || p.chunk != chunk ||
			(h->body.size > 0 && p.status != HELPER_CFI_OK))
			return -EBADMSG;
		/* Ends: each part has bytes and the buffer has a limit. */
		r = buf_append(&h->body, p.rest.pos, cursor_left(&p.rest));
		if (r < 0)
			return r == -ENOBUFS ? -EBADMSG : r;
	} while (!p.is_last);
	*ret_status = p.status;
	return 0;
}

static int helper_cfi_begin(
	struct helper *h, int fd, struct helper_cfi_request *q, uint64_t *ret_deadline_ns)
{
	buf_reset(&h->request);
	q->sequence = ++h->sequence;
	int r = helper_cfi_request_put(&h->request, q);

	return r < 0 ? r : helper_begin(h, &fd, 1, ret_deadline_ns);
}

int helper_cfi_ask(struct helper *h, int fd, uint64_t file, uint64_t first, size_t count,
	struct cfi_chunk *scratch, helper_cfi_fn *fn, void *data)
{
	struct helper_cfi_request q = {
		.kind = HELPER_CFI_CHUNKS,
		.file = file,
		.first_chunk = first,
		.chunk_count = (uint32_t)count,
	};
	uint64_t deadline_ns = 0;

	if (count == 0 || count > HELPER_CFI_CHUNKS_MAX)
		return -EINVAL;
	int r = helper_cfi_begin(h, fd, &q, &deadline_ns);

	for (size_t i = 0; r == 0 && i < count; i++) {
		uint32_t status = 0;

		r = helper_cfi_receive(h, deadline_ns, first + i, &status);
		if (r < 0)
			break;
		struct cursor c = cursor_over(h->body.data, h->body.size);
		bool is_ok = status == HELPER_CFI_OK;

		if (is_ok)
			r = helper_cfi_chunk_get(&c, scratch);
		if (r == 0)
			fn(data, first + i, (enum helper_cfi_status)status, is_ok ? scratch : NULL);
	}
	if (r < 0)
		helper_stop(h);
	return r;
}

int helper_cfi_ask_segments(struct helper *h, int fd, uint64_t file,
	enum helper_cfi_status *ret_status, struct helper_cfi_segments *ret)
{
	struct helper_cfi_request q = {.kind = HELPER_CFI_SEGMENTS, .file = file};
	uint64_t deadline_ns = 0;
	uint32_t status = 0;
	int r = helper_cfi_begin(h, fd, &q, &deadline_ns);

	if (r == 0)
		r = helper_cfi_receive(h, deadline_ns, 0, &status);
	if (r == 0 && status == HELPER_CFI_OK) {
		struct cursor c = cursor_over(h->body.data, h->body.size);

		r = helper_cfi_segments_get(&c, ret);
	}
	if (r < 0) {
		helper_stop(h);
		return r;
	}
	*ret_status = (enum helper_cfi_status)status;
	return 0;
}
