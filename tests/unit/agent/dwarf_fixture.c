/* See dwarf_fixture.h. */
#include "dwarf_fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>

#include "agent/elf_symbols.h"
#include "base/child.h"
#include "base/def.h"
#include "base/file.h"

enum { COMPILE_MS = 60000 };

#define SOURCE "tests/unit/agent/dwarf_fixture_source.cpp"

bool dwarf_fixture_run(const struct dwarf_fixture *f, const char *command)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 16);

	cr_assert_eq(buf_printf(&text, "set -e; dir=%s so=%s source=%s; %s", f->dir, f->path,
			     SOURCE, command),
		0);
	char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, text.data, NULL};
	int r = child_run(argv, &out, COMPILE_MS);

	if (r != 0)
		(void)fprintf(stderr, "%s: exit %d: %s\n", command, r, buf_str(&out));
	return r == 0;
}

int dwarf_fixture_open(const struct dwarf_fixture *f, const char *name)
{
	char path[DWARF_FIXTURE_PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s", path);
	return fd;
}

static uint32_t line_of(const char *text, const char *mark)
{
	const char *at = strstr(text, mark);
	uint32_t line = 1;

	cr_assert_not_null(at, "%s", mark);
	for (const char *c = text; c < at; c++)
		line += *c == '\n';
	return line;
}

static void find_outie(struct dwarf_fixture *f)
{
	_cleanup_(elf_symbols_freep) struct elf_symbols *e = NULL;
	struct elf_symbols_answer a;
	const char *why = NULL;

	cr_assert_eq(elf_symbols_open(dwarf_fixture_open(f, "f.so"), &why, &e), 0, "%s", why);
	for (uint64_t vaddr = 0; vaddr < 1 << 20 && f->size == 0; vaddr++) {
		if (!elf_symbols_find(e, vaddr, &a) || strcmp(a.name, "outie") != 0)
			continue;
		f->start = a.start;
		f->size = a.size;
	}
	cr_assert_gt(f->size, 0);
}

bool dwarf_fixture_try(struct dwarf_fixture *f, const char *command)
{
	_cleanup_(buf_done) struct buf source = BUF_INIT(1 << 16);

	*f = (struct dwarf_fixture){.dir = "/tmp/dwarf_fixture.XXXXXX"};
	cr_assert_not_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/f.so", f->dir); /* fits */
	cr_assert_eq(file_read(SOURCE, &source), 0);
	f->innie = line_of(source.data, "mark: innie");
	f->middle = line_of(source.data, "mark: middle");
	f->outie = line_of(source.data, "mark: outie");
	if (!dwarf_fixture_run(f, command))
		return false;
	find_outie(f);
	return true;
}

void dwarf_fixture_make(struct dwarf_fixture *f, const char *command)
{
	cr_assert(dwarf_fixture_try(f, command), "%s", command);
}

void dwarf_fixture_done(struct dwarf_fixture *f)
{
	if (f->dir[0])
		(void)dwarf_fixture_run(f, "rm -rf $dir"); /* what is left is in /tmp */
}

bool dwarf_fixture_is(const struct names *n, size_t i, const char *name)
{
	size_t size = strlen(name);

	return i < n->count && n->frames[i].name_size >= size &&
	       memcmp(names_name(n, i), name, size) == 0 &&
	       (n->frames[i].name_size == size || names_name(n, i)[size] == '(');
}
