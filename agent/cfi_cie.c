/*
 * Heads of .eh_frame and .debug_frame entries.
 *
 *	u32 length (0xffffffff: u64 follows)	of what follows; 0 ends .eh_frame, or a part of it
 *	u32 CIE pointer				.eh_frame: 0 is a CIE, else how far back the CIE stands
 *						.debug_frame: all ones is a CIE, else its offset; u64 in DWARF64
 *	CIE: u8 version, augmentation string, (version 4: u8 address size, u8 segment size),
 *	     uleb code alignment, sleb data alignment, return address column (version 1: u8, else uleb),
 *	     (z: uleb size, data of the letters R P L), initial instructions
 *	FDE: start, size (encoding of R), (z: uleb size, data), instructions
 */
#include <errno.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum { CFI_AUGMENTATION_MAX = 8, CFI_PE_OMIT = 0xff };

int cfi_entry_read(
	struct cfi_work *w, const struct cfi_source *s, uint64_t offset, struct cfi_entry *ret)
{
	uint64_t left = s->section.size - MIN(offset, s->section.size);
	const uint8_t *bytes;
	int r = cfi_window_at(w, s, offset, MIN(left, 20U), &bytes);

	if (r < 0)
		return r;
	struct cursor at = cursor_over(bytes, MIN(left, 20U));
	uint64_t length = cursor_u32(&at);
	bool is_64 = length == 0xffffffff;

	if (is_64)
		length = cursor_u64(&at);
	else if (length >= 0xfffffff0)
		return -EBADMSG;
	uint64_t id_at = offset + (is_64 ? 12 : 4);
	size_t id_size = is_64 && !s->is_eh ? 8 : 4;

	*ret = (struct cfi_entry){.offset = offset, .is_terminator = length == 0};
	ret->body = id_at + id_size;
	ret->end = id_at + length;
	if (cursor_error(&at) || length > left)
		return -EBADMSG;
	if (ret->is_terminator)
		return 0;
	uint64_t id = id_size == 8 ? cursor_u64(&at) : cursor_u32(&at);

	if (cursor_error(&at) || ret->body > ret->end || ret->end > s->section.size)
		return -EBADMSG;
	if (s->is_eh) {
		ret->is_cie = id == 0;
		ret->cie = id_at - id;
		return id <= id_at ? 0 : -EBADMSG;
	}
	ret->is_cie = id_size == 8 ? id == UINT64_MAX : id == UINT32_MAX;
	ret->cie = id;
	return 0;
}

/* The data of letters in "zPLR..."; what an unknown letter means is skipped by the size. */
static void cfi_cie_augmentation(
	struct cfi_work *w, struct cfi_cie *cie, const char *letters, struct cursor *at)
{
	struct cursor data = cursor_sub(at, cursor_varint(at));

	for (const char *l = letters + 1; *l; l++) {
		uint8_t personality;

		switch (*l) {
		case 'R':
			cie->encoding = cursor_u8(&data);
			break;
		case 'L':
			(void)cursor_u8(&data); /* how FDEs name language data, which they skip */
			break;
		case 'P': /* only its size matters, so an indirect or relative one is read plainly */
			personality = cursor_u8(&data);
			if (personality != CFI_PE_OMIT)
				(void)cfi_pointer(w->c, &data, personality & 0x0f, 0);
			break;
		case 'S':
			cie->is_signal = true;
			break;
		case 'B': /* aarch64: pointers are signed with the B key */
		case 'G': /* aarch64: the stack is tagged */
			break;
		default:
			return;
		}
	}
	if (cursor_error(&data))
		cursor_fail(at);
}

static int cfi_cie_decode(struct cfi_work *w, struct cfi_cie *cie, struct cursor at, uint64_t vaddr)
{
	char letters[CFI_AUGMENTATION_MAX + 1] = {0};
	const uint8_t *from = at.pos;
	uint8_t version = cursor_u8(&at);
	size_t n = 0;

	if (version != 1 && version != 3 && version != 4)
		return -EBADMSG;
	while ((letters[n] = (char)cursor_u8(&at)) != 0) {
		if (++n == sizeof(letters))
			return -EBADMSG;
	}
	if (strcmp(letters, "eh") == 0)
		(void)cursor_u64(&at); /* GCC 2's exception table */
	else if (letters[0] && letters[0] != 'z')
		return -EBADMSG;
	if (version == 4 && cursor_u8(&at) != 8)
		return -EBADMSG;
	cie->segment_size = version == 4 ? cursor_u8(&at) : 0;
	cie->code_align = cursor_varint(&at);
	cie->data_align = cfi_sleb(&at);
	cie->ra = version == 1 ? cursor_u8(&at) : cursor_varint(&at);
	cie->has_z = letters[0] == 'z';
	if (cie->has_z)
		cfi_cie_augmentation(w, cie, letters, &at);
	if (cursor_error(&at) || cie->segment_size > 8)
		return -EBADMSG;
	struct cfi_program p;
	int r;

	cfi_program_init(&p, w->c, cie, at, vaddr + (uint64_t)(at.pos - from));
	do {
		r = cfi_program_step(&p, &w->instructions);
	} while (r > 0); /* a location means nothing here */
	if (r < 0)
		return r;
	cie->initial = p.state;
	return 0;
}

static int cfi_cie_at(
	struct cfi_work *w, const struct cfi_source *s, uint64_t offset, const struct cfi_cie **ret)
{
	struct cfi_cie *cie = &w->cies[(offset / 8) % CFI_CIES];
	struct cfi_entry e;
	const uint8_t *bytes;

	*ret = cie;
	if (cie->is_known && cie->offset == offset && cie->is_eh == s->is_eh)
		return 0;
	*cie = (struct cfi_cie){.offset = offset, .is_eh = s->is_eh};
	int r = cfi_entry_read(w, s, offset, &e);

	if (r < 0)
		return r;
	if (e.is_terminator || !e.is_cie) /* an FDE that names an FDE, or itself */
		return -EBADMSG;
	r = cfi_window_at(w, s, e.body, MIN(e.end - e.body, SIZE_MAX), &bytes);
	if (r < 0)
		return r;
	r = cfi_cie_decode(w, cie, cursor_over(bytes, e.end - e.body), s->section.vaddr + e.body);
	cie->is_known = r == 0;
	return r;
}

int cfi_fde_read(struct cfi_work *w, const struct cfi_source *s, const struct cfi_entry *e,
	struct cfi_fde *ret)
{
	const uint8_t *bytes;
	struct cfi_fde f = {0};
	int r = e->is_cie || e->is_terminator ? -EBADMSG : cfi_cie_at(w, s, e->cie, &f.cie);

	if (r < 0)
		return r;
	r = cfi_window_at(w, s, e->body, e->end - e->body, &bytes);
	if (r < 0)
		return r;
	struct cursor at = cursor_over(bytes, e->end - e->body);
	uint64_t vaddr = s->section.vaddr + e->body;

	(void)cursor_bytes(&at, f.cie->segment_size); /* an overrun is found below */
	f.start = cfi_pointer(w->c, &at, f.cie->encoding, vaddr + f.cie->segment_size);
	f.size = cfi_pointer(w->c, &at, f.cie->encoding & 0x0f, 0);
	if (f.cie->has_z)
		(void)cursor_bytes(&at, cursor_varint(&at));
	if (cursor_error(&at) || f.start > UINT64_MAX - f.size)
		return -EBADMSG;
	f.code = at;
	f.code_vaddr = vaddr + (uint64_t)(at.pos - bytes);
	*ret = f;
	return 0;
}
