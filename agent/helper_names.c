/*
 * The role "names" of the helper process: file offsets to functions, by Go's table where there is one, else by
 * ELF symbols. It keeps the tables of the files it was asked about last, since the next window asks about the same
 * ones.
 */
#include <errno.h>

#include "agent/demangle.h"
#include "agent/elf_identity.h"
#include "agent/elf_symbols.h"
#include "agent/go_pclntab.h"
#include "agent/helper_serve.h"
#include "base/def.h"

enum {
	HELPER_NAMES_FILES_MAX = 32,
	HELPER_NAMES_MEMORY_MAX = 8 << 20,            /* beyond the one in use */
	HELPER_NAMES_NAME_MAX = DEMANGLE_OUT_MAX + 8, /* and "@plt" */
};

struct helper_names_file {
	uint64_t id;
	uint64_t used; /* tick of the last use */
	struct elf_symbols *symbols;
	struct elf_symbols *debug; /* of a separate debug file; NULL: none, or it has no symbols */
	struct go_pclntab *go;     /* reads the descriptor of symbols; NULL: no Go */
	uint32_t flags;            /* enum helper_file_flags */
	bool had_debug;            /* a descriptor for debug came when it was opened */
};

struct helper_names_server {
	struct helper_stream stream;
	struct helper_names_file files[HELPER_NAMES_FILES_MAX];
	size_t count;
	uint64_t uses;
	struct names names;
	struct buf name;
	struct helper_answer answer;
};

int helper_names_new(int socket, struct helper_names_server **ret)
{
	struct helper_names_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	helper_stream_init(&s->stream, socket);
	names_init(&s->names);
	buf_init(&s->name, HELPER_NAMES_NAME_MAX);
	*ret = s;
	return 0;
}

static void helper_names_close(struct helper_names_file *f)
{
	go_pclntab_free(f->go);
	elf_symbols_free(f->symbols);
	elf_symbols_free(f->debug);
	*f = (struct helper_names_file){0};
}

static void helper_names_drop(struct helper_names_server *s, size_t at)
{
	helper_names_close(&s->files[at]);
	s->files[at] = s->files[--s->count];
}

void helper_names_free(struct helper_names_server *s)
{
	if (!s)
		return;
	while (s->count > 0)
		helper_names_drop(s, 0);
	helper_stream_done(&s->stream);
	names_done(&s->names);
	buf_done(&s->name);
	free(s);
}

static size_t helper_names_memory(const struct helper_names_file *f)
{
	return elf_symbols_memory(f->symbols) + (f->debug ? elf_symbols_memory(f->debug) : 0) +
	       (f->go ? go_pclntab_memory(f->go) : 0);
}

/* Makes room for one more: the least recently used ones go. */
static void helper_names_shrink(struct helper_names_server *s)
{
	for (;;) {
		size_t memory = 0;
		size_t oldest = 0;

		for (size_t i = 0; i < s->count; i++) {
			memory += helper_names_memory(&s->files[i]);
			if (s->files[i].used < s->files[oldest].used)
				oldest = i;
		}
		if (s->count == 0 ||
			(s->count < HELPER_NAMES_FILES_MAX && memory <= HELPER_NAMES_MEMORY_MAX))
			return;
		helper_names_drop(s, oldest);
	}
}

static uint32_t helper_names_flags(int fd)
{
	struct elf_identity identity;
	const char *why = NULL;
	uint32_t flags = 0;

	if (fd < 0 || elf_identity_read(fd, &why, &identity) < 0)
		return 0;
	flags |= identity.has_dwarf ? HELPER_FILE_HAS_DWARF : 0;
	flags |= identity.is_go ? HELPER_FILE_IS_GO : 0;
	return flags;
}

/* What else there is to know of the file; a debug file that cannot be read costs its names only. */
static void helper_names_open_more(struct helper_names_file *f, int fd, struct helper_fds *fds)
{
	const char *why = NULL;
	int r = go_pclntab_open(fd, &why, &f->go);

	if (r == 0)
		f->flags |= HELPER_FILE_IS_GO;
	else if (r != -ENODATA)
		f->flags |= HELPER_FILE_GO_UNREADABLE;

	f->had_debug = fds->debug >= 0;
	if (f->had_debug && elf_symbols_open(fds->debug, &why, &f->debug) == 0)
		fds->debug = -1;
}

static int helper_names_open(struct helper_names_server *s, const struct helper_request *q,
	struct helper_fds *fds, const char **why, struct helper_names_file **ret)
{
	for (size_t i = 0; i < s->count; i++) {
		struct helper_names_file *f = &s->files[i];

		if (f->id != q->file)
			continue;
		if (f->had_debug != (fds->debug >= 0)) {
			helper_names_drop(s, i); /* it was found, or lost, since */
			break;
		}
		f->used = ++s->uses;
		*ret = f;
		return 0;
	}
	*why = "no descriptor came with the request";
	if (fds->file < 0)
		return -EBADF;
	helper_names_shrink(s);
	struct helper_names_file f = {
		.id = q->file,
		.flags = helper_names_flags(fds->file) | helper_names_flags(fds->debug),
	};
	int r = elf_symbols_open(fds->file, why, &f.symbols);

	if (r < 0)
		return r;
	helper_names_open_more(&f, steal_fd(&fds->file), fds);
	f.used = ++s->uses;
	s->files[s->count] = f;
	*ret = &s->files[s->count++];
	return 0;
}

static bool helper_names_symbol(
	struct helper_names_server *s, const struct elf_symbols *symbols, uint64_t vaddr)
{
	struct elf_symbols_answer found;

	if (!elf_symbols_find(symbols, vaddr, &found))
		return false;
	buf_reset(&s->name);
	if (demangle(found.name, &s->name) < 0)
		(void)buf_append_str(&s->name, found.name); /* fits, as does what follows */
	if (found.is_plt)
		(void)buf_append_str(&s->name, "@plt");
	s->names.start = found.start;
	s->names.size = found.size;
	return names_add(&s->names, buf_str(&s->name), s->name.size, NULL, 0, 0, 0) == 0;
}

/* Go's table knows what is Go's; the debug file's is longer than the file's, with the function's own name. */
static void helper_names_find(
	struct helper_names_server *s, const struct helper_names_file *f, uint64_t vaddr)
{
	if (f->go && go_pclntab_find(f->go, vaddr, &s->names) == 0)
		return;
	names_reset(&s->names);
	if (f->debug && helper_names_symbol(s, f->debug, vaddr))
		return;
	(void)helper_names_symbol(s, f->symbols, vaddr); /* or there is no name */
}

int helper_names_serve(
	struct helper_names_server *s, struct helper_request *q, struct helper_fds *fds)
{
	struct helper_names_file *f = NULL;
	const char *why = NULL;
	int r = helper_names_open(s, q, fds, &why, &f);

	if (r < 0)
		return helper_stream_refuse(&s->stream, q->sequence, 0, why);
	helper_stream_begin(&s->stream, q->sequence, f->flags);
	for (uint32_t i = 0; i < q->count && r == 0; i++) {
		uint64_t offset = cursor_u64(&q->addresses);
		uint64_t vaddr = 0;
		bool has_vaddr = elf_symbols_vaddr(f->symbols, offset, &vaddr);

		names_reset(&s->names);
		if (has_vaddr)
			helper_names_find(s, f, vaddr);
		helper_answer_from(&s->answer, &s->names);
		s->answer.vaddr = vaddr;
		s->answer.flags |= has_vaddr ? HELPER_HAS_VADDR : 0;
		r = helper_stream_put(&s->stream, &s->answer);
	}
	return r < 0 ? r : helper_stream_end(&s->stream);
}
