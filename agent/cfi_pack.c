/* Writes a chunk the way bpf/table.h lays it out. */
#include <assert.h>

#include "agent/cfi_internal.h"
#include "base/def.h"

enum { CFI_PACK_ALIGN = 8 };

static size_t cfi_pack_id_size(const struct cfi_chunk *c)
{
	return c->rule_count > UINT8_MAX + 1 ? 2 : 1;
}

size_t cfi_packed_size(const struct cfi_chunk *c)
{
	size_t size = sizeof(struct table_chunk) +
		      sizeof(uint16_t) * (TABLE_BLOCKS + 1 + c->rule_count + c->row_count) +
		      cfi_pack_id_size(c) * c->row_count;

	return (size + CFI_PACK_ALIGN - 1) / CFI_PACK_ALIGN * CFI_PACK_ALIGN;
}

static uint8_t *cfi_pack_u16(uint8_t *at, size_t v)
{
	uint16_t half = (uint16_t)v;

	memcpy(at, &half, sizeof(half));
	return at + sizeof(half);
}

void cfi_pack(const struct cfi_chunk *c, const uint16_t *rule_map, void *ret, size_t size)
{
	struct table_chunk head = {.row_count = (uint16_t)c->row_count,
		.rule_count = (uint16_t)c->rule_count,
		.bytes = (uint32_t)size};
	uint8_t *at = ret;
	size_t row = 0;

	assert(c->row_count > 0 && c->row_count <= TABLE_ROWS_MAX);
	assert(c->rule_count > 0 && c->rule_count <= TABLE_RULES_MAX);
	assert(size == cfi_packed_size(c));
	memset(ret, 0, size); /* the bytes that align the end */
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	for (size_t block = 0; block < TABLE_BLOCKS; block++) {
		while (row + 1 < c->row_count &&
			c->rows[row + 1].offset <= block << TABLE_BLOCK_SHIFT)
			row++;
		at = cfi_pack_u16(at, row);
	}
	at = cfi_pack_u16(at, c->row_count - 1);
	for (size_t i = 0; i < c->rule_count; i++)
		at = cfi_pack_u16(at, rule_map[i]);
	for (size_t i = 0; i < c->row_count; i++)
		at = cfi_pack_u16(at, c->rows[i].offset);
	for (size_t i = 0; i < c->row_count; i++) {
		if (cfi_pack_id_size(c) == 2)
			at = cfi_pack_u16(at, c->rows[i].rule);
		else
			*at++ = (uint8_t)c->rows[i].rule;
	}
}
