/*
 * Minidebuginfo: the section .gnu_debugdata is an xz stream of an ELF file that has the function
 * symbols which a stripped program's .dynsym lacks (Fedora and its kin). Of what comes out, the
 * symbols and their names are kept. A stream says how much memory it wants and may stand for any
 * amount of zeros, so both have a limit.
 */
#include "agent/elf_symbols_internal.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <lzma.h>

#include "base/buf.h"
#include "base/def.h"

enum {
	ELF_SYMBOLS_MINI_IN_MAX = 32 << 20,
	ELF_SYMBOLS_MINI_OUT_MAX = 64 << 20,
	ELF_SYMBOLS_MINI_WINDOW = 64 << 10,
};

/* What xz -9 needs to unpack is 65 MiB. */
#define ELF_SYMBOLS_MINI_MEMORY_MAX (96UL << 20)

static void elf_endp(Elf **e)
{
	(void)elf_end(*e); /* the count of references left */
}

/* All of the section, through the decoder, to out. 0, -EBADMSG, -ENOBUFS, -ENOMEM or -errno. */
static int elf_symbols_mini_unpack(const struct elf_symbols *e, uint64_t offset, uint64_t size,
	lzma_stream *z, struct buf *out)
{
	uint8_t in[ELF_SYMBOLS_MINI_WINDOW];
	lzma_ret state = LZMA_OK;
	uint64_t at = 0;
	int r = 0;

	while (state == LZMA_OK && r == 0) {
		void *to = NULL;

		if (z->avail_in == 0 && at < size) {
			z->next_in = in;
			z->avail_in = MIN(size - at, sizeof(in));
			r = elf_symbols_pread(e, offset + at, in, z->avail_in);
			at += z->avail_in;
		}
		if (r == 0)
			r = buf_reserve(out, ELF_SYMBOLS_MINI_WINDOW, &to);
		if (r < 0)
			break;
		z->next_out = to;
		z->avail_out = ELF_SYMBOLS_MINI_WINDOW;
		state = lzma_code(z, at < size ? LZMA_RUN : LZMA_FINISH);
		out->size += ELF_SYMBOLS_MINI_WINDOW - z->avail_out;
	}
	z->next_in = NULL;
	if (r == 0 && state != LZMA_STREAM_END)
		r = state == LZMA_MEM_ERROR ? -ENOMEM : -EBADMSG;
	return r;
}

/* The section's range lies within size bytes. */
static bool elf_symbols_mini_holds(const GElf_Shdr *s, size_t size)
{
	return s->sh_type != SHT_NOBITS && s->sh_offset <= size &&
	       s->sh_size <= size - s->sh_offset;
}

static int elf_symbols_mini_read(struct elf_symbols *e, const struct buf *b, Elf *elf)
{
	size_t count = 0;

	if (elf_kind(elf) != ELF_K_ELF || gelf_getclass(elf) != ELFCLASS64 ||
		elf_getshdrnum(elf, &count) != 0)
		return -EBADMSG;
	for (size_t i = 1; i < MIN(count, (size_t)ELF_SYMBOLS_SECTIONS_MAX); i++) {
		GElf_Shdr s;
		GElf_Shdr names;
		Elf_Scn *section = elf_getscn(elf, i);

		if (!section || !gelf_getshdr(section, &s) || s.sh_type != SHT_SYMTAB)
			continue;
		Elf_Scn *link = elf_getscn(elf, s.sh_link);
		if (!link || !gelf_getshdr(link, &names) || names.sh_type != SHT_STRTAB ||
			!elf_symbols_mini_holds(&s, b->size) ||
			!elf_symbols_mini_holds(&names, b->size))
			return -EBADMSG;
		e->mini_names = malloc(names.sh_size + 1);
		if (!e->mini_names)
			return -ENOMEM;
		memcpy(e->mini_names, b->data + names.sh_offset, names.sh_size);
		e->tables[ELF_SYMBOLS_MINI].names_size = names.sh_size;
		return elf_symbols_take(e, b->data + s.sh_offset,
			MIN(s.sh_size / sizeof(Elf64_Sym), (uint64_t)ELF_SYMBOLS_MAX),
			ELF_SYMBOLS_MINI);
	}
	return 0;
}

int elf_symbols_read_mini(struct elf_symbols *e, uint64_t offset, uint64_t size)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(ELF_SYMBOLS_MINI_OUT_MAX);
	lzma_stream z = LZMA_STREAM_INIT;
	int r = -EBADMSG;

	if (size > ELF_SYMBOLS_MINI_IN_MAX)
		return -EFBIG;
	if (lzma_stream_decoder(&z, ELF_SYMBOLS_MINI_MEMORY_MAX, 0) == LZMA_OK)
		r = elf_symbols_mini_unpack(e, offset, size, &z, &b);
	lzma_end(&z);
	if (r < 0 || b.size == 0)
		return r;
	Elf *elf_unowned = elf_memory(b.data, b.size);
	_cleanup_(elf_endp) Elf *elf = elf_unowned;

	return elf ? elf_symbols_mini_read(e, &b, elf) : -EBADMSG;
}
