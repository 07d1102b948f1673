/* Bytes of the file by pread, and the encodings of .eh_frame (Linux Standard Base 5, 10.5). */
#include <elf.h>
#include <errno.h>
#include <zlib.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_PE_ABSPTR = 0x00,
	CFI_PE_ULEB128 = 0x01,
	CFI_PE_UDATA2 = 0x02,
	CFI_PE_UDATA4 = 0x03,
	CFI_PE_UDATA8 = 0x04,
	CFI_PE_SLEB128 = 0x09,
	CFI_PE_SDATA2 = 0x0a,
	CFI_PE_SDATA4 = 0x0b,
	CFI_PE_SDATA8 = 0x0c,
	CFI_PE_PCREL = 0x10,
	CFI_PE_DATAREL = 0x30,
};

int cfi_pread(const struct cfi *c, uint64_t offset, void *to, size_t size)
{
	size_t done = 0;

	if (offset > INT64_MAX - size)
		return -ENODATA;
	while (done < size) {
		ssize_t n = pread(c->fd, (char *)to + done, size - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		done += (size_t)n;
	}
	return 0;
}

bool cfi_file_offset(const struct cfi *c, uint64_t vaddr, uint64_t *ret, uint64_t *ret_left)
{
	for (size_t i = 0; i < c->segment_count; i++) {
		const struct cfi_segment *s = &c->segments[i];

		if (vaddr < s->vaddr || vaddr - s->vaddr >= s->file_size)
			continue;
		*ret = s->offset + (vaddr - s->vaddr);
		*ret_left = s->file_size - (vaddr - s->vaddr);
		return true;
	}
	return false;
}

bool cfi_is_code(const struct cfi *c, uint64_t vaddr)
{
	for (size_t i = 0; i < c->segment_count; i++) {
		const struct cfi_segment *s = &c->segments[i];

		if (s->is_code && vaddr >= s->vaddr && vaddr - s->vaddr < s->memory_size)
			return true;
	}
	return false;
}

int cfi_window_at(struct cfi_work *w, const struct cfi_source *s, uint64_t offset, size_t size,
	const uint8_t **ret)
{
	const struct cfi_section *section = &s->section;
	struct cfi_window *v = &w->window;

	if (size > CFI_WINDOW_SIZE || offset > section->size || size > section->size - offset)
		return -EBADMSG;
	if (s->bytes) {
		*ret = s->bytes + offset;
		return 0;
	}
	if (v->section != section || offset < v->start || offset - v->start > v->size ||
		size > v->size - (offset - v->start)) {
		size_t fill = MIN(MAX(size, CFI_WINDOW_FILL), section->size - offset);

		v->section = NULL;
		int r = cfi_pread(w->c, section->offset + offset, v->bytes, fill);

		if (r < 0)
			return r;
		v->section = section;
		v->start = offset;
		v->size = fill;
	}
	*ret = v->bytes + (offset - v->start);
	return 0;
}

int cfi_inflate(const struct cfi *c, struct cfi_source *s, const struct cfi_section *from)
{
	Elf64_Chdr head;

	if (s->section.size > 0 || from->size <= sizeof(head) || from->size > CFI_INFLATE_MAX ||
		cfi_pread(c, from->offset, &head, sizeof(head)) < 0 ||
		head.ch_type != ELFCOMPRESS_ZLIB || head.ch_size == 0 ||
		head.ch_size > CFI_INFLATE_MAX)
		return 0;
	uLong packed_size = from->size - sizeof(head);
	uLongf size = head.ch_size;
	uint8_t *packed = malloc(packed_size);
	uint8_t *bytes = malloc(size);
	bool is_memory = packed && bytes;

	if (is_memory && cfi_pread(c, from->offset + sizeof(head), packed, packed_size) == 0 &&
		uncompress(bytes, &size, packed, packed_size) == Z_OK && size == head.ch_size) {
		s->bytes = bytes;
		s->section = (struct cfi_section){from->vaddr, 0, size};
	} else {
		free(bytes);
	}
	free(packed);
	return is_memory ? 0 : -ENOMEM;
}

int64_t cfi_sleb(struct cursor *c)
{
	uint64_t v = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = cursor_u8(c);
		if (shift >= 64) {
			cursor_fail(c);
			return 0;
		}
		v |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (shift < 64 && (byte & 0x40))
		v |= ~0ULL << shift;
	return (int64_t)v;
}

uint64_t cfi_pointer(const struct cfi *c, struct cursor *at, uint8_t encoding, uint64_t field_vaddr)
{
	uint64_t base = 0;
	uint64_t v = 0;

	if ((encoding & 0xf0) == CFI_PE_PCREL)
		base = field_vaddr;
	else if ((encoding & 0xf0) == CFI_PE_DATAREL && c->got != 0)
		base = c->got;
	else if ((encoding & 0xf0) != 0)
		cursor_fail(at); /* text, function, aligned, and all that are indirect */
	switch (encoding & 0x0f) {
	case CFI_PE_ABSPTR:
	case CFI_PE_UDATA8:
	case CFI_PE_SDATA8:
		v = cursor_u64(at);
		break;
	case CFI_PE_ULEB128:
		v = cursor_varint(at);
		break;
	case CFI_PE_SLEB128:
		v = (uint64_t)cfi_sleb(at);
		break;
	case CFI_PE_UDATA2:
		v = cursor_u16(at);
		break;
	case CFI_PE_SDATA2:
		v = (uint64_t)(int64_t)(int16_t)cursor_u16(at);
		break;
	case CFI_PE_UDATA4:
		v = cursor_u32(at);
		break;
	case CFI_PE_SDATA4:
		v = (uint64_t)(int64_t)(int32_t)cursor_u32(at);
		break;
	default:
		cursor_fail(at);
	}
	return base + v;
}
