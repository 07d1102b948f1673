/*
 * Which FDE an address has. The linker's sorted table stays in the file and is searched there, so an
 * open file costs no memory, and reading the table once to see that it ascends:
 *
 *	.eh_frame_hdr: u8 version 1, u8 encoding of the pointer, u8 of the count, u8 of the table
 *	pointer to .eh_frame, count, then count x { s32 start, s32 FDE }, both from .eh_frame_hdr's address
 *
 * That is what all linkers write; with anything else, and when the table turns out to disagree with its
 * FDEs, one pass over the section makes an index of our own.
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum {
	CFI_HDR_TABLE = 0x3b, /* datarel, sdata4 */
	/* Half, because qsort() takes as much again. */
	CFI_REFS_MAX = CFI_MEMORY_MAX / 2 / (int)sizeof(struct cfi_ref),
};

static bool cfi_index_is_sorted(const struct cfi *c, uint64_t offset, uint64_t count)
{
	uint8_t bytes[8 * CFI_TABLE_ENTRIES];
	int64_t before = INT64_MIN;

	for (uint64_t i = 0; i < count; i += CFI_TABLE_ENTRIES) {
		size_t n = MIN(count - i, (uint64_t)CFI_TABLE_ENTRIES);

		if (cfi_pread(c, offset + 8 * i, bytes, 8 * n) < 0)
			return false;
		for (size_t k = 0; k < n; k++) {
			struct cursor at = cursor_over(bytes + 8 * k, 4);
			int32_t start = (int32_t)cursor_u32(&at);

			if (start < before)
				return false;
			before = start;
		}
	}
	return true;
}

static int cfi_index_hdr(struct cfi *c, struct cfi_source *s)
{
	uint8_t head[24] = {0};
	size_t size = MIN(c->hdr.size, sizeof(head));

	if (cfi_pread(c, c->hdr.offset, head, size) < 0)
		return -ENODATA;
	struct cursor at = cursor_over(head, size);
	uint32_t kinds = cursor_u32(&at);

	if ((kinds & 0xff) != 1 || kinds >> 24 != CFI_HDR_TABLE)
		return -ENODATA;
	(void)cfi_pointer(c, &at, (kinds >> 8 & 0x0f), 0);
	uint64_t count = cfi_pointer(c, &at, kinds >> 16 & 0xff, 0);
	uint64_t behind = (uint64_t)(at.pos - head);

	if (cursor_error(&at) || count == 0 || count > (c->hdr.size - behind) / 8)
		return -ENODATA;
	if (!cfi_index_is_sorted(c, c->hdr.offset + behind, count))
		return -ENODATA;
	s->table_offset = c->hdr.offset + behind;
	s->table_vaddr = c->hdr.vaddr;
	s->count = count;
	return 0;
}

static int cfi_index_put(struct cfi_source *s, uint64_t start, uint64_t entry)
{
	if (s->count == s->allocated) {
		size_t allocated = MIN(s->allocated ? 2 * s->allocated : 256, (size_t)CFI_REFS_MAX);

		if (allocated == s->count)
			return -ENOBUFS;
		struct cfi_ref *grown = reallocarray(s->refs, allocated, sizeof(*s->refs));

		if (!grown)
			return -ENOMEM;
		s->refs = grown;
		s->allocated = allocated;
	}
	s->refs[s->count++] = (struct cfi_ref){(uint32_t)start, (uint32_t)entry};
	return 0;
}

static int cfi_index_order(const void *a, const void *b)
{
	const struct cfi_ref *x = a;
	const struct cfi_ref *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return (x->entry > y->entry) - (x->entry < y->entry);
}

/* An entry that cannot be decoded is left out; one whose length is wrong ends the pass. */
static int cfi_index_entries(struct cfi *c, struct cfi_work *w, struct cfi_source *s)
{
	struct cfi_entry e;

	for (uint64_t offset = 0; offset + 4 <= s->section.size; offset = e.end) {
		struct cfi_fde f;
		int r = cfi_entry_read(w, s, offset, &e);

		if (r == -EBADMSG)
			return 0;
		if (r < 0)
			return r;
		if (e.is_terminator || e.is_cie)
			continue;
		w->instructions =
			0; /* of a CIE, which is short: the section's size bounds them all */
		r = cfi_fde_read(w, s, &e, &f);
		if (r < 0 && r != -EBADMSG && r != -ENOBUFS)
			return r;
		if (r < 0 || f.size == 0 || f.start < c->text_start ||
			f.start - c->text_start > UINT32_MAX || !cfi_is_code(c, f.start))
			continue; /* also what a linker threw away, whose start is 0 */
		r = cfi_index_put(s, f.start - c->text_start, offset);
		if (r < 0)
			return r;
	}
	return 0;
}

int cfi_index_pass(struct cfi *c, struct cfi_source *s)
{
	struct cfi_work *w = calloc(1, sizeof(*w));
	bool is_sorted = true;

	if (!w)
		return -ENOMEM;
	w->c = c;
	s->table_offset = 0;
	s->count = 0;
	int r = cfi_index_entries(c, w, s);

	free(w);
	if (r < 0)
		return r;
	for (size_t i = 1; i < s->count && is_sorted; i++)
		is_sorted = s->refs[i - 1].start <= s->refs[i].start;
	if (!is_sorted)
		qsort(s->refs, s->count, sizeof(*s->refs), cfi_index_order);
	return 0;
}

int cfi_index_open(struct cfi *c, struct cfi_source *s)
{
	if (s->section.size == 0)
		return 0;
	if (s->is_eh && c->hdr.size > 0 && cfi_index_hdr(c, s) == 0)
		return 0;
	return cfi_index_pass(c, s);
}

int cfi_index_get(struct cfi_work *w, const struct cfi_source *s, size_t i, uint64_t *ret_start,
	uint64_t *ret_entry)
{
	if (s->table_offset == 0) {
		*ret_start = w->c->text_start + s->refs[i].start;
		*ret_entry = s->refs[i].entry;
		return 0;
	}
	if (i < w->table.first || i - w->table.first >= w->table.count) {
		size_t first = i - i % CFI_TABLE_ENTRIES;
		size_t n = MIN(s->count - first, (size_t)CFI_TABLE_ENTRIES);

		w->table.count = 0;
		int r = cfi_pread(
			w->c, s->table_offset + 8 * (uint64_t)first, w->table.bytes, 8 * n);

		if (r < 0)
			return r;
		w->table.first = first;
		w->table.count = n;
	}
	struct cursor at = cursor_over(w->table.bytes + 8 * (i - w->table.first), 8);

	*ret_start = s->table_vaddr + (uint64_t)(int64_t)(int32_t)cursor_u32(&at);
	*ret_entry =
		s->table_vaddr + (uint64_t)(int64_t)(int32_t)cursor_u32(&at) - s->section.vaddr;
	return 0;
}

int cfi_index_seek(struct cfi_work *w, const struct cfi_source *s, uint64_t vaddr, size_t *ret)
{
	size_t low = 0;
	size_t high = s->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t start, entry;
		int r = cfi_index_get(w, s, middle, &start, &entry);

		if (r < 0)
			return r;
		if (start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	*ret = low > 0 ? low - 1 : 0;
	return 0;
}
