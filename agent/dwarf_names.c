/* Opening a file's DWARF and keeping it small, see dwarf_names.h. */
#include "agent/dwarf_names.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <malloc.h>

#include "agent/dwarf_internal.h"
#include "base/def.h"
#include "base/loop.h"

enum { DWARF_CLOCK_TICKS = 256 };

struct dwarf_clock dwarf_clock_start(uint64_t ms)
{
	return (struct dwarf_clock){.end_ns = loop_now_ns() + ms * NSEC_PER_MSEC};
}

bool dwarf_clock_is_over(struct dwarf_clock *c)
{
	return ++c->ticks % DWARF_CLOCK_TICKS == 0 && loop_now_ns() >= c->end_ns;
}

/* libdw tells nobody how much it holds, but little else happens in this process meanwhile. */
static size_t dwarf_process_memory(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static size_t dwarf_index_memory(const struct dwarf_names *d)
{
	return d->unit_allocated * sizeof(*d->units) + d->range_allocated * sizeof(*d->ranges) +
	       d->function_count * sizeof(struct dwarf_function) +
	       d->scope_count * sizeof(struct dwarf_scope);
}

static size_t dwarf_handle_memory(const struct dwarf_names *d)
{
	size_t now = d->dwarf ? dwarf_process_memory() : 0;
	size_t others = d->memory_before + dwarf_index_memory(d);

	return now > others ? now - others : 0;
}

size_t dwarf_names_memory(const struct dwarf_names *d)
{
	return sizeof(*d) + dwarf_index_memory(d) + dwarf_handle_memory(d);
}

static void dwarf_close(struct dwarf_names *d)
{
	/* Both only free, and accept NULL. */
	(void)dwarf_end(d->dwarf);
	(void)dwarf_end(d->alt);
	(void)elf_end(d->elf);
	(void)elf_end(d->alt_elf);
	d->dwarf = NULL;
	d->alt = NULL;
	d->elf = NULL;
	d->alt_elf = NULL;
}

void dwarf_names_free(struct dwarf_names *d)
{
	if (!d)
		return;
	dwarf_close(d);
	dwarf_units_done(d);
	map_free(d->name_map);
	arena_free(d->name_arena);
	buf_done(&d->name);
	closep(&d->fd);
	closep(&d->alt_fd);
	free(d);
}

void dwarf_names_freep(struct dwarf_names **d)
{
	dwarf_names_free(*d);
}

static bool dwarf_section_is_debug(Elf *elf, size_t names, const GElf_Shdr *h)
{
	const char *name = elf_strptr(elf, names, h->sh_name);

	return name && strncmp(name, ".debug_", 7) == 0;
}

/* What the compressed sections would take, and whether one is compressed in a way that may be
 * unknown to this libelf. */
static int dwarf_look_at_sections(Elf *elf, uint64_t *ret_unpacked, bool *ret_is_odd)
{
	Elf_Scn *scn = NULL;
	size_t names = 0;
	uint64_t sum = 0;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return -EBADMSG;
	while ((scn = elf_nextscn(elf, scn)) != NULL) {
		GElf_Shdr h;
		GElf_Chdr z;

		if (!gelf_getshdr(scn, &h) || !(h.sh_flags & SHF_COMPRESSED) ||
			!dwarf_section_is_debug(elf, names, &h))
			continue;
		if (!gelf_getchdr(scn, &z)) {
			*ret_is_odd = true;
			continue;
		}
		*ret_is_odd = *ret_is_odd || z.ch_type != ELFCOMPRESS_ZLIB;
		sum += MIN(z.ch_size, (uint64_t)DWARF_UNPACKED_MAX + 1);
	}
	*ret_unpacked = sum;
	return 0;
}

static int dwarf_open_alt(struct dwarf_names *d)
{
	if (d->alt_fd < 0)
		return 0;
	/* Without it, names that stand in it are missing. */
	d->alt_elf = elf_begin(d->alt_fd, ELF_C_READ_MMAP, NULL);
	if (!d->alt_elf)
		return 0;
	d->alt = dwarf_begin_elf(d->alt_elf, DWARF_C_READ, NULL);
	if (d->alt)
		dwarf_setalt(d->dwarf, d->alt);
	return 0;
}

static int dwarf_open(struct dwarf_names *d, const char **why)
{
	uint64_t unpacked = 0;
	bool is_odd = false;

	(void)elf_version(EV_CURRENT); /* always known */
	d->memory_before = dwarf_process_memory() - dwarf_index_memory(d);
	d->elf = elf_begin(d->fd, ELF_C_READ_MMAP, NULL);
	*why = "not an ELF file";
	if (!d->elf || elf_kind(d->elf) != ELF_K_ELF)
		return -EBADMSG;
	*why = "section headers make no sense";
	if (dwarf_look_at_sections(d->elf, &unpacked, &is_odd) < 0)
		return -EBADMSG;
	*why = "debug information is compressed and too big for this process";
	if (unpacked > DWARF_UNPACKED_MAX)
		return -EFBIG;
	d->dwarf = dwarf_begin_elf(d->elf, DWARF_C_READ, NULL);
	*why = is_odd ? "debug information is compressed in a way this libelf does not know"
		      : "no debug information";
	if (!d->dwarf)
		return is_odd ? -ENOTSUP : -ENODATA;
	int r = dwarf_open_alt(d);

	return r < 0 ? r : is_odd;
}

static const char *dwarf_reason(int r)
{
	switch (r) {
	case -EFBIG:
		return "more units or ranges of debug information than we read";
	case -ETIMEDOUT:
		return "reading the units' ranges took too long";
	default:
		return "no memory";
	}
}

static int dwarf_read(struct dwarf_names *d, bool is_odd, const char **why)
{
	int r = dwarf_units_read(d);

	if (r == -ENODATA) /* *why is still what was odd, or that there is nothing */
		return is_odd ? -ENOTSUP : -ENODATA;
	if (r < 0)
		*why = dwarf_reason(r);
	return r;
}

int dwarf_names_open(int fd, int alt_fd, const char **why, struct dwarf_names **ret)
{
	_cleanup_(dwarf_names_freep) struct dwarf_names *d = calloc(1, sizeof(*d));

	*why = "no memory";
	if (!d)
		return -ENOMEM;
	buf_init(&d->name, (size_t)2 * NAMES_NAME_MAX);
	d->fd = fd;
	d->alt_fd = alt_fd;
	d->unit_ms = DWARF_UNIT_MS;
	d->handle_memory_max = DWARF_HANDLE_MEMORY_MAX;
	int r = dwarf_open(d, why);

	if (r >= 0)
		r = dwarf_read(d, r, why);
	if (r < 0) { /* the caller closes them */
		d->fd = -1;
		d->alt_fd = -1;
		return r;
	}
	*ret = steal_ptr(&d);
	return 0;
}

/* Our own indexes stay: they hold offsets only. */
static int dwarf_shrink(struct dwarf_names *d)
{
	const char *why = NULL;

	if (d->dwarf && dwarf_handle_memory(d) < d->handle_memory_max)
		return 0;
	dwarf_close(d);
	(void)malloc_trim(0); /* says whether it gave something back */
	int r = dwarf_open(d, &why);

	return r < 0 ? r : 0;
}

void dwarf_names_hurry(struct dwarf_names *d, uint64_t unit_ms)
{
	d->unit_ms = unit_ms;
}

void dwarf_names_shrink_always(struct dwarf_names *d)
{
	d->handle_memory_max = 0;
}

int dwarf_names_find(struct dwarf_names *d, uint64_t vaddr, bool with_lines, struct names *ret)
{
	struct dwarf_unit *u = dwarf_units_find(d, vaddr);
	struct dwarf_function f = {0};
	Dwarf_Die unit, function;

	if (!u)
		return -ENOENT;
	if (u->state == DWARF_UNIT_GIVEN_UP)
		return -ETIMEDOUT;
	int r = dwarf_shrink(d);

	if (r < 0)
		return r;
	if (!dwarf_offdie(d->dwarf, u->die, &unit))
		return -ENOENT;
	r = dwarf_units_function(d, u, vaddr, &function, &f);
	if (r == 0 || r == -ENOENT)
		r = dwarf_chain_read(d, &unit, r == 0 ? &function : NULL, vaddr, with_lines, ret);
	if (r == -ETIMEDOUT)
		u->state = DWARF_UNIT_GIVEN_UP;
	if (r < 0)
		return r;
	ret->start = f.start;
	ret->size = f.size;
	return 0;
}
